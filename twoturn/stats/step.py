"""One sudden step in a drift that is smooth otherwise, looked for and taken only if it is plain.

A clock that is throttled, a neighbour that starts: the level jumps between two slots and stays.
Time and its square cannot follow, so the jump ends up in the residuals and every interval grows
wide. One more column, 0 before and 1 after, takes it out. Looking at every place and keeping the
best one invites false finds, which would make intervals too narrow. Hence the price: F test of the
best place at LEVEL ÷ number of places (Bonferroni; the sup-F test of D. W. K. Andrews,
Econometrica 61, 1993, without its asymptotics), and none where few degrees of freedom are left.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from .ols import Array, is_new

LEVEL = 0.01
"""How often a smooth drift alone may be given a step, over all places together. At 0.05 false steps
make too many false claims, at 0.001 many true ones stay (docs/statistics.md)."""

MIN_DF = 6
"""Degrees of freedom that have to be left with the step: six rounds in two sessions."""


def places(x: Array) -> list[int]:
    """Numbers of the slots before which a step can be told from the columns of x (n, k)."""
    return [place for place in range(1, len(x)) if is_new(column(len(x), place), x)]


def column(n: int, place: int) -> Array:
    """(n,): 0 before the slot `place`, 1 from there on."""
    return (np.arange(n) >= place).astype(np.float64)


def find(x: Array, y: Array) -> int | None:
    """The place at which a step explains most of what x leaves of y (n,), in order of time.

    None if no place reaches F(1, n − k − 1) at LEVEL ÷ places, or too little would be left.
    """
    n, k = x.shape
    df = n - k - 1
    candidates = places(x) if df >= MIN_DF else []
    if not candidates:
        return None
    steps = np.array([column(n, place) for place in candidates])
    residual_maker = np.eye(n) - x @ np.linalg.pinv(x)
    free = steps @ residual_maker
    rest = float(y @ residual_maker @ y)
    gains = (free @ y) ** 2 / np.sum(free**2, axis=1)
    best = int(np.argmax(gains))
    limit = float(stats.f.isf(LEVEL / len(candidates), 1, df))
    return candidates[best] if gains[best] * df > limit * (rest - gains[best]) else None
