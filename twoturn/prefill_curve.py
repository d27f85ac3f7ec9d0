"""Prefill speed by the length of the prompt, as one picture per series."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from twoturn import contrasts, i18n
from twoturn.figures import (
    GREY,
    LEGEND_COLUMNS,
    LEGEND_LINE_IN,
    PANEL_IN,
    STYLE,
    WIDTH_IN,
    label,
    looks,
    svg,
)
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter
from twoturn.wording import metric_words

METRIC = "prefill_tok_s"
COLUMNS = ["arm", "length", "rounds", "median", "low", "high"]
"""The data of a picture: tokens of the prompt, rounds with a value, and of these the median, the
smallest and the largest rate in tokens per second."""


def curve_data(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """A row (COLUMNS) per arm and length that has a value."""
    slots = contrasts.slots(cells, series)
    slots = slots[slots["reason"].isna()]
    found = []
    for arm in series.arms:
        for metric in series.metrics:
            name, _, length = metric.partition("@")
            mine = slots[(slots["arm"] == arm.name) & (slots["metric"] == metric)]["value"]
            if name == METRIC and length and len(mine):
                middle, low, high = mine.median(), mine.min(), mine.max()
                found.append((arm.name, int(length), len(mine), middle, low, high))
    return pd.DataFrame(found, columns=COLUMNS)


def draw(data: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The picture of `curve_data` as SVG. Raises UserError where a translation is missing."""
    words, number = i18n.translator(language), Formatter(language)
    text = words.gettext("Prefill speed of the series %(series)s by the length of the prompt")
    title = text % {"series": series.name}
    look = looks(series)
    with rc_context(STYLE):
        rows = math.ceil(max(1, data["arm"].nunique()) / LEGEND_COLUMNS)
        below = LEGEND_LINE_IN * (1 + rows)
        figure = Figure(figsize=(WIDTH_IN, 1.3 * PANEL_IN + below))
        figure.patch.set_alpha(0)
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        for arm in series.arms:
            mine = data[data["arm"] == arm.name].sort_values("length")
            if len(mine):
                shape = {**look[arm.name], "linestyle": "-", "linewidth": 1.2}
                panel.vlines(mine["length"], mine["low"], mine["high"], color=shape["color"], lw=1)
                panel.plot(
                    mine["length"], mine["median"], label=label(arm.name, series, words), **shape
                )
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(sorted(set(data["length"]))))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number.integer(value)))
        panel.tick_params(axis="x", labelrotation=30 if data["length"].nunique() > 6 else 0)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number.short(value)))
        panel.set_ylim(bottom=0)
        panel.set_xlabel(words.gettext("length of the prompt, tokens"))
        panel.set_ylabel(f"{metric_words(METRIC, words, number)}, tok/s")
        if data.empty:
            nothing = words.gettext("no valid cell yet")
            panel.text(0.5, 0.5, nothing, ha="center", transform=panel.transAxes, color=GREY)
        else:
            figure.legend(loc="lower center", ncols=LEGEND_COLUMNS, frameon=False, fontsize=8)
        figure.tight_layout(rect=(0, below / figure.get_figheight(), 1, 1))
        described = words.gettext(
            "One line per arm: its marks are medians over the rounds, the upright lines reach from "
            "the slowest round to the fastest."
        )
        return svg(figure, title, described)
