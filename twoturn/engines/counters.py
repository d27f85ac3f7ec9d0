"""What a server counts over its whole life, as what one request added to it.

A lifetime figure is none of a request: warm-up and every earlier request are in it. So counters are
read before and after, and what they gained counts only if it was exactly one request's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families

from twoturn import client
from twoturn.engines.base import Engine, Telemetry, count
from twoturn.plan import Arm
from twoturn.servers import Running
from twoturn.stream import Answer

SETTLE_S = 1.0  # a server may count a request a moment after its last token
POLL_S = 0.05
TIMEOUT_S = 10.0

Reading = Mapping[str, float]


class Counters:
    """Readings around requests. `read` gives name → number, {} where there is nothing to read;
    `requests` is the name that counts finished requests."""

    def __init__(self, read: Callable[[], Reading], requests: str) -> None:
        self.read, self.requests = read, requests
        self.last = read()

    def gained(self) -> dict[str, float]:
        """What was added since the last reading, {} unless by one request alone."""
        known, deadline = self.last.get(self.requests, 0.0), time.monotonic() + SETTLE_S
        now = self.read()
        while now and now.get(self.requests, 0.0) <= known and time.monotonic() < deadline:
            time.sleep(POLL_S)
            now = self.read()
        before, self.last = self.last, now
        gain = {name: value - before.get(name, 0.0) for name, value in now.items()}
        return gain if gain.get(self.requests) == 1 else {}


class Counted(Engine):
    """A server of which `/metrics` in Prometheus' format tells all; `requests` is the name there
    that counts finished requests. One is made for each cell."""

    requests: ClassVar[str]

    def __init__(self) -> None:
        self.counters: Counters | None = None

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        self.counters = Counters(lambda: prometheus(running), self.requests)
        return {}, []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        gained = self.counters.gained() if self.counters else {}
        emitted = count((answer.usage or {}).get("completion_tokens"))
        return self.figures(emitted, gained) if gained and emitted else Telemetry()

    def figures(self, emitted: int, gained: Reading) -> Telemetry:
        """The figures of one request of `emitted` tokens, from what it added to the counters."""
        raise NotImplementedError


def prometheus(running: Running) -> dict[str, float]:
    """Every sample of GET /metrics, summed over its labels; {} where there is no such page."""
    status, body = client.get_body(running.base_url, "/metrics", TIMEOUT_S, running.api_key)
    return samples(body.decode("utf-8", "replace")) if status == 200 and body else {}


def samples(text: str) -> dict[str, float]:
    """Name → sum over all labels, of a page in Prometheus' text format; {} where it is none."""
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    except (ValueError, KeyError, IndexError):
        return {}
    return found
