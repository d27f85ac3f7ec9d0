"""Whole workflows in copies of the repository: what the tests of it share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from twoturn import campaign, preflight, recipes, servers

REPOSITORY = Path(__file__).resolve().parent.parent
PARTS = (
    *("Snakefile", "config.yaml", "workflow", "scripts", "twoturn", "profiles", "texts", "tasks"),
    *("checkpoints", "tests/servers"),
)
SCRIPTED = """
name: scripted
servers:
  even:
    command: &scripted ["{{python}}", tests/servers/scripted.py, --port, "{{port}}",
      --model, "{{model}}", --noise, "0.02", --tok-s, "600", --ttft-ms, "10"]
    version: "1.0"
  other:
    command: *scripted
    version: "{other_version}"
checkpoints:
  first: {{path: checkpoints/first}}
  second: {{path: checkpoints/second}}
series:
  speeds:
    workload: {{kind: chat, prompts: 1, prompt_tokens: 32, max_tokens: 96, seed: 3}}
    rounds: {rounds}
    reference: plain
    null_arm: true
    arms:
      plain: {{checkpoint: first, server: even}}
      same: {{checkpoint: first, server: even}}
      fast: {{checkpoint: first, server: even, args: [--speed, "1.3"]}}
  pair:
    workload: {{kind: chat, prompts: 1, prompt_tokens: 32, max_tokens: 16, seed: 3}}
    rounds: {pair_rounds}
    reference: plain
    arms:
      plain: {{checkpoint: first, server: even}}
      another: {{checkpoint: second, server: other}}
"""


def environment(adapter: str) -> Path:
    """The Python of a server's environment in the repository, made if it is missing."""
    lock = f"workflow/envs/{adapter}.lock"
    recipe = recipes.environment(REPOSITORY / lock, lock)
    folder = servers.environment_folder(REPOSITORY, adapter, recipe["environment_sha256"])
    return servers.ensure_environment(REPOSITORY, lock, folder, print)


def shared_environments(clone: Clone, file: str) -> None:
    """Let a clone use the repository's server environments, made here if they are missing."""
    target = clone.folder / ".twoturn"
    target.mkdir()
    (target / "envs").symlink_to(REPOSITORY / ".twoturn/envs")
    (REPOSITORY / ".twoturn/envs").mkdir(parents=True, exist_ok=True)
    loaded = campaign.load(file, clone.folder)
    preflight.check(loaded, loaded.plan.series, print)


def measured_for_real(
    folder: Path, text: str, *targets: str, files: Mapping[str, bytes] | None = None
) -> Clone:
    """A clone that shares the repository's server environments, with the campaign `text`, named
    `real`, and the files that it names, run to its end or to `targets`."""
    clone = Clone(folder / "clone")
    for name, data in (files or {}).items():
        (clone.folder / name).write_bytes(data)
    (clone.folder / "campaign.yaml").write_text(text)
    shared_environments(clone, "campaign.yaml")
    done = clone.snakemake("--configfile", "campaign.yaml", "--cores", "1", *targets)
    assert done.returncode == 0, done.stdout + done.stderr
    return clone


def rounds_of(clone: Clone) -> list[dict[str, Any]]:
    """Rows of the rounds that `measured_for_real` left."""
    table = pq.read_table(clone.folder / "results/real/cells.parquet").to_pylist()
    return [row for row in table if row["kind"] == "round"]


class Clone:
    """A copy of the repository in a folder of its own, as a fresh clone would be."""

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            if part in without:
                continue
            source, target = REPOSITORY / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def scripted(
        self, *, rounds: int = 6, pair_rounds: int = 2, other_version: str = "1.0"
    ) -> Path:
        """Write a campaign of scripted servers whose speeds are known."""
        # No tokenizer: what a scripted server calls a token is a word of its own.
        for name in ("first", "second"):
            folder = self.folder / "checkpoints" / name
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text(f'{{"model_type": "scripted", "name": "{name}"}}')
        file = self.folder / "campaign.yaml"
        file.write_text(
            SCRIPTED.format(
                rounds=rounds,
                pair_rounds=pair_rounds,
                other_version=other_version,
            )
        )
        return file

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments]

    def snakemake(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=self.env() | (env or {}),
            timeout=900,
        )

    def env(self) -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if not key.startswith("TWOTURN_")}

    def planned(self, *arguments: str) -> dict[str, int]:
        """How many jobs of each measuring rule `-n` plans; the run must succeed."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.findall(r"^(measure_\S+) +(\d+)$", done.stdout + done.stderr, re.MULTILINE)
        return {name: int(number) for name, number in found}
