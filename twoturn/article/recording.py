"""What the section of a replay tells: its turns, as counts and times."""

from __future__ import annotations

from typing import Any

from twoturn import config
from twoturn.article.data import Request, SeriesData
from twoturn.article.view import View, code
from twoturn.claims import N_

MOST_TURNS = 24
"""A longer recording is told by so many of its turns, at even distances, the first and last too."""

COLUMNS = {
    "prompt_tokens": N_("Prompt, tokens"),
    "cached_tokens": N_("From the cache"),
    "new_tokens": N_("Newly processed"),
    "ttft_s": N_("TTFT, s"),
}
"""What is told of a request."""


def recording(one: SeriesData, workload: config.Replay, view: View) -> dict[str, Any]:
    turns = int(one.series.spec["workload"]["turns"])
    places = sorted({place(request) for request in one.requests})
    suspects = {row.arm for row in one.turns.suspects}
    steps = range(min(len(places), MOST_TURNS))
    shown = {places[round(n * (len(places) - 1) / max(1, len(steps) - 1))] for n in steps}
    several = len({prompt for prompt, _ in places}) > 1
    return {
        "intro": "series_replay.md.j2",
        "details": "series_turns.md.j2" if shown else None,
        "turns": turns,
        "shown_turns": view.number.integer(turns),
        "plain_tools": workload.tools == "plain",
        "turn_head": [
            view.words.gettext(text) for text in (N_("Turn"), N_("Arm"), *COLUMNS.values())
        ],
        "turn_rows": [
            _row(request, several, request.arm in suspects, view)
            for request in sorted(one.requests, key=place)  # within a turn in the order of the arms
            if place(request) in shown
        ],
        "selected": view.number.integer(len(shown)) if len(shown) < len(places) else None,
    }


def place(request: Request) -> tuple[int, int]:
    """(conversation, turn) of a request, both from 1."""
    return int(request.prompt.removeprefix("p")), request.turn


def _row(request: Request, several: bool, suspect: bool, view: View) -> list[str]:
    conversation, turn = place(request)
    number, prompt = view.number, request.prompt_tokens
    cached = None if suspect else request.cached_tokens
    told = {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "new_tokens": None if prompt is None or cached is None else prompt - cached,
        "ttft_s": request.ttft_s,
    }
    return [
        f"{number.integer(conversation)}/{number.integer(turn)}"
        if several
        else number.integer(turn),
        code(request.arm),
        *(view.value(name, told[name]) for name in COLUMNS),
    ]
