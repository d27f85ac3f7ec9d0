"""Accept lengths by kind of prompt as one picture: a line per kind, a mark per arm."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from twoturn import claims, i18n
from twoturn.figures import GREY, STYLE, frame, look, plain, svg
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter

ROW_IN, LABEL_IN = 0.45, 0.75
APART = 0.7
"""Share of a kind's line that its arms spread over."""


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
        figure = frame(ROW_IN * max(len(kinds), 1) + LABEL_IN, handles)
        panel = figure.subplots()
        if published is not None:
            panel.axvspan(*published, color=GREY, alpha=0.2, lw=0)
        for place, arm in enumerate(arms):
            rows = data[data["arm"] == arm]
            shift = APART * ((place + 0.5) / len(arms) - 0.5)
            at = rows["kind"].map(kinds.index).to_numpy(dtype=float) + shift
            own = look(place)
            panel.hlines(at, rows["least"], rows["most"], color=own["color"], lw=1.5)
            panel.plot(rows["accept_length"], at, ls="none", markersize=6, **own)
        panel.set_yticks(range(len(kinds)), kinds)
        panel.set_ylim(max(len(kinds), 1) - 0.5, -0.5)
        panel.tick_params(axis="y", length=0)
        panel.set_xlim(1, None)
        panel.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        plain(panel.xaxis, number)
        text = words.gettext(claims.METRICS["accept_length"])
        panel.set_xlabel(f"{text}, {words.gettext('tokens per verify cycle')}")
        described = words.gettext(
            "One line per kind of prompt, one mark per arm: its accept length over all prompts of "
            "that kind; the line reaches from the prompt with the least to the one with the most."
        )
        return svg(figure, title, described)


def _legend(
    arms: list[str],
    published: tuple[float, float] | None,
    words: i18n.Translator,
    number: Formatter,
) -> list[Any]:
    handles: list[Any] = [
        Line2D([], [], label=arm, lw=1.5, markersize=6, **look(place))
        for place, arm in enumerate(arms)
    ]
    if published is not None:
        low, high = (number.mean(value) for value in published)
        text = words.gettext("published: %(low)s to %(high)s") % {"low": low, "high": high}
        handles.append(Patch(color=GREY, alpha=0.2, lw=0, label=text))
    return handles
