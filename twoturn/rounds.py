"""How many rounds an effect needs, by the noise that the campaign's own results show."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from twoturn import cells, contrasts, plan
from twoturn.article.view import View
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.stats import pair_fit
from twoturn.stats.base import Estimate, Refusal
from twoturn.stats.planning import MAX_ROUNDS, rounds_needed
from twoturn.stats.verdict import MARGIN

POWER = 0.8

HEAD = ("series", "metric", "arm", "noise", "rounds", "needed")

_EFFECT = re.compile(r"(\d+(?:[.,]\d+)?|[.,]\d+)\s*(%?)")


def effect_of(text: str) -> float:
    """A relative difference: `5%`, `5 %` and `0.05` are 0.05. Raises UserError.

    `1.05` is refused, because 105 % may be meant, and what the margin hides can be no verdict.
    """
    match = _EFFECT.fullmatch(text.strip())
    effect = math.nan
    if match:
        number, percent = match.groups()
        effect = float(number.replace(",", ".")) / (100 if percent else 1)
    if match and not match[2] and effect >= 1:
        meant = 100 * (effect - 1) if 1 < effect < 2 else effect
        cure = f"write {round(meant, 2):g}%, or a share such as 0.05"
        raise UserError(f"{text!r} is a ratio, not a difference", key="--effect", cure=cure)
    if not MARGIN < effect <= 1:
        told = f"more than {MARGIN:.0%} and at most 100%"
        raise UserError(
            f"{text!r} is no difference that can be planned for",
            key="--effect",
            cure=f"use {told}, such as 5% or 0.05",
        )
    return effect


@dataclass(frozen=True)
class Noise:
    """What the results of one pair show. `noise_log`: residual standard deviation of the pair fit,
    in logs, None where there is `reason` for none."""

    series: str
    metric: str
    arm: str
    rounds: int
    noise_log: float | None
    reason: str = ""


def noises(series: plan.Series, loaded: Loaded) -> list[Noise]:
    """The noise of every arm against the reference; empty where nothing is measured."""
    files = cells.of_series(loaded.root / series.directory, series.rounds)
    if not files:
        return []
    table = cells.join([(file, series.fingerprint) for file in files]).to_pandas()
    if (fault := contrasts.series_fault(table, series)) is not None:
        return [Noise(series.name, "", "", 0, None, fault)]
    slots = contrasts.slots(table, series)
    arms = [arm.name for arm in series.arms if arm.name != series.reference]
    return [_noise(slots, series, metric, arm) for metric in series.metrics for arm in arms]


def _noise(table: pd.DataFrame, series: plan.Series, metric: str, arm: str) -> Noise:
    own = table[(table["metric"] == metric) & table["arm"].isin([arm, series.reference])]
    faults = [reason for reason in own["reason"] if isinstance(reason, str)]
    found: Estimate | Refusal = (
        Refusal(faults[0])
        if faults
        else pair_fit.estimate(contrasts.as_slots(own), arm=arm, reference=series.reference)
    )
    rounds = own["round"].nunique()
    if isinstance(found, Refusal):
        return Noise(series.name, metric, arm, rounds, None, found.reason)
    return Noise(series.name, metric, arm, rounds, found.noise_log)


def lines(loaded: Loaded, effect: float) -> Iterator[str]:
    """A table with a line for each pair, then a line for each that has no noise to plan with."""
    view = View("en")
    number = view.number
    rows: list[tuple[str, ...]] = [HEAD]
    notes: dict[str, None] = {}
    for series in loaded.plan.series:
        if not series.metrics:
            notes[f"{series.name}: tasks are its sample, not rounds"] = None
            continue
        found = noises(series, loaded)
        if not found:
            notes[f"{series.name}: no results yet; measure it with {series.rounds} rounds"] = None
        for one in found:
            if one.noise_log is None:
                what = "/".join(filter(None, (one.series, one.metric, one.arm)))
                notes[f"{what}: not known, because {view.reason(one.reason)}"] = None
                continue
            needed = rounds_needed(one.noise_log, effect, power=POWER)
            told = str(needed) if isinstance(needed, int) else f"more than {MAX_ROUNDS}"
            noise = number.percent(math.expm1(one.noise_log))
            rows.append((one.series, one.metric, one.arm, noise, str(one.rounds), told))
    yield (
        f"Rounds for a difference of {number.percent(effect)}, seen with a power of "
        f"{number.percent(POWER)}:"
    )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows if len(rows) > 1 else []:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from notes
