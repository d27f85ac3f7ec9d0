"""Each slot of the arm against the reference slots before and after it: a second opinion on drift.

    d = log arm − [(1 − w)·log before + w·log after],   w = nearness in time of `after`,

and ratio = exp(mean of d): the geometric mean of the two reference slots, the plain one where the
arm's slot lies in the middle. No curve is assumed, only that the drift is straight between two
slots of the reference; a sudden step touches one or two of the d. (The A B A scheme of weighing,
where a standard is put on the balance before and after each load.) The price is carry-over: if a
slot after the arm runs slower because the arm has heated the machine, the brackets show it as speed
of the arm, while mirrored rounds cancel it. So this is a cross-check and no part of the gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from .base import CONFIDENCE, MIN_ROUNDS, Estimate, Refusal, Slot, fault_of
from .ols import NO_NOISE, Array


def estimate(
    slots: Iterable[Slot], *, arm: str, reference: str, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """Mean of d with a t interval of m − 1 degrees of freedom, m slots being bracketed.

    Every reference slot counts, so a closing control may be among the slots. Brackets share
    slots, so the d are not independent: with d = W·log value and C = W·Wᵀ the variance of one slot
    is s² = Σ(d − mean)² ÷ (tr C − 1ᵀC1/m), that of the mean s²·1ᵀC1/m² (noise alike in all slots).
    Warnings: `unbracketed` (a slot of the arm has no reference on one side in its session and is
    left out), `several_sessions`. Reasons: those of `fault_of`, `too_few_rounds` (fewer than four
    brackets), `no_noise`.
    """
    pair = sorted(
        (slot for slot in slots if slot.arm in (arm, reference)),
        key=lambda slot: (slot.time_s, slot.round, slot.arm),
    )
    if (reason := fault_of(pair)) is not None:
        return Refusal(reason)
    rows = [_weights(pair, place, reference) for place, slot in enumerate(pair) if slot.arm == arm]
    brackets = [row for row in rows if row is not None]
    m = len(brackets)
    if m < MIN_ROUNDS:
        return Refusal("too_few_rounds")
    w: Array = np.array(brackets)
    d = w @ np.log(np.array([slot.value for slot in pair]))
    mean, shared = float(d.mean()), w @ w.T
    variance = float(np.sum((d - mean) ** 2)) / float(np.trace(shared) - shared.sum() / m)
    noise = float(np.sqrt(variance))
    if noise < NO_NOISE:
        return Refusal("no_noise")
    error = noise * float(np.sqrt(shared.sum())) / m
    half = float(stats.t.ppf((1 + confidence) / 2, m - 1)) * error
    warnings = ["unbracketed"] if m < len(rows) else []
    if len({slot.session for slot in pair}) > 1:
        warnings.append("several_sessions")
    return Estimate(
        mean,
        mean - half,
        mean + half,
        confidence,
        p_value=float(2 * stats.t.sf(abs(mean) / error, m - 1)),
        df=m - 1,
        noise_log=noise,
        warnings=tuple(warnings),
    )


def _weights(pair: Sequence[Slot], place: int, reference: str) -> Array | None:
    """The row of W for the arm's slot at a place, or None without a reference on both sides."""
    slot = pair[place]
    own = [n for n, one in enumerate(pair) if (one.arm, one.session) == (reference, slot.session)]
    before = [n for n in own if n < place]
    after = [n for n in own if n > place]
    if not before or not after:
        return None
    first, last = before[-1], after[0]
    span = pair[last].time_s - pair[first].time_s
    share = (slot.time_s - pair[first].time_s) / span if span else 0.5
    row = np.zeros(len(pair))
    row[[place, first, last]] = 1.0, share - 1.0, -share
    return row
