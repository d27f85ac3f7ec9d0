"""Estimators and the gate: symmetries, bad inputs, and a small simulation of drift."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoturn.stats import best_of, bracketed, hodges_lehmann, pair_fit
from twoturn.stats.base import Estimate, Estimator, Refusal, Slot
from twoturn.stats.drift_curve import Curve, curve
from twoturn.stats.ols import least_squares
from twoturn.stats.verdict import Comparison, Verdict, compare, judge, times_as_fast

EVEN: tuple[Estimator, ...] = (pair_fit.estimate, hodges_lehmann.estimate)
METHODS = (*EVEN, bracketed.estimate)  # brackets treat arm and reference differently
DRIFT = math.log(1 - 0.34)


def abba(rounds: int) -> Iterator[tuple[int, str]]:
    for number in range(1, rounds + 1):
        for arm in ("plain", "mtp") if number % 2 else ("mtp", "plain"):
            yield number, arm


def slots(logs: Iterable[float], ratio: float = 1.0, sessions: int = 1) -> list[Slot]:
    """ABBA slots, one a minute, of 40 tok/s times exp(log), the arm `mtp` times the ratio."""
    logs = list(logs)
    return [
        Slot(
            arm,
            number,
            f"s{(number - 1) * sessions // (len(logs) // 2)}",
            60.0 * place,
            40 * math.exp(log) * (ratio if arm == "mtp" else 1),
        )
        for place, ((number, arm), log) in enumerate(zip(abba(len(logs) // 2), logs, strict=True))
    ]


def run(pair: Iterable[Slot], metric: str = "decode_tok_s") -> Comparison:
    return compare(pair, metric=metric, arm="mtp", reference="plain")


def fit(pair: Iterable[Slot], method: Estimator = pair_fit.estimate) -> Estimate:
    result = method(pair, arm="mtp", reference="plain")
    assert isinstance(result, Estimate)
    return result


# Every slot has noise of its own, so that no fit is perfect whatever hypothesis adds to it.
OWN = np.random.default_rng(0).normal(0, 0.01, 12)
noise = st.lists(st.floats(-0.2, 0.2), min_size=12, max_size=12).map(
    lambda values: list(np.add(values, OWN))
)


# Symmetries ---------------------------------------------------------------------------------------


@given(noise, st.floats(0.5, 2.0))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("method", EVEN)
def test_swapping_the_arms_inverts_ratio_and_interval(
    method: Estimator, logs: list[float], ratio: float
) -> None:
    one = fit(slots(logs, ratio), method)
    other = method(slots(logs, ratio), arm="plain", reference="mtp")
    assert isinstance(other, Estimate)
    assert one.log_ratio == pytest.approx(-other.log_ratio, abs=1e-9)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)


def alike(one: Estimate, other: Estimate) -> None:
    """Log ratio and interval, to within rounding."""
    assert one.log_ratio == pytest.approx(other.log_ratio, abs=1e-9)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-8)


@given(noise, st.floats(1e-6, 1e6))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("method", METHODS)
def test_scaling_all_values_changes_nothing(
    method: Estimator, logs: list[float], factor: float
) -> None:
    pair = slots(logs, 1.1)
    alike(
        fit([replace(slot, value=slot.value * factor) for slot in pair], method), fit(pair, method)
    )


@given(noise, st.floats(1e-3, 1e4), st.floats(-1e6, 1e6))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("method", METHODS)
def test_another_clock_changes_nothing(
    method: Estimator, logs: list[float], rate: float, offset: float
) -> None:
    pair = slots(logs, 1.1)
    moved = [replace(slot, time_s=offset + rate * slot.time_s) for slot in pair]
    one, other = fit(moved, method), fit(pair, method)
    assert one.log_ratio == pytest.approx(other.log_ratio, abs=1e-6)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-5)


@given(noise, st.floats(0.5, 2.0))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("method", METHODS)
def test_a_true_ratio_shifts_the_estimate_and_nothing_else(
    method: Estimator, logs: list[float], ratio: float
) -> None:
    one, other, shift = fit(slots(logs, ratio), method), fit(slots(logs), method), math.log(ratio)
    assert one.log_ratio == pytest.approx(other.log_ratio + shift, abs=1e-9)
    assert (one.low, one.high) == pytest.approx((other.low + shift, other.high + shift), abs=1e-8)


@given(noise, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_rows_changes_nothing(logs: list[float], shuffler: object) -> None:
    pair = slots(logs, 1.1)
    mixed = list(pair)
    shuffler.shuffle(mixed)  # type: ignore[attr-defined]
    assert run(mixed) == run(pair)
    assert fit(mixed, bracketed.estimate) == fit(pair, bracketed.estimate)


@given(st.floats(-0.5, 0.5), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(-0.5, 0.5))
def test_an_interval_has_one_verdict_of_its_own(
    centre: float, below: float, above: float, check: float
) -> None:
    """`faster` and `slower` need an interval on one side of 1 and beyond the margin; never `same`
    with a bound beyond it; and a time is judged as the inverse rate."""
    one = Estimate(centre, centre - below, centre + above, 0.99)
    cross = Estimate(check, -1.0, 1.0, 0.969)
    verdict, m = judge("decode_tok_s", one, cross), math.log(1.02)
    assert (verdict == Verdict.SAME) == (-m <= one.low and one.high <= m)
    if verdict in (Verdict.FASTER, Verdict.SLOWER):
        sign = 1 if verdict == Verdict.FASTER else -1
        assert min(sign * one.low, sign * one.high) > 0
        assert sign * centre > m
        assert sign * check > 0
    mirror = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    assert judge("ttft_s", one, cross) == mirror.get(verdict, verdict)


@given(noise, st.floats(0.5, 2.0))
@settings(max_examples=40, deadline=None)
def test_a_verdict_is_mirrored_and_a_time_is_read_the_other_way(
    logs: list[float], ratio: float
) -> None:
    mirror = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    rate = run(slots(logs, ratio)).verdict
    assert run(slots(logs, ratio), "ttft_s").verdict == mirror.get(rate, rate)
    swapped = compare(slots(logs, ratio), metric="ttft_s", arm="plain", reference="mtp").verdict
    assert swapped == rate


# The fit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "sessions", "df"), [(4, 1, 4), (6, 1, 8), (6, 2, 7), (8, 3, 10)]
)
def test_degrees_of_freedom(rounds: int, sessions: int, df: int) -> None:
    logs = np.random.default_rng(1).normal(0, 0.04, 2 * rounds)
    result = fit(slots(logs, 1.2, sessions))
    assert result.df == df
    assert ("several_sessions" in result.warnings) == (sessions > 1)


def test_agrees_with_statsmodels() -> None:
    api = pytest.importorskip("statsmodels.api")
    pair = slots(np.random.default_rng(2).normal(0, 0.04, 12), 1.2)
    t = np.array([slot.time_s for slot in pair])
    x = np.column_stack([[slot.arm == "mtp" for slot in pair], t, t**2, np.ones(12)]).astype(float)
    theirs = api.OLS(np.log([slot.value for slot in pair]), x).fit()
    ours = fit(pair)
    assert ours.log_ratio == pytest.approx(theirs.params[0], abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx(theirs.conf_int(0.01)[0], abs=1e-9)
    assert ours.p_value == pytest.approx(theirs.pvalues[0], abs=1e-9)


def test_drift_is_told_and_warned_about() -> None:
    logs = DRIFT * np.arange(12) / 11 + np.random.default_rng(3).normal(0, 0.001, 12)
    result = fit(slots(logs))
    assert result.drift_log == pytest.approx(DRIFT, abs=0.01)
    assert "strong_drift" in result.warnings
    assert "strong_drift" not in fit(slots(logs - DRIFT * np.arange(12) / 11)).warnings


def test_a_jump_between_sessions_is_not_an_effect() -> None:
    logs = np.random.default_rng(4).normal(0, 0.01, 12)
    logs[6:] += 0.5
    result = run(slots(logs, 1.0, sessions=2))
    assert result.verdict not in (Verdict.FASTER, Verdict.SLOWER)


@pytest.mark.parametrize(("rounds", "confidence"), [(4, 0.875), (6, 0.969), (8, 0.992)])
def test_hodges_lehmann_tells_its_true_confidence(rounds: int, confidence: float) -> None:
    logs = np.random.default_rng(5).normal(0, 0.04, 2 * rounds)
    result = fit(slots(logs, 1.2), hodges_lehmann.estimate)
    assert result.confidence == pytest.approx(confidence, abs=5e-4)
    assert result.low < result.log_ratio < result.high


def test_hodges_lehmann_shrugs_off_one_slow_round() -> None:
    logs = np.zeros(16)
    logs[7] = -0.5
    assert fit(slots(logs, 1.2), hodges_lehmann.estimate).log_ratio == pytest.approx(math.log(1.2))


# A step -------------------------------------------------------------------------------------------


def stepped(place: int, rounds: int = 6, size: float = DRIFT, seed: int = 21) -> list[float]:
    logs = np.random.default_rng(seed).normal(0, 0.02, 2 * rounds)
    logs[place:] += size
    return list(logs)


@pytest.mark.parametrize("place", range(1, 12))
def test_a_sudden_step_is_found_where_it_is(place: int) -> None:
    result = fit(slots(stepped(place), 1.2))
    assert result.step_s == 60.0 * place
    assert result.df == 7
    assert math.exp(result.log_ratio) == pytest.approx(1.2, abs=0.06)
    assert run(slots(stepped(place), 1.2)).verdict == Verdict.FASTER
    assert result.noise_log == pytest.approx(0.02, rel=0.6)


def test_the_step_is_part_of_the_drift() -> None:
    result = fit(slots(stepped(5)))
    assert result.drift_log == pytest.approx(DRIFT, abs=0.1)
    assert "strong_drift" in result.warnings


def test_a_fit_with_its_step_is_least_squares_with_one_more_column() -> None:
    pair = slots(stepped(5), 1.1)
    t = np.linspace(-1, 1, 12)
    own = [float(slot.arm == "mtp") for slot in pair]
    x = np.column_stack([own, t, t**2, np.ones(12), np.arange(12) >= 5]).astype(float)
    fitted = least_squares(x, np.log([slot.value for slot in pair]))
    assert not isinstance(fitted, Refusal)
    ours = fit(pair)
    row = np.eye(5)[0]
    assert (ours.log_ratio, ours.low, ours.high) == pytest.approx(fitted.interval(row, 0.99))
    assert ours.noise_log == pytest.approx(fitted.noise)


@pytest.mark.parametrize("shape", [lambda t: t, lambda t: t**2, lambda t: t**3, lambda t: 0 * t])
def test_a_smooth_drift_has_no_step(shape: Callable[[np.ndarray], np.ndarray]) -> None:
    """LEVEL is 1 %: more than 6 of 200 have a probability under 0.5 %."""
    rng = np.random.default_rng(22)
    drift = DRIFT * shape(np.linspace(0, 1, 12))
    fits = [fit(slots(drift + rng.normal(0, 0.04, 12))) for _ in range(200)]
    assert sum(one.step_s is not None for one in fits) <= 6


def test_four_rounds_have_no_step() -> None:
    result = fit(slots(stepped(3, rounds=4, size=-2.0)))
    assert (result.step_s, result.df) == (None, 4)


def test_the_jump_between_two_sessions_is_no_step() -> None:
    logs = stepped(6)
    assert fit(slots(logs, sessions=2)).step_s is None
    assert fit(slots(logs, sessions=1)).step_s == 360.0


def test_four_rounds_in_two_sessions_are_too_few() -> None:
    logs = np.random.default_rng(23).normal(0, 0.04, 8)
    assert run(slots(logs, 1.5)).verdict == Verdict.FASTER
    result = run(slots(logs, 1.5, sessions=2))
    assert (result.verdict, result.warnings) == (Verdict.INVALID, ("too_few_slots",))


# The gate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "ratio", "high", "check", "verdict"),
    [
        (1.05, 1.10, 1.15, 1.08, "faster"),
        (0.85, 0.90, 0.95, 0.92, "slower"),
        (1.05, 1.10, 1.15, 0.99, "unresolved"),  # the cross-check is on the other side
        (0.99, 1.005, 1.015, 1.00, "same"),
        (1.001, 1.010, 1.019, 1.01, "same"),  # resolved, but of no interest
        (1.001, 1.015, 1.030, 1.01, "unresolved"),  # neither within nor beyond the margin
        (0.90, 1.10, 1.30, 1.10, "unresolved"),
    ],
)
def test_gate(low: float, ratio: float, high: float, check: float, verdict: str) -> None:
    estimate = Estimate(math.log(ratio), math.log(low), math.log(high), 0.99)
    cross = Estimate(math.log(check), -1.0, 1.0, 0.875)
    assert judge("decode_tok_s", estimate, cross) == verdict


def test_a_difference_that_only_the_fit_sees_is_held_back() -> None:
    """A B A B under a steep fall: the fit finds +5 %, the rounds themselves say the opposite."""
    rng = np.random.default_rng(12)
    pair = [
        Slot(arm, number, "s0", 60.0 * place, 40 * math.exp(log) * (1.05 if arm == "mtp" else 1))
        for place, (number, arm, log) in enumerate(
            (1 + place // 2, ("plain", "mtp")[place % 2], -0.1 * place + rng.normal(0, 0.003))
            for place in range(12)
        )
    ]
    result = run(pair)
    assert result.verdict == "unresolved"
    assert "hl_disagrees" in result.warnings


def test_times_as_fast_turns_times_and_keeps_rates() -> None:
    assert times_as_fast("decode_tok_s", 2.0, 1.6, 2.5) == (2.0, 1.6, 2.5)
    assert times_as_fast("turn2_ttft_s", 0.5, 0.4, 0.625) == (2.0, 1.6, 2.5)


# Bad inputs ---------------------------------------------------------------------------------------


def _with(value: float) -> list[Slot]:
    pair = slots(np.random.default_rng(6).normal(0, 0.04, 12))
    return [*pair[:-1], Slot(pair[-1].arm, 6, "s0", pair[-1].time_s, value)]


GOOD = slots(np.random.default_rng(7).normal(0, 0.04, 12))


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (_with(math.nan), "bad_value"),
        (_with(math.inf), "bad_value"),
        (_with(0.0), "bad_value"),
        (_with(-1.0), "bad_value"),
        ([*GOOD[:-1], Slot("plain", 6, "s0", math.nan, 40.0)], "no_time"),
        ([*GOOD, GOOD[0]], "duplicate_rows"),
        (GOOD[:-1], "incomplete"),
        ([], "too_few_rounds"),
        (GOOD[:4], "too_few_rounds"),
        (GOOD[:10], "odd_rounds"),
        (slots(np.zeros(12)), "no_noise"),
        (slots(np.zeros(12), 1.5), "no_noise"),
        (slots(DRIFT * np.arange(12) / 11), "no_noise"),
        (
            [Slot(s.arm, s.round, s.arm, s.time_s, s.value) for s in GOOD],  # a session per arm
            "collinear",
        ),
        ([Slot(s.arm, s.round, "s0", 5.0, s.value) for s in GOOD], "collinear"),
        ([replace(s, time_s=s.time_s * 1e300) for s in GOOD], "no_time"),
        ([s for s in GOOD if s.arm == "plain"], "incomplete"),
        (GOOD[:2], "too_few_rounds"),
        ([replace(s, time_s=-s.time_s) for s in GOOD], "clock_backwards"),
        ([*GOOD[:-1], replace(GOOD[-1], time_s=5.0)], "clock_backwards"),
    ],
)
def test_a_bad_input_is_invalid_with_its_reason(pair: list[Slot], reason: str) -> None:
    result = run(pair)
    assert (result.verdict, result.warnings) == (Verdict.INVALID, (reason,))
    assert result.estimate is None


@given(
    st.lists(
        st.builds(
            Slot,
            st.sampled_from(["plain", "mtp", "other"]),
            st.integers(1, 6),
            st.sampled_from(["a", "b"]),
            st.floats(),
            st.floats(),
        ),
        max_size=16,
    )
)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_in_a_verdict_comes_out(pair: list[Slot]) -> None:
    assert run(pair).verdict in set(Verdict)
    assert isinstance(curve(pair, reference="plain"), (Curve, Refusal))
    for method in METHODS:
        assert isinstance(method(pair, arm="mtp", reference="plain"), (Estimate, Refusal))
    best = best_of.choose(pair, arms=["mtp", "other"], reference="plain")
    assert isinstance(best, (best_of.Choice, Refusal))


odd = st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-320, 1e308, 5.0])
whole = st.lists(odd | st.floats(1e-3, 1e3), min_size=12, max_size=12)
ticks = st.lists(odd | st.integers(0, 20).map(float), min_size=12, max_size=12)


@given(whole, ticks, st.lists(st.sampled_from("ab"), min_size=12, max_size=12))
@settings(max_examples=150, deadline=None)
def test_complete_rounds_with_odd_numbers_give_a_verdict_or_a_reason(
    values: list[float], times: list[float], sessions: list[str]
) -> None:
    """As above, but so that it gets through to the fits."""
    pair = [
        replace(slot, value=value, time_s=time, session=session)
        for slot, value, time, session in zip(GOOD, values, sorted(times), sessions, strict=True)
    ]
    result = run(pair)
    assert result.verdict in set(Verdict)
    if result.estimate is not None:
        bounds = (result.estimate.low, result.estimate.log_ratio, result.estimate.high)
        assert bounds == tuple(sorted(bounds))
        assert all(math.isfinite(bound) for bound in bounds)
    for method in METHODS:
        assert isinstance(method(pair, arm="mtp", reference="plain"), (Estimate, Refusal))
    assert isinstance(curve(pair, reference="plain"), (Curve, Refusal))


# Simulation ---------------------------------------------------------------------------------------


def _verdicts(
    rng: np.random.Generator, runs: int, ratio: float, drift: np.ndarray
) -> list[Verdict]:
    return [run(slots(drift + rng.normal(0, 0.04, len(drift)), ratio)).verdict for _ in range(runs)]


@pytest.mark.parametrize("shape", ["linear", "saturating", "late", "step", "walk"])
@pytest.mark.parametrize("rounds", [4, 6])
def test_drift_alone_is_not_called_a_difference(shape: str, rounds: int) -> None:
    """Nominal 1 %; more than 3.3 % of 300 would be far outside of what the gate is built for."""
    rng = np.random.default_rng(8)
    time = np.linspace(0, 1, 2 * rounds)

    def drift() -> np.ndarray:
        steps = rng.normal(0, 1, len(time)).cumsum()
        return (
            DRIFT
            * {
                "linear": time,
                "saturating": (1 - np.exp(-time / 0.2)) / (1 - math.exp(-5)),
                "late": time**3,
                "step": (time > rng.uniform()).astype(float),
                "walk": steps / math.sqrt(len(time)),
            }[shape]
        )

    found = [verdict for _ in range(300) for verdict in _verdicts(rng, 1, 1.0, drift())]
    called = sum(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in found)
    assert called <= 10


def test_a_fifth_more_at_six_rounds_is_found_under_drift() -> None:
    rng = np.random.default_rng(9)
    found = _verdicts(rng, 200, 1.2, DRIFT * np.linspace(0, 1, 12))
    assert found.count(Verdict.FASTER) >= 190
    assert found.count(Verdict.SLOWER) == 0


def test_the_interval_covers_the_truth() -> None:
    """Nominal 99 %: fewer than 285 of 300 has a probability under 1e-6."""
    rng = np.random.default_rng(10)
    drift = DRIFT * np.linspace(0, 1, 12)
    fits = [fit(slots(drift + rng.normal(0, 0.04, 12), 1.1)) for _ in range(300)]
    assert sum(one.low <= math.log(1.1) <= one.high for one in fits) >= 285


# Drift --------------------------------------------------------------------------------------------


def test_the_drift_curve_is_the_reference_over_time() -> None:
    logs = DRIFT * np.arange(12) / 11 + np.random.default_rng(11).normal(0, 0.002, 12)
    fitted = curve(slots(logs, 1.5), reference="plain")
    assert isinstance(fitted, Curve)
    first, low, high = fitted.at(0.0, "s0")
    assert low < first < high
    assert first == pytest.approx(40, rel=0.01)
    assert fitted.at(660.0, "s0")[0] == pytest.approx(40 * 0.66, rel=0.01)
    assert fitted.at(660.0, "another session") == fitted.at(660.0, "s0")
