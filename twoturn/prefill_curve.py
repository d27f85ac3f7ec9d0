"""Prefill speed by the length of the prompt, as one picture per series."""

from __future__ import annotations

import pandas as pd
from matplotlib import rc_context
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from twoturn import contrasts, i18n
from twoturn.figures import PANEL_IN, STYLE, alone, frame, label, looks, plain, svg
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
    drawn = set(data["arm"])
    shapes = {
        arm: {**one, "linestyle": "-", "linewidth": 1.2}
        for arm, one in looks(series).items()
        if arm in drawn
    }
    with rc_context(STYLE):
        handles = [
            Line2D([], [], label=label(arm.name, series, words), **shapes[arm.name])
            for arm in series.arms
            if arm.name in drawn
        ]
        figure = frame(1.3 * PANEL_IN, handles)
        panel = figure.subplots()
        for arm, shape in shapes.items():
            mine = data[data["arm"] == arm].sort_values("length")
            panel.vlines(mine["length"], mine["low"], mine["high"], color=shape["color"], lw=1)
            panel.plot(mine["length"], mine["median"], **shape)
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_locator(FixedLocator(sorted(set(data["length"]))))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number.integer(value)))
        panel.tick_params(axis="x", labelrotation=30 if data["length"].nunique() > 6 else 0)
        plain(panel.yaxis, number)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(words.gettext("length of the prompt, tokens"))
        panel.set_ylabel(f"{metric_words(METRIC, words, number)}, tok/s")
        if data.empty:
            alone(panel, words.gettext("no valid cell yet"))
        described = words.gettext(
            "One line per arm: its marks are medians over the rounds, the upright lines reach from "
            "the slowest round to the fastest."
        )
        return svg(figure, title, described)
