"""The section about accept lengths by kind of prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twoturn import by_kind
from twoturn.article.data import Data, SeriesData
from twoturn.article.series import Context
from twoturn.article.view import View, code, escape
from twoturn.numbers import finite


def kinds(data: Data, view: View) -> Context | None:
    """None where no series with kinds of prompts is measured."""
    parts = [_part(one, view) for one in data.series if len(one.by_kind)]
    if not parts:
        return None
    low, high = by_kind.published_range()
    return {
        "parts": parts,
        "low": view.number.mean(low),
        "high": view.number.mean(high),
        "toys": view.names(one.name for one in data.checkpoints if one.toy),
    }


def _part(one: SeriesData, view: View) -> Context:
    prompts = int(one.by_kind["prompts"].max())
    return {
        "series": code(one.series.name),
        "plain_series": escape(one.series.name),
        "prompts": prompts,
        "shown_prompts": view.number.integer(prompts),
        "figure": one.pictures.get("kinds"),
        "rows": [_row(row, view) for row in one.by_kind.to_dict("records")],
    }


def _row(row: Mapping[Any, Any], view: View) -> list[str]:
    least, most = finite(row["least"]), finite(row["most"])
    known = least is not None and most is not None
    return [
        code(row["arm"]),
        code(row["kind"]),
        view.number.mean(finite(row["accept_length"])),
        f"{view.number.mean(least)}–{view.number.mean(most)}" if known else view.number.unknown,
        view.number.integer(row["requests"]),
    ]
