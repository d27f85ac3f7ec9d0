"""Other orders and other estimates of the same ratio, for many runs of one order at once.

A rival takes a layout and log values (runs, 2n) and gives log ratios and half widths (runs,) at
99 %. Those of RIVALS are common practice, with their own order and no gate. Those of TRIED run in
the project's order behind the project's gate, in place of `pair_fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from twoturn.stats.base import CONFIDENCE

from .series import ARM, REFERENCE, Array, Layout, layout
from .vectorised import columns, fit, per_round, quantile

Method = Callable[[Layout, Array], tuple[Array, Array]]


def blocked(rounds: int) -> Layout:
    """A A A … B B B …"""
    return layout([(arm, n + 1) for arm in (REFERENCE, ARM) for n in range(rounds)], rounds)


def alternating(rounds: int) -> Layout:
    """A B A B …"""
    return layout([(arm, n + 1) for n in range(rounds) for arm in (REFERENCE, ARM)], rounds)


def welch(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Difference of the means; t with Welch's degrees of freedom."""
    groups = [logs[:, one.is_arm == which] for which in (1, 0)]
    n = groups[0].shape[1]
    first, second = (group.var(axis=1, ddof=1) / n for group in groups)
    df = (first + second) ** 2 / ((first**2 + second**2) / (n - 1))
    limit = np.interp(df, steps := np.arange(1, 2 * n), [quantile(CONFIDENCE, d) for d in steps])
    return groups[0].mean(axis=1) - groups[1].mean(axis=1), limit * np.sqrt(first + second)


def paired_t(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Mean of the rounds' log ratios; t(n − 1)."""
    return _mean_t(per_round(one, logs))


def bootstrap(one: Layout, logs: Array, resamples: int = 400) -> tuple[Array, Array]:
    """Mean of the rounds' log ratios; half of its percentile interval."""
    d = per_round(one, logs)
    pick = np.random.default_rng(0).integers(d.shape[1], size=(resamples, d.shape[1]))
    low, high = np.quantile(
        d[:, pick].mean(axis=2), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1
    )
    return d.mean(axis=1), (high - low) / 2


def _mean_t(d: Array) -> tuple[Array, Array]:
    n = d.shape[1]
    return d.mean(axis=1), quantile(CONFIDENCE, n - 1) * d.std(axis=1, ddof=1) / math.sqrt(n)


def _ols(x: Array, y: Array, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    return fit(x, y, level=0.0, confidence=confidence)


def no_step(one: Layout, logs: Array) -> tuple[Array, Array]:
    """`pair_fit` without its step: arm, time, time²."""
    return _ols(columns(one), logs)


def loose_step(one: Layout, logs: Array) -> tuple[Array, Array]:
    """`pair_fit` with a step at the level of 0.05."""
    return fit(columns(one), logs, level=0.05)


def strict_step(one: Layout, logs: Array) -> tuple[Array, Array]:
    """`pair_fit` with a step at the level of 0.001."""
    return fit(columns(one), logs, level=0.001)


def cubic(one: Layout, logs: Array) -> tuple[Array, Array]:
    """`pair_fit` with time³ in place of the step."""
    x = columns(one)
    return _ols(np.column_stack([x, x[:, 1] ** 3]), logs)


def pairs_and_time(one: Layout, logs: Array, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Log ratios of the rounds on how much later the arm was; t(n − 2)."""
    later = per_round(one, one.time[None, :].astype(np.float64))[0]
    return _ols(np.column_stack([np.ones_like(later), later]), per_round(one, logs), confidence)


def block_means(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Mean of two rounds as one value; t(n/2 − 1)."""
    d = per_round(one, logs)
    return _mean_t(d.reshape(len(d), -1, 2).mean(axis=2))


def neighbours(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Differences of neighbouring slots on arm and time, as if they were independent."""
    x = np.column_stack([np.diff(one.is_arm), np.diff(one.time)])
    return _ols(x, np.diff(logs, axis=1))


def bracketed(one: Layout, logs: Array) -> tuple[Array, Array]:
    """The arm against the reference slots around it, as in `stats.bracketed`."""
    arm, reference = np.flatnonzero(one.is_arm == 1), np.flatnonzero(one.is_arm == 0)
    rows = []
    for slot in arm[(arm > reference[0]) & (arm < reference[-1])]:
        first, last = reference[reference < slot][-1], reference[reference > slot][0]
        share = (one.time[slot] - one.time[first]) / (one.time[last] - one.time[first])
        row = np.zeros(len(one.time))
        row[[slot, first, last]] = 1.0, share - 1.0, -share
        rows.append(row)
    w = np.array(rows)
    m, shared = len(w), w @ w.T
    d = logs @ w.T
    variance = d.var(axis=1) * m / (np.trace(shared) - shared.sum() / m)
    error = np.sqrt(variance * shared.sum()) / m
    return d.mean(axis=1), quantile(CONFIDENCE, m - 1) * error


def either(one: Layout, logs: Array) -> tuple[Array, Array]:
    """The narrower of `no_step` and `pairs_and_time`, each at 99.5 %."""
    confidence = (1 + CONFIDENCE) / 2
    (first, half), (second, other) = (
        _ols(columns(one), logs, confidence),
        pairs_and_time(one, logs, confidence),
    )
    return np.where(half < other, first, second), np.minimum(half, other)


def huber(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Robust regression on the columns of `pair_fit`, Huber's weights."""
    return _robust(
        columns(one), logs, lambda u: (u < 1.345).astype(np.float64), lambda u: 1.345 / u
    )


def bisquare(one: Layout, logs: Array) -> tuple[Array, Array]:
    """Robust regression on the columns of `pair_fit`, Tukey's weights."""

    def slope(u: Array) -> Array:
        v = (u / 4.685) ** 2
        return np.where(v < 1, (1 - v) * (1 - 5 * v), 0.0)

    def weight(u: Array) -> Array:
        return np.maximum(1 - (u / 4.685) ** 2, 1e-3) ** 2

    return _robust(columns(one), logs, slope, weight)


def _robust(
    x: Array, y: Array, slope: Callable[[Array], Array], weight: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Iterated weighted least squares; covariance of P. J. Huber, Robust Statistics, 7.6."""
    n, k = x.shape
    inverse = np.linalg.pinv(x)
    spread = np.sqrt(1 - np.sum(x * inverse.T, axis=1))  # of a residual, in units of the noise
    beta = y @ inverse.T
    for _ in range(15):
        rest = y - beta @ x.T
        scale = np.median(np.abs(rest / spread), axis=1)[:, None] / 0.6745
        u = np.maximum(np.abs(rest / spread) / scale, 1e-9)
        w = np.minimum(weight(u), 1.0)
        a = np.einsum("ni,rn,nj->rij", x, w, x)
        beta = np.linalg.solve(a, np.einsum("ni,rn->ri", x, w * y)[..., None])[..., 0]
    rest = y - beta @ x.T
    kept = np.maximum(slope(u).mean(axis=1), 0.2)
    correction = 1 + k / n * (1 - kept) / kept
    variance = correction**2 * np.sum((w * rest) ** 2, axis=1) / (n - k) / kept**2
    error = np.sqrt(variance) * np.linalg.norm(inverse[0])
    return beta[:, 0], quantile(CONFIDENCE, n - k) * error


RIVALS: dict[str, tuple[Callable[[int], Layout], Method]] = {
    "A A A B B B, Welch": (blocked, welch),
    "A B A B, paired t": (alternating, paired_t),
    "A B A B, bootstrap of the mean": (alternating, bootstrap),
}
TRIED: dict[str, Method] = {
    "fit without a step": no_step,
    "fit, step at 0.05": loose_step,
    "fit, step at 0.001": strict_step,
    "fit with time³": cubic,
    "rounds with a term of order": pairs_and_time,
    "means of two rounds": block_means,
    "neighbouring slots": neighbours,
    "bracketed": bracketed,
    "narrower of two at 99.5 %": either,
    "Huber": huber,
    "bisquare": bisquare,
}
