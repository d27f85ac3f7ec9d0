"""One pair, one fit: log value on arm + time + time², an intercept per session, a step if plain.

Assumes noise of like size in both arms and a drift common to both that is smooth, or smooth but for
one step. Only the slots of the two arms enter: a fit over all arms makes false claims when one of
them is noisier, and a speculative arm is. The square is what keeps a drift that levels off out of
the ratio, the step (`step`) a sudden one out of the noise. What this was chosen from, and what it
holds to: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from . import step
from .base import CONFIDENCE, Estimate, Refusal, Slot, pair_of
from .ols import TimeBasis, least_squares

STRONG_DRIFT = 0.10
"""A fitted drift over the series beyond which the reader is told."""

MIN_DF = 4
"""What four rounds in one session leave. With less, a drift that begins anew in each session was
called a difference in up to 9 % of simulated series."""


def estimate(
    slots: Iterable[Slot], *, arm: str, reference: str, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """Ratio = exp(coefficient of the arm); t interval with 2n − 3 − sessions degrees of freedom.

    n rounds in one session leave 2n − 4, a step one less. Drift = fitted reference at the last slot
    ÷ at the first. Warnings: `several_sessions`, `strong_drift`. Reasons: those of `pair_of` and
    `least_squares`; `too_few_slots` stands also for fewer than MIN_DF degrees of freedom.
    """
    pair = pair_of(slots, arm, reference)
    if isinstance(pair, Refusal):
        return pair
    basis = TimeBasis.of(pair)
    y = np.log(np.array([slot.value for slot in pair]))
    x = np.column_stack(
        [
            [float(slot.arm == arm) for slot in pair],
            basis.columns([slot.time_s for slot in pair], [slot.session for slot in pair]),
        ]
    )
    place = step.find(x, y)
    if place is not None:
        x = np.column_stack([x, step.column(len(y), place)])
    fit = least_squares(x, y)
    if isinstance(fit, Refusal):
        return fit
    if fit.df < MIN_DF:
        return Refusal("too_few_slots")
    effect = np.zeros(len(fit.beta))
    effect[0] = 1.0
    log_ratio, low, high = fit.interval(effect, confidence)
    drift_log = float((x[-1, 1:] - x[0, 1:]) @ fit.beta[1:])
    warnings = []
    if len(basis.sessions) > 1:
        warnings.append("several_sessions")
    if abs(drift_log) > math.log1p(STRONG_DRIFT):
        warnings.append("strong_drift")
    return Estimate(
        log_ratio,
        low,
        high,
        confidence,
        p_value=fit.p_value(effect),
        df=fit.df,
        drift_log=drift_log,
        noise_log=fit.noise,
        step_s=None if place is None else pair[place].time_s,
        warnings=tuple(warnings),
    )
