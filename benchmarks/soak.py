"""What measuring leaves behind in its own process: file handles, memory, passing files, processes.

    python -m benchmarks.soak --cells 200

Real rounds of two arms in one process, each cell against a scripted server of its own. After a
tenth of them everything that is loaded once is loaded; from there on nothing may grow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.workflow import REPOSITORY
from twoturn import campaign, measure
from twoturn.session import Session, started

CAMPAIGN = """
servers:
  scripted:
    command: ["{{python}}", tests/servers/scripted.py, --port, "{{port}}", --model, "{{model}}",
      --tok-s, "2000", --ttft-ms, "5", --prompt-cache]
    version: "1.0"
checkpoints:
  small: {{path: small}}
series:
  soak:
    workload: {{kind: conversation, prompts: 1, prompt_tokens: 64, turns: 2, max_tokens: 32}}
    rounds: {rounds}
    reference: plain
    arms:
      plain: {{checkpoint: small, server: scripted}}
      drafted: {{checkpoint: small, server: scripted, speculation: mtp, args: [--draft]}}
"""
GROWTH_MB = 10.0
"""Resident memory may move by so much: freed pages go back when the allocator likes."""


@dataclass(frozen=True)
class Figures:
    """Of this process, after so many cells."""

    cells: int
    handles: int
    memory_mb: float
    passing: int  # files and folders of cells and of the system's temporary folder
    children: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.cells:4d} cells: {self.handles} file handles, {self.memory_mb:.1f} MB, "
            f"{self.passing} passing files, {self.children} children, {self.threads} threads"
        )


def look(cells: int, root: Path) -> Figures:
    me = psutil.Process()
    passing = [
        *root.glob(".twoturn/cells/*"),
        *root.glob("results/**/.*"),
        *Path(tempfile.gettempdir()).glob("twoturn-*"),
    ]
    passing = [path for path in passing if not path.name.endswith(".lock")]
    memory_mb = me.memory_info().rss / 2**20
    children = len(me.children(recursive=True))
    return Figures(cells, me.num_fds(), memory_mb, len(passing), children, me.num_threads())


def soak(root: Path, cells: int) -> list[Figures]:
    """Measure so many cells in `root`; figures after each tenth of them."""
    rounds = cells // 2 + cells // 2 % 2
    for part in ("texts", "tests/servers"):
        shutil.copytree(REPOSITORY / part, root / part, dirs_exist_ok=True)
    (root / "small").mkdir()
    (root / "small/config.json").write_text('{"model_type": "scripted"}')
    (root / "campaign.yaml").write_text(CAMPAIGN.format(rounds=rounds))
    loaded = campaign.load("campaign.yaml", root)
    series = loaded.plan.one("soak")
    session = Session("soak", os.getpid(), started(os.getpid()))
    seen: list[Figures] = []
    for number in series.round_numbers():
        measure.run_round(loaded, series, number, session, root / "logs", lambda line: None)
        if 2 * number >= (len(seen) + 1) * cells / 10:
            seen.append(look(2 * number, root))
            print(seen[-1], flush=True)
    return seen


def grown(seen: list[Figures]) -> list[str]:
    """What is not flat, in words."""
    first, last = seen[0], seen[-1]
    found = [
        f"{name} {getattr(first, name)} → {getattr(last, name)}"
        for name in ("handles", "passing", "children", "threads")
        if getattr(last, name) > getattr(first, name)
    ]
    if last.memory_mb - first.memory_mb > GROWTH_MB:
        found.append(f"memory {first.memory_mb:.1f} → {last.memory_mb:.1f} MB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=200)
    wanted = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as passing:
        seen = soak(Path(os.path.realpath(passing)), wanted.cells)
    found = grown(seen)
    print(
        f"{seen[-1].cells} cells in {time.monotonic() - begun:.0f} s: {'; '.join(found) or 'flat'}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
