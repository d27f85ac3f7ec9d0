"""One streamed chat completion, from recorded arrivals to an `Answer`: no I/O, no clock.

Framing is server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), read
as local servers really write them:

- Lines end at the bytes CR, LF or CRLF and nowhere else; each whole line is decoded as UTF-8.
  (Libraries that split decoded text also split at U+2028 and U+0085, both legal in JSON strings.)
- A data line is taken as soon as it is complete JSON, so a server that leaves out the blank line
  between two events is understood, and its chunks get their own arrival times. Data lines that only
  together are JSON are joined with LF. An `event:` name counts only if it stands before its data.
- A body without framing (a bare `{"error": …}`, an HTML page) is reported as an error, not dropped.

A chunk is a *token chunk* only if its delta holds a non-empty `content`, `reasoning_content` or
`reasoning`, or a tool call with a name or arguments. Roles, comments, named events, fake
`keepalive` chunks, `choices: []` and progress objects are not tokens. Nothing that a server sends
raises. Times are seconds since the request was sent.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Channel: TypeAlias = Literal["content", "reasoning", "tool"]
Closed: TypeAlias = Literal["clean", "reset", "timeout"]

MAX_LINE_BYTES = 8 * 2**20
MAX_TOTAL_BYTES = 256 * 2**20
MAX_EVENT_LINES = 1000  # data lines of one event; each new line parses the event again
MAX_EVENT_WORK = 64 * 2**20  # characters that are parsed for one event, all its lines together
MAX_CHUNKS = 2**20  # no answer may be longer
MAX_NAMES = 64  # of models, and of objects beside the answer
MAX_UNFRAMED_CHARS = 2**16
MAX_MESSAGE_CHARS = 300
MAX_COUNT = 2**53  # a larger token count is nonsense, and would not fit the int64 column

_LINE_END = re.compile(rb"\r\n|\r|\n")
_FIELDS = frozenset({"data", "event", "id", "retry", "error"})  # llama.cpp once wrote `error: {…}`
_TOKEN_EVENTS = frozenset({"", "message", "data", "chat.completion.chunk"})
_KEEPALIVES = frozenset({"keepalive", "keep-alive", "ping"})
_PATH = re.compile(
    r"""(?<=['"`])(?:file://)?(?:~?/|[A-Za-z]:\\)[^'"`\n]+"""  # quoted: up to the quote, spaces too
    r"""|(?:(?<![\w./<~\\-])|(?<=file://))(?:~|\b[A-Za-z]:)?[/\\][\w.@+~%-]"""
    r"""[^\s'"`<>|,;:()\[\]{}]*(?:\ [^\s'"`/]+/[^\s'"`<>|,;:()\[\]{}]*)*"""
)


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Text of one channel that arrived at `at_s`, and the running usage sent with it.

    A chunk that carries reasoning *and* content becomes two of these with one arrival time,
    reasoning first. `gap_nats`: by how much the likeliest token was likelier than the next, where
    the server tells it; of several tokens the least.
    """

    at_s: float
    text: str
    channel: Channel
    completion_tokens: int | None
    gap_nats: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a stream said. `closed` tells how the connection ended, `end_s` when."""

    http_status: int
    closed: Closed
    end_s: float
    ttfb_s: float | None = None  # first byte of the body, whatever it holds
    chunks: tuple[TokenChunk, ...] = ()
    usage: dict[str, Any] | None = None  # the last one that says something
    timings: dict[str, Any] | None = None  # llama.cpp's and mlx-vlm's own figures, the last ones
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)  # others, e.g. x_mlx_dspark
    finish_reason: str | None = None
    models: tuple[str, ...] = ()  # distinct ids, in order of appearance
    error: str | None = None
    done: bool = False  # [DONE] came
    malformed: int = 0  # data lines that are not JSON, and tokens after [DONE]

    @property
    def text(self) -> str:
        """The visible answer: channel `content` alone."""
        return joined(chunk.text for chunk in self.chunks if chunk.channel == "content")

    @property
    def reasoning(self) -> str:
        """What the model thought, where the server tells that apart from its answer."""
        return joined(chunk.text for chunk in self.chunks if chunk.channel == "reasoning")

    @property
    def full_text(self) -> str:
        """Everything the model wrote, all channels in order of arrival."""
        return joined(chunk.text for chunk in self.chunks)

    @property
    def first_token_s(self) -> float | None:
        return self.chunks[0].at_s if self.chunks else None

    @property
    def last_token_s(self) -> float | None:
        return self.chunks[-1].at_s if self.chunks else None

    @property
    def first_content_s(self) -> float | None:
        return next((chunk.at_s for chunk in self.chunks if chunk.channel == "content"), None)


class StreamParser:
    """Feed it bytes with their arrival times, then `close` it once.

    How the bytes are cut into arrivals changes times and nothing else.
    """

    def __init__(
        self,
        http_status: int = 200,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
    ) -> None:
        self.http_status = http_status
        self.ttfb_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.done_s: float | None = None
        self.too_large = False  # nothing more is read
        self._max_line, self._bytes_left = max_line_bytes, max_total_bytes
        self._last_s = 0.0
        self._partial = bytearray()  # a line whose end has not come
        self._after_cr = False
        self._first_line = True
        self._event = ""
        self._data: list[str] = []  # data lines of one event that are not yet complete JSON
        self._data_bytes = 0
        self._data_work = 0
        self._unframed: list[str] = []
        self._unframed_chars = 0
        self._events = 0
        self._chunks: list[TokenChunk] = []
        self._usage: dict[str, Any] | None = None
        self._timings: dict[str, Any] | None = None
        self._extras: dict[str, dict[str, Any]] = {}
        self._finish_reason: str | None = None
        self._models: dict[str, None] = {}
        self._error: str | None = None
        self._malformed = 0

    def feed(self, at_s: float, data: bytes) -> None:
        """Take the bytes that arrived `at_s` seconds after the request was sent."""
        if not data or self.too_large:
            return
        if self.ttfb_s is None:
            self.ttfb_s = at_s
        self._last_s = at_s
        excess = len(data) > self._bytes_left
        data = data[: self._bytes_left]
        self._bytes_left -= len(data)
        if self._after_cr and data[:1] == b"\n":  # the second half of a CRLF cut in two
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        *ended, rest = _LINE_END.split(data)
        for part in ended:
            self._partial += part
            line = bytes(self._partial)
            self._partial.clear()
            self._take_line(at_s, line)
            if self.too_large:
                return
        self._partial += rest
        if excess or len(self._partial) > self._max_line:
            self._stop()

    def fail(self, message: str) -> None:
        """Note an error; the first one is kept."""
        if self._error is None:
            self._error = clean_message(message)

    def close(self, at_s: float, how: Closed) -> Answer:
        """The answer. A last line without an end counts as of the arrival of its last byte."""
        if self._partial and not self.too_large:
            self._take_line(self._last_s, bytes(self._partial))
            self._partial.clear()
        self._end_event()
        self._report_unframed(how)
        return Answer(
            http_status=self.http_status,
            closed=how,
            end_s=at_s,
            ttfb_s=self.ttfb_s,
            chunks=tuple(self._chunks),
            usage=self._usage,
            timings=self._timings,
            extras=self._extras,
            finish_reason=self._finish_reason,
            models=tuple(self._models),
            error=self._error,
            done=self.done_s is not None,
            malformed=self._malformed,
        )

    # Lines and events

    def _take_line(self, at_s: float, line: bytes) -> None:
        if len(line) > self._max_line:
            return self._stop()
        text = line.decode("utf-8", errors="replace")
        if self._first_line:
            text = text.removeprefix("\ufeff")
            self._first_line = False
        if not text:
            return self._end_event()
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._take_data(at_s, value)
        elif name == "event":
            self._event = value.strip()
        elif name == "error":
            self._take_error(value)
        elif name and name not in _FIELDS and self._unframed_chars < MAX_UNFRAMED_CHARS:
            self._unframed.append(text[:MAX_UNFRAMED_CHARS])
            self._unframed_chars += len(text)

    def _end_event(self) -> None:
        self._drop_data()
        self._event = ""

    def _drop_data(self) -> None:
        """Data that never became JSON: the words of an error event, or a fault; pings may."""
        text = self._taken_data().strip()
        if text and self._event == "error":
            self.fail(text)
        elif text and self._event in _TOKEN_EVENTS:
            self._malformed += 1

    def _taken_data(self) -> str:
        text = "\n".join(self._data)
        self._data.clear()
        self._data_bytes = self._data_work = 0
        return text

    def _take_data(self, at_s: float, value: str) -> None:
        self._events += 1
        if value.strip() == "[DONE]":
            self._end_event()
            self.done_s = at_s
            return
        self._data.append(value)
        self._data_bytes += len(value)
        self._data_work += self._data_bytes
        if self._data_bytes > self._max_line or self._data_work > MAX_EVENT_WORK:
            return self._stop()
        text = "\n".join(self._data)
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            # An error at the very end means that more lines may complete it; elsewhere nothing can.
            cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip())
            if not cut or len(self._data) >= MAX_EVENT_LINES:
                self._drop_data()
            return
        self._taken_data()
        name, self._event = self._event, ""  # used up: the blank line may be missing
        if name in _TOKEN_EVENTS:
            self._take_json(at_s, parsed)
        elif name == "error":
            self.fail(error_in(parsed) or _described(parsed))

    def _take_error(self, value: str) -> None:
        parsed = _loads(value)
        self.fail((error_in(parsed) or _described(parsed)) if parsed is not None else value)

    def _report_unframed(self, how: Closed) -> None:
        """Report a body that is no event stream, an error beside one, or a refusal's reason."""
        body = "\n".join(self._unframed).strip()
        message = error_in(_loads(body)) or next(
            (found for line in self._unframed if (found := error_in(_loads(line)))), None
        )
        refused = self.http_status not in (0, 200)
        if message is not None:
            self.fail(message)
        elif refused:
            self.fail(_described(_loads(body)) if body[:1] == "{" else body or "no message")
        elif body and not self._events and how == "clean":
            self.fail(f"not an event stream: {body[:MAX_MESSAGE_CHARS]}")

    def _stop(self) -> None:
        self.too_large = True
        self._partial.clear()
        self._data.clear()
        self.fail("stream too large")

    # One JSON value

    def _take_json(self, at_s: float, value: Any) -> None:
        if not isinstance(value, dict) or _is_keepalive(value):
            return
        if (message := error_in(value)) is not None:
            self.fail(message)
        if (model := _text(value.get("model"))) and len(self._models) < MAX_NAMES:
            self._models[joined([model])] = None
        choices = value.get("choices")
        choices = choices if isinstance(choices, list) else []
        choices = [c for c in choices if isinstance(c, dict) and c.get("index", 0) in (0, None)]
        running = None
        for holder in (*choices, value):  # some servers put usage into the choice
            usage = holder.get("usage")
            if isinstance(usage, dict) and usage:
                self._usage = usage
                running = as_count(usage.get("completion_tokens"))
        for key, part in value.items():
            if key == "timings" and isinstance(part, dict):
                self._timings = part
            elif isinstance(part, dict) and key not in ("usage", "error"):
                self._extras[key] = part
                if len(self._extras) > MAX_NAMES:
                    del self._extras[key]
        for choice in choices:
            if reason := _text(choice.get("finish_reason")):
                self._finish_reason = joined([reason])
            if isinstance(delta := choice.get("delta"), dict):
                self._take_delta(at_s, delta, running, _gap(choice.get("logprobs")))

    def _take_delta(
        self, at_s: float, delta: dict[str, Any], running: int | None, gap: float | None
    ) -> None:
        # mlx-vlm sends one text under both names: alike, it is counted once.
        reasoning = dict.fromkeys(_text(delta.get(k)) for k in ("reasoning_content", "reasoning"))
        pieces: tuple[tuple[Channel, str], ...] = (
            ("reasoning", "".join(reasoning)),
            ("content", _text(delta.get("content"))),
            ("tool", _tool_text(delta)),
        )
        for channel, text in pieces:
            if text and self.done_s is not None:
                self._malformed += 1  # whose answer would it be?
            elif text and len(self._chunks) >= MAX_CHUNKS:
                self._stop()
            elif text:
                self._chunks.append(TokenChunk(at_s, text, channel, running, gap))
                self.last_token_s = at_s
                if self.first_token_s is None:
                    self.first_token_s = at_s


def parse(
    arrivals: Iterable[tuple[float, bytes]],
    closed_at_s: float,
    how: Closed = "clean",
    http_status: int = 200,
) -> Answer:
    """The answer of a recorded stream: `arrivals` are (seconds since the request, bytes)."""
    parser = StreamParser(http_status)
    for at_s, data in arrivals:
        parser.feed(at_s, data)
    return parser.close(closed_at_s, how)


def as_count(value: object) -> int | None:
    """A token count as a server sent it: a whole number from 0 on; all else is not known."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return None


def joined(parts: Iterable[str]) -> str:
    """The parts as one valid text.

    A surrogate pair sent in two chunks becomes one character, a lone half U+FFFD.
    """
    text = "".join(parts)
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def error_in(value: object) -> str | None:
    """The message of an error object as servers write it, or None if `value` is none."""
    if not isinstance(value, dict):
        return None
    if error := value.get("error"):
        return _described(error)
    if value.get("object") == "error" or value.get("type") == "error":
        return _described(value)
    # FastAPI's own form, which servers built on it fall back to.
    if "detail" in value and not {"choices", "object", "type"} & set(value):
        return _described(value)
    return None


def clean_message(message: str) -> str:
    """One line of at most 300 characters without anyone's absolute paths."""
    line = " ".join(joined([message[: 20 * MAX_MESSAGE_CHARS]]).split())
    return _PATH.sub("<path>", line)[:MAX_MESSAGE_CHARS]


def _described(error: object) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        for key in ("message", "detail", "error", "type"):
            if text := _text(error.get(key)):
                return text
    try:
        return str(error)
    except RecursionError:
        return "error"


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _gap(logprobs: object) -> float | None:
    """Least gap of a choice's `logprobs`: {"content": [{"top_logprobs": [{"logprob": …}, …]}, …]},
    the form of OpenAI's chat completions."""
    told = logprobs.get("content") if isinstance(logprobs, dict) else None
    gaps = []
    for token in told if isinstance(told, list) else ():
        top = token.get("top_logprobs") if isinstance(token, dict) else None
        top = [one for one in top if isinstance(one, dict)] if isinstance(top, list) else []
        known = sorted((p for p in map(_log_probability, top) if p is not None), reverse=True)
        if len(known) < 2:
            return None
        gaps.append(known[0] - known[1])
    return min(gaps, default=None)


def _log_probability(one: dict[str, Any]) -> float | None:
    value = one.get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value <= 0 else None


def _tool_text(delta: dict[str, Any]) -> str:
    """Name and arguments of the tool calls in a delta (`function_call` is the older form)."""
    calls = delta.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    functions.append(delta.get("function_call"))
    return "".join(
        _text(function.get("name")) + _text(function.get("arguments"))
        for function in functions
        if isinstance(function, dict)
    )


def _is_keepalive(value: dict[str, Any]) -> bool:
    """oMLX fills a long prefill with chunks whose model is called `keepalive`."""
    return any(_text(value.get(key)) in _KEEPALIVES for key in ("model", "object", "type"))
