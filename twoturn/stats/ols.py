"""Ordinary least squares and the columns of time, shared by the fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from .base import Refusal, Slot

Array = NDArray[np.float64]

TOLD_APART = 0.1
"""A column of which less than this share is new beside the others is left out: hardly anything
could be told about it, and the others would pay with errors ten times as large."""

NO_NOISE = 1e-9
"""Residual spread, in logs, under which values are not measurements: a clock is coarser."""


@dataclass(frozen=True)
class Fit:
    """Coefficients `beta` (k,), their covariance (k, k), the residual degrees of freedom and the
    residual standard deviation `noise`, in the unit of y."""

    beta: Array
    covariance: Array
    df: int
    noise: float

    def interval(self, row: Array, confidence: float) -> tuple[float, float, float]:
        """`row @ beta` and its two-sided t interval: row·b ± t(df)·√(row·C·row)."""
        centre = float(row @ self.beta)
        half = float(stats.t.ppf((1 + confidence) / 2, self.df)) * self.error(row)
        return centre, centre - half, centre + half

    def p_value(self, row: Array) -> float:
        """Two-sided p-value of `row @ beta` against 0."""
        return float(2 * stats.t.sf(abs(float(row @ self.beta)) / self.error(row), self.df))

    def error(self, row: Array) -> float:
        """Standard error of `row @ beta`."""
        return float(np.sqrt(row @ self.covariance @ row))


def least_squares(x: Array, y: Array) -> Fit | Refusal:
    """Fit y (n,) on the columns of x (n, k); C = (XᵀX)⁻¹·RSS/(n − k).

    Reasons: `collinear` (the columns do not tell their effects apart), `too_few_slots` (no degree
    of freedom left), `no_noise` (a perfect fit: its interval of width zero would decide anything).
    """
    n, k = x.shape
    if np.linalg.matrix_rank(x) < min(n, k):
        return Refusal("collinear")
    if n <= k:
        return Refusal("too_few_slots")
    inverse = np.linalg.pinv(x)
    beta = inverse @ y
    variance = float(np.sum((y - x @ beta) ** 2)) / (n - k)
    if np.sqrt(variance) < NO_NOISE:
        return Refusal("no_noise")
    return Fit(beta, variance * (inverse @ inverse.T), n - k, float(np.sqrt(variance)))


def is_new(column: Array, known: Array) -> bool:
    """Whether a column (n,) holds enough that the known ones (n, k) do not (TOLD_APART).

    A column that is 0 throughout, as far as rounding of values within [−1, 1] can tell, does not.
    """
    rest = column - known @ (np.linalg.pinv(known) @ column)
    size = float(np.linalg.norm(column))
    return size > 1e-9 and float(np.linalg.norm(rest)) > TOLD_APART * size


@dataclass(frozen=True)
class TimeBasis:
    """Time, its square and one intercept per session: the drift that both arms have in common.

    Time runs on over sessions and is mapped onto [−1, 1], which changes no estimate and keeps the
    columns of like size. A session has its own intercept because the machine may have been
    restarted, cooled or updated in between.
    """

    centre: float
    scale: float
    sessions: tuple[str, ...]

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> TimeBasis:
        times = [slot.time_s for slot in slots]
        first, last = min(times), max(times)
        sessions = tuple(dict.fromkeys(slot.session for slot in slots))
        return cls((first + last) / 2, (last - first) / 2 or 1.0, sessions)

    def columns(self, times_s: Sequence[float], sessions: Sequence[str]) -> Array:
        """(n, 2 + number of sessions): t, t², one column per session."""
        t = (np.asarray(times_s, dtype=np.float64) - self.centre) / self.scale
        own = [[float(session == known) for known in self.sessions] for session in sessions]
        return np.column_stack([t, t**2, np.asarray(own, dtype=np.float64)])
