"""vLLM's OpenAI server, started or attached; written for 0.33.0 and never run here.

It reports usage with the answer (cached tokens only with `--enable-prompt-tokens-details`) and all
else in lifetime counters of `/metrics`, which are read before and after a request. V is
`spec_decode_num_drafts_total`, D `…_num_draft_tokens_total`, A `…_num_accepted_tokens_total`: steps
without a draft are not in V, and A counts past a stop inside an accepted block. If N - 1 > V + A
there were steps without a draft, and how many is not told: S is null. Otherwise S = V; without
speculation every token after the first is one step. Times are the gain of
`time_to_first_token_seconds_sum` and `request_decode_time_seconds_sum`.

If another request was served meanwhile, all of it is null. The names are those of the V1 engine,
V0 had others; a version whose `--speculative-config` does not know a method ends at its start.
Block size B is n + 1 of `num_speculative_tokens` n. A server that needs a key serves `/metrics`
without it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from pydantic import Field

from twoturn.engines.base import TOP_TWO, Place, Settings, Telemetry, count, rate
from twoturn.engines.counters import Counted, Reading
from twoturn.plan import Arm
from twoturn.servers import Launch, clean_env

_METHODS = {"mtp": "mtp", "dflash": "dflash", "draft": "draft_model", "ngram": "ngram"}


class VllmSettings(Settings):
    """Null leaves a choice to the server."""

    prefix_cache: bool = True
    max_model_len: int | None = Field(None, ge=1)
    start_deadline_s: float = Field(1800.0, gt=0, allow_inf_nan=False)


class Vllm(Counted):
    """`vllm serve`, from an environment of its own or found on the machine."""

    name = "vllm"
    origins = ("install", "executable")
    mtp_head = "either"
    modes = ("none", "mtp", "dflash", "draft", "ngram")
    top_two = TOP_TWO
    Settings = VllmSettings
    requests = "vllm:request_success_total"

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        cli = [str(place.python), "-m", "vllm.entrypoints.cli.main"]
        argv = [
            *(cli if place.python else [str(place.executable)]),
            *("serve", model, "--served-model-name", model, "--enable-prompt-tokens-details"),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            "--enable-prefix-caching" if chosen.prefix_cache else "--no-enable-prefix-caching",
        ]
        if arm.speculation != "none":
            how: dict[str, Any] = {"method": _METHODS[arm.speculation]}
            if arm.draft is not None:
                how["model"] = place.models[arm.draft]
            if arm.block_size is not None:
                how["num_speculative_tokens"] = arm.block_size - 1
            argv += ["--speculative-config", json.dumps(how)]
        if chosen.max_model_len is not None:
            argv += ["--max-model-len", str(chosen.max_model_len)]
        env = {
            **clean_env(place.home, place.tmp),
            "PATH": os.environ.get("PATH", ""),  # it compiles with what is found there
            "VLLM_NO_USAGE_STATS": "1",
        }
        return Launch(
            [*argv, *arm.args],
            env,
            place.folder,
            model,
            start_deadline_s=chosen.start_deadline_s,
            settings=chosen.model_dump(),
        )

    def figures(self, emitted: int, gained: Reading) -> Telemetry:
        spec = "vllm:spec_decode_num_"
        cycles = count(gained.get(f"{spec}drafts_total"))
        accepted = count(gained.get(f"{spec}accepted_tokens_total"))
        decode_s = rate(gained.get("vllm:request_decode_time_seconds_sum"))
        return Telemetry(
            decode_tok_s=(emitted - 1) / decode_s if decode_s else None,
            ttft_s=rate(gained.get("vllm:time_to_first_token_seconds_sum")),
            cycles=cycles,
            drafted=count(gained.get(f"{spec}draft_tokens_total")),
            accepted=accepted,
            target_steps=_steps(emitted, cycles, accepted),
        )


def _steps(emitted: int, cycles: int | None, accepted: int | None) -> int | None:
    if not cycles:
        return emitted - 1
    return cycles if accepted is not None and emitted - 1 <= cycles + accepted else None
