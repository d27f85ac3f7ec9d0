"""The ratios of one series with their intervals, as one picture (a forest plot).

Everything is drawn as "times as fast": to the right of one is in favour of the arm, for rates and
for times alike, on a logarithmic axis on which a ratio and its inverse lie equally far from one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from twoturn import claims, i18n
from twoturn.contrasts import of_series
from twoturn.figures import COLOURS, GREY, STYLE, alone, frame, label, plain, svg
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.verdict import MARGIN, times_as_fast
from twoturn.wording import metric_words

COLUMNS = [
    *(
        "metric",
        "arm",
        "reference",
        "verdict",
        "ratio",
        "ci_low",
        "ci_high",
        "confidence",
        "rounds",
    ),
    *("times_as_fast", "fast_low", "fast_high", "warnings"),
]
"""The data of a picture: ratio is arm ÷ reference as in the table of contrasts."""

LOOKS: dict[str, dict[str, Any]] = {
    "faster": {"marker": ">", "color": COLOURS[0], "markerfacecolor": COLOURS[0]},
    "slower": {"marker": "<", "color": COLOURS[1], "markerfacecolor": COLOURS[1]},
    "same": {"marker": "s", "color": COLOURS[2], "markerfacecolor": COLOURS[2]},
    "unresolved": {"marker": "o", "color": GREY, "markerfacecolor": "none"},
}
"""A shape and a colour per verdict with numbers; the others are written out."""

FARTHEST = 1e3
"""Ratios farther from one than this are drawn at the edge; the data keep them."""

LINEAR_SPAN = 4.0
"""Axes that span less have ticks at even distances, others at round multiples of powers of ten."""

ROW_IN, PANEL_IN, LABEL_IN = 0.28, 0.35, 0.45
LEGEND_COLUMNS = 5


def forest_data(contrasts: pa.Table, series: SeriesLike) -> pd.DataFrame:
    """What the picture shows (COLUMNS), a row per metric and arm, in the order of the series.

    Metrics of a kind of their own are left out: stacking is no ratio of an arm to the reference,
    and what is told of a choice or of other prompts has its own rounds or interval.
    """
    found = []
    for row in of_series(contrasts.to_pylist(), series):
        if row["metric"] not in series.metrics:
            continue
        fast: tuple[float | None, ...] = (None, None, None)
        if row["ratio"] is not None:
            fast = times_as_fast(row["metric"], row["ratio"], row["ci_low"], row["ci_high"])
        turned = dict(zip(("times_as_fast", "fast_low", "fast_high"), fast, strict=True))
        found.append({**row, **turned, "warnings": " ".join(row["warnings"])})
    table = pd.DataFrame(found, columns=COLUMNS)
    numbers = table.columns.difference(["metric", "arm", "reference", "verdict", "warnings"])
    return table.astype(dict.fromkeys(numbers, "float64")).astype({"rounds": "Int64"})


def draw(data: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The picture of `forest_data` as SVG. Raises UserError where a translation is missing."""
    words, number = i18n.translator(language), Formatter(language)
    metrics = [metric for metric in series.metrics if (data["metric"] == metric).any()]
    title = words.gettext("Ratios of the series %(series)s with their intervals") % {
        "series": series.name
    }
    counts = [int((data["metric"] == metric).sum()) for metric in metrics] or [1]
    with rc_context(STYLE):
        handles = _legend(data, words, number)
        figure = frame(sum(ROW_IN * count + PANEL_IN for count in counts) + LABEL_IN, handles)
        panels: list[Axes] = [
            *figure.subplots(len(counts), 1, sharex=True, squeeze=False, height_ratios=counts)[:, 0]
        ]
        low, high = _range(data)
        if common := _common(data, words, number):
            figure.suptitle(common, fontsize=7.5, color=GREY)
        for panel, metric in zip(panels, metrics, strict=False):
            _panel(panel, data[data["metric"] == metric], series, words, number, why=not common)
            text = metric_words(metric, words, number)
            panel.set_title(text[:1].upper() + text[1:], fontsize=9, loc="left", color=GREY)
        if not metrics:
            panels[0].set_yticks([])
            alone(panels[0], words.gettext("no contrast yet"))
        last = panels[-1]
        last.set_xscale("log")
        last.set_xlim(low, high)
        last.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
        last.xaxis.set_minor_locator(NullLocator())
        plain(last.xaxis, number)
        last.set_xlabel(
            words.gettext("times as fast as %(reference)s, %(confidence)s intervals")
            % {"reference": series.reference, "confidence": number.percent(CONFIDENCE)}
        )
        described = words.gettext(
            "One line per arm: its mark is the ratio to the reference, the line its interval, the "
            "shape of the mark the verdict. To the right of one is in favour of the arm; the grey "
            "band is the margin. What has no ratio stands as words, with the reason."
        )
        return svg(figure, title, described)


def _panel(
    panel: Axes,
    data: pd.DataFrame,
    series: SeriesLike,
    words: i18n.Translator,
    number: Formatter,
    *,
    why: bool,
) -> None:
    """One metric, an arm per line from the top down; `why`: each tells why it has no mark."""
    panel.axvspan(1 / (1 + MARGIN), 1 + MARGIN, color=GREY, alpha=0.2, lw=0)
    panel.axvline(1, color=GREY, lw=0.8)
    labels = []
    for place, row in enumerate(data.to_dict("records")):
        labels.append(label(row["arm"], series, words))
        look = LOOKS.get(row["verdict"])
        if look is None or not math.isfinite(row["times_as_fast"]):
            axes = panel.get_yaxis_transform()
            text = _silent(row, words, number) if why else _verdict(row, words)
            panel.text(0.01, place, text, va="center", fontsize=8, transform=axes)
            continue
        low, high, middle = (
            min(max(row[name], 1 / FARTHEST), FARTHEST)
            for name in ("fast_low", "fast_high", "times_as_fast")
        )
        panel.plot([low, high], [place, place], color=look["color"], lw=1.5)
        panel.plot([middle], [place], linestyle="none", markersize=7, **look)
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)


def _silent(row: Mapping[Any, Any], words: i18n.Translator, number: Formatter) -> str:
    """What stands in place of a mark: the verdict, and why there is no ratio."""
    verdict = _verdict(row, words)
    if not row["warnings"]:
        return verdict
    msgid, fields = claims.reason_fields(row["warnings"].partition(" ")[0])
    told = {
        name: metric_words(value, words, number) if kind == "metric" else value
        for name, (kind, value) in fields.items()
    }
    return f"{verdict}: {words.gettext(msgid).format(**told)}"


def _verdict(row: Mapping[Any, Any], words: i18n.Translator) -> str:
    return words.gettext(claims.verdict_words(row["verdict"]))


def _common(data: pd.DataFrame, words: i18n.Translator, number: Formatter) -> str | None:
    """What stands in place of all marks, where there is none and all have one reason."""
    if data["times_as_fast"].notna().any():
        return None
    silent = {_silent(row, words, number) for row in data.to_dict("records")}
    return silent.pop() if len(silent) == 1 else None


def _range(data: pd.DataFrame) -> tuple[float, float]:
    """The ends of the axis: all intervals and some of both sides of the margin."""
    ends = data[["fast_low", "fast_high"]].to_numpy(dtype=np.float64).ravel()
    ends = np.clip(ends[np.isfinite(ends)], 1 / FARTHEST, FARTHEST)
    low = min([*ends.tolist(), 1 / (1 + 2 * MARGIN)])
    high = max([*ends.tolist(), 1 + 2 * MARGIN])
    edge = (high / low) ** 0.04
    return low / edge, high * edge


def ticks(low: float, high: float) -> list[float]:
    """Round numbers within the axis."""
    if high / low < LINEAR_SPAN:
        ticks = [float(tick) for tick in MaxNLocator(7).tick_values(low, high)]
    else:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        steps = (1, 2, 3, 5, 7) if last - first < 3 else (1, 2, 5) if last - first < 4 else (1,)
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _legend(data: pd.DataFrame, words: i18n.Translator, number: Formatter) -> list[Line2D | Patch]:
    """The verdicts that are drawn, and the margin."""
    handles: list[Line2D | Patch] = [
        Line2D(
            [], [], label=words.gettext(claims.verdict_words(verdict)), markersize=7, lw=1.5, **look
        )
        for verdict, look in LOOKS.items()
        if (data["verdict"] == verdict).any()
    ]
    text = words.gettext("margin of %(margin)s") % {"margin": number.percent(MARGIN)}
    return [*handles, Patch(color=GREY, alpha=0.2, lw=0, label=text)]
