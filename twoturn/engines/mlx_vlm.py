"""mlx-vlm's server, 0.7.10: none, mtp, dflash; prefix cache by environment variable.

What it reports, in `timings` of the last chunk: `draft_rounds` verify rounds, `draft_n` drafted and
`draft_n_accepted` accepted tokens of this request, `cache_n` cached prompt tokens, `prompt_ms` and
`predicted_per_second`. A round is one forward pass of the target, so S = draft_rounds; without a
draft every token after the first is one. Where a stop falls inside an accepted block,
`draft_n_accepted` counts past it. The block of dflash always adapts between rounds, between 4 (or
what was asked for, if that is less) and what was asked for, without which it is the draft's trained
block: draft_n/draft_rounds is what was really drafted. That of a Qwen3.5 MTP head does not adapt.
It does not tell queueing or template time. `/health` tells the model and whether the prefix cache
(APC) is on. Its version is what is installed in its environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from twoturn import client
from twoturn.engines.base import (
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


class MlxVlmSettings(Settings):
    """Null leaves a choice to the server. A block of the prefix cache holds 16 tokens."""

    prefix_cache: bool = True
    cache_blocks: int | None = Field(None, ge=1)
    prefill_step_size: int | None = Field(None, ge=1)
    kv_bits: float | None = Field(None, gt=0)


class MlxVlm(Engine):
    """`python -m mlx_vlm.server` in its own environment."""

    name = "mlx-vlm"
    modes = ("none", "mtp", "dflash")
    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dflash": {}}
    Settings = MlxVlmSettings

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        argv = [
            *(str(place.python), "-m", "mlx_vlm.server", "--model", model),
            *("--host", "127.0.0.1", "--port", str(place.port)),
        ]
        if arm.draft is not None:
            argv += ["--draft-model", place.models[arm.draft], "--draft-kind", arm.speculation]
        if arm.block_size is not None:
            argv += ["--draft-block-size", str(arm.block_size)]
        if chosen.prefill_step_size is not None:
            argv += ["--prefill-step-size", str(chosen.prefill_step_size)]
        if chosen.kv_bits is not None:
            argv += ["--kv-bits", f"{chosen.kv_bits:g}"]
        env = {
            **clean_env(place.home, place.tmp),
            "APC_ENABLED": "1" if chosen.prefix_cache else "0",
            "APC_DISK_ENABLED": "0",
        }
        if chosen.cache_blocks is not None:
            env["APC_NUM_BLOCKS"] = str(chosen.cache_blocks)
        return Launch([*argv, *arm.args], env, place.folder, model, settings=chosen.model_dump())

    def kept_bytes(self, arm: Arm) -> float | None:
        bits = self.Settings.model_validate(arm.settings).kv_bits
        return None if bits is None else bits / 8

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        _, health = client.get_json(running.base_url, "/health", 10.0, running.api_key)
        told = health if isinstance(health, dict) else {}
        said = {"prefix_cache": told.get("apc_enabled"), "model": told.get("loaded_model")}
        wanted = {
            "prefix_cache": self.Settings.model_validate(arm.settings).prefix_cache,
            "model": f"models/{arm.checkpoint}",
        }
        return said, differences(wanted, said)

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        timings = answer.timings or {}
        cycles = count(timings.get("draft_rounds"))
        emitted = count(timings.get("predicted_n"))
        return from_timings(timings).but(
            cycles=cycles, target_steps=cycles or (emitted - 1 if emitted else None)
        )
