"""One request: sent, timed, read out with the server's own figures, and judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from twoturn import client, engines, metrics, servers, tokens
from twoturn.bench import Round
from twoturn.engines import Engine, LogsLate
from twoturn.messages import Messages, as_sent
from twoturn.plan import Arm
from twoturn.stream import Answer

SLEPT_S = 1.0  # clocks that part by more mean that the machine slept


def send(
    this: Round,
    base_url: str,
    model: str,
    api_key: str | None,
    history: Messages,
    prompt_tokens: int | None,
    max_tokens: int | None = None,
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> client.Sent:
    """One streamed request of the series' workload; its own length where none is given. `extra`:
    what goes with the messages."""
    workload, messages = this.series.workload, as_sent(history)
    max_tokens = workload.max_tokens if max_tokens is None else max_tokens
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": workload.temperature,
        **extra,
    }
    guess = prompt_tokens or sum(map(len, history)) // 3
    timeouts = client.Timeouts.scaled(guess, max_tokens)
    return client.stream_chat(base_url, body, timeouts, api_key=api_key)


@dataclass(frozen=True)
class Exchange:
    """Sends one request and makes its row."""

    this: Round
    engine: Engine
    arm: Arm
    running: servers.Running
    tokenizer: tokens.ChatTokenizer | None
    max_tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self, history: Messages, prompt_tokens: int | None
    ) -> tuple[dict[str, Any], Answer]:
        running = self.running
        log = servers.LogTail(running.log_file)
        sent = send(
            self.this,
            running.base_url,
            running.model,
            running.api_key,
            history,
            prompt_tokens,
            self.max_tokens,
            self.extra,
        )
        exact = self.this.series.workload.exact_length
        wanted = metrics.Wanted(running.model, self.max_tokens, prompt_tokens, exact)
        encode = self.tokenizer.encode if self.tokenizer else None
        measured = metrics.measure(sent.answer, wanted, encode)
        engine = self.engine
        said = log.when(engine.logged) if isinstance(engine, LogsLate) else log.since()
        telemetry = engine.telemetry(sent.answer, said)
        n = measured.completion_tokens
        wrong = engines.contradiction(telemetry, n, self.arm.block_size)
        row = {
            **dataclasses.asdict(measured),
            **engines.scale(engines.Telemetry() if wrong else telemetry, n),
            "server_decode_tok_s": telemetry.decode_tok_s,
            "server_ttft_s": telemetry.ttft_s,
            "started_at": sent.started_at,
            "start_monotonic_s": sent.start_monotonic_s,
            "wall_minus_monotonic_s": sent.wall_minus_monotonic_s,
        }
        fault = self._fault(telemetry, sent.wall_minus_monotonic_s)
        if row["status"] == "ok" and fault:
            row["status"], row["reason"] = fault
        elif row["status"] == "ok" and wrong:  # what was timed stays right
            row["reason"] = f"the server's figures of speculation cannot be: {wrong}"
        return row, sent.answer

    def _fault(self, telemetry: engines.Telemetry, clocks_apart_s: float) -> tuple[str, str] | None:
        """What the stream alone cannot tell."""
        if abs(clocks_apart_s) > SLEPT_S:
            return "slept", f"wall and monotonic clock part by {clocks_apart_s:.1f} s"
        if self.arm.speculation != "none" and not telemetry.speculated:
            return "spec_inactive", "no sign that speculation ran"
        if self.arm.speculation == "none" and telemetry.speculated:
            return "spec_unexpected", "speculation ran though it was not asked for"
        return None
