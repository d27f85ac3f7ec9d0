"""What an adapter knows about one server, and one scale for everybody's speculation figures."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from twoturn.errors import UserError
from twoturn.plan import Arm
from twoturn.servers import Launch, Running
from twoturn.stream import Answer

LONGEST_BLOCK = 32
"""Tokens of the longest block that any of these servers chooses by itself (mlx-dspark's lookup)."""
TOP_TWO: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 2}
"""`Engine.top_two` in the form of OpenAI's chat completions."""


@dataclass(frozen=True)
class Place:
    """Where one cell's server lives: `folder` is fresh and empty, `python` its environment's,
    `executable` the program found on the machine, `root` the project's folder.

    `models` maps checkpoint names to ids: links inside `folder`, so that no path of the machine
    shows in a command line or an answer.
    """

    root: Path
    folder: Path
    port: int
    python: Path | None
    tmp: Path
    models: Mapping[str, str]
    executable: Path | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"


@dataclass(frozen=True)
class Telemetry:
    """What a server says about one request, raw; None where it does not say.

    `target_steps` counts forward passes of the target after prefill, drafted or not. `active` is
    what the server itself says of whether it speculated, where it says so apart from counts: an
    n-gram drafter that finds nothing to repeat is at work and drafts nothing. None: only counts can
    tell.
    """

    decode_tok_s: float | None = None
    ttft_s: float | None = None
    cycles: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    target_steps: int | None = None
    active: bool | None = None

    def but(self, **changed: Any) -> Telemetry:
        """The same with some figures changed."""
        return replace(self, **changed)

    @property
    def speculated(self) -> bool:
        """Whether there is a sign that speculation ran."""
        return bool(self.cycles or self.drafted) if self.active is None else self.active


class Settings(BaseModel):
    """Base of an adapter's settings. Strict: a quoted "off" is a text and no switch."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NamedModel(Settings):
    """How long a first answer may take, and the model id where it is not the checkpoint's."""

    start_deadline_s: float = Field(600.0, gt=0, allow_inf_nan=False)
    model: str | None = None


class Engine(Protocol):
    """One adapter: how a server is started in a mode, read back and read out.

    It is made anew for each cell, so what `read_back` saw may be remembered for `telemetry`.
    """

    origins: ClassVar[tuple[str, ...]] = ("install",)
    """Keys of a campaign's server by which it comes to be here."""

    mtp_head: ClassVar[Literal["draft", "target", "either"]] = "draft"
    """Where the head of mode mtp is: in a draft's checkpoint or in the target's own."""

    top_two: ClassVar[Mapping[str, Any]] = {}
    """What a request holds for the log probabilities of the two likeliest tokens at each place;
    nothing where the server does not stream them."""

    cannot_read: ClassVar[str] = ""
    """Words of the server's error where it is what the model wrote that it could not read."""

    since: ClassVar[Mapping[str, str]] = {}
    """First version that has a setting, a `<mode>.block_size` or, where earlier ones silently
    decode greedily, a `<mode>.temperature`. What is not here is in every version."""

    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Modes in which it can choose the block itself (`block_size: adaptive`), each with the
    settings that make it do so; up to the block that the draft was trained for."""

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

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        """Settings as the running server tells them, and how they differ from the arm's."""

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        """The server's own figures of one request, from its answer and from what it has written
        to its log since the request was sent."""

    def kept_bytes(self, arm: Arm) -> float | None:
        """Bytes that one number of its keys and values takes, by the arm's settings; None where it
        is of the type that the checkpoint's config.json names."""
        return None


def asked(engine: Engine, arm: Arm) -> dict[str, Any]:
    """An arm's settings, with those that `block_size: adaptive` stands for."""
    return {**arm.settings, **(engine.adaptive[arm.speculation] if arm.adaptive else {})}


@runtime_checkable
class ReadsOtherFiles(Protocol):
    """An adapter whose server reads other files of a checkpoint than transformers does."""

    def weights(self, folder: Path) -> Path:
        """The file of a checkpoint that the server loads. Raises UserError without file and key."""


@runtime_checkable
class Refuses(Protocol):
    """An adapter whose server can tell, before it is started, that it will not run an arm."""

    def refusal(self, arm: Arm, target: Path, python: Path) -> str | None:
        """Why an arm on the checkpoint in folder `target` cannot run, None where nothing is known
        against it; `python` is that of the server's environment."""


@runtime_checkable
class LogsLate(Protocol):
    """An adapter whose server may write to its log after the answer."""

    def logged(self, log: str) -> bool:
        """Whether the log since a request was sent holds all that belongs to it."""


def from_timings(timings: Mapping[str, Any]) -> Telemetry:
    """What llama.cpp's names in `timings` tell, which other servers have taken over."""
    prompt_ms = rate(timings.get("prompt_ms"))
    return Telemetry(
        decode_tok_s=rate(timings.get("predicted_per_second")),
        ttft_s=None if prompt_ms is None else prompt_ms / 1000,
        drafted=count(timings.get("draft_n")),
        accepted=count(timings.get("draft_n_accepted")),
    )


def differences(wanted: Mapping[str, Any], said: Mapping[str, Any]) -> list[str]:
    """Settings that a server tells otherwise than asked, in words; silence is no difference."""
    return [
        f"{key}: asked {value}, the server says {said[key]}"
        for key, value in wanted.items()
        if said[key] is not None and said[key] != value
    ]


def find(program: str) -> str:
    """The program's full path. Raises UserError."""
    if (found := shutil.which(program)) is None:
        raise UserError(f"the program {program!r} is not found on this machine")
    return found


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


def contradiction(telemetry: Telemetry, emitted: int | None, block_size: int | None) -> str | None:
    """What cannot be in a server's counts of one request, in words, or None. Lifetime counters
    read as one request's, a bonus token counted twice and a foreign request show here.

    A round accepts from none to all of its block, so 1 ≤ accept length ≤ B, where B is 1 + D/V if
    D is known, else the block that was asked for, if one was. V rounds yield V + A tokens: the
    N - 1 after the first, and at most one block more, where the last one reaches past the end of
    the answer. If each step was a round (S = V) it is at most one block less.
    """
    cycles, accepted, drafted = telemetry.cycles, telemetry.accepted, telemetry.drafted
    if accepted is None:
        return None
    if drafted is not None and accepted > drafted:
        return f"{accepted} tokens accepted of {drafted} drafted"
    if cycles is None:
        return None
    drafts = math.ceil(drafted / cycles) if drafted and cycles else 0
    block = max(block_size or LONGEST_BLOCK, 1 + drafts)
    if drafted is None and block_size is not None and accepted > cycles * (block_size - 1):
        return f"{accepted} tokens accepted in {cycles} rounds, with a block of {block_size}"
    if emitted is None:
        return None
    excess = cycles + accepted - (emitted - 1)
    if excess > block or (excess < -block and telemetry.target_steps == cycles):
        return f"{cycles} rounds accepted {accepted} tokens, the answer has {emitted}"
    return None


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
