"""Accept lengths by kind of prompt as one picture: a line per kind, a mark per arm."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from twoturn import claims, i18n
from twoturn.figures import COLOURS, GREY, LEGEND_LINE_IN, MARKERS, STYLE, WIDTH_IN, svg
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter

ROW_IN, LABEL_IN = 0.45, 0.75
APART = 0.7
"""Share of a kind's line that its arms spread over."""

LEGEND_COLUMNS = 3


def draw(
    data: pd.DataFrame,
    series: SeriesLike,
    language: str,
    published: tuple[float, float] | None = None,
) -> str:
    """The picture of `by_kind.acceptance` as SVG; published: a range that others printed.

    Raises UserError where a translation is missing.
    """
    words, number = i18n.translator(language), Formatter(language)
    title = words.gettext("Accept length of the series %(series)s by kind of prompt") % {
        "series": series.name
    }
    kinds, arms = list(data["kind"].unique()), list(data["arm"].unique())
    with rc_context(STYLE):
        handles = _legend(arms, published, words, number)
        below = LEGEND_LINE_IN * (1 + math.ceil(len(handles) / LEGEND_COLUMNS))
        height = ROW_IN * max(len(kinds), 1) + LABEL_IN + below
        figure = Figure(figsize=(WIDTH_IN, height))
        figure.patch.set_alpha(0)
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        if published is not None:
            panel.axvspan(*published, color=GREY, alpha=0.2, lw=0)
        for place, arm in enumerate(arms):
            rows = data[data["arm"] == arm]
            shift = APART * ((place + 0.5) / len(arms) - 0.5)
            at = rows["kind"].map(kinds.index).to_numpy(dtype=float) + shift
            look = _look(place)
            panel.hlines(at, rows["least"], rows["most"], color=look["color"], lw=1.5)
            panel.plot(rows["accept_length"], at, ls="none", markersize=6, **look)
        panel.set_yticks(range(len(kinds)), kinds)
        panel.set_ylim(max(len(kinds), 1) - 0.5, -0.5)
        panel.tick_params(axis="y", length=0)
        panel.set_xlim(1, None)
        panel.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number.short(value)))
        text = words.gettext(claims.METRICS["accept_length"])
        panel.set_xlabel(f"{text}, {words.gettext('tokens per verify cycle')}")
        if handles:
            figure.legend(
                handles=handles, loc="lower center", ncols=LEGEND_COLUMNS, frameon=False, fontsize=8
            )
        figure.tight_layout(rect=(0, below / height, 1, 1))
        described = words.gettext(
            "One line per kind of prompt, one mark per arm: its accept length over all prompts of "
            "that kind; the line reaches from the prompt with the least to the one with the most."
        )
        return svg(figure, title, described)


def _look(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def _legend(
    arms: list[str],
    published: tuple[float, float] | None,
    words: i18n.Translator,
    number: Formatter,
) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], label=arm, lw=1.5, markersize=6, **_look(place))
        for place, arm in enumerate(arms)
    ]
    if published is not None:
        low, high = (number.mean(value) for value in published)
        text = words.gettext("published: %(low)s to %(high)s") % {"low": low, "high": high}
        handles.append(Patch(color=GREY, alpha=0.2, lw=0, label=text))
    return handles
