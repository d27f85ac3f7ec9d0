"""Small things that many tests start from: a campaign, its files, a server of known speed."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from twoturn import campaign, config, plan, servers
from twoturn.servers import Launch, clean_env

settings.register_profile("shared", deadline=None)  # a busy machine fails no test
settings.load_profile("shared")


MACHINE = {
    f"{path.parent.name}/{path.name}"
    for path in Path(__file__).parent.glob("test_*.py")
    if "pytest.mark.machine" in path.read_text(encoding="utf-8")
}
"""Files whose tests run whole workflows, of which there is one at a time on a machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole workflows begin, because they last longest."""
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in MACHINE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a file share a worker and its fixtures, those of whole workflows all share one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "whole workflows" if file in MACHINE else file

    return ByFile(config, log)


SCRIPTED = Path(__file__).parent / "servers" / "scripted.py"
COMMAND = ["{python}", str(SCRIPTED), "--port", "{port}", "--model", "{model}", "--noise", "0"]
FACTS = {
    "chip": "Chip One",
    "memory_gb": 16,
    "os": "OS 1",
    "os_build": "1A",
    "arch": "arm64",
    "accelerator": "metal",
}

# Two series that share nothing, so that a change in one is no change in the other.
CAMPAIGN: dict[str, Any] = {
    "servers": {
        "one": {"command": COMMAND, "version": "1.0"},
        "two": {"command": COMMAND, "version": "2.0"},
    },
    "checkpoints": {
        "small": {"path": "models/small"},
        "large": {"path": "models/large"},
        "draft": {"path": "models/draft"},
    },
    "series": {
        "first": {
            "workload": {
                "kind": "chat",
                "text": "texts/words.txt",
                "prompt_tokens": 32,
                "max_tokens": 8,
            },
            "rounds": 2,
            "reference": "plain",
            "arms": {
                "plain": {"checkpoint": "small", "server": "one"},
                "quick": {
                    "checkpoint": "small",
                    "server": "one",
                    "speculation": "mtp",
                    "block_size": 4,
                    "draft": "draft",
                    "args": ["--draft", "--speed", "2"],
                },
            },
        },
        "second": {
            "workload": {
                "kind": "conversation",
                "text": "texts/other.txt",
                "prompt_tokens": 32,
                "turns": 2,
                "max_tokens": 8,
            },
            "rounds": 4,
            "reference": "plain",
            "null_arm": True,
            "arms": {
                "plain": {"checkpoint": "large", "server": "two"},
                "cached": {"checkpoint": "large", "server": "two", "args": ["--prompt-cache"]},
            },
        },
    },
}
# What `recipes.collect` makes of it, shortened.
RECIPES: dict[str, Any] = {
    "texts": {"texts/words.txt": "aa", "texts/other.txt": "bb"},
    "servers": {
        "one": {
            "adapter": "one",
            "version": "1.0",
            "packages": {"one": "1.0", "mlx": "0.1"},
            "environment_sha256": "e1",
        },
        "two": {"adapter": "command", "version": "2.0", "command": COMMAND},
    },
    "checkpoints": {
        "small": {"files_sha256": "c1"},
        "large": {"repo": "org/large", "revision": "0" * 40},
        "draft": {"files_sha256": "c3"},
    },
}


@pytest.fixture
def data() -> dict[str, Any]:
    """The campaign as plain data, to be changed at will."""
    return copy.deepcopy(CAMPAIGN)


@pytest.fixture
def found() -> dict[str, Any]:
    """The recipes of `data`, to be changed at will."""
    return copy.deepcopy(RECIPES)


def parsed(data: dict[str, Any]) -> config.Campaign:
    return config.parse(yaml.safe_dump(data, sort_keys=False), "campaign.yaml")


def planned(
    data: dict[str, Any], found: dict[str, Any], facts: dict[str, Any] | None = None
) -> plan.Plan:
    return plan.make(parsed(data), {"machine": FACTS if facts is None else facts}, found)


@dataclass(frozen=True)
class Tree:
    """A project folder that holds one campaign and everything it names."""

    root: Path
    file: str = "campaign.yaml"

    def write(self, data: dict[str, Any]) -> config.Campaign:
        text = yaml.safe_dump(data, sort_keys=False)
        (self.root / self.file).write_text(text, encoding="utf-8")
        return config.parse(text, self.file)

    def load(self) -> campaign.Loaded:
        return campaign.load(self.file, self.root)


@pytest.fixture
def tree(tmp_path: Path, data: dict[str, Any]) -> Tree:
    root = tmp_path / "project"
    for name in ("small", "large", "draft"):
        folder = root / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": name}))
        (folder / "weights.bin").write_bytes(name.encode() * 10)
    (root / "texts").mkdir()
    words = [f"Section {n} of a text has words {n * n} and more. " * 20 for n in range(12)]
    (root / "texts" / "words.txt").write_text("\f".join(words))
    (root / "texts" / "other.txt").write_text("\f".join(reversed(words)))
    made = Tree(root)
    made.write(data)
    return made


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., tuple[Launch, int, Path]]:
    """How to start a scripted server with some options: (launch, port, log file)."""

    def make(
        *options: str, model: str = "m", deadline_s: float = 60.0, port: int | None = None
    ) -> tuple[Launch, int, Path]:
        port = servers.free_port() if port is None else port
        argv = [sys.executable, str(SCRIPTED), "--port", str(port), "--model", model]
        env = clean_env(tmp_path, tmp_path)
        launch = Launch([*argv, "--noise", "0", *options], env, tmp_path, model, deadline_s)
        return launch, port, tmp_path / "server.log"

    return make
