"""What an adapter knows about one server, and one scale for everybody's speculation figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from twoturn.plan import Arm
from twoturn.servers import Launch
from twoturn.stream import Answer


@dataclass(frozen=True)
class Place:
    """Where one cell's server lives: `folder` is fresh and empty, `python` its environment's,
    `root` the project's folder.

    `models` maps checkpoint names to ids: links inside `folder`, so that no path of the machine
    shows in a command line or an answer.
    """

    root: Path
    folder: Path
    port: int
    python: Path | None
    tmp: Path
    models: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.folder / "home"


@dataclass(frozen=True)
class Telemetry:
    """What a server says about one request, raw; None where it does not say.

    `target_steps` counts forward passes of the target after prefill, drafted or not.
    """

    decode_tok_s: float | None = None
    ttft_s: float | None = None
    cycles: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    target_steps: int | None = None


class Settings(BaseModel):
    """Base of an adapter's settings. Strict: a quoted "off" is a text and no switch."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Engine(Protocol):
    """One adapter: how a server is started in a mode, read back and read out."""

    @property
    def name(self) -> str:
        """As campaign files call it."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Speculation modes that it can be started in."""

    @property
    def Settings(self) -> type[Settings]:
        """What can be set, with types and defaults; everything else is refused."""

    def launch(self, arm: Arm, place: Place) -> Launch:
        """Argv and environment that start the server in the arm's mode."""

    def read_back(self, base_url: str, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        """Settings as the running server tells them, and how they differ from the arm's."""

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        """The server's own figures of one request, from its answer and from what it has written
        to its log since the request was sent."""


def scale(telemetry: Telemetry, emitted: int | None) -> dict[str, float | int | None]:
    """The columns of speculation, from raw counts: emitted N, cycles V, drafted D, accepted A, S.

    accept_length = 1 + A/V, bonus token included, the DFlash paper's tau;
    tokens_per_step = (N - 1)/S; accept_rate = A/D; draft_share = A/N;
    effective_block_size = 1 + D/V, because some servers adapt the block that was asked for.
    """
    cycles, drafted, accepted = telemetry.cycles, telemetry.drafted, telemetry.accepted
    steps = telemetry.target_steps
    return {
        "verify_cycles": cycles,
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
        "effective_block_size": _ratio(drafted, cycles, plus=1),
        "accept_length": _ratio(accepted, cycles, plus=1),
        "tokens_per_step": _ratio(None if emitted is None else emitted - 1, steps),
        "accept_rate": _ratio(accepted, drafted),
        "draft_share": _ratio(accepted, emitted) if cycles else None,
    }


def _ratio(over: int | None, under: int | None, plus: int = 0) -> float | None:
    return plus + over / under if over is not None and under else None


def count(value: Any) -> int | None:
    """A whole number that a server reported, or None: bools, texts and negatives are no counts."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value >= 0 and value == int(value) else None


def rate(value: Any) -> float | None:
    """A positive finite number that a server reported, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < float("inf") else None
