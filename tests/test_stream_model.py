"""Streams drawn from a model that knows the truth: what a row says is true, or it says why not.

A drawn server writes tokens in any of the forms that servers use, with anything between them that
is no token, tells its usage in any of its forms, and may have one fault. The stream is cut into
arrivals anywhere. No row with the status `ok` may differ from what the server did.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from twoturn import client, metrics, stream
from twoturn.client import Timeouts

MODEL = "models/x"
WORDS = st.sampled_from(
    [
        "a",
        " the",
        "\n",
        "zażółć ",
        "🦀",
        "\u2028",
        "\u0085",
        "data: x\n\n",
        "[DONE]",
        "{",
        '"',
        "\\",
        " ",
    ]
)
FAULTS = (
    *("error object", "error event", "error line", "error body", "detail", "finish error"),
    *("broken json", "cut", "reset", "timeout", "wrong model", "no usage", "no tokens", "stopped"),
    *("after done", "overlong", "truncated prompt"),
)
Event = dict[str, Any]


@dataclass
class Truth:
    """What the server did. `fault`: why its row must not be believed."""

    texts: list[str]
    prompt_tokens: int
    cached_tokens: int | None
    fault: str | None
    events: list[bytes] = field(default_factory=list)
    how: str = "clean"
    wanted_tokens: int = 0


def usage_of(draw: st.DrawFn, truth: Truth, tokens: int) -> Event:
    """Usage in one of the forms that servers use."""
    told: Event = {"prompt_tokens": truth.prompt_tokens, "completion_tokens": tokens}
    if draw(st.booleans()):
        told["total_tokens"] = truth.prompt_tokens + tokens
    cached = truth.cached_tokens
    if cached is None:
        form = draw(st.sampled_from(["absent", "null details", "null count"]))
        if form == "null details":
            told["prompt_tokens_details"] = None
        elif form == "null count":
            told["prompt_tokens_details"] = {"cached_tokens": None}
    elif draw(st.booleans()):
        told["prompt_tokens_details"] = {"cached_tokens": cached, "audio_tokens": 0}
    else:
        told["cached_tokens"] = cached
    return told


def delta_of(draw: st.DrawFn, text: str) -> list[Event]:
    """Deltas that together say a text."""
    form = draw(
        st.sampled_from(
            ["content", "reasoning_content", "reasoning", "both", "tool", "call", "pair"]
        )
    )
    if form == "both":  # mlx-vlm: one text under two names
        return [{"reasoning_content": text, "reasoning": text}]
    if form == "tool":
        return [{"tool_calls": [{"index": 0, "function": {"name": None, "arguments": text}}]}]
    if form == "call":
        return [{"content": None, "function_call": {"arguments": text}}]
    if form == "pair" and len(text) == 1 and ord(text) > 0xFFFF:  # half a character per chunk
        units = text.encode("utf-16-be", "surrogatepass")
        halves = [chr(int.from_bytes(units[i : i + 2], "big")) for i in (0, 2)]
        return [{"content": half} for half in halves]
    return [{("content" if form == "pair" else form): text}]


@st.composite
def servers(draw: st.DrawFn) -> Truth:
    """A stream and the truth about it."""
    fault = draw(st.none() | st.sampled_from(FAULTS))
    texts = draw(st.lists(WORDS, min_size=2, max_size=12))
    truth = Truth(texts, draw(st.integers(100, 4000)), None, fault)
    truth.cached_tokens = draw(st.none() | st.integers(0, truth.prompt_tokens))
    truth.wanted_tokens = len(texts)
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    space, raw = draw(st.booleans()), draw(st.booleans())
    usage_form = draw(st.sampled_from(["last", "running", "null but last", "in choice"]))
    if fault == "no usage":
        usage_form = "none"
    model = draw(st.sampled_from([MODEL, None])) if fault != "wrong model" else "models/y"
    at = draw(st.integers(0, len(texts) - 1))  # where a fault strikes

    def line(value: str) -> bytes:
        return b"data:" + b" " * space + value.encode("utf-8") + end

    def say(value: Any) -> None:
        head = {"model": model} if model else {}
        several = 1 if draw(st.integers(0, 9)) == 0 else None  # lines of one event
        text = json.dumps({**head, **value}, indent=several, ensure_ascii=not raw)
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # UTF-8 cannot carry a half
            text = json.dumps({**head, **value}, indent=several)
        name = b"event: message" + end if draw(st.integers(0, 9)) == 0 else b""
        blank = end * draw(st.integers(0 if not name else 1, 2))
        truth.events.append(name + b"".join(map(line, text.split("\n"))) + blank)

    def noise() -> None:
        for one in draw(st.lists(st.integers(0, 7), max_size=2)):
            if one == 0:
                truth.events.append(b": keep-alive" + end + end)
            elif one == 1:
                truth.events.append(b"event: ping" + end + line('{"type": "ping"}') + end)
            elif one == 2:
                truth.events.append(b"id: 3" + end + b"retry: 10" + end + end)
            elif one == 3:
                say({"choices": [], "prompt_progress": {"total": 10, "processed": 3}})
            elif one == 4:
                say({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
            elif one == 5:
                say({"choices": [{"index": 1, "delta": {"content": "another choice"}}]})
            elif one == 6:
                truth.events.append(line('{"model": "keepalive", "choices": []}') + end)
            else:
                say({"choices": [{"index": 0, "delta": {"content": "", "tool_calls": []}}]})

    def chunk(delta: Event, finish: str | None = None, told: Event | None = None) -> Event:
        choice: Event = {"index": 0, "delta": delta, "finish_reason": finish}
        beside: Event = {"usage": None} if usage_form == "null but last" else {}
        if told is not None:
            (choice if usage_form == "in choice" else beside)["usage"] = told
        return {"choices": [choice], **beside}

    def strike() -> bool:
        """The fault, where it comes in the middle. Whether the stream ends here."""
        error: Event = {"message": "out of memory", "code": 500}
        if fault == "error object":
            say({"error": error})
        elif fault == "error event":
            truth.events.append(b"event: error" + end + line(json.dumps(error)) + end)
        elif fault == "error line":
            truth.events.append(b"error: " + json.dumps(error).encode() + end + end)
        elif fault == "error body":
            truth.events.append(json.dumps({"error": error}).encode() + end)
        elif fault == "detail":
            truth.events.append(line('{"detail": "Internal Server Error"}') + end)
        elif fault == "broken json":
            truth.events.append(line('{"choices": [{"delta": {"content": "x"}]}') + end)
        elif fault in ("cut", "reset", "timeout"):
            truth.how = {"cut": "clean"}.get(fault, fault)
            return True
        return False

    noise()
    if fault != "no tokens":
        for number, text in enumerate(texts):
            if number == at and strike():
                return truth
            deltas = delta_of(draw, text)
            running = usage_form == "running"
            for delta in deltas:
                say(chunk(delta, None, usage_of(draw, truth, number + 1) if running else None))
            noise()
    count = 0 if fault == "no tokens" else len(texts)
    last = usage_of(draw, truth, count)
    if fault == "truncated prompt":
        last["prompt_tokens"] = truth.prompt_tokens // 2
        last.pop("cached_tokens", None)
        last.pop("prompt_tokens_details", None)
    truth.wanted_tokens += {"stopped": 1, "overlong": -1}.get(fault or "", 0)
    finish = "error" if fault == "finish error" else draw(st.sampled_from(["length", "stop"]))
    inside = usage_form == "in choice" or draw(st.booleans())
    none = usage_form == "none"
    say(chunk({}, finish, last if inside and not none else None))
    noise()
    if not inside and not none:
        say({"choices": [], "usage": last})
    noise()
    for _ in range(draw(st.integers(1, 2))):
        truth.events.append(line("[DONE]") + end)
    if fault == "after done":
        say(chunk({"content": "and more"}))
    truth.how = draw(st.sampled_from(["clean", "reset", "timeout"]))  # after the end it is the same
    return truth


def measured(truth: Truth, cuts: list[int]) -> metrics.Measured:
    whole = b"".join(truth.events)
    edges = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    arrivals = [(0.1 + i, whole[a:b]) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    answer = stream.parse(arrivals, 1000.0, truth.how)  # type: ignore[arg-type]
    wanted = metrics.Wanted(MODEL, truth.wanted_tokens, truth.prompt_tokens)
    return metrics.measure(answer, wanted)


@given(servers(), st.lists(st.integers(0, 2**20), max_size=30))
@settings(
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_row_is_true_or_says_why_not(truth: Truth, cuts: list[int]) -> None:
    row = measured(truth, cuts)
    event(truth.fault or "none")
    text = "".join(truth.texts)
    said = {
        "completion_tokens": len(truth.texts),
        "prompt_tokens": truth.prompt_tokens,
        "cached_tokens": truth.cached_tokens,
        "output_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "output_chars": len(text),
    }
    if truth.fault is not None:
        assert row.status != "ok"
        assert row.reason
    else:
        assert (row.status, {key: getattr(row, key) for key in said}) == ("ok", said)


# --- odd answers ----------------------------------------------------------------------------------


def told(*values: Any, done: bool = True) -> metrics.Measured:
    data = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    answer = stream.parse([(1.0, data), (2.0, b"data: [DONE]\n\n" if done else b"")], 3.0)
    return metrics.measure(answer, metrics.Wanted(None, 1, None))


def one_token(**usage: Any) -> list[Event]:
    figures = {"prompt_tokens": 10, "completion_tokens": 1, **usage}
    token = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "length"}]}
    return [token, {"choices": [], "usage": figures}]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("detail", ["boom", [{"loc": ["body"], "msg": "field required"}]])
def test_a_detail_in_a_200_is_an_error(place: int, detail: object) -> None:
    values = one_token()
    values.insert(place, {"detail": detail})
    row = told(*values)
    assert row.status == "server_error"
    assert row.reason
    assert str(detail if isinstance(detail, str) else "field required") in row.reason


def test_more_cached_than_the_prompt_holds_is_not_believed() -> None:
    assert told(*one_token(cached_tokens=10)).cached_tokens == 10
    row = told(*one_token(cached_tokens=11))
    assert (row.status, row.cached_tokens, row.prefill_tok_s) == ("ok", None, None)


# --- what never ends ------------------------------------------------------------------------------

ENDLESS: dict[str, Callable[[int], bytes]] = {
    "a line": lambda i: b"data: " * (i == 0) + b"x" * 4096,
    "lines of one event": lambda i: b"data: [\n" + b"data: 1,\n" * 511,
    "a large event and small lines": lambda i: (
        b"data: [" + b"1," * 30_000 + b"\n" if i == 0 else b"data: 1,\n" * 500
    ),
    "comments": lambda i: b": x\n" * 16384,
    "tokens": lambda i: b'data: {"choices":[{"delta":{"content":"a"}}]}\n' * 1424,
    "models": lambda i: b"".join(
        b'data: {"model":"%d"}\n' % j for j in range(i * 999, i * 999 + 999)
    ),
    "extras": lambda i: b"".join(b'data: {"%d":{}}\n' % j for j in range(i * 999, i * 999 + 999)),
    "words without a frame": lambda i: b"hello\n" * 10922,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_memory_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_CHUNKS", 2_000)
    monkeypatch.setattr(stream, "MAX_EVENT_WORK", 2**19)
    parser = stream.StreamParser(max_line_bytes=2**16, max_total_bytes=2**17)
    tracemalloc.start()
    try:
        for i in range(1000):
            parser.feed(float(i), ENDLESS[kind](i))
            if parser.too_large:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    answer = parser.close(2000.0, "timeout")
    assert parser.too_large
    assert answer.error == "stream too large"
    assert peak < 4 * 2**20
    assert len(answer.models) <= stream.MAX_NAMES
    assert len(answer.extras) <= stream.MAX_NAMES


def test_the_work_for_one_event_is_bounded() -> None:
    """Small lines after a large one would each parse all of it again."""
    parser = stream.StreamParser()
    parser.feed(0.0, b"data: [" + b"1," * 200_000 + b"\n")
    parser.feed(0.0, b"data: 1,\n" * 900)
    assert parser.too_large


@contextmanager
def pouring(head: bytes, piece: bytes, every_s: float) -> Iterator[str]:
    """A server that never ends: after `head` it writes `piece` again and again."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.recv(65536)
                    connection.sendall(head)
                    while not stop.is_set():
                        connection.sendall(piece)
                        stop.wait(every_s) if every_s else None
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()
        thread.join()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize(
    ("head", "piece", "every_s"),
    [
        (b"", b"H", 0.01),  # not even a status line comes to its end
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", 0.01),
        (HEAD, b"x", 0.01),
        (HEAD, b":\n", 0.0),
        (HEAD, TOKEN, 0.05),
        (HEAD, TOKEN, 0.0),
        (HEAD + b"data: [DONE]\n\n", b":\n", 0.01),
        (b"HTTP/1.1 500 X\r\n\r\n", b"x", 0.01),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n:\r\n", 0.01),
    ],
)
def test_the_last_deadline_always_holds(head: bytes, piece: bytes, every_s: float) -> None:
    limits = Timeouts(connect_s=0.5, first_token_s=0.5, idle_s=0.5, total_s=0.7)
    with pouring(head, piece, every_s) as url:
        begun = time.monotonic()
        sent = client.stream_chat(url, {"messages": []}, limits)
        lasted = time.monotonic() - begun
    assert lasted < 5  # a busy machine is slow, an endless stream would take minutes
    assert metrics.measure(sent.answer, metrics.Wanted(None, 1, None)).status != "ok"
