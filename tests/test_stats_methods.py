"""Brackets, the best of several, prompts as the sample, and how many rounds are enough."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from twoturn.stats import best_of, bracketed, hodges_lehmann, pair_fit, planning, prompts
from twoturn.stats.base import Estimate, Refusal, Slot

# Brackets -----------------------------------------------------------------------------------------


def alternating(logs: list[float], ratio: float = 1.0, control: bool = True) -> list[Slot]:
    """A B A B …, one slot a minute, and the reference once more at the end."""
    found = []
    for place, log in enumerate(logs):
        arm = ("plain", "mtp")[place % 2]
        value = 40 * math.exp(log) * (ratio if arm == "mtp" else 1.0)
        found.append(Slot(arm, 1 + place // 2, "s0", 60.0 * place, value))
    return found if control else found[:-1]


def bracket(slots: list[Slot]) -> Estimate:
    result = bracketed.estimate(slots, arm="mtp", reference="plain")
    assert isinstance(result, Estimate)
    return result


NOISE = list(np.random.default_rng(1).normal(0, 0.03, 13))


def test_each_slot_stands_against_the_mean_of_its_neighbours() -> None:
    one = bracket(alternating(NOISE, 1.1))
    d = [NOISE[n] - (NOISE[n - 1] + NOISE[n + 1]) / 2 for n in range(1, 12, 2)]
    assert one.log_ratio == pytest.approx(np.mean(d) + math.log(1.1))
    assert (one.df, one.warnings) == (5, ())
    assert one.noise_log is not None


def test_a_steady_drift_leaves_it_alone_and_a_step_touches_one_bracket() -> None:
    steady = bracket(alternating(list(np.array(NOISE) - 0.1 * np.arange(13)), 1.1))
    assert steady.log_ratio == pytest.approx(bracket(alternating(NOISE, 1.1)).log_ratio)
    for place, sign in ((5, -1), (6, 1)):
        logs = np.array(NOISE) - 0.3 * (np.arange(13) >= place)
        shift = bracket(alternating(list(logs), 1.1)).log_ratio - steady.log_ratio
        assert shift == pytest.approx(sign * 0.3 / 2 / 6)


def test_a_slot_off_the_middle_is_weighted_by_time() -> None:
    slots = [replace(slot, time_s=slot.time_s**1.5) for slot in alternating(NOISE)]
    drifted = [replace(slot, value=slot.value * math.exp(-1e-4 * slot.time_s)) for slot in slots]
    assert bracket(drifted).log_ratio == pytest.approx(bracket(slots).log_ratio)


def test_carry_over_is_its_price() -> None:
    """Each slot after the arm runs 3 % slower: mirrored rounds cancel that, brackets do not."""
    slow = [log - 0.03 * (n > 0 and n % 2 == 0) for n, log in enumerate([0.0] * 13)]
    noise = np.random.default_rng(2).normal(0, 1e-4, 13)
    assert bracket(alternating(list(slow + noise))).log_ratio == pytest.approx(0.03, abs=0.005)


def test_what_has_no_bracket_is_left_out_and_told() -> None:
    one = bracket(alternating(NOISE, control=False))
    assert (one.df, one.warnings) == (4, ("unbracketed",))
    two = [
        replace(slot, session="s0" if slot.time_s < 400 else "s1") for slot in alternating(NOISE)
    ]
    assert set(bracket(two).warnings) <= {"unbracketed", "several_sessions"}
    assert "several_sessions" in bracket(two).warnings


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        (alternating([0.0] * 13), "no_noise"),
        (alternating(NOISE[:7]), "too_few_rounds"),
        ([], "too_few_rounds"),
        ([slot for slot in alternating(NOISE) if slot.arm == "mtp"], "too_few_rounds"),
        ([*alternating(NOISE), alternating(NOISE)[0]], "duplicate_rows"),
        ([replace(slot, value=0.0) for slot in alternating(NOISE)], "bad_value"),
        ([replace(slot, time_s=math.inf) for slot in alternating(NOISE)], "no_time"),
    ],
)
def test_brackets_refuse(slots: list[Slot], reason: str) -> None:
    assert bracketed.estimate(slots, arm="mtp", reference="plain") == Refusal(reason)


def test_brackets_cover_the_truth() -> None:
    """Nominal 99 %: fewer than 285 of 300 has a probability under 1e-6."""
    rng = np.random.default_rng(3)
    fits = [bracket(alternating(list(rng.normal(0, 0.04, 13)), 1.1)) for _ in range(300)]
    assert sum(one.low <= math.log(1.1) <= one.high for one in fits) >= 285


# The best of several ------------------------------------------------------------------------------

ARMS = ("b2", "b4", "b8")


def sweep(rounds: int = 6, **speed: float) -> list[Slot]:
    rng, found, place = np.random.default_rng(4), [], 0
    for number in range(1, rounds + 1):
        for arm in ("plain", *ARMS) if number % 2 else (*ARMS[::-1], "plain"):
            value = 40 * speed.get(arm, 1.0) * math.exp(rng.normal(0, 0.02))
            found.append(Slot(arm, number, "s0", 60.0 * place, value))
            place += 1
    return found


def choose(slots: list[Slot], **options: bool) -> best_of.Choice:
    result = best_of.choose(slots, arms=ARMS, reference="plain", **options)
    assert isinstance(result, best_of.Choice)
    return result


def test_the_best_is_chosen_on_rounds_that_do_not_report() -> None:
    slots = sweep(b4=1.3, b8=0.8)
    one = choose(slots)
    assert one.arm == "b4"
    assert (one.chosen_on, one.reported_on) == ((3, 4), (1, 2, 5, 6))
    left = [slot for slot in slots if slot.round in one.reported_on]
    assert one.estimate == pair_fit.estimate(left, arm="b4", reference="plain")
    assert one.check == hodges_lehmann.estimate(left, arm="b4", reference="plain")
    assert choose(slots, metric_is_time=True).arm == "b8"


def test_what_is_reported_knows_nothing_of_the_choice() -> None:
    slots = sweep(b4=1.3)
    luck = [replace(s, value=s.value * 3) if s.round == 3 and s.arm == "b2" else s for s in slots]
    one = choose(luck)
    assert one.arm == "b2"
    assert abs(one.estimate.log_ratio) < 0.1
    late = [replace(s, value=s.value * 3) if s.round == 5 and s.arm == "b2" else s for s in slots]
    assert choose(late).arm == "b4"


@pytest.mark.parametrize(
    ("rounds", "chosen"),
    [(6, [3, 4]), (8, [3, 4, 7, 8]), (10, [3, 4, 7, 8]), (12, [3, 4, 7, 8, 11, 12])],
)
def test_every_second_block_chooses(rounds: int, chosen: list[int]) -> None:
    one = choose(sweep(rounds))
    assert list(one.chosen_on) == chosen
    assert sorted(one.chosen_on + one.reported_on) == list(range(1, rounds + 1))
    assert len(one.reported_on) >= 4


@pytest.mark.parametrize(
    ("slots", "arms", "reason"),
    [
        (sweep(4), ARMS, "too_few_rounds"),
        (sweep(), (), "incomplete"),
        (sweep(), ("b2", "absent"), "incomplete"),
        ([slot for slot in sweep(8) if (slot.arm, slot.round) != ("b4", 8)], ARMS, "incomplete"),
        ([replace(slot, value=math.nan) for slot in sweep()], ARMS, "bad_value"),
        ([replace(slot, time_s=-slot.time_s) for slot in sweep()], ARMS, "clock_backwards"),
        ([replace(slot, session=f"s{slot.round > 4}") for slot in sweep()], ARMS, "too_few_slots"),
    ],
)
def test_a_choice_is_refused(slots: list[Slot], arms: tuple[str, ...], reason: str) -> None:
    assert best_of.choose(slots, arms=arms, reference="plain") == Refusal(reason)


# Prompts ------------------------------------------------------------------------------------------

LOGS = [0.1, 0.3, 0.2, 0.25, 0.05, 0.4, 0.15]


def over_prompts(pairs: list[tuple[str, float]]) -> Estimate:
    result = prompts.estimate(pairs)
    assert isinstance(result, Estimate)
    return result


def test_prompts_are_the_sample() -> None:
    one = over_prompts([(f"p{n}", log) for n, log in enumerate(LOGS)])
    theirs = stats.ttest_1samp(LOGS, 0.0)
    interval = theirs.confidence_interval(0.99)
    assert (one.low, one.high) == pytest.approx((interval.low, interval.high))
    assert (one.p_value, one.df) == pytest.approx((theirs.pvalue, 6))
    assert one.noise_log == pytest.approx(np.std(LOGS, ddof=1))


def test_more_rounds_of_a_prompt_are_no_more_prompts() -> None:
    once = over_prompts([(f"p{n}", log) for n, log in enumerate(LOGS)])
    pairs = [(f"p{n}", log + shift) for shift in (-0.02, 0.02) for n, log in enumerate(LOGS)]
    twice = over_prompts(pairs[::-1])
    assert (twice.low, twice.high, twice.df) == pytest.approx((once.low, once.high, once.df))


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats()), max_size=20))
def test_whatever_prompts_come_in(pairs: list[tuple[str, float]]) -> None:
    assert isinstance(prompts.estimate(pairs), (Estimate, Refusal))


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        (LOGS[:5], "too_few_prompts"),
        ([], "too_few_prompts"),
        ([*LOGS, math.nan], "bad_value"),
        ([*LOGS, -math.inf], "bad_value"),
        ([0.2] * 8, "no_noise"),
    ],
)
def test_prompts_refuse(logs: list[float], reason: str) -> None:
    assert prompts.estimate([(f"p{n}", log) for n, log in enumerate(logs)]) == Refusal(reason)


# Rounds -------------------------------------------------------------------------------------------


def test_the_error_is_that_of_a_pair_fit() -> None:
    rng = np.random.default_rng(5)
    slots = [
        Slot("mtp" if n % 4 in (1, 2) else "plain", 1 + n // 2, "s0", 60.0 * n, math.exp(log))
        for n, log in enumerate(rng.normal(0, 0.04, 12))
    ]
    one = pair_fit.estimate(slots, arm="mtp", reference="plain")
    assert isinstance(one, Estimate)
    assert one.noise_log is not None
    error = (one.high - one.low) / 2 / stats.t.ppf(0.995, 8)
    assert error == pytest.approx(one.noise_log * planning.unit_error(6))
    assert planning.unit_error(6) > math.sqrt(2 / 6)  # time costs something


def test_rounds_are_even_and_the_least_that_suffice() -> None:
    for noise in (0.01, 0.02, 0.04, 0.08):
        for effect in (-0.3, -0.1, 0.05, 0.1, 0.2):
            rounds = planning.rounds_needed(noise, effect)
            assert isinstance(rounds, int)
            assert rounds % 2 == 0
            assert planning.power_at(rounds, noise, effect) >= 0.8
            assert rounds == 4 or planning.power_at(rounds - 2, noise, effect) < 0.8
    assert planning.rounds_needed(1e-12, 0.05) == 4


def test_an_arm_and_its_reference_may_change_places() -> None:
    assert planning.rounds_needed(0.05, 0.1) == planning.rounds_needed(0.05, 1 / 1.1 - 1)


@given(
    st.floats(0.001, 0.3),
    st.floats(0.021, 2.0),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.sampled_from([0.95, 0.99]),
)
def test_more_is_asked_for_by_more_noise_power_and_confidence(
    noise: float, effect: float, power: float, confidence: float
) -> None:
    def needed(*args: float, **options: float) -> float:
        found = planning.rounds_needed(*args, **options)
        return found if isinstance(found, int) else math.inf

    rounds = needed(noise, effect, power=power, confidence=confidence)
    assert rounds <= needed(noise * 1.5, effect, power=power, confidence=confidence)
    assert rounds <= needed(noise, effect, power=(1 + power) / 2, confidence=confidence)
    assert rounds <= needed(noise, effect, power=power, confidence=(1 + confidence) / 2)
    assert rounds >= needed(noise, effect * 1.5, power=power, confidence=confidence)


@pytest.mark.parametrize(
    ("noise", "effect", "options", "reason"),
    [
        (0.5, 0.05, {}, "too_many_rounds"),
        (0.04, 0.02, {}, "within_margin"),
        (0.04, 0.0, {}, "within_margin"),
        (0.04, -0.015, {}, "within_margin"),
        (0.0, 0.05, {}, "bad_value"),
        (-1.0, 0.05, {}, "bad_value"),
        (math.nan, 0.05, {}, "bad_value"),
        (math.inf, 0.05, {}, "bad_value"),
        (0.04, -1.0, {}, "bad_value"),
        (0.04, math.nan, {}, "bad_value"),
        (0.04, math.inf, {}, "bad_value"),
        (0.04, 0.05, {"power": 1.0}, "bad_value"),
        (0.04, 0.05, {"power": math.nan}, "bad_value"),
        (0.04, 0.05, {"confidence": 0.0}, "bad_value"),
    ],
)
def test_rounds_are_refused(
    noise: float, effect: float, options: dict[str, float], reason: str
) -> None:
    assert planning.rounds_needed(noise, effect, **options) == Refusal(reason)
