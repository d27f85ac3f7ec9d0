"""The best of several arms without the winner's curse: chosen on some blocks, reported on others.

Whoever wins among equals was lucky in the rounds that it won, and a ratio from the same rounds
keeps the luck: among six equal arms it was called faster ten times as often (docs/statistics.md).
Rounds that took no part in the choice know nothing of it. Two rounds, an order and its mirror, are
one block, and every second block chooses, beginning with the second: which one does so is fixed
before a number is seen, and the blocks that report span the whole series and its drift.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from . import hodges_lehmann, pair_fit
from .base import CONFIDENCE, MIN_ROUNDS, Estimate, Refusal, Slot, pair_of


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen arm, and its two estimates against the reference from rounds that did not choose.

    `chosen_on` and `reported_on` are round numbers. A verdict is `verdict.judge` on the two.
    """

    arm: str
    estimate: Estimate
    check: Estimate
    chosen_on: tuple[int, ...]
    reported_on: tuple[int, ...]


def choose(
    slots: Iterable[Slot],
    *,
    arms: Sequence[str],
    reference: str,
    metric_is_time: bool = False,
    confidence: float = CONFIDENCE,
) -> Choice | Refusal:
    """The arm with the best mean log value over the choosing blocks, reported on the others.

    Best is the largest, or the smallest of a time; of equal ones the first in `arms`. Reasons:
    those of the two estimators, for any of the arms; `incomplete` also where there is no arm or
    the arms have different rounds; `too_few_rounds` where fewer than four rounds could report, that
    is below six.
    """
    every = tuple(slots)
    rounds: list[int] = []
    for arm in arms:
        pair = pair_of(every, arm, reference)
        if isinstance(pair, Refusal):
            return pair
        found = sorted({slot.round for slot in pair})
        if found != (rounds := rounds or found):
            return Refusal("incomplete")
    if not rounds:
        return Refusal("incomplete")
    chosen_on, reported_on = halves(rounds)
    if len(reported_on) < MIN_ROUNDS or not chosen_on:
        return Refusal("too_few_rounds")
    sign = -1.0 if metric_is_time else 1.0
    best = max(arms, key=lambda arm: sign * _level(every, arm, chosen_on))
    left = [slot for slot in every if slot.round in reported_on]
    estimate = pair_fit.estimate(left, arm=best, reference=reference, confidence=confidence)
    if isinstance(estimate, Refusal):
        return estimate
    check = hodges_lehmann.estimate(left, arm=best, reference=reference)
    if isinstance(check, Refusal):
        return check
    return Choice(best, estimate, check, chosen_on, reported_on)


def halves(rounds: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rounds that choose and rounds that report: of 1 to 6 the third and fourth choose."""
    chosen = tuple(number for place, number in enumerate(rounds) if place // 2 % 2)
    return chosen, tuple(number for number in rounds if number not in chosen)


def _level(slots: Sequence[Slot], arm: str, rounds: Sequence[int]) -> float:
    """Mean log value; the mirror in each block cancels a steady drift from it."""
    logs = [math.log(slot.value) for slot in slots if slot.arm == arm and slot.round in rounds]
    return float(np.mean(logs))
