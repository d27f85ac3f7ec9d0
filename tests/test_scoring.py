"""Answers of a real round are scored, and only the scores are kept."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twoturn import bench, cells, config, measure, preflight, scoring, text_gate
from twoturn.errors import UserError
from twoturn.session import Session

from .conftest import COMMAND, Tree

TASKS = """
arithmetic:
  - {id: sum, level: 1, check: number, prompt: "What is 2 + 3?", answer: "5"}
code:
  - {id: add, level: 2, check: python, prompt: "Write f.", answer: "f = len", tests: ["f('') == 0"]}
"""


def written(tree: Tree, text: str = TASKS) -> None:
    (tree.root / "tasks.yaml").write_text(text)
    tree.write(
        {
            "servers": {"one": {"command": [*COMMAND, "--tok-s", "2000"], "version": "1.0"}},
            "checkpoints": {"small": {"path": "models/small"}},
            "series": {
                "answers": {
                    "workload": {"kind": "quality", "text": "tasks.yaml", "max_tokens": 8},
                    "reference": "plain",
                    "arms": {
                        "plain": {"checkpoint": "small", "server": "one"},
                        "other": {"checkpoint": "small", "server": "one", "args": ["--seed", "1"]},
                    },
                }
            },
        }
    )


def test_a_round_of_tasks(tree: Tree) -> None:
    written(tree)
    loaded = tree.load()
    (series,) = loaded.plan.series
    assert series.rounds == 1
    session = Session("s", os.getpid(), 0.0)
    said: list[str] = []
    measure.run_round(loaded, series, 1, session, tree.root / "logs", said.append)
    beginnings = [line for line in said if line.endswith((" of 1)", " of 2)"))]
    assert [line.partition(" ")[0] for line in beginnings] == ["round", "round", "control"]
    arms = [line.partition(": ")[2] for line in said if line not in beginnings]
    assert len(arms) == 6  # each arm, and the control, says which of the two prompts it is at
    assert arms[4:] == ["plain, prompt 1 of 2", "plain, prompt 2 of 2"]
    file = tree.root / series.directory / "01/plain.parquet"
    table, metadata = cells.read(file)
    rows = {row["prompt_id"]: row for row in table.to_pylist() if row["kind"] == "round"}
    assert list(rows) == ["arithmetic/1/sum", "code/2/add"]
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert {row["passed"] for row in rows.values()} == {False}
    assert rows["arithmetic/1/sum"]["failed_because"] == "no number in it"
    assert rows["code/2/add"]["failed_because"].startswith("SyntaxError")
    assert metadata["executor"]["cpu_seconds"] > 0
    control, _ = cells.read(tree.root / series.directory / "01/control/plain.parquet")
    again = {row["prompt_id"]: row["output_sha256"] for row in control.to_pylist()}
    assert all(again[task] == row["output_sha256"] for task, row in rows.items())


UNREADABLE = "The model produced output that does not match the expected peg-native format"


@pytest.mark.parametrize(
    ("server", "status", "reason", "passed"),
    [
        ("llama-cpp", "server_error", UNREADABLE, False),  # its own words: a bad answer
        ("llama-cpp", "server_error", "out of memory", None),
        ("llama-cpp", "server_error", None, None),
        ("llama-cpp", "connection_lost", UNREADABLE, None),
        ("mlx-lm", "server_error", UNREADABLE, None),  # not its words
    ],
)
def test_what_a_server_cannot_read_is_a_failed_task(
    server: str, status: str, reason: str | None, passed: bool | None
) -> None:
    arm: Any = SimpleNamespace(server=server)
    campaign = SimpleNamespace(servers={server: config.Server(install="workflow/envs/x.lock")})
    this: Any = SimpleNamespace(
        series=SimpleNamespace(workload=config.Quality(kind="quality")),
        text=TASKS,
        loaded=SimpleNamespace(campaign=campaign),
    )
    row: dict[str, Any] = {"prompt_id": "arithmetic/1/sum", "status": status, "reason": reason}
    scoring.score(this, bench.Cell(arm, [row], [text_gate.Request(arm, (), "It is 5")]))
    assert row.get("passed") is passed
    assert row["status"] == ("ok" if passed is not None else status)


@pytest.mark.parametrize(
    ("status", "text", "passed"),
    [
        ("ok", "It is 5", True),
        ("repeated_token", "x x x", False),  # a bad answer, and no fault of the measurement
        ("empty_stream", "", False),
        ("connection_lost", "It is 5", None),
    ],
)
def test_what_is_scored(status: str, text: str, passed: bool | None) -> None:
    arm: Any = None
    workload = config.Quality(kind="quality")
    this: Any = SimpleNamespace(series=SimpleNamespace(workload=workload), text=TASKS)
    row: dict[str, Any] = {"prompt_id": "arithmetic/1/sum", "status": status}
    # What it thought is not its answer.
    request = text_gate.Request(arm, (), f"5, or 6? {text}", visible=text)
    cell = bench.Cell(arm, [row], [request])
    scoring.score(this, cell)
    assert row.get("passed") is passed
    assert row["status"] == ("ok" if passed is not None else status)


def test_why_a_task_failed_names_no_place_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "status": "ok",
        "failed_because": "ImportError: cannot import name 'Iterable' from 'collections' "
        "(/home/ada/python/lib/python3.12/collections/__init__.py)",
    }
    arm: Any = SimpleNamespace(slug="plain")
    this: Any = SimpleNamespace(loaded=SimpleNamespace(root=tmp_path), private=False)
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(cells, "table", lambda rows, metadata: written.extend(rows))
    monkeypatch.setattr(cells, "write", lambda table, file: None)
    measure._write_cells(this, [bench.Cell(arm, [row])], tmp_path)
    assert written[0]["failed_because"].endswith(
        "(~/python/lib/python3.12/collections/__init__.py)"
    )


def test_a_wrong_reference_solution_stops_everything(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tree, TASKS.replace("f = len", "f = abs"))
    loaded = tree.load()
    monkeypatch.setattr(preflight.lock, "observe", lambda campaign, root: dict(loaded.lock))
    monkeypatch.setattr(preflight.lock, "differences", lambda locked, seen: [])
    with pytest.raises(UserError, match=r"tasks.yaml: add: the reference solution does not pass"):
        preflight.check(loaded, loaded.plan.series, print)
    assert not (tree.root / "results").exists()
