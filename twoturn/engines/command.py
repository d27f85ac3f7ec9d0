"""Any OpenAI-compatible program started from a command line of the campaign file.

`{port}`, `{model}` and `{python}` are filled in, the arm's `args` are appended. What it reports is
not known beforehand: llama.cpp's names in `timings` are read where they occur, everything else is
null. Verify rounds are not told by those names, so accept length stays null unless `draft_rounds`
is there too. Nothing can be read back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from twoturn.config import SPECULATION
from twoturn.engines.base import Engine, NamedModel, Place, Telemetry, count, find, from_timings
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer


class Command(Engine):
    """A program that the campaign names; `command` is its argv with placeholders."""

    name = "command"
    origins = ("command",)
    mtp_head = "either"
    modes = SPECULATION
    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {mode: {} for mode in SPECULATION[1:]}
    Settings = NamedModel

    def __init__(self, command: tuple[str, ...] = ()) -> None:
        self.command = command

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = chosen.model or place.models[arm.checkpoint]
        names = {"{port}": str(place.port), "{model}": model, "{python}": sys.executable}
        argv = [_placed(_filled(word, names), place.root) for word in self.command]
        env = clean_env(place.home, place.tmp)
        env["PATH"] = os.environ.get("PATH", env["PATH"])  # the user's own program is found there
        return Launch(
            [find(argv[0]), *argv[1:], *arm.args],
            env,
            place.folder,
            model,
            start_deadline_s=chosen.start_deadline_s,
            settings=chosen.model_dump(),
        )

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        return {}, []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        timings = answer.timings or {}
        cycles = count(timings.get("draft_rounds"))
        return from_timings(timings).but(cycles=cycles, target_steps=cycles)


def _placed(word: str, root: Path) -> str:
    """A file of the project by its full path: the server runs in a folder of its own."""
    return str(root / word) if (root / word).is_file() else word


def _filled(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word
