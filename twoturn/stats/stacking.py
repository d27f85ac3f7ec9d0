"""Do two changes multiply? Four arms in a square, one ratio: combined ÷ product of the single ones.

R is the reference, X differs from it in one way, Y in another, Z in both. Per round

    z = log Z − log X − log Y + log R,

and stacking ratio = exp(mean of z), which is 1 where the two changes multiply. The mean is freed
from drift by least squares of z on an intercept and the same combination of the slots' times, of
their squares, and of the sessions: whatever is smooth in time and common to the arms enters z only
so. Assumes that the z of the rounds are alike and independent. Nothing is assumed about the noise
of the single arms: it enters z as one sum per round, so a noisy arm widens the interval, no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .base import CONFIDENCE, MIN_ROUNDS, Estimate, Refusal, Slot, fault_of
from .ols import Array, TimeBasis, is_new, least_squares
from .verdict import MARGIN, Verdict


@dataclass(frozen=True)
class Square:
    """Names of four arms: `single` are X and Y, `both` is Z."""

    reference: str
    single: tuple[str, str]
    both: str

    @property
    def signs(self) -> dict[str, int]:
        """Arm → its sign in z."""
        first, second = self.single
        return {self.both: 1, first: -1, second: -1, self.reference: 1}


def estimate(
    slots: Iterable[Slot], square: Square, *, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """The log of the stacking ratio with its t interval; slots of other arms are left out.

    n rounds leave n − 3 degrees of freedom, or one more for each column of time that is left out
    (the order of the arms may cancel a drift by itself). Warnings: `several_sessions`. Reasons:
    those of `fault_of` and `least_squares`, `incomplete`, `too_few_rounds`, `odd_rounds`.
    """
    signs = square.signs
    used = [slot for slot in slots if slot.arm in signs]
    if (reason := fault_of(used)) is not None:
        return Refusal(reason)
    rounds = sorted({slot.round for slot in used})
    if len(used) != len(signs) * len(rounds):
        return Refusal("incomplete")
    if len(rounds) < MIN_ROUNDS:
        return Refusal("too_few_rounds")
    if len(rounds) % 2:
        return Refusal("odd_rounds")
    used.sort(key=lambda slot: (slot.time_s, slot.arm))
    basis = TimeBasis.of(used)
    sums: Array = np.array(
        [[float(signs[slot.arm] * (slot.round == number)) for slot in used] for number in rounds]
    )
    z: Array = sums @ np.log(np.array([slot.value for slot in used]))
    drift: Array = sums @ basis.columns(
        [slot.time_s for slot in used], [slot.session for slot in used]
    )
    time, sessions = drift[:, :2], drift[:, 2:-1]  # the last session's column follows from the rest
    columns = np.ones((len(rounds), 1))
    for column in sessions.T:
        if column.any():  # a round was broken off and went on in another session
            columns = np.column_stack([columns, column])
    for column in time.T:
        if is_new(column, columns):
            columns = np.column_stack([columns, column])
    fit = least_squares(columns, z)
    if isinstance(fit, Refusal):
        return fit
    mean = np.zeros(columns.shape[1])
    mean[0] = 1.0
    log_ratio, low, high = fit.interval(mean, confidence)
    warnings = ("several_sessions",) if len(basis.sessions) > 1 else ()
    return Estimate(log_ratio, low, high, confidence, fit.p_value(mean), fit.df, warnings=warnings)


def judge(stacking: Estimate, margin: float = MARGIN) -> Verdict:
    """`same`: the whole interval is within the margin of the product. `unresolved`: it holds 1.

    Else `faster`, more than the product, or `slower`, less than the product.
    """
    m = math.log1p(margin)
    if -m <= stacking.low and stacking.high <= m:
        return Verdict.SAME
    if stacking.low <= 0 <= stacking.high:
        return Verdict.UNRESOLVED
    return Verdict.FASTER if stacking.log_ratio > 0 else Verdict.SLOWER
