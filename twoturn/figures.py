"""Pictures for the article, as SVG that reads on light and on dark paper alike.

The same data gives the same bytes: no date, no random ids. Text stays text, so that a picture is
small and can be searched; the data of a picture lies beside it as CSV.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from xml.sax.saxutils import escape

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from twoturn import contrasts, files, i18n
from twoturn.matrix import SeriesLike
from twoturn.numbers import Formatter
from twoturn.wording import metric_words

GREY = "#777777"
"""Axes and text: contrast 4.5 on white and 4.2 on near black."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, without black and yellow, which vanish on one of the two papers."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")

SHOWN = ("conversation_s", "decode_tok_s")
"""Metrics that are drawn, where a series has them, from top to bottom; else its first one."""

COLUMNS = ["metric", "kind", "arm", "round", "session_id", "time_s", "value", "low", "high"]
"""The data of a picture: kind is slot, control or curve; low and high are the curve's band."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "twoturn",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}

WIDTH_IN, PANEL_IN, LEGEND_LINE_IN = 8.0, 2.6, 0.18
LEGEND_COLUMNS = 3


def shown(series: SeriesLike) -> list[str]:
    """The metrics of a series that are drawn."""
    usual = [metric for metric in SHOWN if metric in series.metrics]
    return usual or [series.metrics[0]]


def slot_data(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """What a picture of the slots shows (COLUMNS), and what lies beside it as CSV.

    Every arm's slots, the control, and the fitted drift of the reference with its band. Slots
    without a value are left out; without a sound series there is no control and no curve.
    """
    metrics = shown(series)
    slots = contrasts.slots(cells, series).assign(kind="slot")
    drift = contrasts.drift(cells, series)
    control = drift[drift["kind"] == "control"].assign(arm=series.reference)
    curve = drift[drift["kind"] == "curve"].assign(
        arm=series.reference, value=drift["fitted"], round=np.nan
    )
    parts = [
        part.reindex(columns=COLUMNS)
        for part in (slots[slots["reason"].isna()], control.assign(low=np.nan, high=np.nan), curve)
        if len(part)
    ]
    if not parts:
        return pd.DataFrame([], columns=COLUMNS)
    table = pd.concat([part.astype({"round": "float64"}) for part in parts], ignore_index=True)
    table = table[table["metric"].isin(metrics) & np.isfinite(table["value"].astype(float))]
    return table.astype({"round": "Int64"}).reset_index(drop=True)


def slots(cells: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The slots of a series over time as one SVG, a panel per metric, in a language.

    Raises UserError where a translation is missing.
    """
    return draw(slot_data(cells, series), series, language)


def arguments(doc: str | None, *tables: str) -> argparse.Namespace:
    """What a script that draws one series is called with; `tables`: those that its data comes from,
    each an option."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--series", required=True)
    for table in tables:
        parser.add_argument(f"--{table}", required=True, type=Path)
    parser.add_argument("--table", required=True, type=Path, help="the data as CSV")
    parser.add_argument("pictures", nargs="+", type=Path, help="…_LANGUAGE.svg")
    return parser.parse_args()


Draw: TypeAlias = Callable[[pd.DataFrame, SeriesLike, str], str]
"""Data, series, language → SVG."""


def write(
    draw: Draw, data: pd.DataFrame, series: SeriesLike, table: Path, pictures: Iterable[Path]
) -> None:
    """The pictures of some data, each in the language that its name ends with (…_LANGUAGE.svg), and
    the data as CSV; nothing is written unless all can be drawn."""
    write_told(lambda language: draw(data, series, language), data, table, pictures)


def write_told(
    draw: Callable[[str], str], data: pd.DataFrame, table: Path, pictures: Iterable[Path]
) -> None:
    """`write` for a picture that is of no single series: `draw` takes the language alone."""
    drawn = {file: draw(i18n.of_file(file.stem)) for file in pictures}
    files.write_text(table, data.to_csv(index=False, lineterminator="\n"))
    for file, picture in drawn.items():
        files.write_text(file, picture)


def draw(data: pd.DataFrame, series: SeriesLike, language: str) -> str:
    """The picture of `slot_data`."""
    words = i18n.translator(language)
    number = Formatter(language)
    metrics = shown(series)
    unit, seconds = _time_unit(data)
    title = words.gettext("Cells of the series %(series)s over time") % {"series": series.name}
    with rc_context(STYLE):
        handles = _legend(data, series, words)
        figure = frame(PANEL_IN * len(metrics), handles)
        panels: list[Axes] = [*figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]]
        for panel, metric in zip(panels, metrics, strict=True):
            mine = data[data["metric"] == metric].assign(at=lambda rows: rows["time_s"] / seconds)
            _panel(panel, mine, series, words.gettext("round"))
            text = metric_words(metric, words, number)
            panel.set_ylabel(f"{text}, {'tok/s' if '_tok_s' in metric else 's'}", wrap=True)
            plain(panel.yaxis, number)
            if mine.empty:
                alone(panel, words.gettext("no valid cell yet"))
        axis = {
            "s": words.gettext("time since the start of the series, s"),
            "min": words.gettext("time since the start of the series, minutes"),
            "h": words.gettext("time since the start of the series, hours"),
        }[unit]
        panels[-1].set_xlabel(axis)
        plain(panels[-1].xaxis, number)
        described = words.gettext(
            "One mark per cell, one colour and shape per arm, rounds as grey bands with their "
            "numbers; the line is the fitted drift of the reference with its band."
        )
        return svg(figure, title, described)


def _time_unit(data: pd.DataFrame) -> tuple[str, float]:
    """The unit of the time axis and its seconds."""
    longest = float(data["time_s"].max()) if len(data) else 0.0
    if longest < 600:
        return "s", 1.0
    return ("min", 60.0) if longest < 4 * 3600 else ("h", 3600.0)


def looks(series: SeriesLike) -> Mapping[str, dict[str, Any]]:
    """Arm → colour and marker; the null arm has the reference's, hollow."""
    found: dict[str, dict[str, Any]] = {}
    others = [
        arm.name for arm in series.arms if arm.name not in (series.reference, series.null_arm)
    ]
    for index, name in enumerate([series.reference, *others]):
        found[name] = {**look(index), "markerfacecolor": look(index)["color"]}
    if series.null_arm is not None:
        found[series.null_arm] = {**found[series.reference], "markerfacecolor": "none"}
    return {name: {**one, "linestyle": "none", "markersize": 6} for name, one in found.items()}


def _panel(panel: Axes, data: pd.DataFrame, series: SeriesLike, round_word: str) -> None:
    panel.yaxis.set_major_locator(MaxNLocator(5))
    slots = data[data["kind"] == "slot"]
    known = looks(series)
    for place, (number, rows) in enumerate(slots.groupby("round")):
        if place % 2 == 0:
            margin = 0.4 * _step(slots)
            panel.axvspan(
                rows["at"].min() - margin, rows["at"].max() + margin, color=GREY, alpha=0.1, lw=0
            )
        panel.annotate(
            str(number) if place else f"{round_word} {number}",
            (float((rows["at"].min() + rows["at"].max()) / 2), 1.0),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            fontsize=8,
        )
    reference = known[series.reference]["color"]
    for _, curve in data[data["kind"] == "curve"].groupby("session_id", sort=False):
        x, low, high, middle = (
            curve[name].astype(float).to_numpy() for name in ("at", "low", "high", "value")
        )
        panel.fill_between(x, low, high, color=reference, alpha=0.15, lw=0)
        panel.plot(x, middle, color=reference, lw=1.5)
    for arm, rows in slots.groupby("arm", sort=False):
        if arm in known:
            panel.plot(rows["at"], rows["value"].astype(float), **known[str(arm)])
    control = data[data["kind"] == "control"]
    panel.plot(control["at"], control["value"].astype(float), **_control_look(series))


def _control_look(series: SeriesLike) -> dict[str, Any]:
    return {
        **looks(series)[series.reference],
        "marker": "*",
        "markersize": 13,
        "markeredgecolor": GREY,
    }


def _step(slots: pd.DataFrame) -> float:
    """The smallest distance of two slots in time, for the edges of the bands."""
    times = np.unique(slots["at"].to_numpy(dtype=float))
    return float(np.diff(times).min()) if len(times) > 1 else 1.0


def _legend(data: pd.DataFrame, series: SeriesLike, words: i18n.Translator) -> list[Line2D]:
    """What is drawn, and nothing else."""
    known = looks(series)
    drawn = set(data.loc[data["kind"] == "slot", "arm"])
    handles = [
        Line2D([], [], label=label(arm.name, series, words), **known[arm.name])
        for arm in series.arms
        if arm.name in drawn
    ]
    if (data["kind"] == "control").any():
        text = words.gettext("control")
        handles.append(Line2D([], [], label=text, **_control_look(series)))
    if (data["kind"] == "curve").any():
        text = words.gettext("fitted drift of the reference")
        handles.append(Line2D([], [], label=text, color=known[series.reference]["color"]))
    return handles


def label(arm: str, series: SeriesLike, words: i18n.Translator) -> str:
    """An arm and its role in the series, if it has one."""
    if arm == series.reference:
        return f"{arm} ({words.gettext('reference')})"
    return f"{arm} ({words.gettext('null arm')})" if arm == series.null_arm else arm


# What all pictures share --------------------------------------------------------------------------


def frame(height: float, handles: Sequence[Artist]) -> Figure:
    """A figure whose panels will take `height` inches, with the legend of `handles` below them."""
    figure = Figure(figsize=(WIDTH_IN, height + _below(len(handles))))
    if handles:
        figure.legend(
            handles=handles, loc="lower center", ncols=LEGEND_COLUMNS, frameon=False, fontsize=8
        )
    return figure


def _below(handles: int) -> float:
    """Inches that a legend of so many takes."""
    return LEGEND_LINE_IN * (1 + math.ceil(handles / LEGEND_COLUMNS))


def look(place: int) -> dict[str, Any]:
    """Colour and marker of what comes at this place."""
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def plain(axis: Axis, number: Formatter) -> None:
    """Numbers along an axis as the language writes them."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: number.short(value)))


def alone(panel: Axes, text: str) -> None:
    """What a panel says in place of data."""
    panel.text(0.5, 0.5, text, ha="center", transform=panel.transAxes)


def svg(figure: Figure, title: str, described: str) -> str:
    """The figure of `frame` as SVG, with title and description for those who cannot see it."""
    handles = sum(len(one.legend_handles) for one in figure.legends)
    figure.tight_layout(rect=(0, _below(handles) / figure.get_figheight(), 1, 1))
    stream = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(figure)
    figure.savefig(stream, format="svg", metadata={**nothing, "Title": title})
    told = f"</title>\n <desc>{escape(described)}</desc>"
    svg = stream.getvalue().replace("</title>", told, 1).replace("<svg ", '<svg role="img" ', 1)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
