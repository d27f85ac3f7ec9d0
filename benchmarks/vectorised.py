"""The project's estimators and its gate for many runs of one order at once.

The same formulas over a further axis; tests hold every function here to the one that it repeats.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from twoturn.stats import pair_fit, step
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.ols import TimeBasis
from twoturn.stats.verdict import MARGIN

from .series import Array, Layout


def columns(layout: Layout) -> Array:
    """(2n, k): the columns of `pair_fit`, without a step."""
    slots = layout.slots(np.zeros(len(layout.time)))
    basis = TimeBasis.of(slots)
    time = basis.columns([slot.time_s for slot in slots], [slot.session for slot in slots])
    return np.column_stack([layout.is_arm, time])


def fit(
    x: Array, logs: Array, level: float = step.LEVEL, confidence: float = CONFIDENCE
) -> tuple[Array, Array]:
    """`pair_fit.estimate`: log ratios (runs,) and half widths; NaN where it refuses."""
    n, k = x.shape
    if n - k < pair_fit.MIN_DF:
        return np.full(len(logs), np.nan), np.full(len(logs), np.nan)
    inverse = np.linalg.pinv(x)
    maker = np.eye(n) - x @ inverse
    rest = np.sum((logs @ maker) ** 2, axis=1)
    ratio = logs @ inverse[0]
    half = quantile(confidence, n - k) * np.sqrt(rest / (n - k)) * np.linalg.norm(inverse[0])
    df = n - k - 1
    places = step.places(x) if df >= step.MIN_DF and level else []
    if not places:
        return ratio, half
    steps = np.array([step.column(n, place) for place in places])
    free = steps @ maker
    gains = (logs @ free.T) ** 2 / np.sum(free**2, axis=1)
    best = np.argmax(gains, axis=1)
    gain = np.max(gains, axis=1)
    stepped = gain * df > f_limit(level / len(places), df) * (rest - gain)
    row = np.array([np.linalg.pinv(np.column_stack([x, one]))[0] for one in steps])[best]
    error = np.sqrt((rest - gain) / df) * np.linalg.norm(row, axis=1)
    return (
        np.where(stepped, np.sum(row * logs, axis=1), ratio),
        np.where(stepped, quantile(confidence, df) * error, half),
    )


def per_round(layout: Layout, logs: Array) -> Array:
    """(runs, n): log ratio of each round."""
    signed = logs * (2 * layout.is_arm - 1)
    d: Array = signed.reshape(len(logs), -1, 2).sum(axis=2)  # a round's two slots are neighbours
    return d


def check(layout: Layout, logs: Array) -> Array:
    """`hodges_lehmann.estimate`: log ratios (runs,)."""
    d = per_round(layout, logs)
    first, second = np.triu_indices(d.shape[1])
    walsh: Array = np.median((d[:, first] + d[:, second]) / 2, axis=1)
    return walsh


def called(ratio: Array, half: Array, check: Array) -> NDArray[np.int64]:
    """`verdict.judge` of a rate: 1 faster, −1 slower, 0 neither; NaN is neither."""
    m = math.log1p(MARGIN)
    low, high = ratio - half, ratio + half
    same = (-m <= low) & (high <= m)
    excludes_one = (low > 0) | (high < 0)
    differs = excludes_one & (np.abs(ratio) > m) & (ratio * check > 0) & ~same
    return np.where(differs, np.sign(np.nan_to_num(ratio)), 0).astype(np.int64)


@cache
def quantile(confidence: float, df: int) -> float:
    return float(stats.t.ppf((1 + confidence) / 2, df))


@cache
def f_limit(level: float, df: int) -> float:
    return float(stats.f.isf(level, 1, df))
