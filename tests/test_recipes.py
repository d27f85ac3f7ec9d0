"""Recipes tell content: never a time, never a place."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import COMMAND, Tree
from twoturn import hashes, privacy, recipes
from twoturn.errors import UserError

Data = dict[str, Any]
PINS = """\
# made by a tool
alpha==1.0 \\
    --hash=sha256:aa
    # via beta
beta==2.0 ; python_version < '3.12' \\
    --hash=sha256:bb
beta==2.1 ; python_version >= '3.12' \\
    --hash=sha256:cc
"""


def collect(tree: Tree, data: Data, lock: Data | None = None) -> Data:
    return recipes.collect(tree.write(data), tree.file, tree.root, lock or {})


def refused(tree: Tree, data: Data, lock: Data | None = None) -> str:
    with pytest.raises(UserError) as caught:
        collect(tree, data, lock)
    return str(caught.value)


# Checkpoints


def test_touching_and_moving_change_nothing(tree: Tree, data: Data) -> None:
    before = collect(tree, data)
    os.utime(tree.root / "models/small/weights.bin", (1, 1))
    assert collect(tree, data) == before
    shutil.move(tree.root / "models/small", tree.root / "elsewhere")
    data["checkpoints"]["small"]["path"] = "elsewhere"
    assert collect(tree, data)["checkpoints"] == before["checkpoints"]


def edit(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"!")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda folder: edit(folder / "weights.bin"), False),
        (lambda folder: edit(folder / "config.json"), False),
        (lambda folder: (folder / "new.json").write_text("{}"), False),
        (lambda folder: (folder / "weights.bin").rename(folder / "w.bin"), False),
        (lambda folder: (folder / "README.md").write_text("words"), True),
        (lambda folder: (folder / ".cache").mkdir(), True),
        (lambda folder: (folder / ".DS_Store").write_text("x"), True),
    ],
)
def test_content_counts(tree: Tree, data: Data, change: Any, same: bool) -> None:
    before = collect(tree, data)["checkpoints"]
    change(tree.root / "models/small")
    after = collect(tree, data)["checkpoints"]
    assert (after["small"] == before["small"]) is same
    assert after["large"] == before["large"]


def test_bytes_cannot_wander_from_one_file_to_the_next(tmp_path: Path) -> None:
    digests = []
    for name, contents in (("one", {"a": "xy", "b": "z"}), ("two", {"a": "x", "b": "yz"})):
        (tmp_path / name).mkdir()
        for file, text in contents.items():
            (tmp_path / name / file).write_text(text)
        digests.append(hashes.folder_digest(tmp_path / name))
    assert digests[0] != digests[1]


def test_a_linked_folder_is_its_target(tree: Tree, data: Data) -> None:
    before = collect(tree, data)["checkpoints"]["small"]
    (tree.root / "link").symlink_to(tree.root / "models/small")
    data["checkpoints"]["small"]["path"] = "link"
    assert collect(tree, data)["checkpoints"]["small"] == before


def test_hub_and_made_checkpoints(tree: Tree, data: Data) -> None:
    hub = {"repo": "org/large", "revision": "0" * 40}
    data["checkpoints"]["large"] = hub
    data["checkpoints"]["small"] = {"make": {"from": "large", "bits": 4}}
    found = collect(tree, data)["checkpoints"]
    assert found["large"] == hub
    version = importlib.metadata.version("mlx-lm")
    assert found["small"] == {
        "from": hub,
        "bits": 4,
        "group_size": 64,
        "mlx_lm": version,
        "making": 1,
    }


def test_a_circle_of_made_checkpoints(tree: Tree, data: Data) -> None:
    data["checkpoints"]["small"] = {"make": {"from": "small", "bits": 4}}
    assert "checkpoints.small" in refused(tree, data)


def test_a_checkpoint_of_another_machine_is_known_by_its_lock(tree: Tree, data: Data) -> None:
    shutil.rmtree(tree.root / "models/small")
    lock = {"checkpoints": {"small": "abc"}}
    assert "checkpoints.small.path" in refused(tree, data, lock)  # on this machine it must be here
    data["machine"] = "another"
    assert collect(tree, data, lock)["checkpoints"]["small"] == {"files_sha256": "abc"}


def test_digests_are_remembered(tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    before = collect(tree, data)
    assert (tree.root / ".twoturn/hashes.json").is_file()
    hashed: list[str] = []
    real = hashes.sha256_file
    for module in (hashes, recipes):
        monkeypatch.setattr(module, "sha256_file", lambda p: (hashed.append(p.name), real(p))[1])
    assert collect(tree, data) == before
    assert set(hashed) == {"words.txt", "other.txt"}  # texts are small and always read
    edit(tree.root / "models/small/weights.bin")
    assert collect(tree, data) != before
    assert "weights.bin" in hashed


@pytest.mark.parametrize("rubbish", ["", "{not json", '{"x": 1}', "[]"])
def test_a_broken_memory_is_no_fault(tree: Tree, data: Data, rubbish: str) -> None:
    before = collect(tree, data)
    memory = tree.root / ".twoturn/hashes.json"
    memory.write_text(rubbish)
    assert collect(tree, data) == before


# Environments


def environment(tmp_path: Path, text: str) -> Data:
    (tmp_path / "x.lock").write_text(text)
    return recipes.environment(tmp_path / "x.lock", "x.lock")


def test_pins_are_read(tmp_path: Path) -> None:
    found = environment(tmp_path, PINS)
    assert found["packages"] == {"alpha": "1.0", "beta": "2.0 or 2.1"}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (PINS.replace("# made by a tool", "# made by another tool\n\n    # at noon"), True),
        (PINS.replace("    # via beta\n", ""), True),
        (PINS.replace("alpha==1.0", "alpha==1.1"), False),
        (PINS.replace("sha256:cc", "sha256:dd"), False),
        (PINS + "gamma==1 --hash=sha256:ee\n", False),
    ],
)
def test_pins_count_and_comments_do_not(tmp_path: Path, text: str, same: bool) -> None:
    before = environment(tmp_path, PINS)["environment_sha256"]
    assert (environment(tmp_path, text)["environment_sha256"] == before) is same


def test_the_committed_environment_holds_its_server() -> None:
    file = Path(__file__).parents[1] / "workflow/envs/mlx-vlm.lock"
    packages = recipes.environment(file, "x")["packages"]
    assert packages["mlx-vlm"]
    assert not any(" or " in version for version in (packages["mlx-vlm"], packages["mlx"]))


# Servers


def test_an_installed_server(tree: Tree, data: Data) -> None:
    (tree.root / "one.lock").write_text(PINS.replace("alpha", "one"))
    data["servers"]["one"] = {"install": "one.lock"}
    found = collect(tree, data)["servers"]["one"]
    assert (found["adapter"], found["version"]) == ("one", "1.0")
    assert found["packages"]["beta"] == "2.0 or 2.1"


def test_a_command_has_the_version_that_is_written(tree: Tree, data: Data) -> None:
    found = collect(tree, data)["servers"]["one"]
    # The scripted server lies in this clone, which may lie in somebody's home.
    command = [privacy.without_places(word, tree.root) for word in COMMAND]
    assert found == {"adapter": "command", "version": "1.0", "command": command}


def test_a_command_is_the_same_whoever_plans(
    tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = collect(tree, data)["servers"]
    monkeypatch.setattr(privacy, "_user", lambda: "port")
    assert collect(tree, data)["servers"] == before


def test_a_command_does_not_depend_on_where_the_project_lies(tree: Tree, data: Data) -> None:
    data["servers"]["one"]["command"] = ["{python}", f"{tree.root}/server.py"]
    before = collect(tree, data)["servers"]["one"]
    moved = Tree(tree.root.rename(tree.root.with_name("moved")))
    data["servers"]["one"]["command"] = ["{python}", f"{moved.root}/server.py"]
    assert collect(moved, data)["servers"]["one"] == before


def test_a_found_server_has_the_version_of_the_lock(tree: Tree, data: Data) -> None:
    data["servers"]["one"] = {"executable": "one"}
    found = collect(tree, data, {"servers": {"one": "one 9"}})["servers"]["one"]
    assert found == {"adapter": "one", "version": "one 9"}


def test_an_attached_server_has_the_version_that_the_campaign_states(
    tree: Tree, data: Data
) -> None:
    """Its port may be another tomorrow, so it is no part of the recipe."""
    data["servers"]["one"] = {"attach": "http://127.0.0.1:1", "version": "9"}
    found = collect(tree, data)["servers"]["one"]
    assert found == {"adapter": "attached", "version": "9", "attached": True}


def test_what_no_arm_uses_is_not_read(tree: Tree, data: Data) -> None:
    data["servers"]["unused"] = {"executable": "no-such-program"}
    data["checkpoints"]["unused"] = {"path": "no/such/folder"}
    found = collect(tree, data)
    assert set(found["servers"]) == {"one", "two"}
    assert set(found["checkpoints"]) == {"small", "large", "draft"}


# Faults, one line each


@pytest.mark.parametrize(
    ("path", "entry", "line"),
    [
        (
            ("servers", "one"),
            {"install": "none.lock"},
            "none.lock: the lock file of a server's environment is missing; restore it",
        ),
        (
            ("servers", "one"),
            {"install": "pins.lock"},
            "campaign.yaml: servers.one.install: pins.lock pins no one; lock an environment that "
            "holds one, or name another adapter",
        ),
        (
            ("servers", "one"),
            {"executable": "uno"},
            "campaign.yaml: servers.one: the machine's lock knows no version of one; install uno "
            "here, then `make lock`",
        ),
        (
            ("checkpoints", "small"),
            {"path": "no/folder"},
            "campaign.yaml: checkpoints.small.path: the folder no/folder is missing; put the "
            "checkpoint there or name where it is",
        ),
        (
            ("checkpoints", "small"),
            {"path": "texts"},
            "campaign.yaml: checkpoints.small.path: texts holds no config.json, so it is no "
            "checkpoint; name the folder that holds config.json and the weights",
        ),
    ],
)
def test_what_is_missing(
    tree: Tree, data: Data, path: tuple[str, str], entry: Data, line: str
) -> None:
    (tree.root / "pins.lock").write_text(PINS)
    data[path[0]][path[1]] = entry
    assert refused(tree, data) == line


def test_a_kind_of_prompts_that_the_text_does_not_have(tree: Tree, data: Data) -> None:
    data["series"]["first"]["workload"]["kinds"] = ["code", "verse"]
    start = "campaign.yaml: series.first.workload.kinds: the text texts/words.txt has no section of"
    assert refused(tree, data) == (
        f"{start} the kind 'code'; begin its sections with a line such as `kind: code`"
    )
    (tree.root / "texts/words.txt").write_text("kind: code\nx = 1\fkind: prose\nIt was.")
    assert refused(tree, data) == f"{start} the kind 'verse'; it has code, prose"


def test_a_missing_text(tree: Tree, data: Data) -> None:
    (tree.root / "texts/words.txt").unlink()
    assert refused(tree, data) == (
        "campaign.yaml: series.first.workload.text: the text texts/words.txt is missing; name a "
        "text file that prompts can be cut from"
    )
