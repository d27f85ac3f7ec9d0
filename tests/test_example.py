"""docs/example: what a newcomer looks at first is what this code makes of the cells beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scripts import example
from twoturn import config, contrasts
from twoturn.stats.verdict import Verdict

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "example"
KEPT = {"README.md", "config.yaml", "frozen.json", "cells.parquet"}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("example")
    subprocess.run(
        [sys.executable, "scripts/example.py", "--into", str(folder)],
        cwd=ROOT,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    return files(folder)


def test_it_is_told_again_byte_by_byte(told: dict[str, bytes]) -> None:
    there = {name: text for name, text in files(EXAMPLE).items() if name not in KEPT}
    assert sorted(told) == sorted(there)
    assert [name for name in told if told[name] != there[name]] == []


def test_it_is_the_default_campaign() -> None:
    assert (EXAMPLE / "config.yaml").read_bytes() == (ROOT / "config.yaml").read_bytes()


def test_all_its_requests_are_valid() -> None:
    rows = pq.read_table(EXAMPLE / "cells.parquet", columns=["series", "status"])
    assert set(rows["status"].to_pylist()) == {"ok"}
    assert set(rows["series"].to_pylist()) == set(config.load("config.yaml", ROOT).series)


def test_something_wins_something_loses_and_something_is_not_resolved() -> None:
    """Speculation among them: that is what the demo checkpoints are there to show."""
    plan = example.thaw(EXAMPLE).plan
    cells = pq.read_table(EXAMPLE / "cells.parquet").drop_columns(["chunk_times_s"]).to_pandas()
    speculative = {
        (one.name, arm.name) for one in plan.series for arm in one.arms if arm.speculation != "none"
    }
    verdicts = {
        row["verdict"]
        for row in contrasts.from_cells(cells, plan.series).to_pylist()
        if (row["series"], row["arm"]) in speculative
    }
    assert verdicts >= {Verdict.FASTER, Verdict.SLOWER, Verdict.UNRESOLVED}
