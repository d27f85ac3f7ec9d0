"""The section about output quality: tasks, the speed beside it, and what a text's tokens cost."""

from __future__ import annotations

from typing import Any

from twoturn.article.data import Data, QualityData
from twoturn.article.series import Context
from twoturn.article.view import View, code
from twoturn.claims import N_
from twoturn.matrix import configuration
from twoturn.numbers import finite
from twoturn.quality import NEAR_TIE
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.paired import MARGIN

TASKS = {
    "arithmetic": N_("arithmetic"),
    "edit": N_("editing a text"),
    "extract": N_("extraction"),
    "code": N_("code, with hidden tests"),
}


def section(data: Data, view: View) -> Context | None:
    """None where no series scores answers."""
    if not data.quality:
        return None
    timed = {configuration(arm) for one in data.series for arm in one.series.arms}
    return {
        "timed": any(
            configuration(arm) in timed for one in data.quality for arm in one.series.arms
        ),
        "parts": [_part(one, view) for one in data.quality],
        "figure": data.quality_figure,
        "pairs": [
            [
                code(row["series"]),
                code(row["arm"]),
                view.number.ratio(row["times_as_fast"]),
                view.interval(finite(row["fast_low"]), finite(row["fast_high"])),
                view.verdict(row["speed_verdict"]),
                view.points(row["points"]),
                _points(row["points_low"], row["points_high"], view),
                view.verdict(row["quality_verdict"]),
            ]
            for row in data.speed_and_quality
        ],
        "forced": [
            [
                code(row["checkpoint"]),
                view.number.mean(row["bits_per_weight"]),
                view.number.mean(row["perplexity"]),
                view.number.ratio(row["kl_divergence"]),
                view.number.percent(row["same_top"]),
                view.number.integer(row["tokens"]),
            ]
            for row in data.forced
            if row["reason"] is None
        ],
        "not_forced": [
            (code(row["checkpoint"]), view.reason(row["reason"]))
            for row in data.forced
            if row["reason"] is not None
        ],
        "against": view.names(
            dict.fromkeys(row["against"] for row in data.forced if row["against"])
        ),
        "confidence": view.number.percent(CONFIDENCE),
        "margin": view.number.percent(MARGIN),
        "near": view.number.short(NEAR_TIE),
    }


def _part(one: QualityData, view: View) -> Context:
    series = one.series
    again = next((row for row in one.rows if row["arm"] == series.reference), None)
    others = [row for row in one.rows if row["arm"] != series.reference]
    claims = {row["arm"]: view.claim(row) for row in one.claims}
    repeated = again if again and again["tasks"] is not None else None
    return {
        "name": code(series.name),
        "reference": code(series.reference),
        "fingerprint": f"`{series.fingerprint}`",
        "most": view.tokens(series.workload.max_tokens),
        "repeated": repeated is not None,
        "tasks": view.number.integer(repeated and repeated["tasks"]),
        "flips": view.number.integer(
            repeated and repeated["only_arm"] + repeated["only_reference"]
        ),
        "same_texts": view.number.integer(repeated and repeated["same_texts"]),
        "ties": any(row["gaps"] for row in others),
        "rows": [_row(row, view) for row in others if row["tasks"] is not None],
        "groups": _groups(one, view),
        "group_head": [
            view.words.gettext("Tasks"),
            view.words.gettext("Level"),
            view.words.gettext("Number"),
            *(code(arm.name) for arm in series.arms),
        ],
        "sentences": [claims[row["arm"]] for row in others if row["arm"] in claims],
    }


def _row(row: dict[str, Any], view: View) -> list[str]:
    return [
        code(row["arm"]),
        f"{view.number.integer(row['passed'])} / {view.number.integer(row['tasks'])}",
        view.points(row["difference"] and 100 * row["difference"]),
        _points(100 * row["ci_low"], 100 * row["ci_high"], view),
        view.verdict(row["verdict"]),
        "–" if row["tasks_needed"] is None else view.number.integer(row["tasks_needed"]),
        f"{view.number.integer(row['same_texts'])} / {view.number.integer(row['texts'])}",
        "–" if row["first_divergence"] is None else view.number.integer(row["first_divergence"]),
        f"{view.number.integer(row['near_ties'])} / {view.number.integer(row['gaps'])}"
        if row["gaps"]
        else "–",
    ]


def _points(low: float | None, high: float | None, view: View) -> str:
    if low is None or high is None or low != low:
        return view.number.unknown
    return f"{view.points(low)} … {view.points(high)}"


def _groups(one: QualityData, view: View) -> list[list[str]]:
    """Passed tasks by kind and level, an arm a column."""
    if one.groups.empty:
        return []
    rows = []
    for (task, level), group in one.groups.groupby(["task", "level"], sort=False):
        passed = dict(zip(group["arm"], group["passed"], strict=True))
        name = view.words.gettext(TASKS[task]) if task in TASKS else code(str(task))
        rows.append(
            [
                name,
                view.number.integer(level),
                view.number.integer(group["tasks"].max()),
                *(view.number.integer(passed.get(arm.name)) for arm in one.series.arms),
            ]
        )
    return rows
