"""The simulation: it runs the project's own methods, and they keep their limits."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import others, rivals, statistics, vectorised
from benchmarks.series import (
    ARM,
    DRIFT,
    REFERENCE,
    SESSIONS,
    SHAPES,
    Array,
    Layout,
    Setting,
    draw,
    interleaved,
    many,
)
from twoturn import plan
from twoturn.stats import bracketed, hodges_lehmann, pair_fit
from twoturn.stats.base import Estimate, Refusal
from twoturn.stats.verdict import Verdict, compare

CALLED = {Verdict.FASTER: 1, Verdict.SLOWER: -1}
CASES = [
    Setting(rounds, arms, noise, shape, sessions)
    for rounds, arms, noise in ((4, 2, (0.04, 0.04)), (6, 4, (0.08, 0.015)), (12, 6, (0.03, 0.03)))
    for shape in SHAPES
    for sessions in SESSIONS
]


def batch(setting: Setting, runs: int = 8, seed: int = 1) -> tuple[Layout, Array]:
    rng = np.random.default_rng([seed, setting.rounds, setting.arms])
    one = interleaved(setting, rng)
    return one, draw(setting, one, runs, rng)


@pytest.mark.parametrize("setting", CASES, ids=str)
@pytest.mark.parametrize("ratio", [1.0, 1.15])
def test_many_at_once_is_one_by_one(setting: Setting, ratio: float) -> None:
    """Estimate, interval, cross-check and verdict; a true ratio only shifts the first three."""
    one, logs = batch(setting)
    shift = math.log(ratio)
    ratios, halves, checks = statistics.ours(one, logs)
    called = vectorised.called(ratios + shift, halves, checks + shift)
    for run, row in enumerate(logs + shift * one.is_arm):
        slots = one.slots(row)
        estimate = pair_fit.estimate(slots, arm=ARM, reference=REFERENCE)
        found = compare(slots, metric="decode_tok_s", arm=ARM, reference=REFERENCE)
        assert called[run] == CALLED.get(found.verdict, 0)
        if isinstance(estimate, Refusal):
            assert np.isnan(ratios[run])
            continue
        assert ratios[run] + shift == pytest.approx(estimate.log_ratio, abs=1e-9)
        half = (estimate.high - estimate.low) / 2
        assert halves[run] == pytest.approx(half, rel=1e-6)
        check = hodges_lehmann.estimate(slots, arm=ARM, reference=REFERENCE)
        assert isinstance(check, Estimate)
        assert checks[run] + shift == pytest.approx(check.log_ratio, abs=1e-9)


def test_the_cases_have_steps_and_refusals_and_verdicts() -> None:
    """Else the test above would show little."""
    stepped, refused = 0, 0
    for setting in CASES:
        one, logs = batch(setting)
        for row in logs:
            found = pair_fit.estimate(one.slots(row), arm=ARM, reference=REFERENCE)
            refused += isinstance(found, Refusal)
            stepped += isinstance(found, Estimate) and found.step_s is not None
    assert stepped > 20
    assert refused > 20


def test_the_order_is_the_project_s_own() -> None:
    one = interleaved(Setting(6, 4, (0.04, 0.04), "linear"), np.random.default_rng(3))
    seed = int(np.random.default_rng(3).integers(2**31))
    names = [ARM, REFERENCE, "other-0", "other-1"]
    ran = [(name, n) for n in range(1, 7) for name in plan.order(names, seed, n)]
    assert one.size == len(ran) == 24
    for place, number, is_arm in zip(one.place, one.rounds, one.is_arm, strict=True):
        assert ran[place] == (ARM if is_arm else REFERENCE, number)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_drift_is_a_third(shape: str) -> None:
    setting = Setting(6, 2, (0.0, 0.0), shape)
    _, logs = batch(setting, runs=2000)
    fall = logs[:, -1] - logs[:, 0]
    if shape == "walk":
        assert fall.std() == pytest.approx(-DRIFT, rel=0.1)
    elif shape == "warmed":
        assert DRIFT * 0.6 < fall[0] < DRIFT * 0.4
    else:
        assert fall == pytest.approx(np.full(len(fall), DRIFT))


def test_a_bracketed_rival_is_the_bracketed_estimate() -> None:
    one, logs = batch(Setting(6, 2, (0.04, 0.04), "late"))
    ratios, halves = rivals.bracketed(one, logs)
    for run, row in enumerate(logs):
        found = bracketed.estimate(one.slots(row), arm=ARM, reference=REFERENCE)
        assert isinstance(found, Estimate)
        assert ratios[run] == pytest.approx(found.log_ratio, abs=1e-9)
        assert halves[run] == pytest.approx((found.high - found.low) / 2, rel=1e-9)


@pytest.mark.parametrize("name", [*rivals.TRIED, *rivals.RIVALS])
def test_a_rival_finds_a_true_ratio_without_drift(name: str) -> None:
    setting = Setting(6, 2, (0.01, 0.01), "linear")
    rng = np.random.default_rng(5)
    if name in rivals.RIVALS:
        order, method = rivals.RIVALS[name]
        one = order(6)
    else:
        one, method = interleaved(setting, rng), rivals.TRIED[name]
    logs = rng.normal(0, 0.01, (50, 12)) + math.log(1.2) * one.is_arm
    ratios, halves = method(one, logs)
    assert np.median(ratios) == pytest.approx(math.log(1.2), abs=0.01)
    assert (halves > 0).all()


# The limits ---------------------------------------------------------------------------------------

SIGMAS = 4.0
"""Of the Monte Carlo error of a rate at its limit: one false alarm in 30 000."""


@pytest.mark.parametrize("sessions", ["one", "anew"])
@pytest.mark.parametrize("noise", ["4", statistics.UNEQUAL])
@pytest.mark.parametrize("rounds", [4, 6])
def test_the_limits_hold_in_a_small_run(rounds: int, noise: str, sessions: str) -> None:
    found = {}
    for shape in SHAPES:
        setting = Setting(rounds, 2, statistics.NOISES[noise], shape, sessions)
        one = statistics.simulate(setting, orders=12, runs=100)
        assert not statistics.broken(noise, setting, one, SIGMAS)
        found[shape] = one.found
        refused = rounds == 4 and sessions != "one"
        assert math.isnan(one.false) == refused
    if (rounds, noise, sessions) == (6, "4", "one"):
        assert not statistics.weak(found, 1200, SIGMAS)
        assert found["step"][statistics.RATIOS.index(1.20)] > 80


def test_a_method_that_is_wrong_is_caught() -> None:
    """Blocks of one arm after the other, and robust weights under unequal noise."""
    setting = Setting(6, 2, (0.04, 0.04), "linear")
    assert statistics.broken("4", setting, statistics.rival("A A A B B B, Welch", setting, 4, 50))
    uneven = Setting(6, 2, (0.08, 0.015), "linear")
    bisquare = statistics.rival("bisquare", uneven, 12, 50)
    assert statistics.broken(statistics.UNEQUAL, uneven, bisquare, SIGMAS)
    assert statistics.weak({shape: (0.0, 69.0, 94.0) for shape in SHAPES}, 100_000)


def test_other_methods_keep_what_they_promise() -> None:
    rows = others.rows(150, np.random.default_rng(2))
    assert all(row.kept(SIGMAS) for row in rows)
    independent = next(row for row in rows if row.method.startswith("prompt ×"))
    assert independent.found < 90
    assert not replace(independent, least=98.0).kept(SIGMAS)


# The page -----------------------------------------------------------------------------------------

PAGE = statistics.PAGE.read_text(encoding="utf-8")
HEAD = ["rounds", "sessions", "noise, %", *SHAPES]


@pytest.mark.parametrize("name", ["errors", "power"])
def test_the_tables_of_the_page_are_complete_and_keep_the_limits(name: str) -> None:
    head, rows = statistics.read(PAGE, name)
    assert head == HEAD
    wanted = [
        [str(rounds), sessions, noise]
        for rounds in statistics.ROUNDS
        for sessions in SESSIONS
        for noise in statistics.NOISES
    ]
    assert [row[:3] for row in rows] == wanted
    found = {}
    for rounds, sessions, noise, *cells in rows:
        unequal = noise == statistics.UNEQUAL
        for shape, cell in zip(SHAPES, cells, strict=True):
            if cell == statistics.REFUSED:
                assert rounds == "4"
                assert sessions != "one"
                continue
            numbers = tuple(float(number) for number in cell.split(" / "))
            assert len(numbers) == 3
            if name == "errors":
                false, coverage, wrong = numbers
                assert false <= statistics.FALSE[unequal]
                assert coverage >= statistics.COVERAGE[unequal]
                assert wrong <= statistics.WRONG
            elif (rounds, sessions, noise) == ("6", "one", "4"):
                found[shape] = numbers
    assert name == "errors" or not statistics.weak(found, 1)


def test_the_table_of_rivals_is_complete() -> None:
    head, rows = statistics.read(PAGE, "rivals")
    assert head == ["estimate", "noise, %", *SHAPES]
    names = ["this project", *rivals.TRIED, *rivals.RIVALS]
    assert [row[:2] for row in rows] == [[n, o] for n in names for o in ("4", statistics.UNEQUAL)]


def test_the_table_of_other_methods_keeps_what_is_asked_for() -> None:
    head, rows = statistics.read(PAGE, "others")
    assert head == list(others.HEAD)
    assert len(rows) == 10
    for *_, asked, found in rows:
        sign, _, limit = asked.partition(" ")
        assert (
            sign == "–"
            or {"≥": float(found) >= float(limit), "≤": float(found) <= float(limit)}[sign]
        )


def test_the_page_tells_the_settings_of_the_program() -> None:
    for told in (
        f"| rounds | {', '.join(map(str, statistics.ROUNDS))} |",
        f"| arms in the series | {', '.join(map(str, statistics.ARMS))};",
        f"{statistics.ORDERS} seeds of the order × {statistics.RUNS} draws |",
        f"| seed of the draws | {statistics.SEED},",
        f"{statistics.ORDERS} × {statistics.RUNS // 4}",
        f"{100 * (1 - math.exp(DRIFT)):.0f} % from the first slot to the last",
        *(f"`{name}`" for name in (*SHAPES, *SESSIONS)),
    ):
        assert told in re.sub(r"\s+", " ", PAGE), told


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- power: begin -->\nold\n<!-- power: end -->\nafter\n")
    one = statistics.Rates(1.0, 99.0, 0.0, (5.0, 50.0, 95.0), 10)
    refused = statistics.Rates(math.nan, math.nan, math.nan, (math.nan,) * 3, 10)
    results: statistics.Results = {
        (6, "one", "4", shape): [one if shape != "walk" else refused] for shape in SHAPES
    }
    statistics.write({"power": statistics.main_table(results, "power")}, page)
    text = page.read_text()
    head, rows = statistics.read(text, "power")
    assert head == HEAD
    assert rows == [["6", "one", "4", *["5 / 50 / 95"] * 5, "–"]]
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    with pytest.raises(SystemExit, match="markers of 'errors'"):
        statistics.write({"errors": ""}, page)


@pytest.mark.parametrize(
    "words", [["--runs", "0"], ["--orders", "-1"], ["--quick", "--write"], ["--runs", "many"]]
)
def test_bad_options_are_told(words: list[str]) -> None:
    program = statistics.ROOT / "benchmarks" / "statistics.py"
    done = subprocess.run(
        [sys.executable, str(program), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_limit_ends_with_an_error() -> None:
    """Two series per setting break limits of 2 % for certain: one false claim is half of them."""
    program = statistics.ROOT / "benchmarks" / "statistics.py"
    done = subprocess.run(
        [sys.executable, str(program), "--orders", "1", "--runs", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "false claims, limit 2.0 %: Setting(rounds=" in done.stderr
    for name in ("errors", "power", "rivals", "others"):
        assert f"{name}\n| " in done.stdout
    assert statistics.PAGE.read_text(encoding="utf-8") == PAGE


def test_series_do_not_depend_on_what_else_is_run() -> None:
    setting = Setting(6, 2, (0.04, 0.04), "step")
    first = statistics.simulate(setting, 3, 10)
    statistics.simulate(replace(setting, arms=4), 3, 10)
    assert statistics.simulate(setting, 3, 10) == first
    batches = list(many(setting, 2, 3, np.random.default_rng(1)))
    assert [logs.shape for _, logs in batches] == [(3, 12), (3, 12)]
