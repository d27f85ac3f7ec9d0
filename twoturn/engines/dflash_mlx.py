"""dflash-mlx's server, 0.1.8 (needs mlx-lm 0.31.3): dflash alone.

It cannot be started without a draft, so there is no arm of it without speculation. What it reports
of a request is `last_request` of `/metrics` (JSON), which is taken if `totals.requests` gained
exactly one. V is `cycles`; a cycle emits its anchor and the accepted tokens, so N = V + A. Its
`acceptance_rate` is A/N, which is our draft share and no accept rate; A is that times its
`generated_tokens`. D is null: its blocks adapt, and `--verify-len-cap` (our block size B, anchor
included) bounds what is verified, not what is drafted. Accepted tokens that it copied from the
context (copyspec) instead of drafting are in A and cannot be told apart. Where it fell back to
plain decoding (`mode_used` is not dflash), nothing is told and the row is `spec_inactive`; earlier
versions did so for every answer of at most 256 tokens, here `--fastpath-max-tokens` is off.
`decode_tok_s` is its own: N by the decode time.

Its prefix cache on disk is switched off: it would outlive the cell. Hybrid targets (Qwen3.5) fail
on Linux; Qwen3 works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from twoturn import client
from twoturn.engines.base import Engine, Place, Settings, Telemetry, asked, count, rate
from twoturn.engines.counters import Counters, Reading
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer


class DflashMlxSettings(Settings):
    """Null leaves a choice to the server."""

    prefix_cache: bool = True
    verify_mode: Literal["adaptive", "dflash", "ddtree"] | None = None
    prefill_step_size: int | None = Field(None, ge=1)


class DflashMlx(Engine):
    """`dflash serve` in its own environment."""

    name = "dflash-mlx"
    modes = ("dflash",)
    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dflash": {"verify_mode": "adaptive"}}
    Settings = DflashMlxSettings

    def __init__(self) -> None:
        self.counters: Counters | None = None
        self.last_request: dict[str, Any] = {}

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(asked(self, arm))
        model = place.models[arm.checkpoint]
        program = str(place.python.with_name("dflash")) if place.python else "dflash"
        argv = [
            *(program, "serve", "--model", model, "--draft-quant", "none"),
            *("--host", "127.0.0.1", "--port", str(place.port), "--no-prefix-cache-l2"),
            "--prefix-cache" if chosen.prefix_cache else "--no-prefix-cache",
        ]
        if arm.draft is not None:
            argv += ["--draft-model", place.models[arm.draft]]
        if arm.block_size is not None:
            argv += ["--verify-len-cap", str(arm.block_size)]
        if chosen.verify_mode is not None:
            argv += ["--verify-mode", chosen.verify_mode]
        if chosen.prefill_step_size is not None:
            argv += ["--prefill-step-size", str(chosen.prefill_step_size)]
        env = clean_env(place.home, place.tmp)
        return Launch([*argv, *arm.args], env, place.folder, model, settings=chosen.model_dump())

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        def read() -> Reading:
            _, page = client.get_json(running.base_url, "/metrics", 10.0, running.api_key)
            told: dict[str, Any] = page if isinstance(page, dict) else {}
            said.update(_part(told, "server"), **_part(told, "runtime"))
            self.last_request = _part(told, "last_request")
            requests = count(_part(told, "totals").get("requests"))
            return {} if requests is None else {"requests": requests}

        said: dict[str, Any] = {}
        self.counters = Counters(read, "requests")
        keys = ("mode", "model", "draft", "version", "prefix_cache_enabled", "prefill_step_size")
        wanted = self.Settings.model_validate(arm.settings).prefix_cache
        cache = said.get("prefix_cache_enabled")
        wrong = [f"prefix_cache: asked {wanted}, the server says {cache}"]
        return {key: said.get(key) for key in keys}, wrong if cache not in (None, wanted) else []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        if self.counters is None or not self.counters.gained():
            return Telemetry()
        last = self.last_request
        cycles, emitted = count(last.get("cycles")), count(last.get("generated_tokens"))
        if last.get("mode_used") != "dflash" or not cycles or not emitted:
            return Telemetry()
        return Telemetry(
            decode_tok_s=rate(last.get("decode_tok_s")),
            ttft_s=rate(last.get("ttft_s")),
            cycles=cycles,
            accepted=_accepted(last.get("acceptance_rate"), emitted),
            target_steps=cycles,
        )


def _accepted(share: Any, emitted: int) -> int | None:
    known = isinstance(share, int | float) and 0 <= share <= 1
    return round(share * emitted) if known else None


def _part(page: dict[str, Any], key: str) -> dict[str, Any]:
    part = page.get(key)
    return part if isinstance(part, dict) else {}
