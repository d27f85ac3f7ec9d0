"""llama.cpp's `llama-server`, b10434: none, draft (a draft model), ngram (drafts from the text).

What it reports. Usage has cached tokens. `timings` of the last chunk has `draft_n` drafted (D) and
`draft_n_accepted` accepted tokens (A) of this request, both left out where nothing was drafted;
`predicted_n` tokens (N), `prompt_ms`, and `predicted_per_second` = (N - 1) / s of generation.

Steps. The first token comes from the logits of the prompt; every later forward pass of the target
emits one token of its own and the accepted ones: S = N - 1 - A. (A draft is cut to what is left of
the answer, so none is accepted past its end; a stop inside an accepted block counts past it.)

Verify rounds. A pass without a draft is no round, so V is at most S and no formula over `timings`
gives it. The log does: after each request `draft acceptance = … (A accepted / D generated), mean
len = 1 + A/V` and, at verbosity 4, `acc per pos = (a1/V, a2/V, …)`, where ai counts rounds that
accepted at least i tokens. V is the only number up to S that gives all these roundings; where
several do, or the lines are missing, V is null, and with it accept length and effective block size.

Proof of mode. `/slots` says whether a slot can speculate, else the arm is `wrong_settings`. At
verbosity 4 each request ends with a line `statistics <kind>: …` of the drafter that was asked, also
where an n-gram drafter found nothing to repeat: no draft is then D = 0 and not unknown. A thread of
its own writes the log, so lines may come after the answer; `stop processing` is the last one.

Switches. `--model-draft` alone loads a draft and never uses it, so `--spec-type` is always given;
`--draft-max` and its kind are gone. `--spec-draft-n-max` counts drafted tokens and bounds draft
models alone, each kind of n-gram has a switch of its own: block size is that number + 1.
`ngram-cache` has none (8 tokens) and is not offered. `ngram-mod` keeps its table between requests,
so what it drafts depends on those before. These names came when the parameters were split by kind
(llama.cpp #22397, April 2026); an older server refuses them and does not start.

`/health` is 503 until the model is loaded. Greedy text depends on the number of threads and,
through the shape of batches, may depend on speculation: seen in f16, not in f32.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from twoturn import checkpoints, client
from twoturn.engines.base import (
    TOP_TWO,
    Engine,
    Place,
    Settings,
    Telemetry,
    count,
    differences,
    from_timings,
)
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer

PROGRAM = "llama-server-vulkan"  # as the package calls it; without a GPU it runs on the processor
_BLOCK = {
    "draft-simple": "--spec-draft-n-max",
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
_LOOKUP = {
    "ngram-simple": "--spec-ngram-simple-size-n",
    "ngram-map-k": "--spec-ngram-map-k-size-n",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-n",
    "ngram-mod": "--spec-ngram-mod-n-match",
}
_ASKED = re.compile(r"statistics\s+\S+: #calls")
_MEAN = re.compile(  # other builds write the words out
    r"draft acceptance = .*\(\s*(\d+) accepted /\s*(\d+) generated\), "
    r"mean (?:len|acceptance length) =\s*([^\s,]+)"
)
_BY_PLACE = re.compile(
    r"(?:acc per pos|acceptance rate per position) = \(((?:\d\.\d{3}(?:, )?)+)\)"
)


KEPT_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""By the setting `kv_type`; f16 is the server's own, whatever the checkpoint is stored in."""


class LlamaCppSettings(Settings):
    """Null leaves a choice to the server."""

    threads: int | None = Field(None, ge=1)
    context: int | None = Field(None, ge=1)
    prefix_cache: bool = True
    ngram: Literal["simple", "map-k", "map-k4v", "mod"] = "simple"
    ngram_lookup: int | None = Field(None, ge=1)
    kv_type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] | None = None
    gpu_layers: int | None = Field(None, ge=0)
    batch: int | None = Field(None, ge=1)


class LlamaCpp(Engine):
    """`llama-server` of a package in its own environment, or one that is on the machine."""

    name = "llama-cpp"
    origins = ("install", "executable")
    modes = ("none", "draft", "ngram")
    top_two = TOP_TWO
    cannot_read = "The model produced output that does not match"  # common/chat.cpp
    Settings = LlamaCppSettings

    def weights(self, folder: Path) -> Path:
        return checkpoints.gguf_file(folder)

    def kept_bytes(self, arm: Arm) -> float:
        return KEPT_BYTES[self.Settings.model_validate(arm.settings).kv_type or "f16"]

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        kind = speculator(arm, chosen)
        argv = [
            *(program(place), "--model", self._file(place, model), "--alias", model),
            *("--host", "127.0.0.1", "--port", str(place.port), "--parallel", "1"),
            *("--offline", "--no-ui", "--verbosity", "4", "--spec-type", kind),
        ]
        if arm.draft is not None:
            argv += ["--model-draft", self._file(place, place.models[arm.draft])]
        if arm.block_size is not None:
            argv += [_BLOCK[kind], str(arm.block_size - 1)]
        if arm.speculation == "ngram" and chosen.ngram_lookup is not None:
            argv += [_LOOKUP[kind], str(chosen.ngram_lookup)]
        if kind == "ngram-mod" and arm.block_size is not None:
            argv += ["--spec-ngram-mod-n-min", "1"]  # its own least, 48, is more than most blocks
        if not chosen.prefix_cache:
            argv += ["--no-cache-prompt", "--cache-ram", "0"]
        if chosen.threads is not None:
            argv += ["--threads", str(chosen.threads)]
        if chosen.context is not None:
            argv += ["--ctx-size", str(chosen.context)]
        if chosen.kv_type is not None:
            argv += ["--cache-type-k", chosen.kv_type, "--cache-type-v", chosen.kv_type]
        if chosen.gpu_layers is not None:
            argv += ["--gpu-layers", str(chosen.gpu_layers)]
        if chosen.batch is not None:
            argv += ["--batch-size", str(chosen.batch), "--ubatch-size", str(chosen.batch)]
        env = clean_env(place.home, place.tmp)
        return Launch([*argv, *arm.args], env, place.folder, model, settings=chosen.model_dump())

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        _, props = client.get_json(running.base_url, "/props", 10.0, running.api_key)
        _, slots = client.get_json(running.base_url, "/slots", 10.0, running.api_key)
        told = props if isinstance(props, dict) else {}
        slot = slots[0] if isinstance(slots, list) and slots and isinstance(slots[0], dict) else {}
        said = {
            "model": told.get("model_alias"),
            "weights": told.get("model_ftype"),
            "build": told.get("build_info"),
            "slots": told.get("total_slots"),
            "context": slot.get("n_ctx"),
            "speculation": slot.get("speculative"),
        }
        wanted = {
            "model": f"models/{arm.checkpoint}",
            "slots": 1,
            "speculation": arm.speculation != "none",
        }
        return said, differences(wanted, said)

    def logged(self, log: str) -> bool:
        return "stop processing" in log

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        timings = answer.timings or {}
        asked = _ASKED.search(log) is not None
        told = from_timings({"draft_n": 0, "draft_n_accepted": 0, **timings} if asked else timings)
        emitted = count(timings.get("predicted_n"))
        steps = count(emitted - 1 - (told.accepted or 0)) if emitted else None
        return told.but(
            target_steps=steps,
            cycles=verify_rounds(told.drafted, told.accepted, steps, log),
            active=True if asked else None,
        )

    @staticmethod
    def _file(place: Place, model: str) -> str:
        """A checkpoint's GGUF file by the link inside the cell's folder."""
        return f"{model}/{checkpoints.gguf_file(place.folder / model).name}"


def program(place: Place) -> str:
    """The server's program: found on the machine, or beside the Python of its environment."""
    if place.executable is not None:
        return str(place.executable)
    assert place.python is not None
    return str(place.python.with_name(PROGRAM))


def speculator(arm: Arm, chosen: LlamaCppSettings) -> str:
    """The server's word for an arm's mode."""
    kinds = {"none": "none", "draft": "draft-simple", "ngram": f"ngram-{chosen.ngram}"}
    return kinds[arm.speculation]


def verify_rounds(
    drafted: int | None, accepted: int | None, steps: int | None, log: str
) -> int | None:
    """V as the log's rounded figures allow it, None where they allow several or say nothing."""
    if drafted is None or accepted is None or steps is None:
        return None
    if drafted == 0:
        return 0
    said = _MEAN.findall(log)
    if not said or said[-1][:2] != (str(accepted), str(drafted)):
        return None
    by_place = _BY_PLACE.findall(log)
    shares = by_place[-1].split(", ") if by_place else []
    possible = _rounds(accepted, steps, said[-1][2], shares)
    first, second = next(possible, None), next(possible, None)
    return first if second is None else None


def _rounds(accepted: int, steps: int, mean: str, shares: list[str]) -> Iterator[int]:
    """Numbers of rounds under which A, the mean length and the shares by place are as printed."""
    for rounds in range(1, steps + 1):
        by_place = [round(float(share) * rounds) for share in shares]
        printed = [f"{one / rounds:.3f}" for one in by_place]
        if (
            f"{1 + accepted / rounds:.2f}" == mean
            and printed == shares
            and (not shares or sum(by_place) == accepted)
        ):
            yield rounds
