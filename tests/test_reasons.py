"""Why a series will be measured, from what lies beside earlier cells; and how long it takes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import CAMPAIGN, RECIPES, Tree, planned
from twoturn import progress, reasons
from twoturn.plan import Series, round_name

Data = dict[str, Any]


def series(version: str = "1.0", **recipe: Any) -> Series:
    recipes = copy.deepcopy(RECIPES)
    recipes["servers"]["one"].update(version=version, **recipe)
    return planned(copy.deepcopy(CAMPAIGN), recipes).one("first")


def measured(root: Path, which: Series, *rounds: int) -> None:
    """As if these rounds had been measured: the cells, and the spec beside them."""
    for number in rounds:
        for cell in which.cells(number):
            (root / cell).parent.mkdir(parents=True, exist_ok=True)
            (root / cell).touch()
    spec = root / which.directory / "spec.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(which.spec))


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ((), "not measured yet"),
        ((1,), "1 of 2 rounds are missing"),
        ((1, 2), "all rounds are there"),
        ((2,), "1 of 2 rounds are missing"),
    ],
)
def test_rounds(tmp_path: Path, rounds: tuple[int, ...], words: str) -> None:
    measured(tmp_path, series(), *rounds)
    assert reasons.why(series(), tmp_path) == words
    assert reasons.missing_rounds(series(), tmp_path) == [n for n in (1, 2) if n not in rounds]


def test_a_round_without_one_of_its_cells_is_missing(tmp_path: Path) -> None:
    measured(tmp_path, series(), 1, 2)
    (tmp_path / series().cells(2)[0]).unlink()
    assert reasons.missing_rounds(series(), tmp_path) == [2]


def test_nothing_is_there(tmp_path: Path) -> None:
    assert reasons.why(series(), tmp_path) == "not measured yet"


def test_the_change_is_told(tmp_path: Path) -> None:
    measured(tmp_path, series("0.9"), 1)
    assert reasons.why(series("1.0"), tmp_path) == "one 0.9 → 1.0"


def test_the_nearest_earlier_measurement_is_compared(tmp_path: Path) -> None:
    measured(tmp_path, series("0.8", packages={"mlx": "0.0"}), 1)
    measured(tmp_path, series("0.9"), 1)
    measured(tmp_path, series("0.7", packages={"one": "1", "mlx": "0.05"}), 1)
    assert reasons.why(series("1.0"), tmp_path) == "one 0.9 → 1.0"


def test_a_series_that_differs_in_most_things_is_told_in_short(tmp_path: Path) -> None:
    earlier = series("0.9")
    measured(tmp_path, earlier, 1)
    spec = copy.deepcopy(dict(earlier.spec))
    for number in range(9):
        spec["workload"][f"key{number}"] = number
    (tmp_path / earlier.directory / "spec.json").write_text(json.dumps(spec))
    told = reasons.why(series("1.0"), tmp_path).split("; ")
    assert len(told) == reasons.TOLD + 1
    assert told[-1] == "6 more changes"


def test_a_spec_without_any_round_is_no_measurement(tmp_path: Path) -> None:
    measured(tmp_path, series("0.9"))
    assert reasons.why(series("1.0"), tmp_path) == "not measured yet"


def spoil(root: Path, text: str) -> None:
    earlier = series("0.9")
    measured(root, earlier, 1)
    (root / earlier.directory / "spec.json").write_text(text)


@pytest.mark.parametrize("text", ["", "{", "\x00"])
def test_a_spec_that_cannot_be_read_stops_nothing(tmp_path: Path, text: str) -> None:
    spoil(tmp_path, text)
    assert "\n" not in reasons.why(series(), tmp_path)


@pytest.mark.parametrize("text", ["[]", "null", '{"arms": {"plain": {}}}'])
def test_a_spec_of_another_form_stops_nothing(tmp_path: Path, text: str) -> None:
    spoil(tmp_path, text)
    assert "\n" not in reasons.why(series(), tmp_path)


def test_a_spec_that_cannot_be_read_is_not_compared(tmp_path: Path) -> None:
    spoil(tmp_path, "{")
    assert "None" not in reasons.why(series(), tmp_path)


# Progress


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (170, "3 min"),
        (3600, "1 h 0 min"),
        (4790, "1 h 20 min"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words


def timed(root: Path, which: Series, number: int, *rows: tuple[float | None, float | None]) -> None:
    """As if a round had been measured whose cells all took these (load_s, e2e_s)."""
    measured(root, which, number)
    loads, requests = zip(*rows, strict=True)
    columns = {"load_s": pa.array(loads, pa.float64()), "e2e_s": pa.array(requests, pa.float64())}
    for cell in which.cells(number):
        pq.write_table(pa.table(columns), root / cell)


def test_a_long_round_is_heard_once_a_minute() -> None:
    now, log, console = 0.0, list[str](), list[str]()
    say = progress.aloud(log.append, console.append, lambda: now)
    for now in range(0, 200, 20):  # noqa: B007: the clock that say looks at
        say(f"at {now}")
    assert len(log) == 10
    assert console == ["at 60", "at 120", "at 180"]


def test_progress(tree: Tree) -> None:
    loaded = tree.load()
    first = loaded.plan.one("first")
    timed(tree.root, first, 1, (2.0, 1.0), (2.0, 1.5))
    # 2 cells in 10 s of which 4.5 s each are measuring; still 1 round of 2 arms and 4 of 3
    assert progress.line(loaded, first, 1, 10.0) == (
        "first: round 1 of 2 measured, 2 cells in 10 s, 0.5 s per cell beside server start and "
        "requests; about 1 min left"
    )
    for one in loaded.plan.series:
        measured(tree.root, one, *one.round_numbers())
    timed(tree.root, first, 2, (None, None))  # a server that did not start
    assert progress.line(loaded, first, 2, 10.0) == (
        "first: round 2 of 2 measured, 2 cells in 10 s, 5.0 s per cell beside server start and "
        "requests; nothing left to measure"
    )
    assert (tree.root / first.directory / round_name(2)).is_dir()
