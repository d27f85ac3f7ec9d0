"""Speed against quality, an arm a cross: the ratio of speeds with its interval to the right, the
difference of the shares of passed tasks with its interval upward.

Only arms that a timed series and a quality series both compare with the same reference have a place
in it, because a ratio to one arm and a difference from another are no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib import rc_context
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from twoturn import claims, i18n, quality
from twoturn.contrasts import of_series
from twoturn.figures import GREY, STYLE, alone, frame, look, plain, svg
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter
from twoturn.stats.paired import MARGIN as QUALITY_MARGIN
from twoturn.stats.verdict import MARGIN, times_as_fast

COLUMNS = [
    *("series", "arm", "reference", "metric", "quality_series", "quality_arm"),
    *("times_as_fast", "fast_low", "fast_high", "speed_verdict"),
    *("points", "points_low", "points_high", "quality_verdict"),
]
"""The data of the picture; points are percentage points of the share that passes."""

NUMBERS = [name for name in COLUMNS if name.startswith(("times", "fast", "points"))]
HEIGHT_IN = 4.05


def data(contrasts: pa.Table, scores: pa.Table, series_list: Sequence[SeriesLike]) -> pd.DataFrame:
    """A row per arm that has both, on the metric that decides its timed series (COLUMNS)."""
    rows = contrasts.to_pylist()
    found = []
    for link in quality.links(series_list, scores):
        if not link.same_reference:
            continue
        series = next(one for one in series_list if one.name == link.series)
        metric = next((name for name in claims.HEADLINES if name in series.metrics), None)
        for row in of_series(rows, series):
            if (row["metric"], row["arm"]) == (metric, link.arm):
                found.append(_point(row, link))
    return pd.DataFrame(found, columns=COLUMNS).astype(dict.fromkeys(NUMBERS, "float64"))


def _point(row: dict[str, Any], link: quality.Link) -> dict[str, Any]:
    fast: tuple[float | None, ...] = (None, None, None)
    if row["ratio"] is not None:
        fast = times_as_fast(row["metric"], row["ratio"], row["ci_low"], row["ci_high"])
    points = [
        None if (value := link.quality[name]) is None else 100 * value
        for name in ("difference", "ci_low", "ci_high")
    ]
    return {
        **{name: row[name] for name in ("series", "arm", "reference", "metric")},
        "quality_series": link.quality["series"],
        "quality_arm": link.quality["arm"],
        **dict(zip(("times_as_fast", "fast_low", "fast_high"), fast, strict=True)),
        "speed_verdict": row["verdict"],
        **dict(zip(("points", "points_low", "points_high"), points, strict=True)),
        "quality_verdict": link.quality["verdict"],
    }


def draw(table: pd.DataFrame, language: str) -> str:
    """The picture of `data` as SVG. Raises UserError where a translation is missing."""
    words, number = i18n.translator(language), Formatter(language)
    drawn = table.dropna(subset=NUMBERS).reset_index(drop=True)
    with rc_context(STYLE):
        handles = [
            Line2D([], [], label=_label(row, table), **_look(index))
            for index, row in enumerate(drawn.to_dict("records"))
        ]
        figure = frame(HEIGHT_IN, handles)
        panel = figure.subplots()
        panel.axvspan(1 / (1 + MARGIN), 1 + MARGIN, color=GREY, alpha=0.15, lw=0)
        edge = 100 * QUALITY_MARGIN
        panel.axhspan(-edge, edge, color=GREY, alpha=0.15, lw=0)
        panel.axvline(1, color=GREY, lw=0.8)
        panel.axhline(0, color=GREY, lw=0.8)
        for index, row in enumerate(drawn.to_dict("records")):
            own = _look(index)
            x, y = row["times_as_fast"], row["points"]
            panel.plot([row["fast_low"], row["fast_high"]], [y, y], color=own["color"], lw=1.5)
            panel.plot([x, x], [row["points_low"], row["points_high"]], color=own["color"], lw=1.5)
            panel.plot([x], [y], **own)
        if drawn.empty:
            alone(panel, words.gettext("no arm has both yet"))
        panel.set_xscale("log")
        ends = np.array([*drawn["fast_low"], *drawn["fast_high"], 1 / 1.05, 1.05], dtype=float)
        panel.set_xlim(float(ends.min()) / 1.03, float(ends.max()) * 1.03)
        panel.xaxis.set_major_locator(MaxNLocator(7))
        panel.xaxis.set_minor_locator(MaxNLocator(1))
        panel.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        for axis in (panel.xaxis, panel.yaxis):
            plain(axis, number)
        panel.set_xlabel(words.gettext("times as fast as the reference (logarithmic)"))
        panel.set_ylabel(words.gettext("passed tasks, difference in percentage points"), wrap=True)
        title = words.gettext("Speed and quality of the arms, both against the reference")
        described = words.gettext(
            "One cross per arm: its ratio of speeds and its difference in passed tasks, each with "
            "its interval; the grey bands are the two margins."
        )
        return svg(figure, title, described)


def _look(index: int) -> dict[str, Any]:
    return {**look(index), "markersize": 7, "linestyle": "none"}


def _label(row: dict[Any, Any], table: pd.DataFrame) -> str:
    several = table["series"].nunique() > 1
    return f"{row['series']}: {row['arm']}" if several else str(row["arm"])
