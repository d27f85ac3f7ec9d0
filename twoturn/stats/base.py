"""What every estimator takes and gives, and the checks that no estimator goes without."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

CONFIDENCE = 0.99
"""The one confidence of tables and sentences, so that no sentence depends on another's data."""

MIN_ROUNDS = 4
"""Below four rounds the pair fit has fewer than four degrees of freedom."""

LONGEST_S = 1e12
"""A time beyond this (30 000 years) comes from no clock, and its square from no number."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One arm measured once: `value` in the metric's unit, `time_s` at the middle of the slot."""

    arm: str
    round: int
    session: str
    time_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The log of arm ÷ reference with its two-sided interval at `confidence`.

    `p_value` is against a ratio of 1; `drift_log` is the log of the fitted reference at the last
    slot ÷ at the first; `noise_log` is the residual standard deviation of one slot, in logs;
    `step_s` is the time of the first slot after a fitted step of the drift. These, and `df`, are
    None where the method has no such thing.
    """

    log_ratio: float
    low: float
    high: float
    confidence: float
    p_value: float | None = None
    df: int | None = None
    drift_log: float | None = None
    noise_log: float | None = None
    step_s: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """No estimate, and the code of the reason."""

    reason: str


class Estimator(Protocol):
    """The one interface of the methods for a pair; slots of other arms are left out of account."""

    def __call__(
        self, slots: Iterable[Slot], *, arm: str, reference: str, confidence: float = CONFIDENCE
    ) -> Estimate | Refusal: ...


def pair_of(slots: Iterable[Slot], arm: str, reference: str) -> list[Slot] | Refusal:
    """The slots of two arms in order of time, or why they cannot be compared.

    Reasons: `bad_value` (a value that is not a positive finite number has no logarithm),
    `no_time`, `duplicate_rows`, `incomplete` (a round without one of the arms),
    `too_few_rounds`, `odd_rounds` (two rounds, an order and its mirror, are one block),
    `clock_backwards` (a round that is later by its number is earlier by its time).
    """
    pair = sorted(
        (slot for slot in slots if slot.arm in (arm, reference)),
        key=lambda slot: (slot.time_s, slot.round, slot.arm),
    )
    if (reason := fault_of(pair)) is not None:
        return Refusal(reason)
    rounds = {slot.round for slot in pair}
    if len(pair) != 2 * len(rounds):
        return Refusal("incomplete")
    if len(rounds) < MIN_ROUNDS:
        return Refusal("too_few_rounds")
    if len(rounds) % 2:
        return Refusal("odd_rounds")
    if any(later.round < earlier.round for earlier, later in pairwise(pair)):
        return Refusal("clock_backwards")
    return pair


def fault_of(slots: Sequence[Slot]) -> str | None:
    """The code of what makes single slots unusable, whatever the estimator."""
    if not all(math.isfinite(slot.value) and slot.value > 0 for slot in slots):
        return "bad_value"
    if not all(abs(slot.time_s) < LONGEST_S for slot in slots):
        return "no_time"
    if len({(slot.arm, slot.round) for slot in slots}) != len(slots):
        return "duplicate_rows"
    return None
