"""Any OpenAI-compatible program started from a command line of the campaign file.

`{port}`, `{model}` and `{python}` are filled in, the arm's `args` are appended. What it reports is
not known beforehand: llama.cpp's names in `timings` are read where they occur, everything else is
null. Verify rounds are not told by those names, so accept length stays null unless `draft_rounds`
is there too. Nothing can be read back.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from twoturn.engines.base import Place, Settings, Telemetry, count, rate
from twoturn.errors import UserError
from twoturn.plan import Arm
from twoturn.servers import Launch, clean_env
from twoturn.stream import Answer


class CommandSettings(Settings):
    """How long a start may take, and the model id where it is not the checkpoint's."""

    start_deadline_s: float = Field(600.0, gt=0, allow_inf_nan=False)
    model: str | None = None


class Command:
    """A program that the campaign names; `command` is its argv with placeholders."""

    name = "command"
    modes = ("none", "mtp", "dflash", "draft", "ngram")
    Settings = CommandSettings

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

    def read_back(self, base_url: str, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        return {}, []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        timings = answer.timings or {}
        prompt_ms = rate(timings.get("prompt_ms"))
        cycles = count(timings.get("draft_rounds"))
        return Telemetry(
            decode_tok_s=rate(timings.get("predicted_per_second")),
            ttft_s=None if prompt_ms is None else prompt_ms / 1000,
            cycles=cycles,
            drafted=count(timings.get("draft_n")),
            accepted=count(timings.get("draft_n_accepted")),
            target_steps=cycles,
        )


def find(program: str) -> str:
    """The program's full path. Raises UserError."""
    if (found := shutil.which(program)) is None:
        raise UserError(f"the program {program!r} is not found on this machine")
    return found


def _placed(word: str, root: Path) -> str:
    """A file of the project by its full path: the server runs in a folder of its own."""
    return str(root / word) if (root / word).is_file() else word


def _filled(word: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(name, value)
    return word
