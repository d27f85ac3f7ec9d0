"""The section about block sizes: every size of a sweep, the choice, and what others advise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twoturn import plan, sources
from twoturn.article.data import Data, SeriesData
from twoturn.article.series import Context
from twoturn.article.view import View, code, escape
from twoturn.claims import N_
from twoturn.numbers import finite
from twoturn.stats.base import CONFIDENCE


def blocks(data: Data, view: View) -> Context | None:
    """None where no series holds a sweep."""
    parts = [_part(one, data, view) for one in data.series if len(one.blocks)]
    if not parts:
        return None
    return {
        "parts": parts,
        "confidence": view.number.percent(CONFIDENCE),
        "figures": any(part["figure"] for part in parts),
    }


def _part(one: SeriesData, data: Data, view: View) -> Context:
    measured = one.blocks["accept_length"].notna() | one.blocks["ratio"].notna()
    return {
        "series": code(one.series.name),
        "plain_series": escape(one.series.name),
        "reference": code(one.series.reference),
        "metric": view.heading(one.series.metrics[0]),
        "figure": one.pictures.get("blocks"),
        "rows": [
            [*_row(row, view), _guidance(one.series.arm(row["arm"]), data, view)]
            for row in one.blocks.to_dict("records")
        ]
        if measured.any()
        else [],
        "sentences": [view.claim(row) for row in one.claims if row["section"] == "blocks"],
    }


FOLLOWED = {True: N_("followed"), False: N_("not followed"), None: N_("open")}
"""Whether an arm's block follows a rule; open where its block or its bits are not known."""


def _guidance(arm: plan.Arm, data: Data, view: View) -> str:
    """The documents with a rule on an arm's block, and whether it follows them."""
    told = [
        f"{code(advice.source)}: "
        + view.words.gettext(FOLLOWED[advice.respected if advice.applies else None])
        for advice in sources.guidance(arm, data)
    ]
    return ", ".join(told) or "–"


def _row(row: Mapping[Any, Any], view: View) -> list[str]:
    return [
        code(row["sweep"]),
        view.blocks([row["block"]]),
        code(row["arm"]),
        view.number.mean(row["effective_block"]),
        view.number.mean(row["accept_length"]),
        view.number.ratio(row["times_as_fast"]),
        view.interval(finite(row["fast_low"]), finite(row["fast_high"])),
        view.verdict(row["verdict"]),
    ]
