"""How many rounds an effect needs, from the noise that was seen.

With n mirrored rounds of two arms the pair fit estimates the log ratio with the standard error
noise·√c, c from its own columns (arm, time, time², intercept), and 2n − 4 degrees of freedom ν.
An effect δ is then found with the probability that a noncentral t exceeds the quantile of the
central one,

    power = P(T′(ν, δ/(noise·√c)) > t(ν)),

(the power of a t test), if its estimate is also beyond the margin. A step of the drift costs one
degree of freedom more, which is left out of account. The noise that was seen is an estimate as
well: with ν degrees of freedom its own relative error is about 1/√(2ν), a quarter at six rounds,
and the rounds that are needed go with its square.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy import stats

from .base import CONFIDENCE, MIN_ROUNDS, Refusal
from .verdict import MARGIN

MAX_ROUNDS = 100
"""What a campaign takes at most: better less noise than more rounds."""

FAR = 1e6
"""A noncentrality that is certain to be found; beyond it scipy's noncentral t overflows."""


def rounds_needed(
    noise_log: float, effect: float, *, power: float = 0.8, confidence: float = CONFIDENCE
) -> int | Refusal:
    """The least even number of rounds that finds an effect (0.05: a ratio of 1.05) with `power`.

    noise_log: residual standard deviation of a slot in logs, `Estimate.noise_log` of a pair fit.
    Reasons: `bad_value` (a number out of its range), `within_margin` (an effect that the gate
    calls no difference), `too_many_rounds` (more than 100).
    """
    sound = 0 < noise_log < math.inf and -1 < effect < math.inf
    if not (sound and 0 < power < 1 and 0 < confidence < 1):
        return Refusal("bad_value")
    if abs(math.log1p(effect)) <= math.log1p(MARGIN):
        return Refusal("within_margin")
    for rounds in range(MIN_ROUNDS, MAX_ROUNDS + 1, 2):
        if power_at(rounds, noise_log, effect, confidence=confidence) >= power:
            return rounds
    return Refusal("too_many_rounds")


def power_at(
    rounds: int, noise_log: float, effect: float, *, confidence: float = CONFIDENCE
) -> float:
    """Probability that an effect is called in its direction, by an even number of rounds.

    The interval and the margin each ask for an estimate that is large enough, so the smaller of
    the two probabilities is taken.
    """
    df, error = 2 * rounds - 4, noise_log * unit_error(rounds)
    delta = abs(math.log1p(effect))
    limit = float(stats.t.ppf((1 + confidence) / 2, df))
    excludes_one = float(stats.nct.sf(limit, df, min(delta / error, FAR)))
    beyond_margin = float(stats.norm.cdf((delta - math.log1p(MARGIN)) / error))
    return min(excludes_one, beyond_margin)


@cache
def unit_error(rounds: int) -> float:
    """Standard error of the log ratio at a noise of 1: √c for A B B A A B B A …, slots alike."""
    is_arm = np.array([place % 4 in (1, 2) for place in range(2 * rounds)], dtype=np.float64)
    t = np.linspace(-1.0, 1.0, 2 * rounds)
    inverse = np.linalg.pinv(np.column_stack([is_arm, t, t**2, np.ones_like(t)]))
    return float(np.linalg.norm(inverse[0]))
