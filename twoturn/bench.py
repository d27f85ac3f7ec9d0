"""What the cells of one round share, and the fresh folder that one server lives in."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twoturn import checkpoints, files, servers, text_gate, tokens
from twoturn.campaign import Loaded
from twoturn.engines import Place
from twoturn.engines.base import find
from twoturn.plan import Arm, Series
from twoturn.session import Session

Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """Everything that the cells of one round share. `opening`: the session has measured nothing of
    the series yet. `pythons`: server → the Python of its environment, or None. `extra`: what every
    request carries beside its messages."""

    loaded: Loaded
    series: Series
    number: int
    session: Session
    opening: bool
    pythons: Mapping[str, Path | None]
    text: str
    log_folder: Path
    say: Say
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether what is sent is somebody's own: then no word that a server says is kept."""
        return self.series.workload.kind == "replay"


@dataclass
class Cell:
    """One arm measured once: rows for the file, of each what was asked and answered, and what must
    not be written down."""

    arm: Arm
    rows: list[dict[str, Any]] = field(default_factory=list)
    requests: list[text_gate.Request] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def tokenizer(this: Round, arm: Arm) -> tokens.ChatTokenizer | None:
    """That of the arm's checkpoint, or None where it has none."""
    loaded = this.loaded
    return tokens.load(
        checkpoints.folder(arm.checkpoint, loaded.campaign, loaded.file, loaded.root)
    )


def trained_block(this: Round, arm: Arm) -> int | None:
    """The block that the arm's draft was trained for, or None where none is known."""
    return None if arm.draft is None else this.loaded.weights[arm.draft].trained_block


def place(this: Round, arm: Arm, folder: Path) -> Place:
    """Where the arm's server lives: `folder` with links to its checkpoints."""
    loaded, python = this.loaded, this.pythons[arm.server]
    models = {}
    (folder / "models").mkdir()
    for name in {arm.checkpoint, arm.draft or arm.checkpoint}:  # a target may draft for itself
        target = checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root)
        (folder / "models" / name).symlink_to(target)
        models[name] = f"models/{name}"
    # Code that a server compiles for itself lasts as long as its environment, as bytecode does;
    # made anew for each cell, the compiler would run inside the first requests.
    tmp = python.parent.parent / "tmp" if python else folder / "tmp"
    tmp.mkdir(exist_ok=True)
    (folder / "home").mkdir()
    named = loaded.campaign.servers[arm.server].executable
    executable = Path(find(named)).absolute() if named else None
    return Place(loaded.root, folder, servers.free_port(), python, tmp, models, executable)


@contextlib.contextmanager
def cell_folder(root: Path) -> Iterator[Path]:
    """The fresh folder that one server lives in; those of dead processes go on the way."""
    base = root / servers.STATE / "cells"
    base.mkdir(parents=True, exist_ok=True)
    for path in base.iterdir():
        owner = path.name.split("-")[0]
        if files.is_left(owner):
            servers.stop_stale(path)
            shutil.rmtree(path, ignore_errors=True)
    folder = base / f"{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
