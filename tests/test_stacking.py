"""Stacking: four arms in a square, with drift, with noise of their own, broken in every way."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from twoturn import claims, contrasts
from twoturn.stats import stacking
from twoturn.stats.base import Estimate, Refusal, Slot
from twoturn.stats.stacking import Square
from twoturn.stats.verdict import STACKING, Verdict

from .test_claims import sentence
from .test_contrasts import NULL, NUMBERS, Arm, Series, cells_of

SQUARE = Square("plain", ("q8", "mtp"), "q8_mtp")
SPEED = {"plain": 1.0, "q8": 0.7, "mtp": 1.5}
DRIFT = math.log(1 - 0.34)


def slots(
    stacked: float, *, rounds: int = 6, seed: int = 0, drift: float = DRIFT, noise: float = 0.03
) -> list[Slot]:
    """Shuffled blocks with their mirrors under a drift that levels off; the arm `mtp` is noisy."""
    rng, order = np.random.default_rng(seed), random.Random(seed)
    speed = {**SPEED, "q8_mtp": SPEED["q8"] * SPEED["mtp"] * stacked}
    found, block, now, whole = [], list(speed), 0.0, 60.0 * 4 * rounds
    for number in range(1, rounds + 1):
        if number % 2:
            order.shuffle(block)
        for arm in block if number % 2 else block[::-1]:
            lasts = 60 / speed[arm]
            pace = drift * (1 - math.exp(-3 * (now + lasts / 2) / whole))
            own = rng.normal(0, noise * (2 if arm == "mtp" else 1))
            value = 40 * speed[arm] * math.exp(pace + own)
            found.append(Slot(arm, number, "s1", now + lasts / 2, value))
            now += lasts
    return found


def fit(found: list[Slot], square: Square = SQUARE) -> Estimate:
    result = stacking.estimate(found, square)
    assert isinstance(result, Estimate)
    return result


@pytest.mark.parametrize("stacked", [0.92, 1.0, 1.1])
def test_intervals_hold_the_true_stacking_under_drift_and_unequal_noise(stacked: float) -> None:
    fits = [fit(slots(stacked, seed=seed, rounds=8)) for seed in range(200)]
    true = math.log(stacked)
    assert sum(one.low <= true <= one.high for one in fits) >= 194
    assert np.mean([one.log_ratio for one in fits]) == pytest.approx(true, abs=0.01)
    wrong = {Verdict.FASTER, Verdict.SLOWER} - ({Verdict.SLOWER} if stacked < 1 else set())
    wrong -= {Verdict.FASTER} if stacked > 1 else set()
    assert sum(stacking.judge(one) in wrong for one in fits) <= 6


def test_little_noise_finds_it() -> None:
    one = fit(slots(0.92, noise=0.003))
    assert math.exp(one.log_ratio) == pytest.approx(0.92, abs=0.01)
    assert stacking.judge(one) == Verdict.SLOWER
    assert stacking.judge(fit(slots(1.09, noise=0.003))) == Verdict.FASTER
    assert stacking.judge(fit(slots(1.0, noise=0.001, drift=-0.05))) == Verdict.SAME
    assert stacking.judge(fit(slots(0.99, noise=0.05))) == Verdict.UNRESOLVED


def test_it_is_the_mean_of_z_where_the_times_cancel() -> None:
    """Slots at the same middle times in a square pattern leave no drift to fit: n − 1 are left."""
    found = slots(0.92, drift=0.0)
    level = [replace(slot, time_s=float(slot.round)) for slot in found]
    one = fit(level)
    logs = {(slot.arm, slot.round): math.log(slot.value) for slot in level}
    z = [logs["q8_mtp", n] - logs["q8", n] - logs["mtp", n] + logs["plain", n] for n in range(1, 7)]
    assert one.log_ratio == pytest.approx(np.mean(z))
    assert one.df == 5
    assert fit(found).df == 3


def test_swapped_roles() -> None:
    """The two changes may change places; a single arm read as the combined one inverts it."""
    found = slots(0.92)
    one = fit(found)
    other = fit(found, Square("plain", ("mtp", "q8"), "q8_mtp"))
    assert (other.low, other.high) == pytest.approx((one.low, one.high))
    turned = fit(found, Square("q8", ("plain", "q8_mtp"), "mtp"))
    assert (turned.low, turned.high) == pytest.approx((-one.high, -one.low))


def test_a_round_that_went_on_in_another_session() -> None:
    found = slots(0.92, rounds=8, drift=0.0, noise=0.003)
    cut = sorted(found, key=lambda slot: slot.time_s)[18].time_s
    jumped = [
        replace(slot, session="s2", value=slot.value * 1.5) if slot.time_s >= cut else slot
        for slot in found
    ]
    one = fit(jumped)
    assert math.exp(one.log_ratio) == pytest.approx(0.92, abs=0.015)
    assert one.warnings == ("several_sessions",)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("bad_value", lambda found: [replace(found[0], value=0.0), *found[1:]]),
        ("no_time", lambda found: [replace(found[0], time_s=math.nan), *found[1:]]),
        ("duplicate_rows", lambda found: [found[0], *found]),
        ("incomplete", lambda found: found[1:]),
        ("too_few_rounds", lambda found: [slot for slot in found if slot.round < 3]),
        ("odd_rounds", lambda found: [slot for slot in found if slot.round < 6]),
        ("no_noise", lambda found: [replace(slot, value=1.0) for slot in found]),
        ("too_few_rounds", lambda found: []),
    ],
)
def test_refusals(reason: str, change: Any) -> None:
    assert stacking.estimate(change(slots(0.92)), SQUARE) == Refusal(reason)


# From cells ---------------------------------------------------------------------------------------


def series_of(*arms: Arm, null: bool = False, **changes: Any) -> Series:
    every = (Arm("plain"), *arms, *((Arm(NULL),) if null else ()))
    return Series(every, null_arm=NULL if null else None, metrics=("decode_tok_s",), **changes)


Q8 = Arm("q8", checkpoint="demo-q8")
MTP = Arm("mtp", speculation="mtp", block_size=4, draft="demo-mtp", settings={"a": 1, "b": [2]})
BOTH = replace(MTP, name="q8_mtp", checkpoint="demo-q8", settings={"b": [2], "a": 1})


def cells(series: Series, stacked: float = 0.8) -> pd.DataFrame:
    table = cells_of(series, decode={**SPEED, "q8_mtp": 0.7 * 1.5 * stacked}, drift=-0.3)
    table.loc[table["arm"].isin(["q8", "q8_mtp"]), "checkpoint"] = "demo-q8"
    return table


def row(table: pd.DataFrame, series: Series) -> dict[str, Any]:
    found = contrasts.from_cells(table, [series]).to_pylist()
    (mine,) = [one for one in found if one["metric"] == STACKING]
    return dict(mine)


def test_squares_of_a_series() -> None:
    more = (
        Arm("q4", checkpoint="demo-q4x"),
        replace(MTP, name="q4_mtp", checkpoint="demo-q4x"),
        replace(MTP, name="q8_mtp_8", checkpoint="demo-q8", block_size=8),
    )
    series = series_of(Q8, MTP, BOTH, *more, null=True)
    assert contrasts.squares(series) == (
        Square("plain", ("q8", "mtp"), "q8_mtp"),
        Square("plain", ("q4", "mtp"), "q4_mtp"),
    )
    assert contrasts.squares(replace(series, metrics=("ttft_s",))) == ()


@pytest.mark.parametrize("arms", [(Q8, MTP), (Q8, BOTH), (MTP, BOTH), ()])
def test_no_square_without_all_four_arms(arms: tuple[Arm, ...]) -> None:
    series = series_of(*arms)
    assert contrasts.squares(series) == ()
    found = contrasts.from_cells(cells(series), [series]).to_pylist()
    assert {one["metric"] for one in found} <= {"decode_tok_s"}


def test_the_whole_way_from_cells_to_the_sentence() -> None:
    series = series_of(Q8, MTP, BOTH, null=True)
    table = contrasts.from_cells(cells(series), [series])
    mine = table.to_pylist()[-1]
    assert (mine["metric"], mine["arm"], mine["reference"]) == (STACKING, "q8_mtp", "plain")
    assert mine["verdict"] == "slower"
    assert mine["ratio"] == pytest.approx(0.8, abs=0.04)
    assert mine["rounds"] == 6
    claim = claims.from_contrasts(table, [series]).to_pylist()
    (told,) = [one for one in claim if one["section"] == "stacking"]
    assert told["claim"] == f"two_turns/{STACKING}/q8_mtp"
    assert told["measured_value"] == mine["ratio"]
    assert sentence(told).startswith(
        "Together q8 and mtp give less than the product of their ratios: on these prompts q8_mtp "
    )


def test_a_cell_that_failed_in_one_single_arm_silences_it() -> None:
    series = series_of(Q8, MTP, BOTH)
    table = cells(series)
    table.loc[table.index[table["arm"] == "q8"][:1], "status"] = "stopped_early"
    found = row(table, series)
    assert (found["verdict"], found["warnings"]) == ("invalid", ["row_not_ok:stopped_early"])
    assert all(found[number] is None for number in NUMBERS)


def test_missing_arms_and_rounds_and_a_null_arm_that_differs() -> None:
    series = series_of(Q8, MTP, BOTH, null=True)
    table = cells(series)
    assert row(table[table["arm"] != "mtp"], series)["verdict"] == "not_measured"
    short = row(table[(table["arm"] != "mtp") | (table["round"] < 6)], series)
    assert (short["verdict"], short["warnings"]) == ("invalid", ["incomplete"])
    odd = table["arm"] == NULL
    table.loc[odd, "decode_s"] *= 1.5
    table.loc[odd, "e2e_s"] = table.loc[odd, "ttft_s"] + table.loc[odd, "decode_s"]
    failed = row(table, series)
    assert failed["warnings"][0].startswith(("null_arm_differs", "slots_overlap"))
    assert failed["verdict"] == "invalid"
