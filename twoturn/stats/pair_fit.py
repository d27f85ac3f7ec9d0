"""One pair, one fit: log value on arm + time + time², an intercept per session.

Assumes noise of like size in both arms and a smooth drift common to both. Only the slots of the
two arms enter: a fit over all arms makes false claims when one of them is noisier, and a
speculative arm is. The square is what keeps a drift that levels off out of the ratio. Among the
orders and estimators simulated under 34 % of drift, ABBA with this fit had the smallest bias
without carry-over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from .base import CONFIDENCE, Estimate, Refusal, Slot, pair_of
from .ols import TimeBasis, least_squares

STRONG_DRIFT = 0.10
"""A fitted drift over the series beyond which the reader is told."""


def estimate(
    slots: Iterable[Slot], *, arm: str, reference: str, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """Ratio = exp(coefficient of the arm); t interval with 2n − 3 − sessions degrees of freedom.

    n rounds in one session leave 2n − 4. Drift = fitted reference at the last slot ÷ at the first.
    Warnings: `several_sessions`, `strong_drift`. Reasons: those of `pair_of` and `least_squares`.
    """
    pair = pair_of(slots, arm, reference)
    if isinstance(pair, Refusal):
        return pair
    basis = TimeBasis.of(pair)
    drift = basis.columns([slot.time_s for slot in pair], [slot.session for slot in pair])
    is_arm = np.array([float(slot.arm == arm) for slot in pair])
    fit = least_squares(
        np.column_stack([is_arm, drift]), np.log(np.array([slot.value for slot in pair]))
    )
    if isinstance(fit, Refusal):
        return fit
    effect = np.zeros(len(fit.beta))
    effect[0] = 1.0
    log_ratio, low, high = fit.interval(effect, confidence)
    drift_log = float((drift[-1] - drift[0]) @ fit.beta[1:])
    warnings = []
    if len(basis.sessions) > 1:
        warnings.append("several_sessions")
    if abs(drift_log) > math.log1p(STRONG_DRIFT):
        warnings.append("strong_drift")
    return Estimate(
        log_ratio, low, high, confidence, fit.p_value(effect), fit.df, drift_log, tuple(warnings)
    )
