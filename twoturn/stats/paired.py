"""Two arms on the same tasks: passed or not, task by task.

Every task is its own pair, so what counts are the tasks that one of the two passes and the other
does not: b of the arm alone, c of the reference alone, n in all.

    difference  = (b - c) / n, of the shares that pass
    p           exact McNemar: b is binomial(b + c, 1/2) where nothing differs
    interval    Newcombe, Statistics in Medicine 17 (1998) 2635, method 10: the Wilson intervals of
                both shares, put together with their correlation (with continuity correction)

Tasks are the sample: the interval speaks for tasks like these. Rounds are none: a greedy answer
that comes twice is one answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from .base import CONFIDENCE, Refusal

MARGIN = 0.05
"""Of the share that passes: one task in twenty. A smaller difference would not change the choice
between two precisions, and the interval of sixty tasks that come out alike is as wide as this."""

MIN_TASKS = 20
"""Fewer cannot be told apart by anything but luck."""

MAX_TASKS = 20_000


class Quality(StrEnum):
    """In the reader's sense, about the arm."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True)
class Counts:
    """Tasks that both pass, the arm alone, the reference alone, neither."""

    both: int
    only_arm: int
    only_reference: int
    neither: int

    @property
    def tasks(self) -> int:
        return self.both + self.only_arm + self.only_reference + self.neither

    @property
    def difference(self) -> float:
        """Of the shares that pass, arm less reference."""
        return (self.only_arm - self.only_reference) / self.tasks

    @property
    def discordant(self) -> float:
        """Share of tasks on which the two part."""
        return (self.only_arm + self.only_reference) / self.tasks


@dataclass(frozen=True, slots=True)
class Paired:
    """A difference of shares with its interval, and the verdict that follows."""

    counts: Counts
    low: float
    high: float
    p_value: float
    verdict: Quality


def count(arm: Mapping[str, bool], reference: Mapping[str, bool]) -> Counts | Refusal:
    """The four counts of two arms' scores by task.

    Reasons: `tasks_differ` (one has a score that the other has not), `too_few_tasks`.
    """
    if set(arm) != set(reference):
        return Refusal("tasks_differ")
    if len(arm) < MIN_TASKS:
        return Refusal("too_few_tasks")
    return of_pairs((arm[task], reference[task]) for task in arm)


def of_pairs(pairs: Iterable[tuple[bool, bool]]) -> Counts:
    found = {key: 0 for key in ((True, True), (True, False), (False, True), (False, False))}
    for mine, other in pairs:
        found[bool(mine), bool(other)] += 1
    return Counts(*found.values())


def compare(counts: Counts, *, confidence: float = CONFIDENCE, margin: float = MARGIN) -> Paired:
    """The difference, its interval and its verdict.

    `better` or `worse`: McNemar's p is below 1 − confidence, the interval excludes 0, and the
    difference is beyond the margin. `same`: the whole interval is within the margin. Else
    `unresolved`.
    """
    low, high = newcombe(counts, confidence)
    p = mcnemar(counts)
    difference = counts.difference
    verdict = Quality.UNRESOLVED
    if -margin <= low and high <= margin:
        verdict = Quality.SAME
    elif p < 1 - confidence and (low > 0 or high < 0) and abs(difference) > margin:
        verdict = Quality.BETTER if difference > 0 else Quality.WORSE
    return Paired(counts, low, high, p, verdict)


def mcnemar(counts: Counts) -> float:
    """Exact two-sided p that the arms pass equally often."""
    parted = counts.only_arm + counts.only_reference
    return float(stats.binomtest(counts.only_arm, parted, 0.5).pvalue) if parted else 1.0


def newcombe(counts: Counts, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval of the difference of two paired shares."""
    n, a, d = counts.tasks, counts.both, counts.neither
    b, c = counts.only_arm, counts.only_reference
    one, other = (a + b) / n, (a + c) / n
    (l1, u1), (l2, u2) = (wilson(share, n, confidence) for share in (one, other))
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    product = float(a * d - b * c)
    if product > 0:
        product = max(product - n / 2, 0)
    phi = product / math.sqrt(margins) if margins else 0.0

    def reach(down: float, up: float) -> float:
        return math.sqrt(max(down**2 - 2 * phi * down * up + up**2, 0.0))

    difference = one - other
    return difference - reach(one - l1, u2 - other), difference + reach(u1 - one, other - l2)


def wilson(share: float, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of one share."""
    z = float(stats.norm.ppf((1 + confidence) / 2))
    middle = share + z**2 / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    below = 1 + z**2 / n
    return (middle - half) / below, (middle + half) / below


def power_at(
    tasks: int, difference: float, discordant: float, *, confidence: float = CONFIDENCE
) -> float:
    """Probability that a true difference is called in its direction by so many tasks.

    discordant: share of tasks on which the arms part; at least the difference. Exact over the
    number of such tasks, for the test; the margin is left out where the difference is beyond it.
    """
    parted = np.arange(tasks + 1)
    weight = stats.binom.pmf(parted, tasks, discordant)
    toward = (discordant + abs(difference)) / (2 * discordant)
    # The least count toward it that the exact test calls: P(X ≥ k | 1/2) ≤ (1 − confidence)/2.
    least = stats.binom.isf((1 - confidence) / 2, parted, 0.5) + 1
    called = np.where(least <= parted, stats.binom.sf(least - 1, parted, toward), 0.0)
    return float((weight * called).sum())


def tasks_needed(
    difference: float, discordant: float, *, power: float = 0.8, confidence: float = CONFIDENCE
) -> int | Refusal:
    """The number of tasks that finds a difference with `power`.

    Reasons: `bad_value`, `within_margin`, `too_many_tasks` (more than 20 000).
    """
    if not (0 < abs(difference) <= discordant <= 1 and 0 < power < 1):
        return Refusal("bad_value")
    if abs(difference) <= MARGIN:
        return Refusal("within_margin")

    def enough(tasks: int) -> bool:
        return power_at(tasks, difference, discordant, confidence=confidence) >= power

    few, many = 1, MIN_TASKS
    while not enough(many):
        few, many = many, 2 * many
        if many > MAX_TASKS:
            return Refusal("too_many_tasks")
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many
