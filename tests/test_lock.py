"""The lock of a machine: written once, kept, completed, compared in words."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FACTS, Tree
from twoturn import lock, machine
from twoturn.errors import UserError

Data = dict[str, Any]


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "facts", lambda: dict(FACTS))


def program(folder: Path, name: str, script: str) -> str:
    """An executable shell script; its full path."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_the_local_lock_is_written_once(tree: Tree, data: Data) -> None:
    campaign = tree.write(data)
    first = lock.load(campaign, tree.root)
    file = tree.root / "locks/local.json"
    assert first == {"schema": 1, "machine": FACTS, "servers": {}, "checkpoints": {}}
    assert json.loads(file.read_text()) == first
    os.utime(file, (1, 1))
    assert lock.load(campaign, tree.root) == first
    assert file.stat().st_mtime == 1
    assert [path.name for path in file.parent.iterdir()] == ["local.json"]


def test_an_unchanged_lock_keeps_its_time(tmp_path: Path) -> None:
    file = lock.write("x", {"schema": 1, "machine": FACTS, "servers": {}}, tmp_path)
    os.utime(file, (1, 1))
    lock.write("x", {"servers": {}, "machine": FACTS, "schema": 1}, tmp_path)
    assert file.stat().st_mtime == 1
    lock.write("x", {"schema": 1, "machine": {}, "servers": {}}, tmp_path)
    assert file.stat().st_mtime > 1


def test_the_local_lock_learns_of_new_servers_and_keeps_old_ones(
    tree: Tree, data: Data, tmp_path: Path
) -> None:
    lock.load(tree.write(data), tree.root)
    data["servers"]["new"] = {"executable": program(tmp_path, "new", "echo 'new 1.2'; echo more")}
    data["servers"]["absent"] = {"executable": "no-such-program-here"}
    found = lock.load(tree.write(data), tree.root)["servers"]
    assert found == {"new": "new 1.2"}
    data["servers"]["new"] = {"executable": program(tmp_path, "new", "echo 'new 1.3'")}
    assert lock.load(tree.write(data), tree.root)["servers"] == found


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo '  v 1  '", "v 1"),
        ("echo told >&2; exit 3", "told"),
        ("echo 'loaded backend 3 from /x'; echo 'version: 7 (abc)' >&2", "version: 7 (abc)"),
        ("echo 'a wrapper'; echo v0.6.4", "v0.6.4"),
        ("exit 0", None),
        ('echo "$LC_ALL"', "C"),
    ],
)
def test_probe(tmp_path: Path, script: str, version: str | None) -> None:
    assert lock.probe(program(tmp_path, "p", script)) == version


def test_checkpoints_outside_the_project_are_in_the_lock(
    tree: Tree, data: Data, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    data["checkpoints"]["large"] = {"path": str(outside)}
    data["checkpoints"]["draft"] = {"path": str(tmp_path / "none")}
    found = lock.observe(tree.write(data), tree.root)["checkpoints"]
    assert list(found) == ["large"]


def test_a_named_lock_is_read_and_never_written(tree: Tree, data: Data) -> None:
    data["machine"] = "m4"
    campaign = tree.write(data)
    with pytest.raises(UserError) as caught:
        lock.load(campaign, tree.root)
    line = "locks/m4.json: there is no such lock; `make lock MACHINE=m4` on it"
    assert str(caught.value) == line
    assert not (tree.root / "locks").exists()
    other = {"schema": 1, "machine": {**FACTS, "chip": "other"}, "servers": {"x": "1"}}
    lock.write("m4", other, tree.root)
    data["servers"]["new"] = {"executable": "no-such-program-here"}
    assert lock.load(tree.write(data), tree.root) == other


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[]", "not a lock of schema 1"),
        ('{"schema": 2, "machine": {}}', "not a lock of schema 1"),
        ('{"schema": 1}', "not a lock of schema 1"),
    ],
)
def test_a_broken_lock(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/x.json").write_text(text)
    with pytest.raises(UserError) as caught:
        lock.read("x", tmp_path)
    assert str(caught.value) == f"locks/x.json: {what}; `make lock`"


def seen(**more: Any) -> Data:
    return {"machine": dict(FACTS), "servers": {"a": "1"}, **more}


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (seen(), []),
        (seen(machine={**FACTS, "cores": 99}), []),
        (seen(machine={**FACTS, "chip": "Chip Two"}), ["chip: lock Chip One, here Chip Two"]),
        (
            seen(machine={**FACTS, "os_build": None, "memory_gb": 8}),
            ["memory_gb: lock 16, here 8", "os_build: lock 1A, here None"],
        ),
        (seen(servers={"a": "2"}), ["a: lock 1, here 2"]),
        (seen(servers={"a": None}), ["a: lock 1, here not found"]),
        (seen(servers={}), []),
        (seen(servers={"a": "1", "b": "1"}), []),
    ],
)
def test_differences_in_words(here: Data, words: list[str]) -> None:
    assert lock.differences(seen(), here) == words


def test_a_lock_shared_by_two_campaigns(tree: Tree, data: Data, tmp_path: Path) -> None:
    other = {**data, "servers": dict(data["servers"])}
    other["servers"]["new"] = {"executable": program(tmp_path, "new", "echo 'new 1'")}
    lock.load(tree.write(other), tree.root)
    campaign = tree.write(data)
    machine_lock = lock.load(campaign, tree.root)
    assert lock.differences(machine_lock, lock.observe(campaign, tree.root)) == []


def test_facts_of_this_machine_tell_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    facts = machine.facts()
    assert set(lock.MACHINE_FACTS) <= set(facts)
    assert facts["memory_gb"] > 0
    assert os.uname().nodename not in json.dumps(list(facts.values())).split()
    assert set(machine.state()) >= {"load_1min", "memory_available", "power_plugged"}
