"""A server that already runs: LM Studio, Ollama or any other, started and stopped by others.

What it reports is read by another adapter, the one that `adapter` names, or like that of any
program: llama.cpp's names in `timings` where they occur. Of LM Studio and Ollama, which were never
tried, that is usage and nothing on speculation, so an arm that asks for it is `spec_inactive`.

What cannot be known: its version, which the campaign states; its command line and settings, so an
arm has none but the model id, and what it says of them is recorded and held to nothing; its log;
what its cache held before, or who else uses it, so no cold claim is made of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from twoturn.config import SPECULATION
from twoturn.engines.base import Engine, NamedModel, Place, Telemetry
from twoturn.errors import UserError
from twoturn.plan import Arm
from twoturn.servers import Launch, Running
from twoturn.stream import Answer


class Attached(Engine):
    """The server at `url`, http://127.0.0.1:PORT; `reader` knows what it reports."""

    name = "attached"
    origins = ("attach",)
    mtp_head = "either"
    modes = SPECULATION
    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {mode: {} for mode in SPECULATION[1:]}
    Settings = NamedModel

    def __init__(self, url: str, api_key_env: str | None, reader: Engine) -> None:
        self.url, self.api_key_env, self.reader = url, api_key_env, reader

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        return Launch(
            [],
            {},
            place.folder,
            chosen.model or arm.checkpoint,
            start_deadline_s=chosen.start_deadline_s,
            settings=chosen.model_dump(),
            attach=self.url,
            api_key=api_key(self.api_key_env),
        )

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        said, _ = self.reader.read_back(running, replace(arm, settings={}))
        return said, []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        return self.reader.telemetry(answer, log)


def api_key(variable: str | None) -> str | None:
    """The key that an environment variable holds, None without a variable. Raises UserError."""
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    if not (key and key.isascii() and key.isprintable()):
        raise UserError(
            f"the environment variable {variable} holds no usable key",
            cure=f"set {variable} and run again; the key is sent and never stored",
        )
    return key


def cure(status: str, variable: str | None) -> str:
    """What to do about one that does not answer as it should; `variable` holds its key."""
    if status != "unauthorized":
        return "let it answer as the campaign says, then run again"
    if variable is None:
        return "name the environment variable that holds its key, as `api_key_env`"
    return f"put its key into the environment variable {variable}"
