"""The second turn of a conversation as a picture: how long to its first token, and how much of its
prompt was processed anew.

A cache that loses a long prompt shows here and nowhere in a short chat.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from twoturn import i18n
from twoturn.figures import COLOURS, GREY, STYLE, alone, frame, label, plain, svg
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter

COLUMNS = ["arm", "round", "turn", "ttft_s", "prompt_tokens", "cached_tokens", "new_tokens"]
"""The data of a picture, a row per arm, round and turn: medians over the conversations of the cell;
new_tokens is prompt_tokens less cached_tokens, empty where the server does not report them."""

NUMBERS = COLUMNS[3:]

Medians: TypeAlias = dict[str, dict[str, float]]

SECOND: dict[str, Any] = {
    "color": COLOURS[0],
    "marker": "o",
    "markerfacecolor": COLOURS[0],
    "markersize": 8,
}
FIRST: dict[str, Any] = {"color": GREY, "marker": "o", "markerfacecolor": "none", "markersize": 8}
ROUND: dict[str, Any] = {"color": COLOURS[0], "marker": "|", "markersize": 9, "alpha": 0.6}
CACHED: dict[str, Any] = {"color": COLOURS[5]}
NEW: dict[str, Any] = {"color": COLOURS[1]}
UNKNOWN: dict[str, Any] = {"facecolor": "none", "edgecolor": GREY, "hatch": "///", "lw": 0.8}

ROW_IN, AROUND_IN = 0.3, 0.9


def turn_data(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """What the picture shows (COLUMNS), in the order of the arms; only whole valid cells."""
    mine = cells[(cells["series"] == series.name) & (cells["kind"] == "round")]
    whole = (mine["status"] == "ok").groupby([mine["arm"], mine["round"]]).transform("all")
    rows = mine[whole].assign(
        **{name: pd.to_numeric(mine[name], errors="coerce") for name in NUMBERS[:-1]}
    )
    rows["new_tokens"] = rows["prompt_tokens"] - rows["cached_tokens"]
    table = rows.groupby(["arm", "round", "turn"])[NUMBERS].median().reset_index()
    places = {arm.name: place for place, arm in enumerate(series.arms)}
    table = table[table["arm"].isin(places)]
    order = table["arm"].map(places).to_numpy(dtype=int)
    table = table.iloc[np.lexsort((table["turn"], table["round"], order))]
    numbers = table[NUMBERS].astype("float64").replace([np.inf, -np.inf], np.nan)
    return table.assign(**{name: numbers[name] for name in NUMBERS})[COLUMNS].reset_index(drop=True)


def draw(data: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The picture of `turn_data` as SVG. Raises UserError where a translation is missing."""
    words, number = i18n.translator(language), Formatter(language)
    first, second = (_medians(data[data["turn"] == turn]) for turn in (1, 2))
    arms = [arm.name for arm in series.arms if arm.name in second]
    title = words.gettext("The second turn of the series %(series)s") % {"series": series.name}
    with rc_context(STYLE):
        handles = _legend(second, words)
        figure = frame(ROW_IN * max(len(arms), 2) + AROUND_IN, handles)
        times, tokens = figure.subplots(1, 2, sharey=True)
        _times(times, data[data["turn"] == 2], first, second, arms)
        _tokens(tokens, second, arms)
        times.set_xlabel(words.gettext("time to the first token, s"))
        tokens.set_xlabel(words.gettext("prompt of the second turn, tokens"))
        for panel in (times, tokens):
            panel.set_xlim(left=0)
            panel.xaxis.set_major_locator(MaxNLocator(5))
            plain(panel.xaxis, number)
            panel.tick_params(axis="y", length=0)
            if not arms:
                alone(panel, words.gettext("no valid cell yet"))
        times.set_yticks(range(len(arms)), [label(arm, series, words) for arm in arms])
        times.set_ylim(max(len(arms), 1) - 0.5, -0.5)
        described = words.gettext(
            "One line per arm. On the left the time to the first token: a full mark for the second "
            "turn, a hollow one for the first, a stroke for each round of the second. On the right "
            "the prompt of the second turn: what came from the cache and what was processed anew."
        )
        return svg(figure, title, described)


def _medians(rows: pd.DataFrame) -> Medians:
    """Arm → column → median over the rounds."""
    table = rows.groupby("arm")[NUMBERS].median()
    return {
        str(arm): {name: float(value) for name, value in zip(NUMBERS, values, strict=True)}
        for arm, values in zip(table.index, table.to_numpy(dtype=float), strict=True)
    }


def _times(
    panel: Axes, rounds: pd.DataFrame, first: Medians, second: Medians, arms: list[str]
) -> None:
    for place, arm in enumerate(arms):
        values = rounds.loc[rounds["arm"] == arm, "ttft_s"].to_numpy(dtype=float)
        panel.plot(values, [place] * len(values), linestyle="none", **ROUND)
        for table, look in ((first, FIRST), (second, SECOND)):
            if arm in table:
                panel.plot([table[arm]["ttft_s"]], [place], linestyle="none", **look)


def _tokens(panel: Axes, second: Medians, arms: list[str]) -> None:
    for place, arm in enumerate(arms):
        prompt, cached, new = (second[arm][name] for name in NUMBERS[1:])
        if math.isfinite(new):
            panel.barh([place], [cached], height=0.6, **CACHED)
            panel.barh([place], [new], left=[cached], height=0.6, **NEW)
        elif math.isfinite(prompt):
            panel.barh([place], [prompt], height=0.6, **UNKNOWN)


def _legend(second: Medians, words: i18n.Translator) -> list[Line2D | Patch]:
    """What is drawn, and nothing else."""
    if not second:
        return []
    known = [math.isfinite(arm["new_tokens"]) for arm in second.values()]
    handles: list[Line2D | Patch] = [
        Line2D([], [], linestyle="none", label=words.gettext("second turn, median"), **SECOND),
        Line2D([], [], linestyle="none", label=words.gettext("second turn, each round"), **ROUND),
        Line2D([], [], linestyle="none", label=words.gettext("first turn, median"), **FIRST),
    ]
    if any(known):
        handles.append(Patch(label=words.gettext("from the cache"), **CACHED))
        handles.append(Patch(label=words.gettext("processed anew"), **NEW))
    if not all(known):
        handles.append(Patch(label=words.gettext("cache not reported"), **UNKNOWN))
    return handles
