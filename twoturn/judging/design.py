"""The order of two arms in time, and what follows from it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from twoturn.stats.base import Slot

Order = Literal["unknown", "blocked", "irregular", "alternating", "mirrored", "shuffled"]

INTERLEAVED = frozenset({"alternating", "mirrored", "shuffled"})
"""Each round holds both arms, one right after the other: what the pair fit needs."""


@dataclass(frozen=True)
class Design:
    """`rounds`: how many hold both arms; 0 where nothing pairs the runs. `runs`: of the arm with
    fewer of them."""

    order: Order
    rounds: int
    runs: int

    @property
    def interleaved(self) -> bool:
        return self.order in INTERLEAVED

    @property
    def reach(self) -> float:
        """1 − 2^(1 − n), the most that an interval over n rounds can have without assuming a shape
        of the noise: that of the signed-rank test from its smallest to its largest value."""
        return 1 - 2.0 ** (1 - self.rounds)

    @property
    def drift_parts(self) -> int:
        """2n − 1: under a steady log drift D from the first slot to the last, A B A B shifts the
        mean log ratio of n rounds by D ÷ (2n − 1), because every B is one slot later than its A."""
        return 2 * self.rounds - 1


def of(slots: Sequence[Slot], arm: str, reference: str, *, ordered: bool, numbered: bool) -> Design:
    """The design of one pair, from its slots.

    `blocked`: one arm after the other. `alternating`: A B A B. `mirrored`: two rounds are an order
    and its mirror. `shuffled`: rounds in changing order, not mirrored. `irregular`: no rounds.
    """
    pair = sorted((slot for slot in slots if slot.arm in (arm, reference)), key=_moment)
    runs = min(sum(slot.arm == name for slot in pair) for name in (arm, reference))
    if not ordered:
        return Design("unknown", runs if numbered else 0, runs)
    if sum(one.arm != two.arm for one, two in pairwise(pair)) == 1:
        return Design("blocked", 0, runs)
    rounds = list(zip(pair[::2], pair[1::2], strict=False))
    whole = (
        rounds
        and len(pair) % 2 == 0
        and all(first.arm != second.arm and first.round == second.round for first, second in rounds)
    )
    if not whole:
        return Design("irregular", 0, runs)
    return Design(_turns([first.arm for first, _ in rounds]), len(rounds), runs)


def _moment(slot: Slot) -> tuple[float, int, str]:
    return slot.time_s, slot.round, slot.arm


def _turns(first: Sequence[str]) -> Order:
    """Which arm begins a round, round by round."""
    if len(set(first)) == 1:
        return "alternating"
    blocks = zip(first[::2], first[1::2], strict=False)
    return "mirrored" if all(one != two for one, two in blocks) else "shuffled"


def paired_median(slots: Sequence[Slot], arm: str, reference: str) -> float:
    """The median over the rounds of arm ÷ reference, as much of what is published is computed.

    It has no model of a drift and no interval."""
    values = {(slot.arm, slot.round): slot.value for slot in slots}
    rounds = sorted(round_ for name, round_ in values if name == reference)
    return statistics.median(values[arm, round_] / values[reference, round_] for round_ in rounds)


def ratio_of_medians(slots: Sequence[Slot], arm: str, reference: str) -> float:
    """Where nothing pairs the runs."""
    of_arm, of_reference = (
        statistics.median(slot.value for slot in slots if slot.arm == name)
        for name in (arm, reference)
    )
    return of_arm / of_reference


def alternating_shift(design: Design, drift_log: float) -> float:
    """By which factor a fitted drift moves the plain ratio of A B A B."""
    return math.exp(drift_log / design.drift_parts)
