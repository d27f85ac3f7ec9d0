"""A raw HTTP server that plays recorded or made-up answers, byte for byte and at their times.

A `*.replay.jsonl` file: first line `{"status", "headers"}`; then `{"at_ms", "b64"}`, bytes written
that many milliseconds after the request; last `{"at_ms", "close": "clean" | "reset"}`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SSE = {"content-type": "text/event-stream"}


@dataclass(frozen=True)
class Replay:
    """One answer: what is written when (ms after the request), and how the connection ends."""

    writes: tuple[tuple[float, bytes], ...]
    close_ms: float
    close: Literal["clean", "reset"] = "clean"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(SSE))
    chunked: bool = False  # HTTP chunked encoding; else the end of the connection ends the body

    def arrivals(self) -> list[tuple[float, bytes]]:
        """The writes as a parser takes them, in seconds."""
        return [(at_ms / 1000, data) for at_ms, data in self.writes]

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.writes)


def load_replay(path: Path) -> Replay:
    head, *writes, end = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return Replay(
        writes=tuple((line["at_ms"], base64.b64decode(line["b64"])) for line in writes),
        close_ms=end["at_ms"],
        close=end["close"],
        status=head["status"],
        headers=head["headers"],
    )


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Mapping[str, Any], *, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chat completion chunk."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


UsageShape = Literal["final", "cumulative", "null_but_last", "finish", "every_final", "none"]
USAGE_SHAPES: tuple[UsageShape, ...] = (
    "final",
    "cumulative",
    "null_but_last",
    "finish",
    "every_final",
)


def known_stream(channel: str | None = None, usage: UsageShape = "final") -> Replay:
    """60 tokens with known times: TTFT 200 ms, first content at 700 ms, decoding at 60.0 tokens/s.

    A role chunk at 20 ms; from 200 ms on 20 chunks of 3 tokens every 50 ms, the first 10 in
    `channel`, the others in `content` (None: all, so the first content is at 200 ms); usage 10 ms
    after the last, [DONE] 150 ms later. `usage`: where it is told; `every_final` sends the final
    one with each chunk, `none` sends none.
    """

    def told(n: int) -> dict[str, Any]:
        return {"prompt_tokens": 268, "completion_tokens": n, "total_tokens": 268 + n}

    def beside(n: int) -> dict[str, Any]:
        if usage == "cumulative":
            return {"usage": told(n)}
        if usage == "every_final":
            return {"usage": told(60)}
        return {"usage": None} if usage == "null_but_last" else {}

    writes = [(20.0, event(chunk({"role": "assistant", "content": ""}, **beside(0))))]
    for i in range(20):
        text = "".join(f"w{3 * i + j:02d} " for j in range(3))
        name = channel if channel and i < 10 else "content"
        writes.append((200.0 + 50 * i, event(chunk({name: text}, **beside(3 * i + 3)))))
    at_finish = {"usage": told(60)} if usage == "finish" else beside(60)
    writes.append((1155.0, event(chunk({}, finish="length", **at_finish))))
    if usage in ("final", "cumulative", "null_but_last", "every_final"):
        writes.append((1160.0, event({"model": "m", "choices": [], "usage": told(60)})))
    writes.append((1310.0, b"data: [DONE]\n\n"))
    return Replay(tuple(writes), close_ms=1311.0)


class ReplayServer:
    """Plays the answers in turn, one per request, and the last for all further ones.

    A context manager; `url` is its address, `requests` what was asked.
    """

    def __init__(self, *answers: Replay) -> None:
        self._answers = answers
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.requests: list[dict[str, Any]] = []  # method, path, headers (lower case), body (bytes)

    def __enter__(self) -> ReplayServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:  # the acceptor is first: once it has ended, no more are added
            thread.join()
        self._listener.close()

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._start(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(5)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            request = _read_request(connection)
            began_s = time.perf_counter()
            answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
            self.requests.append(request)
            connection.sendall(_head(answer))
            for at_ms, data in _framed(answer):
                if self._stop.wait(max(0.0, began_s + at_ms / 1000 - time.perf_counter())):
                    return
                connection.sendall(data)
            self._stop.wait(max(0.0, began_s + answer.close_ms / 1000 - time.perf_counter()))
            if answer.close == "reset":
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def _framed(answer: Replay) -> Iterator[tuple[float, bytes]]:
    if not answer.chunked:
        yield from answer.writes
        return
    for at_ms, data in answer.writes:
        yield at_ms, b"%x\r\n%s\r\n" % (len(data), data)
    if answer.close == "clean":
        yield answer.close_ms, b"0\r\n\r\n"


def _head(answer: Replay) -> bytes:
    framing = ("transfer-encoding", "chunked") if answer.chunked else ("connection", "close")
    headers: Iterable[tuple[str, str]] = (*answer.headers.items(), framing)
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_request(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as stream:
        method, path, _ = stream.readline().decode("latin-1").split(" ", 2)
        headers = {}
        while line := stream.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
    return {"method": method, "path": path, "headers": headers, "body": body}
