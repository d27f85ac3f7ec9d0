"""Two arms on the same tasks: counts, intervals, verdicts, and how often these are wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import quality
from twoturn.stats import paired
from twoturn.stats.base import Refusal
from twoturn.stats.paired import Counts, Quality

TASKS = 80
COUNTS = st.tuples(*[st.integers(0, 40)] * 4).filter(lambda four: sum(four) >= paired.MIN_TASKS)


def test_pairs_are_counted_by_task() -> None:
    arm = {f"t{n}": n % 2 == 0 for n in range(20)}
    reference = {f"t{n}": n < 10 for n in reversed(range(20))}
    assert paired.count(arm, reference) == Counts(5, 5, 5, 5)


def test_what_cannot_be_paired() -> None:
    some = {f"t{n}": True for n in range(20)}
    assert paired.count(some, {**some, "t99": True}) == Refusal("tasks_differ")
    assert paired.count({"a": True}, {"a": True}) == Refusal("too_few_tasks")


def test_mcnemar_is_the_binomial_test_of_the_parted() -> None:
    assert paired.mcnemar(Counts(9, 1, 7, 20)) == pytest.approx(2 * (1 + 8) / 2**8)
    assert paired.mcnemar(Counts(30, 0, 0, 34)) == 1.0


def test_wilson_as_published() -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857, table I: 81 of 263, and 0 of 20."""
    assert paired.wilson(81 / 263, 263, 0.95) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert paired.wilson(0, 20, 0.95) == pytest.approx((0.0, 0.1611), abs=5e-5)


@given(COUNTS)
def test_the_interval_holds_the_difference_and_mirrors(four: tuple[int, int, int, int]) -> None:
    counts = Counts(*four)
    low, high = paired.newcombe(counts)
    assert -1 <= low <= counts.difference <= high <= 1
    mirrored = Counts(counts.both, counts.only_reference, counts.only_arm, counts.neither)
    assert paired.newcombe(mirrored) == pytest.approx((-high, -low))
    assert paired.mcnemar(mirrored) == pytest.approx(paired.mcnemar(counts))


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        (Counts(30, 0, 0, 34), "same"),
        (Counts(10, 1, 20, 33), "worse"),
        (Counts(10, 20, 1, 33), "better"),
        (Counts(28, 2, 6, 28), "unresolved"),
        (Counts(500, 0, 9, 500), "same"),  # p is small, and nobody would care
    ],
)
def test_verdicts(counts: Counts, verdict: str) -> None:
    assert paired.compare(counts).verdict == verdict


def test_the_power_grows_with_the_tasks() -> None:
    powers = [paired.power_at(tasks, 0.2, 0.3) for tasks in (32, 64, 128, 256)]
    assert powers == sorted(powers)
    assert powers[-1] > 0.99


def test_tasks_needed_are_enough_and_one_less_is_not() -> None:
    needed = paired.tasks_needed(-0.15, 0.3)
    assert isinstance(needed, int)
    assert paired.power_at(needed, 0.15, 0.3) >= 0.8
    assert paired.power_at(needed - 10, 0.15, 0.3) < 0.8


@pytest.mark.parametrize(
    ("difference", "discordant", "reason"),
    [
        (0.04, 0.1, "within_margin"),
        (0.2, 0.1, "bad_value"),
        (0.0, 0.1, "bad_value"),
    ],
)
def test_no_number_of_tasks(difference: float, discordant: float, reason: str) -> None:
    assert paired.tasks_needed(difference, discordant) == Refusal(reason)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("discordant", [0.1, 0.2, 0.4])
def test_few_differences_are_claimed_where_there_is_none(share: float, discordant: float) -> None:
    if not quality.possible(share, discordant):
        pytest.skip("there are no such tasks")
    rates = quality.simulate(TASKS, share, discordant, 0.0, 5000, seed=3)
    assert rates.better + rates.worse <= 0.02
    assert rates.covered >= 0.98


def test_a_large_loss_is_found_and_never_the_wrong_way() -> None:
    rates = quality.simulate(TASKS, 0.6, 0.3, -0.3, 2000, seed=4)
    assert rates.worse > 0.95
    assert rates.better == 0
    assert rates.worse == pytest.approx(paired.power_at(TASKS, 0.3, 0.3), abs=0.03)


def test_the_verdicts_have_their_words() -> None:
    assert {*Quality} == {"better", "worse", "same", "unresolved", "invalid", "not_measured"}
