"""What may be said about a pair: the gate between an estimate and a verb of comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from . import hodges_lehmann, pair_fit
from .base import CONFIDENCE, Estimate, Refusal, Slot

MARGIN = 0.02
"""Differences of 2 % and less are of no interest to the reader, resolved or not."""

STACKED = "decode_tok_s"
STACKING = f"stacking:{STACKED}"
"""Combined ratio ÷ product of the single ones, as if it were a metric of the combined arm."""

LARGER_IS_BETTER = frozenset({"decode_tok_s", "prefill_tok_s", "accept_length", STACKING})
"""Rates and lengths; of every other metric, a time in seconds, less is better."""


class Verdict(StrEnum):
    """In the reader's sense: `faster` is more tokens per second, or less time."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"
    UNPAIRED = "unpaired"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict with the two estimates it rests on; without numbers when it is `invalid`."""

    verdict: Verdict
    estimate: Estimate | None
    check: Estimate | None
    warnings: tuple[str, ...]


def larger_is_better(metric: str) -> bool:
    """Of a metric, or of one at some length (`prefill_tok_s@4096`)."""
    return metric.partition("@")[0] in LARGER_IS_BETTER


def times_as_fast(metric: str, ratio: float, low: float, high: float) -> tuple[float, float, float]:
    """A ratio arm ÷ reference and its interval, turned so that more than 1 favours the arm."""
    return (ratio, low, high) if larger_is_better(metric) else (1 / ratio, 1 / high, 1 / low)


def judge(metric: str, estimate: Estimate, check: Estimate, margin: float = MARGIN) -> Verdict:
    """The gate.

    `faster` or `slower`: the interval excludes 1, the ratio is beyond the margin, and the
    cross-check lies on the same side. `same`: the whole interval is within the margin.
    `unresolved`: all else. The margin is taken in logs, 1/(1 + m) to 1 + m, so that swapping the
    arms mirrors the verdict.
    """
    m = math.log1p(margin)
    if -m <= estimate.low and estimate.high <= m:
        return Verdict.SAME
    excludes_one = estimate.low > 0 or estimate.high < 0
    if excludes_one and abs(estimate.log_ratio) > m and agree(estimate, check):
        larger = estimate.log_ratio > 0
        return Verdict.FASTER if larger == larger_is_better(metric) else Verdict.SLOWER
    return Verdict.UNRESOLVED


def agree(estimate: Estimate, check: Estimate) -> bool:
    """Whether both estimates lie on the same side of 1."""
    return estimate.log_ratio * check.log_ratio > 0


def compare(
    slots: Iterable[Slot], *, metric: str, arm: str, reference: str, confidence: float = CONFIDENCE
) -> Comparison:
    """Estimate, cross-check and judge one pair.

    Adds the warning `hl_disagrees` where the cross-check alone held a difference back; about two
    equal arms the two estimates disagree half of the time, and that means nothing.
    """
    pair = tuple(slots)
    estimate = pair_fit.estimate(pair, arm=arm, reference=reference, confidence=confidence)
    check = hodges_lehmann.estimate(pair, arm=arm, reference=reference)
    if isinstance(estimate, Refusal):
        return Comparison(Verdict.INVALID, None, None, (estimate.reason,))
    if isinstance(check, Refusal):
        return Comparison(Verdict.INVALID, None, None, (check.reason,))
    verdict = judge(metric, estimate, check)
    held_back = verdict != judge(metric, estimate, estimate)
    doubts = ("hl_disagrees",) if held_back else ()
    return Comparison(verdict, estimate, check, estimate.warnings + doubts)
