"""An OpenAI-compatible server whose speed is known: `python scripted.py --port P --model M …`.

A token is a word of five letters and a space, so `max_tokens` is exact and each chunk holds the
same share of the characters. What it writes depends on the prompt and `--seed` alone: every copy
answers alike. Times come from an absolute schedule (token i is due at t0 + TTFT + i/rate), so that
a busy machine delays single tokens and not the rate. Each start draws its own luck (`--noise`), as
each cell of a campaign does. With `--starts FILE` servers know the how manieth start they are, and
speed can drift over a campaign. Standard library only, and quick to start.

`draft_rounds` V, `draft_n` D and `draft_n_accepted` A obey N - 1 = V + A, D = V * (B - 1).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import signal
import socketserver
import string
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from typing import Any


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A server of known speed")
    add = parser.add_argument
    add("--port", type=int, required=True)
    add("--model", required=True)
    add("--seed", type=int, default=0, help="of the words, never of the noise")
    add("--tok-s", type=float, default=400.0)
    add("--speed", type=float, default=1.0, help="times --tok-s")
    add("--ttft-ms", type=float, default=20.0)
    add("--prefill-chars-s", type=float, default=0.0, help="more TTFT for each uncached character")
    add("--noise", type=float, default=0.02, help="sigma of the logarithm, drawn once per start")
    add("--starts", help="a file that counts starts, so that a machine can drift over a campaign")
    add("--luck", help="seed of the noise, which then depends on the start alone")
    add("--drift", type=float, default=0.0, help="of the speed, in the end: -0.34 loses 34 percent")
    add("--drift-starts", type=float, default=10.0, help="after so many, 63 percent of it are done")
    add("--slow-starts", default="", help="starts (1,7,12) with a server that is 10 percent slower")
    add("--slow-after", type=int, help="from this token of an answer on, half the rate")
    add("--prompt-cache", action="store_true", help="the longest known prefix costs nothing")
    add("--draft-drops-cache", action="store_true", help="with --draft nothing is reused")
    add(
        "--report",
        choices=("truth", "zero", "hit"),
        default="truth",
        help="of the cache: truth, 0 whatever it did, or a hit though all was processed again",
    )
    add("--cache-file", help="the cache, over restarts")
    add("--keep", type=int, help="read the last so many words of a prompt and tell nobody")
    add("--dated", action="store_true", help="the time of day opens every prompt")
    add("--wrong-from", type=int, help="other words once so many of the prompt came from the cache")
    add("--draft", action="store_true", help="report speculation")
    add("--draft-requests", type=int, help="fall back to plain decoding after so many requests")
    add("--lifetime", action="store_true", help="report the speculation of all requests so far")
    add("--block-size", type=int, default=4)
    add("--accept-length", type=float, default=2.0)
    add("--load-s", type=float, default=0.0, help="the port opens so much later")
    add("--never-ready", action="store_true", help="HTTP 503 for ever")
    add("--api-key", help="HTTP 401 to whoever does not send it")
    add("--refuse", action="store_true", help="HTTP 404: no such model")
    add("--wrong-model", action="store_true", help="answer under another model's name")
    add("--die-after", type=int, help="exit 6 once it has streamed so many tokens in all")
    add("--ignore-sigterm", action="store_true")
    return parser


class Model:
    """What is computed: words, counts, the prefix cache and this start's luck."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        start = count_start(given.starts) if given.starts else 0
        # Two starts are two slots, whatever the seed of the words.
        luck = random.Random(f"{given.luck}/{start}") if given.luck else random.SystemRandom()
        pace = 1 + given.drift * -math.expm1(-start / given.drift_starts)
        if str(start) in given.slow_starts.split(","):
            pace *= 0.9
        self.rate = given.tok_s * given.speed * pace * math.exp(luck.gauss(0, 1) * given.noise)
        self.ttft_factor = math.exp(luck.gauss(0, 1) * given.noise) / pace
        self.lock = threading.Lock()
        self.known: list[list[str]] = []
        if given.cache_file and os.path.exists(given.cache_file):
            with open(given.cache_file, encoding="utf-8") as stream:
                self.known = [json.loads(line) for line in stream]
        self.streamed = self.requests = self.tokens = 0

    def words(
        self, prompt: Sequence[str], count: int, cached: int = 0, temperature: float = 0
    ) -> list[str]:
        """Greedy words are a matter of the prompt, unless the server is told to be wrong."""
        digest = hashlib.sha256(f"{self.given.seed} {' '.join(prompt)}".encode()).digest()
        draw = random.SystemRandom() if temperature > 0 else random.Random(digest)
        if self.given.wrong_from is not None and cached >= self.given.wrong_from:
            draw.random()  # from here on all letters are others
        return ["".join(draw.choices(string.ascii_lowercase, k=5)) for _ in range(count)]

    def cached(self, prompt: Sequence[str]) -> int:
        """Words of the prompt that the cache holds; the last one is always computed."""
        if not self.given.prompt_cache or (self.given.draft and self.given.draft_drops_cache):
            return 0
        with self.lock:
            return min(
                max((common_prefix(prompt, known) for known in self.known), default=0),
                len(prompt) - 1,
            )

    def remember(self, prompt: Sequence[str], answer: Sequence[str]) -> None:
        if self.given.prompt_cache:
            with self.lock:
                self.known.append([*prompt, *answer])
                if self.given.cache_file:
                    with open(self.given.cache_file, "a", encoding="utf-8") as stream:
                        stream.write(json.dumps(self.known[-1]) + "\n")

    def ttft_s(self, prompt: Sequence[str], cached: int) -> float:
        share = (len(prompt) - cached) / len(prompt)
        seconds = self.given.ttft_ms / 1000 * share
        if self.given.prefill_chars_s:
            seconds += sum(len(word) + 1 for word in prompt[cached:]) / self.given.prefill_chars_s
        return float(seconds * self.ttft_factor)

    def due_s(self, ttft_s: float, index: int) -> float:
        """When a token (from 0) is due, in seconds after the request."""
        slow = max(0, index - self.given.slow_after) if self.given.slow_after is not None else 0
        return ttft_s + (index + slow) / self.rate

    def count_streamed(self) -> None:
        with self.lock:
            self.streamed += 1
            if self.given.die_after is not None and self.streamed > self.given.die_after:
                os._exit(6)

    def timings(self, count: int, ttft_s: float) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "predicted_n": count,
            "predicted_per_second": self.rate,
            "prompt_ms": 1000 * ttft_s,
        }
        self.requests, self.tokens = self.requests + 1, self.tokens + count
        most = self.given.draft_requests
        if self.given.draft and (most is None or self.requests <= most):
            count = self.tokens if self.given.lifetime else count
            rounds = math.ceil((count - 1) / self.given.accept_length)
            figures["draft_rounds"] = rounds
            figures["draft_n"] = rounds * (self.given.block_size - 1)
            figures["draft_n_accepted"] = count - 1 - rounds
        return figures


def count_start(file: str) -> int:
    """This start's number, from 1: a byte in the file for each."""
    with open(file, "ab") as stream:
        stream.write(b".")
        stream.flush()
        return stream.tell()


def common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def prompt_words(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The prompt as tokens: the role, then the words, of every message."""
    return [w for m in messages for w in (f"<{m['role']}>", *str(m["content"]).split())]


class Handler(BaseHTTPRequestHandler):
    """One request; the connection ends with it, so the body needs no length."""

    disable_nagle_algorithm = True
    model: Model

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(503 if self.model.given.never_ready else 200, {"status": "ok"})
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [{"id": self.model.given.model}]})
        else:
            self.fail(404, "no such path")

    def do_POST(self) -> None:
        arrived_s = time.monotonic()
        given = self.model.given
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        sent = self.headers.get("Authorization", "")
        if given.api_key and sent != f"Bearer {given.api_key}":
            self.fail(401, f"wrong key: {sent}")
        elif given.never_ready:
            self.fail(503, "loading model")
        elif given.refuse or body.get("model") != given.model:
            self.fail(404, f"model {body.get('model')} not found")
        elif self.path != "/v1/chat/completions":
            self.fail(404, "no such path")
        else:
            self.complete(body, arrived_s)

    def complete(self, body: dict[str, Any], arrived_s: float) -> None:
        model = self.model
        prompt = prompt_words(body["messages"])
        if model.given.dated:
            prompt = [f"{time.time():.1f}", *prompt]
        if model.given.keep is not None:
            prompt = prompt[-model.given.keep :]
        cached = model.cached(prompt)
        ttft_s = model.ttft_s(prompt, 0 if model.given.report == "hit" else cached)
        temperature = float(body.get("temperature", 0))
        words = model.words(prompt, int(body.get("max_tokens", 16)), cached, temperature)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(words),
            "total_tokens": len(prompt) + len(words),
            "prompt_tokens_details": {
                "cached_tokens": 0 if model.given.report == "zero" else cached
            },
        }
        last = {"usage": usage, "timings": model.timings(len(words), ttft_s)}
        if body.get("stream"):
            self.start(200, "text/event-stream")
            self.event({"choices": [choice({"role": "assistant", "content": ""})]})
            for index, word in enumerate(words):
                sleep_until(arrived_s + model.due_s(ttft_s, index))
                model.count_streamed()
                self.event({"choices": [choice({"content": f"{word} "})]})
            self.event({"choices": [choice({}, "length")]})
            if (body.get("stream_options") or {}).get("include_usage"):
                self.event({"choices": [], **last})
            self.wfile.write(b"data: [DONE]\n\n")
        else:
            sleep_until(arrived_s + model.due_s(ttft_s, len(words) - 1))
            text = "".join(f"{word} " for word in words)
            message = {"role": "assistant", "content": text}
            whole = {"index": 0, "message": message, "finish_reason": "length"}
            self.reply(200, {**self.head("chat.completion"), "choices": [whole], **last})
        model.remember(prompt, words)

    def head(self, kind: str) -> dict[str, Any]:
        name = "another-model" if self.model.given.wrong_model else self.model.given.model
        return {"id": "chatcmpl-0", "object": kind, "created": int(time.time()), "model": name}

    def event(self, value: dict[str, Any]) -> None:
        whole = {**self.head("chat.completion.chunk"), **value}
        self.wfile.write(b"data: " + json.dumps(whole).encode() + b"\n\n")

    def fail(self, status: int, message: str) -> None:
        self.reply(status, {"error": {"message": message, "code": status}})

    def reply(self, status: int, value: dict[str, Any]) -> None:
        self.start(status, "application/json")
        self.wfile.write(json.dumps(value).encode())

    def start(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client may hang up at any time
            super().handle()

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would ask for the host's full name
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]


def choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def sleep_until(at_s: float) -> None:
    while (left := at_s - time.monotonic()) > 0:
        time.sleep(left)


@contextlib.contextmanager
def serving(given: argparse.Namespace) -> Iterator[Server]:
    """The server, bound and ready to serve; its port is given by the system where it is 0."""
    handler = type("BoundHandler", (Handler,), {"model": Model(given)})
    with Server(("127.0.0.1", given.port), handler) as server:
        yield server


def main() -> None:
    given = options().parse_args()
    if given.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(given.load_s)
    with serving(given) as server:
        print(f"serving {given.model}", flush=True)
        server.serve_forever(poll_interval=3600)  # SIGTERM ends it by its default action


if __name__ == "__main__":
    main()
