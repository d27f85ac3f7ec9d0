"""docs/example: what a newcomer looks at first is what this code makes of the cells beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scripts import example
from twoturn import config, contrasts, weights
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


def test_what_was_counted_is_frozen_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = replace(example.thaw(EXAMPLE), root=tmp_path)
    monkeypatch.setattr(example.campaign, "load", lambda *_: measured)
    monkeypatch.chdir(tmp_path)
    counted = {"demo": {"bits_per_weight": 16.0}}
    kept = tmp_path / measured.plan.series[0].directory / weights.FILE
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(counted))
    shutil.copyfile(EXAMPLE / "config.yaml", "config.yaml")
    shutil.copyfile(EXAMPLE / "cells.parquet", "results/cells.parquet")
    example.freeze("config.yaml", tmp_path / "frozen")
    assert example.frozen(tmp_path / "frozen")["sizes"] == counted
    assert example.thaw(tmp_path / "frozen").plan == measured.plan


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
