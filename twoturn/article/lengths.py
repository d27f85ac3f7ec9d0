"""What the section of a prefill series tells: the rate of each arm at each length."""

from __future__ import annotations

from typing import Any

from twoturn import config
from twoturn.article.data import Data, SeriesData
from twoturn.article.view import View, code
from twoturn.cells import TOO_LONG


def lengths(one: SeriesData, workload: config.Prefill, view: View) -> dict[str, Any]:
    """A row per length, a column per arm; what was not sent stands as a dash."""
    rates = {(request.arm, request.prompt): request for request in one.requests}
    arms = [arm.name for arm in one.series.arms if any(r.arm == arm.name for r in one.requests)]
    rows = []
    for length in workload.lengths:
        row = [view.tokens(length)]
        for arm in arms:
            request = rates.get((arm, f"n{length}"))
            sent = request is not None and request.status != TOO_LONG
            row.append(
                view.value("prefill_tok_s", request.prefill_tok_s) if request and sent else "–"
            )
        rows.append(row)
    return {
        "intro": "series_prefill.md.j2",
        "details": "series_curve.md.j2" if (curve := one.pictures.get("prefill")) else None,
        "curve": curve,
        "count": len(workload.lengths),
        "shown_count": view.number.integer(len(workload.lengths)),
        "lengths": view.number.names(view.number.integer(length) for length in workload.lengths),
        "results": rows if arms else [],
        "result_head": [view.words.gettext("Prompt"), *(rate_of(arm, view) for arm in arms)],
    }


def rate_of(arm: str, view: View) -> str:
    return view.words.gettext("%(arm)s, tok/s") % {"arm": code(arm)}


def left_out(data: Data, view: View) -> list[dict[str, str]]:
    """Lengths that no arm, or not every arm, was asked for, with the reason that was recorded."""
    return [
        {
            "series": code(one.series.name),
            "arm": code(request.arm),
            "length": view.tokens(int(request.prompt.removeprefix("n"))),
            "reason": code(request.reason or TOO_LONG),
        }
        for one in data.series
        for request in one.requests
        if request.status == TOO_LONG
    ]
