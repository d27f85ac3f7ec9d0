"""Texts that prompts are cut from: their sections, and of which kind each of them is."""

from __future__ import annotations

import re

SECTION = "\f"  # form feed between the sections of a text
KIND = re.compile(r"kind: (\S+)\s*\n")  # first line of a section of a text that holds several kinds


def sections(text: str, kind: str | None = None) -> list[str]:
    """The sections of a text, or those of one kind without the line that says so; maybe none."""
    found = [section.strip() for section in text.split(SECTION) if section.strip()]
    if kind is None:
        return found
    named = [(KIND.match(section), section) for section in found]
    return [section[it.end() :].strip() for it, section in named if it and it[1] == kind]


def kinds(text: str) -> list[str]:
    """The kinds that a text has, in the order in which they begin."""
    named = [KIND.match(section) for section in sections(text)]
    return list(dict.fromkeys(it[1] for it in named if it))


def prompt_name(number: int, kind: str | None = None) -> str:
    """The prompt_id of the prompt with that number, from 1, among those of its kind: p1, code-1."""
    return f"p{number}" if kind is None else f"{kind}-{number}"


def prompt_kind(prompt_id: str) -> str:
    """The kind of a prompt of a workload that has kinds."""
    return prompt_id.rpartition("-")[0]
