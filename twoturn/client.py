"""Requests to a server on this machine: a streamed chat completion with its times, and small ones.

Proxies, redirects, compression and other hosts than 127.0.0.1 are out of the question: each would
put something else between the clock and the server. Faults of the server are values
(`Answer.closed`, `Answer.error`), never exceptions.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from twoturn.stream import Answer, Closed, StreamParser

HOST = "127.0.0.1"
AFTER_DONE_S = 1.0  # how long a server may take to hang up after [DONE]
MAX_ERROR_BYTES = 64 * 2**10
MAX_JSON_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `first_token_s` and `total_s` count from the request, `idle_s` from the last token.

    They are deadlines for tokens: neither keep-alives nor trickling bytes push them back.
    """

    connect_s: float
    first_token_s: float
    idle_s: float
    total_s: float

    @classmethod
    def scaled(cls, prompt_tokens: int, max_tokens: int) -> Timeouts:
        """What even a slow machine keeps: 5 s to connect; a minute and the prompt at 20 tokens/s
        to the first token; a minute between tokens; a minute and 1 token/s for the rest.
        """
        first_token_s = 60.0 + prompt_tokens / 20
        return cls(5.0, first_token_s, 60.0, first_token_s + 60.0 + max_tokens)


@dataclass(frozen=True, slots=True)
class Sent:
    """An answer and when it was asked for. A gap between the two clocks: the machine slept."""

    answer: Answer
    started_at: datetime  # UTC
    start_monotonic_s: float
    wall_minus_monotonic_s: float


class _Start:
    """The moment at which the request goes out; until then, at which it was prepared."""

    def __init__(self) -> None:
        self.mark()

    def mark(self) -> None:
        self.wall_s, self.monotonic_s = time.time(), time.monotonic()
        self.loop_s = asyncio.get_running_loop().time()
        self.counter_s = time.perf_counter()

    async def trace(self, event: str, _info: Mapping[str, Any]) -> None:
        # The connection stands and all of httpx is imported: what follows is the server's time.
        if event == "http11.send_request_headers.started":
            self.mark()

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.counter_s

    def sent(self, answer: Answer) -> Sent:
        slept_s = (time.time() - self.wall_s) - (time.monotonic() - self.monotonic_s)
        started_at = datetime.fromtimestamp(self.wall_s, UTC)
        return Sent(answer, started_at, self.monotonic_s, slept_s)


def stream_chat(
    base_url: str, body: Mapping[str, Any], timeouts: Timeouts, *, api_key: str | None = None
) -> Sent:
    """POST {base_url}/v1/chat/completions, streamed and with usage.

    Not to be called inside an event loop. Raises ValueError for a base_url that is not on 127.0.0.1
    and for a key that cannot be a header.
    """
    url = _url(base_url, "/v1/chat/completions")
    options = body.get("stream_options")
    options = dict(options) if isinstance(options, Mapping) else {}
    payload = {**body, "stream": True, "stream_options": {**options, "include_usage": True}}
    headers = {"Accept": "text/event-stream", **_headers(api_key)}
    with _no_gc():
        return asyncio.run(_stream(url, payload, headers, timeouts))


def complete_once(
    base_url: str, body: Mapping[str, Any], timeout_s: float, api_key: str | None = None
) -> tuple[int, dict[str, Any] | None]:
    """(HTTP status, JSON object or None) of one small chat completion that is not streamed.

    (0, None) if there was no whole answer in time.
    """
    url = _url(base_url, "/v1/chat/completions")
    payload = {**body, "stream": False}
    payload.pop("stream_options", None)
    status, told, _ = asyncio.run(_body("POST", url, payload, _headers(api_key), timeout_s))
    value = _value(told)
    return status, value if isinstance(value, dict) else None


def get_json(
    base_url: str,
    path: str,
    timeout_s: float,
    api_key: str | None = None,
    cookies: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """(HTTP status, JSON value or None) of GET {base_url}{path}; (0, None) as above."""
    status, told = get_body(base_url, path, timeout_s, api_key, cookies)
    return status, _value(told)


def get_body(
    base_url: str,
    path: str,
    timeout_s: float,
    api_key: str | None = None,
    cookies: Mapping[str, str] | None = None,
) -> tuple[int, bytes | None]:
    """(HTTP status, body or None) of GET {base_url}{path}; (0, None) as above."""
    headers = _headers(api_key)
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    status, told, _ = asyncio.run(_body("GET", _url(base_url, path), None, headers, timeout_s))
    return status, told


def log_in(
    base_url: str, path: str, body: Mapping[str, Any], timeout_s: float
) -> tuple[int, dict[str, str]]:
    """(HTTP status, cookies that the server hands out) of POST {base_url}{path}."""
    url = _url(base_url, path)
    status, _, cookies = asyncio.run(_body("POST", url, body, _headers(None), timeout_s))
    return status, cookies


async def _stream(
    url: httpx.URL, payload: Mapping[str, Any], headers: Mapping[str, str], timeouts: Timeouts
) -> Sent:
    parser = StreamParser(http_status=0)
    how: Closed = "clean"
    async with _client(timeouts.connect_s) as client:
        request = client.build_request("POST", url, json=payload, headers=headers)
        start = _Start()
        request.extensions["trace"] = start.trace
        try:
            async with asyncio.timeout(_deadline_s(parser, timeouts)) as limit:
                response = await client.send(request, stream=True)
                parser.http_status = response.status_code
                try:
                    await _read(response, parser, timeouts, start, limit)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            how = "timeout" if parser.done_s is None else "clean"
        except httpx.TransportError as error:
            how = "reset"
            if parser.http_status == 0:
                parser.fail(f"{type(error).__name__}: {error}")
        end_s = start.elapsed_s()
    return start.sent(parser.close(end_s, how))


async def _read(
    response: httpx.Response,
    parser: StreamParser,
    timeouts: Timeouts,
    start: _Start,
    limit: asyncio.Timeout,
) -> None:
    """Feed the body to the parser. What one read from the socket brought gets one arrival time.

    Several HTTP chunks of one read come out one after the other without a turn of the event loop in
    between; a turn sets `fresh` again.
    """
    loop = asyncio.get_running_loop()
    fresh, at_s, size = True, 0.0, 0
    known: tuple[float | None, float | None] = (None, None)

    def turned() -> None:
        nonlocal fresh
        fresh = True

    async for data in response.aiter_raw():
        if fresh:
            at_s, fresh = start.elapsed_s(), False
            loop.call_soon(turned)
        size += len(data)
        if response.status_code != 200 and size > MAX_ERROR_BYTES:
            parser.feed(at_s, data[: MAX_ERROR_BYTES - size])
            return
        parser.feed(at_s, data)
        if parser.too_large:
            return
        if known != (known := (parser.last_token_s, parser.done_s)):
            limit.reschedule(start.loop_s + _deadline_s(parser, timeouts))


def _deadline_s(parser: StreamParser, timeouts: Timeouts) -> float:
    """Seconds after the request at which patience ends, as things stand."""
    if parser.done_s is not None:
        next_s = parser.done_s + AFTER_DONE_S
    elif parser.last_token_s is not None:
        next_s = parser.last_token_s + timeouts.idle_s
    else:
        next_s = timeouts.first_token_s
    return min(next_s, timeouts.total_s)


async def _body(
    method: str,
    url: httpx.URL,
    payload: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> tuple[int, bytes | None, dict[str, str]]:
    """(HTTP status, body or None, cookies)."""
    body = bytearray()
    try:
        async with (
            asyncio.timeout(timeout_s),
            _client(timeout_s) as client,
            client.stream(method, url, json=payload, headers=headers) as response,
        ):
            cookies = dict(response.cookies)
            async for data in response.aiter_raw():
                body += data
                if len(body) > MAX_JSON_BYTES:
                    return response.status_code, None, cookies
    except (TimeoutError, httpx.TransportError):
        return 0, None, {}
    return response.status_code, bytes(body), cookies


def _value(body: bytes | None) -> Any:
    """The JSON value of a body, None where it is none."""
    try:
        return None if body is None else json.loads(body)
    except (ValueError, RecursionError):
        return None


def _client(connect_s: float) -> httpx.AsyncClient:
    # No certificates: the address is local and plain, and loading them takes longer than a token.
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        verify=False,
        timeout=httpx.Timeout(None, connect=connect_s),
    )


def _url(base_url: str, path: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url.rstrip("/") + path)
    except httpx.InvalidURL as error:
        raise ValueError(f"not a URL: {base_url!r}") from error
    if (url.scheme, url.host, url.userinfo) != ("http", HOST, b""):
        raise ValueError(f"not http://{HOST}:<port>: {base_url!r}")
    return url


def _headers(api_key: str | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    if api_key:
        if not (api_key.isascii() and api_key.isprintable()):
            raise ValueError("the API key holds characters that no header can carry")
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


@contextmanager
def _no_gc() -> Iterator[None]:
    """A collection may take longer than a token: none while the clock runs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
