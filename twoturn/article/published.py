"""Published figures beside what a campaign measured, and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twoturn import plan, published, sources
from twoturn.article import conditions
from twoturn.article.data import Data, SeriesData
from twoturn.article.series import Context
from twoturn.article.view import View, code, escape
from twoturn.claims import N_
from twoturn.numbers import NO_BREAK_SPACE, finite
from twoturn.published import Checked, Figure, Question

FEW = 3
"""How many arms are named one by one in a row."""

UNITS = {unit: unit for unit in ("tok/s", "s", "GB", "GB/s")}
SHOWN = {
    "product": "%s × %s",
    "quotient": "%s ÷ %s",
    "draft_share": "1 − 1 ÷ %s",
    "fall_below": "1 − %s ÷ %s",  # of the last by the first
}
COMPARED = {"below": "<", "fall_below": "<", "above": ">"}


@dataclass(frozen=True)
class Found:
    """One counterpart: a value, or a ratio with its interval, of an arm."""

    series: SeriesData
    arm: plan.Arm
    value: float
    low: float | None = None
    high: float | None = None


def re_measured(data: Data, view: View) -> Context | None:
    """Every published figure with what answers the same question here. Left out where all that a
    campaign shares with the article is that its machine drifted and read prompts."""
    told = published.load()
    rows = {name: found for name, found in _counterparts(data).items() if found}
    questions = [told.figures[name].answers for name in rows]
    if not any(question and question.speculation for question in questions):
        return None
    apart = {name: _differing(told.figures[name], found, data) for name, found in rows.items()}
    common = [
        factor
        for factor in conditions.FACTORS
        if apart and all(factor in differing for differing in apart.values())
    ]
    rest = [
        figure
        for name, figure in told.figures.items()
        if name not in rows and figure.origin in ("measured", "derived")
    ]
    given = sum(figure.origin in ("setting", "machine") for figure in told.figures.values())
    return {
        "source": code(sources.load().sources[told.source].title),
        "count": len(told.figures),
        "figures": view.number.integer(len(told.figures)),
        "given": view.number.integer(given),
        "notes": [view.words.gettext(note) for note in told.notes.values()],
        "rows": [
            [
                _what(told.figures[name], view),
                _printed(told.figures[name], view),
                _how_often(told.figures[name], view),
                _here(told.figures[name], found, view),
                _arms(found, view),
                conditions.names([one for one in apart[name] if one not in common], view) or "–",
            ]
            for name, found in rows.items()
        ],
        "common": conditions.names(common, view),
        "rest": "; ".join(
            f"{view.words.gettext(figure.what)} ({_printed(figure, view)})" for figure in rest
        ),
        "words": [
            [view.words.gettext(text) for text in (one.term, one.there, one.here)]
            for one in told.words.values()
        ],
        "checks": [_check_row(one, view) for one in published.checked().values()],
        "agree": all(one.agrees for one in published.checked().values()),
    }


# Counterparts -------------------------------------------------------------------------------------


def _counterparts(data: Data) -> dict[str, list[Found]]:
    """Figure → what was measured here, in the order of ledger and campaign."""
    figures = published.load().figures
    found: dict[str, list[Found]] = {name: [] for name in figures}
    claimed = published.by_claim([one.series for one in data.series], data.weights)
    for one in data.series:
        for row in one.contrasts:
            name = claimed.get(f"{one.series.name}/{row['metric']}/{row['arm']}")
            if name is not None and row["ratio"] is not None:
                arm = one.series.arm(row["arm"])
                found[name].append(Found(one, arm, row["ratio"], row["ci_low"], row["ci_high"]))
        for name, figure in figures.items():
            if figure.answers is not None and figure.answers.of == "value":
                found[name] += _values(figure.answers, one, data)
    return found


def _values(question: Question, one: SeriesData, data: Data) -> Iterator[Found]:
    if question.metric == "drift":
        metric = one.series.metrics[0]
        rows = one.drift[(one.drift["kind"] == "control") & (one.drift["metric"] == metric)]
        ratio = finite(rows["ratio_to_first"].iloc[0]) if len(rows) else None
        if ratio is not None:
            yield Found(one, one.series.arm(one.series.reference), abs(ratio - 1))
        return
    second = {row.arm: row.cached_tokens for row in one.turns.turns if row.turn == 2}
    for name in published.arms(question, one.series, data.weights):
        if name not in one.values:
            continue
        value = {"turn2_cached_tokens": second.get(name), **one.values[name]}[question.metric]
        if value is not None:
            yield Found(one, one.series.arm(name), value)


def _differing(figure: Figure, found: list[Found], data: Data) -> list[str]:
    """Factors in which a figure's conditions differ from those of all its counterparts."""
    ratio = figure.answers is not None and figure.answers.of == "ratio"
    arms = [(one.series, one.arm) for one in found]
    if ratio:
        arms += [(one.series, one.series.series.arm(one.series.series.reference)) for one in found]
    ours = conditions.here(data, arms)
    return conditions.differing(published.load().conditions_of(figure), ours)


# Cells of the tables ------------------------------------------------------------------------------


def _what(figure: Figure, view: View) -> str:
    text = view.words.gettext(figure.what)
    return text[:1].upper() + text[1:]


def _printed(figure: Figure, view: View) -> str:
    """With all its digits, or as the ratio that it answers for."""
    if _is_change(figure):
        return view.number.ratio(figure.ratio) + _unit(figure)
    if figure.unit == "share":
        return view.number.percent(figure.value)
    return view.number.short(figure.value) + _unit(figure)


def _number(figure: Figure, value: float, view: View) -> str:
    """A number of this campaign in the unit of a figure, which stands elsewhere."""
    if figure.unit == "times" or _is_change(figure):
        return view.number.ratio(value)
    if figure.unit == "share":
        return view.number.percent(value)
    return view.value(figure.answers.metric if figure.answers else "", value)


def _is_change(figure: Figure) -> bool:
    """Whether it was printed as so many percent more or less."""
    return figure.answers is not None and figure.answers.says != "ratio"


def _unit(figure: Figure) -> str:
    if figure.unit == "times" or _is_change(figure):
        return "×"
    return NO_BREAK_SPACE + UNITS[figure.unit] if figure.unit in UNITS else ""


def _how_often(figure: Figure, view: View) -> str:
    rounds, runs, requests = (n or 0 for n in (figure.rounds, figure.runs, figure.requests))
    for count, text in (
        (rounds, view.words.ngettext("%(shown)s round", "%(shown)s rounds", rounds)),
        (runs, view.words.ngettext("%(shown)s run", "%(shown)s runs", runs)),
        (requests, view.words.ngettext("%(shown)s request", "%(shown)s requests", requests)),
    ):
        if count:
            return text % {"shown": view.number.integer(count)}
    return view.number.unknown


def _here(figure: Figure, found: list[Found], view: View) -> str:
    """One value with its interval, or from the least to the greatest."""
    one, unit = found[0], _unit(figure)
    if len(found) == 1 and one.low is not None and one.high is not None:
        between = "–".join(_number(figure, end, view) for end in (one.low, one.high))
        return f"{_number(figure, one.value, view)}{unit} ({between})"
    values = sorted(one.value for one in found)
    ends = dict.fromkeys(_number(figure, value, view) for value in (values[0], values[-1]))
    return "–".join(ends) + unit


def _arms(found: list[Found], view: View) -> str:
    if len(found) > FEW:
        text = view.words.ngettext("%(shown)s arm", "%(shown)s arms", len(found))
        return text % {"shown": view.number.integer(len(found))}
    return ", ".join(code(f"{one.series.series.name}/{one.arm.name}") for one in found)


HOLDS = {True: N_("holds to within rounding"), False: N_("does not hold")}


def _check_row(one: Checked, view: View) -> list[str]:
    check = one.check
    of = reversed(one.of) if check.how == "fall_below" else one.of
    parts = [view.number.short(value) for value in of]
    computed = view.number.short(one.computed)
    shown = SHOWN.get(check.how)
    text = view.words.gettext(check.what)
    return [
        text[:1].upper() + text[1:],
        f"{shown % tuple(parts)} = {computed}" if shown else computed,
        f"{escape(COMPARED.get(check.how, ''))} {view.number.short(one.printed)}".strip(),
        view.words.gettext(HOLDS[one.agrees]),
    ]
