"""Series as they were measured before: found beside today's plan, newest first, whole or not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from twoturn import cells, earlier, plan

from .conftest import Tree

START = datetime(2026, 11, 20, 18, tzinfo=UTC)


def measured(
    root: Path, series: plan.Series, fingerprint: str, *, rounds: int = 4, day: int = 0
) -> Path:
    """Cells of a series as an earlier version of its server left them."""
    folder = root / "results/cells" / series.name / fingerprint
    spec = json.loads(json.dumps(dict(series.spec)))
    for arm in spec["arms"].values():
        arm["server"]["version"] = f"1.{day}"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec, sort_keys=True))
    for number in range(1, rounds + 1):
        for arm in series.arms:
            row: dict[str, Any] = {
                "series": series.name,
                "arm": arm.name,
                **{"checkpoint": arm.checkpoint, "server": arm.server, "speculation": "none"},
                **{"server_version": f"1.{day}", "round": number, "position": 0, "turn": 1},
                **{"prompt_id": "p1", "kind": "round", "status": "ok", "session_id": "s"},
                "started_at": START + timedelta(days=day, minutes=number),
                **{"start_monotonic_s": 60.0 * number, "wall_minus_monotonic_s": 0.0},
            }
            table = cells.table([row], {"fingerprint": fingerprint})
            cells.write(table, folder / f"{number:02d}" / f"{arm.slug}.parquet")
    return folder


@pytest.fixture
def series(tree: Tree) -> plan.Series:
    return tree.load().plan.one("second")


def test_nothing_was_measured_before(tree: Tree, series: plan.Series) -> None:
    assert earlier.newest(series, tree.root) is None
    assert earlier.of_plan(tree.load().plan, tree.root) == []


def test_the_newest_whole_one_is_told(tree: Tree, series: plan.Series) -> None:
    measured(tree.root, series, "aaaaaaaaaaaa", day=3)
    measured(tree.root, series, "bbbbbbbbbbbb", day=5, rounds=7)
    measured(tree.root, series, "cccccccccccc", day=9, rounds=3)
    (found,) = earlier.of_plan(tree.load().plan, tree.root)
    assert (found.fingerprint, found.rounds, found.metrics) == ("bbbbbbbbbbbb", 6, series.metrics)
    assert json.loads(found.measured_on()) == {
        "date": "2026-11-25",
        "versions": ["two 1.5"],
        "fingerprint": "bbbbbbbbbbbb",
    }
    assert [arm.name for arm in found.arms] == sorted(arm.name for arm in series.arms)
    assert (found.null_arm, found.reference) == (series.null_arm, series.reference)
    assert [found.order(n) for n in (1, 2, 3)] == [series.order(n) for n in (1, 2, 3)]
    joined = cells.join(found.files())
    assert joined.num_rows == 6 * len(series.arms)
    assert set(joined["fingerprint"].to_pylist()) == {"bbbbbbbbbbbb"}


def test_a_gap_ends_what_is_whole(tree: Tree, series: plan.Series) -> None:
    folder = measured(tree.root, series, "aaaaaaaaaaaa", rounds=8)
    (folder / "06" / "cached.parquet").unlink()
    found = earlier.newest(series, tree.root)
    assert found is not None
    assert found.rounds == 4
    (folder / "02" / "cached.parquet").unlink()
    assert earlier.newest(series, tree.root) is None


def test_another_campaign_s_series_of_the_same_name_is_none(
    tree: Tree, series: plan.Series
) -> None:
    folder = measured(tree.root, series, "aaaaaaaaaaaa")
    spec = json.loads((folder / "spec.json").read_text())
    spec["workload"]["max_tokens"] += 1
    (folder / "spec.json").write_text(json.dumps(spec))
    assert earlier.newest(series, tree.root) is None
    spec["workload"]["max_tokens"] -= 1
    spec["arms"].popitem()
    (folder / "spec.json").write_text(json.dumps(spec))
    assert earlier.newest(series, tree.root) is None


def test_what_today_measured_needs_no_earlier_one(tree: Tree, series: plan.Series) -> None:
    measured(tree.root, series, "aaaaaaaaaaaa", day=3)
    today = measured(tree.root, series, series.fingerprint)
    assert earlier.newest(series, tree.root) is None
    (today / "04" / "cached.parquet").unlink()
    assert earlier.newest(series, tree.root) is not None


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"arms": {"plain": 3}}', "\x00"])
def test_a_spec_that_cannot_be_read_is_passed_over(
    tree: Tree, series: plan.Series, text: str
) -> None:
    folder = measured(tree.root, series, "aaaaaaaaaaaa")
    (folder / "spec.json").write_text(text)
    assert earlier.newest(series, tree.root) is None


def test_a_broken_cell_is_passed_over(tree: Tree, series: plan.Series) -> None:
    folder = measured(tree.root, series, "aaaaaaaaaaaa")
    (folder / "04" / "plain.parquet").write_bytes(b"no parquet")
    assert earlier.newest(series, tree.root) is None
