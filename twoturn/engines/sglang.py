"""SGLang's OpenAI server, started or attached; written for 0.5.23 and never run here.

It reports usage with the answer (cached tokens only with `--enable-cache-report`). Over the
streaming route nothing more is told, so V is the gain of the lifetime counter
`sglang:spec_verify_calls_total` of `/metrics` (`--enable-metrics`), read before and after; every
step of a speculating server verifies, so S = V. A is not counted over its life: each verify round
emits its accepted tokens and one of its own, so A = N - 1 - V, of emitted tokens alone. D is null,
hence accept rate and effective block size too. Its gauges `spec_accept_length` and
`spec_accept_rate` are of the last interval, not of a request, and are not read. Its own accept
length per request is N/V, by 1/V more than 1 + A/V. The time to the first token is the gain of
`time_to_first_token_seconds_sum`.

If another request was served meanwhile, all of it is null. Block size B is
`--speculative-num-draft-tokens`, anchor included.
"""

from __future__ import annotations

import os

from pydantic import Field

from twoturn.engines.base import TOP_TWO, Place, Settings, Telemetry, count, rate
from twoturn.engines.counters import Counted, Reading
from twoturn.plan import Arm
from twoturn.servers import Launch, clean_env

_ALGORITHMS = {"mtp": "NEXTN", "dflash": "DFLASH", "draft": "STANDALONE", "ngram": "NGRAM"}


class SgLangSettings(Settings):
    """Null leaves a choice to the server."""

    prefix_cache: bool = True
    context_length: int | None = Field(None, ge=1)
    start_deadline_s: float = Field(1800.0, gt=0, allow_inf_nan=False)


class SgLang(Counted):
    """`sglang.launch_server`, from an environment of its own or found on the machine."""

    name = "sglang"
    origins = ("install", "executable")
    mtp_head = "either"
    modes = ("none", "mtp", "dflash", "draft", "ngram")
    top_two = TOP_TWO
    Settings = SgLangSettings
    requests = "sglang:num_requests_total"

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        module = [str(place.python), "-m", "sglang.launch_server"]
        argv = [
            *(module if place.python else [str(place.executable), "serve"]),
            *("--model-path", model, "--served-model-name", model),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--enable-metrics", "--enable-cache-report"),
        ]
        if not chosen.prefix_cache:
            argv.append("--disable-radix-cache")
        if arm.speculation != "none":
            argv += ["--speculative-algorithm", _ALGORITHMS[arm.speculation]]
        if arm.draft is not None:
            argv += ["--speculative-draft-model-path", place.models[arm.draft]]
        if arm.block_size is not None:
            argv += ["--speculative-num-draft-tokens", str(arm.block_size)]
            if arm.speculation in ("mtp", "draft"):  # a chain, one token per step, and no tree
                steps = str(arm.block_size - 1)
                argv += ["--speculative-num-steps", steps, "--speculative-eagle-topk", "1"]
        if chosen.context_length is not None:
            argv += ["--context-length", str(chosen.context_length)]
        # It compiles with what is found on the PATH.
        env = {**clean_env(place.home, place.tmp), "PATH": os.environ.get("PATH", "")}
        return Launch(
            [*argv, *arm.args],
            env,
            place.folder,
            model,
            start_deadline_s=chosen.start_deadline_s,
            settings=chosen.model_dump(),
        )

    def figures(self, emitted: int, gained: Reading) -> Telemetry:
        cycles = count(gained.get("sglang:spec_verify_calls_total")) or None
        return Telemetry(
            ttft_s=rate(gained.get("sglang:time_to_first_token_seconds_sum")),
            cycles=cycles,
            accepted=None if cycles is None else count(emitted - 1 - cycles),
            target_steps=cycles or emitted - 1,
        )
