"""What the article may claim: `workflow/claims.yaml`, read and checked.

The file holds every sentence with a comparison, so it is what a reader checks the article's words
against, and what a translator's tools extract (`extract`, named in `workflow/locale/babel.cfg`).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from twoturn import config, sources
from twoturn.errors import UserError
from twoturn.stats.paired import Quality
from twoturn.stats.verdict import Verdict

FILE = Path(__file__).resolve().parent.parent / "workflow" / "claims.yaml"

FIELDS = (
    *("arm", "arms", "reference", "series", "metric", "measure", "reason"),
    *("effect", "second_effect", "low", "high", "share", "share_low", "share_high"),
    *("confidence", "margin", "rounds", "prompts", "date", "versions", "fingerprint", "blocks"),
    *("tasks", "passed", "passed_reference", "points", "points_low", "points_high"),
    "length",
)
"""Placeholders of sentences. `metric` is the contrast's own, `measure` what it is about: of
`prompts:ttft_s` the time to the first token. `length`: of the prompt that a metric is about."""

SCORED = (Quality.BETTER, Quality.WORSE)
EVERY = tuple(str(verdict) for verdict in Verdict)
WANTED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("decode_tok_s", "prefill_tok_s", "ttft_s", "turn2_ttft_s", "conversation_s"), EVERY
    ),
    **dict.fromkeys(("turns_ttft_s", "prefill_tok_s@"), EVERY),
    **dict.fromkeys(("accept_length", "stacking", "best_block", "prompts"), EVERY),
    "beside_best": ("alike", "apart"),
    "earlier": ("faster", "slower", "same", "unresolved", "invalid"),
    "trade": ("faster", "slower"),
    "quality": tuple(str(verdict) for verdict in Quality),
    "withheld": ("worse",),
    "null_arm": ("passed", "failed", "unchecked", "absent"),
    **dict.fromkeys(
        ("headline:conversation_s", "headline:decode_tok_s", "headline:prefill_tok_s@"),
        ("faster", "slower", "same", "unresolved", "silent", "worse"),
    ),
}
"""Kind of claim → the verdicts that it needs a sentence for."""

SECTIONS = ("workload", "decision", "reading", "stacking", "blocks", "quality")


@dataclass(frozen=True)
class ClaimKind:
    """One kind of claim. `rests_on`: contrasts as METRIC/ARM. `sentences`: verdict → msgid.
    `cites`: documents of the ledger of sources that speak of the same."""

    section: str
    rests_on: tuple[str, ...]
    sentences: Mapping[str, str]
    cites: tuple[str, ...] = ()

    def contrasts(self, rows: list[dict[str, Any]], **arms: str) -> list[dict[str, Any]]:
        """Those of the rows that a claim of this kind rests on, in the order of `rests_on`."""
        wanted = [pattern.format(**arms).split("/") for pattern in self.rests_on]
        return [
            row
            for metric, arm in wanted
            for row in rows
            if metric in ("*", row["metric"], kind_of(row["metric"])) and arm in ("*", row["arm"])
        ]


@dataclass(frozen=True)
class ClaimKinds:
    """The whole file. `verdicts`: as they stand in tables."""

    verdicts: Mapping[str, str]
    kinds: Mapping[str, ClaimKind]

    def messages(self) -> tuple[str, ...]:
        """Every msgid, once, in the order of the file."""
        found = [*self.verdicts.values()]
        found += [msgid for kind in self.kinds.values() for msgid in kind.sentences.values()]
        return tuple(dict.fromkeys(found))


def kind_of(metric: str) -> str:
    """The kind of a contrast's claim: `prompts` of `prompts:ttft_s`, `ttft_s` of `ttft_s`, and
    `prefill_tok_s@` of `prefill_tok_s@4096`."""
    name, at, _ = metric.partition(":")[0].partition("@")
    return name + at


def placeholders(msgid: str) -> tuple[str, ...]:
    """Names in braces, in order of appearance."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(msgid) if name is not None)


@cache
def load() -> ClaimKinds:
    """The file of this repository. Raises UserError that names file, key and cure."""
    try:
        text = FILE.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot be read ({type(error).__name__})", file=_shown(), cure="restore it"
        ) from None
    return parse(text, _shown())


def parse(text: str, file: str) -> ClaimKinds:
    """`text` as kinds of claims; `file` only names it in errors. Raises UserError."""
    data = config.read_yaml(text, file)
    try:
        top = _mapping(data, "", ("verdicts", "silent", "kinds"))
        verdicts = _sentences(top["verdicts"], "verdicts", (*EVERY, *map(str, SCORED)))
        told = _mapping(top["kinds"], "kinds", tuple(WANTED))
        kinds = {name: _kind(value, f"kinds.{name}", WANTED[name]) for name, value in told.items()}
    except UserError as error:
        raise error.at(file) from None
    return ClaimKinds(verdicts, kinds)


def _kind(value: Any, key: str, verdicts: tuple[str, ...]) -> ClaimKind:
    entry = _mapping(value, key, ("section", "rests_on", "sentences"), optional=("cites",))
    if entry["section"] not in SECTIONS:
        raise UserError(
            f"no section {entry['section']!r}",
            key=f"{key}.section",
            cure=f"use one of {', '.join(SECTIONS)}",
        )
    rests_on = entry["rests_on"]
    if not isinstance(rests_on, list) or not rests_on or not all(map(_is_pattern, rests_on)):
        raise UserError(
            "not a list of METRIC/ARM, with {arm}, {null_arm} or * as ARM", key=f"{key}.rests_on"
        )
    sentences = _sentences(entry["sentences"], f"{key}.sentences", verdicts)
    cites = entry.get("cites", [])
    if not isinstance(cites, list):
        raise UserError("not a list of sources", key=f"{key}.cites")
    sources.require(map(str, cites), f"{key}.cites")
    return ClaimKind(entry["section"], tuple(rests_on), sentences, tuple(cites))


def _is_pattern(value: Any) -> bool:
    metric, _, arm = str(value).partition("/")
    known = "*" in metric or metric in WANTED
    return known and arm in ("{arm}", "{null_arm}", "*")


def _sentences(value: Any, key: str, verdicts: tuple[str, ...]) -> dict[str, str]:
    found = _mapping(value, key, verdicts)
    for verdict, sentence in found.items():
        here = f"{key}.{verdict}"
        if not isinstance(sentence, str) or not sentence.strip():
            raise UserError("not a sentence", key=here)
        try:
            parts = list(string.Formatter().parse(sentence))
        except ValueError as error:
            raise UserError(f"braces do not match ({error})", key=here) from None
        if any(spec or conversion for _, _, spec, conversion in parts):
            raise UserError("a placeholder is its name alone", key=here, cure="write {name}")
        unknown = {name for _, name, _, _ in parts if name is not None} - set(FIELDS)
        if unknown:
            raise UserError(
                f"no placeholder {{{min(unknown)}}}", key=here, cure=f"known: {', '.join(FIELDS)}"
            )
        if any(character.isdigit() for character in sentence):
            raise UserError("a digit stands in it", key=here, cure="numbers come from placeholders")
    return found


def _mapping(
    value: Any, key: str, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The value as a mapping of exactly these names, in their order, and optional ones."""
    if not isinstance(value, dict):
        raise UserError(f"not a mapping of {', '.join(names)}", key=key)
    if odd := sorted(map(str, set(value) - {*names, *optional})):
        raise UserError(
            "unknown key",
            key=".".join(filter(None, (key, odd[0]))),
            cure=f"known: {', '.join((*names, *optional))}",
        )
    if missing := [name for name in names if name not in value]:
        raise UserError("it is missing", key=".".join(filter(None, (key, missing[0]))))
    return {name: value[name] for name in (*names, *optional) if name in value}


def _shown() -> str:
    return "/".join(FILE.parts[-2:])


def extract(
    fileobj: Any, keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Babel's interface: (line, function, message, comments) of every message of the file."""
    for message in parse(fileobj.read().decode("utf-8"), _shown()).messages():
        yield 1, None, message, []
