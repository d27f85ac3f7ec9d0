"""The sweeps of block sizes of one series as one picture: speed above, accept length below it.

Both stand over the size that was asked for, because the greatest accept length and the greatest
speed need not be at the same one. An adaptive block stands apart at the right.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from twoturn import claims, i18n
from twoturn.figures import GREY, STYLE, frame, look, plain, svg
from twoturn.forest import FARTHEST, ticks
from twoturn.matrix import ADAPTIVE, SeriesLike
from twoturn.numbers import Formatter
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.verdict import MARGIN

PANELS_IN = (2.6, 1.8)
APART = 0.16
"""Distance of two sweeps at one size, so that no interval hides another."""


def draw(data: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The picture of `blocks.curve` as SVG. Raises UserError where a translation is missing."""
    words, number = i18n.translator(language), Formatter(language)
    title = words.gettext("Block sizes of the series %(series)s") % {"series": series.name}
    places = _places(data)
    with rc_context(STYLE):
        handles = _legend(data, words, number)
        figure = frame(sum(PANELS_IN), handles)
        speed, length = figure.subplots(2, 1, sharex=True, height_ratios=PANELS_IN)
        speed.axhspan(1 / (1 + MARGIN), 1 + MARGIN, color=GREY, alpha=0.2, lw=0)
        speed.axhline(1, color=GREY, lw=0.8)
        for place, sweep in enumerate(data["sweep"].unique()):
            rows = data[data["sweep"] == sweep]
            shift = APART * (place - (data["sweep"].nunique() - 1) / 2)
            at = rows["block"].map(places).to_numpy(dtype=float) + shift
            _speeds(speed, at, rows, look(place))
            _lengths(length, at, rows, look(place))
        _bound(length, places)
        _scale(speed, data, number)
        metric = words.gettext(claims.METRICS[series.metrics[0]])
        speed.set_title(metric[:1].upper() + metric[1:], fontsize=9, loc="left", color=GREY)
        speed.set_ylabel(
            words.gettext("times as fast as %(reference)s") % {"reference": series.reference},
            wrap=True,
        )
        text = words.gettext(claims.METRICS["accept_length"])
        length.set_title(text[:1].upper() + text[1:], fontsize=9, loc="left", color=GREY)
        length.set_ylabel(words.gettext("tokens per verify cycle"), wrap=True)
        length.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        length.set_xlim(-0.5, len(places) - 0.5)
        plain(length.yaxis, number)
        length.set_xticks(
            list(places.values()),
            [words.gettext(claims.ADAPTIVE_BLOCK) if one == ADAPTIVE else one for one in places],
        )
        length.set_xlabel(words.gettext("block size as asked for, the anchor included"))
        described = words.gettext(
            "One line per sweep over the sizes of its block: above, times as fast as the reference "
            "with intervals, the grey band is the margin; below, the accept length. A ring is the "
            "size that some rounds chose, with its interval on the others."
        )
        return svg(figure, title, described)


def _places(data: pd.DataFrame) -> dict[str, int]:
    """Where each block stands on the axis: sizes in order, adaptive last."""
    known = sorted(set(data["block"]), key=lambda one: math.inf if one == ADAPTIVE else int(one))
    return {block: place for place, block in enumerate(known)}


def _speeds(panel: Axes, at: Any, rows: pd.DataFrame, own: dict[str, Any]) -> None:
    low, middle, high = (
        _clipped(rows[name]) for name in ("fast_low", "times_as_fast", "fast_high")
    )
    fixed = (rows["block"] != ADAPTIVE).to_numpy()
    panel.vlines(at, low, high, color=own["color"], lw=1.5)
    panel.plot(at[fixed], middle[fixed], lw=0.8, ls=":", color=own["color"])
    panel.plot(at, middle, ls="none", markersize=6, **own)
    chosen = rows["chosen"].to_numpy(dtype=bool)
    low, middle, high = (
        _clipped(rows[name])[chosen] for name in ("told_low", "told_fast", "told_high")
    )
    beside = at[chosen] + APART / 2
    panel.vlines(beside, low, high, color=own["color"], lw=0.8)
    panel.plot(beside, middle, ls="none", **_ring(own))


def _lengths(panel: Axes, at: Any, rows: pd.DataFrame, own: dict[str, Any]) -> None:
    values = rows["accept_length"].to_numpy(dtype=float)
    fixed = (rows["block"] != ADAPTIVE).to_numpy()
    panel.plot(at[fixed], values[fixed], lw=0.8, ls=":", color=own["color"])
    panel.plot(at, values, ls="none", markersize=6, **own)


def _bound(panel: Axes, places: dict[str, int]) -> None:
    """A block accepts its own size at most; drawn as far as it leaves the rest to be seen."""
    top = panel.get_ylim()[1]
    fixed = {block: place for block, place in places.items() if block != ADAPTIVE}
    panel.plot([*fixed.values()], [int(block) for block in fixed], color=GREY, lw=0.8, ls="--")
    panel.set_ylim(1, max(top, 2))


def _scale(panel: Axes, data: pd.DataFrame, number: Formatter) -> None:
    ends = _clipped(data[["fast_low", "fast_high", "told_low", "told_high"]])
    ends = ends[np.isfinite(ends)]
    low = min([*ends.tolist(), 1 / (1 + 2 * MARGIN)])
    high = max([*ends.tolist(), 1 + 2 * MARGIN])
    edge = (high / low) ** 0.06
    panel.set_yscale("log")
    panel.set_ylim(low / edge, high * edge)
    panel.yaxis.set_major_locator(FixedLocator(ticks(low / edge, high * edge)))
    panel.yaxis.set_minor_locator(NullLocator())
    plain(panel.yaxis, number)


def _clipped(values: Any) -> Any:
    return np.clip(values.to_numpy(dtype=float), 1 / FARTHEST, FARTHEST)


def _ring(own: dict[str, Any]) -> dict[str, Any]:
    return {**own, "marker": "o", "markersize": 9, "markerfacecolor": "none"}


def _legend(data: pd.DataFrame, words: i18n.Translator, number: Formatter) -> list[Any]:
    """The sweeps, the ring if there is one, the bound and the margin."""
    handles: list[Any] = [
        Line2D([], [], label=str(sweep), lw=1.5, markersize=6, **look(place))
        for place, sweep in enumerate(data["sweep"].unique())
    ]
    if data["chosen"].any():
        text = words.gettext("chosen on some rounds, told from the others")
        grey = {"color": GREY, "marker": "o"}
        handles.append(Line2D([], [], label=text, lw=0.8, **_ring(grey)))
    text = words.gettext("the size itself: no more can be accepted")
    handles.append(Line2D([], [], label=text, color=GREY, lw=0.8, ls="--"))
    text = words.gettext("margin of %(margin)s, intervals at %(confidence)s") % {
        "margin": number.percent(MARGIN),
        "confidence": number.percent(CONFIDENCE),
    }
    return [*handles, Patch(color=GREY, alpha=0.2, lw=0, label=text)]
