"""Hodges–Lehmann over the per-round log ratios: the robust cross-check of the pair fit.

Assumes only that the log ratios of the rounds are symmetric about the true one. One slow round in
ten moves it less than it moves a mean; an order and its mirror cancel a steady drift between two
rounds. (J. L. Hodges, E. L. Lehmann, Ann. Math. Statist. 34, 1963; interval: signed-rank test
inverted.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from .base import CONFIDENCE, Estimate, Refusal, Slot, pair_of


def estimate(
    slots: Iterable[Slot], *, arm: str, reference: str, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """Median of the Walsh averages (dᵢ + dⱼ)/2, i ≤ j; interval from the smallest to the largest.

    That is the widest interval the signed-rank test has, and its confidence is 1 − 2^(1−n): 87.5 %
    at four rounds, 96.9 % at six, 99.2 % at eight. This, and not the wish in `confidence`, is
    returned.
    """
    pair = pair_of(slots, arm, reference)
    if isinstance(pair, Refusal):
        return pair
    logs = {(slot.arm, slot.round): math.log(slot.value) for slot in pair}
    rounds = sorted({slot.round for slot in pair})
    d = np.array([logs[arm, round_] - logs[reference, round_] for round_ in rounds])
    first, second = np.triu_indices(len(d))
    walsh = (d[first] + d[second]) / 2
    return Estimate(
        float(np.median(walsh)), float(walsh.min()), float(walsh.max()), 1 - 2.0 ** (1 - len(d))
    )
