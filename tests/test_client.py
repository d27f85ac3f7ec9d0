"""The client against a replaying server: times, deadlines, refusals, and what it sends."""

from __future__ import annotations

import dataclasses
import gc
import json
import socket
import threading
from datetime import UTC
from typing import Any

import pytest

from tests.servers.replay import Replay, ReplayServer, chunk, event, known_stream
from tests.test_stream import DONE, content, load
from twoturn.client import Sent, Timeouts, complete_once, get_json, stream_chat
from twoturn.metrics import Wanted, measure
from twoturn.stream import Answer

PATIENT = Timeouts(connect_s=5.0, first_token_s=10.0, idle_s=10.0, total_s=20.0)
BODY = {"model": "m", "messages": [{"role": "user", "content": "zażółć"}], "max_tokens": 60}
ANY = Wanted(None, 10**6, None, exact_length=False)


def play(replay: Replay, timeouts: Timeouts = PATIENT, **options: Any) -> Sent:
    with ReplayServer(replay) as server:
        return stream_chat(server.url, BODY, timeouts, **options)


def answer(*writes: tuple[float, bytes], close_ms: float = 100.0, **more: Any) -> Replay:
    return Replay(writes, close_ms=close_ms, **more)


def status(got: Answer) -> str:
    return measure(got, ANY).status


@pytest.mark.parametrize("chunked", [False, True])
def test_known_stream_live(chunked: bool) -> None:
    """TTFT within 50 ms and the rate within 0.5 %; the machine is shared, so three attempts."""
    replay = dataclasses.replace(known_stream("reasoning_content"), chunked=chunked)
    for _ in range(3):
        row = measure(play(replay).answer, Wanted("m", 60, 268))
        assert row.status == "ok"
        assert row.ttft_s is not None
        assert row.ttf_content_s is not None
        assert row.decode_tok_s is not None
        if (
            abs(row.ttft_s - 0.2) <= 0.05
            and abs(row.ttf_content_s - 0.7) <= 0.05
            and abs(row.decode_tok_s / 60.0 - 1) <= 0.005
        ):
            return
    pytest.fail(f"{row.ttft_s} s, {row.ttf_content_s} s, {row.decode_tok_s} tokens/s")


def test_what_is_sent() -> None:
    with ReplayServer(known_stream()) as server:
        body = {**BODY, "stream_options": {"x": 1}}
        sent = stream_chat(server.url + "/", body, PATIENT, api_key="secret")
        (request,) = server.requests
    assert (request["method"], request["path"]) == ("POST", "/v1/chat/completions")
    assert request["headers"]["accept-encoding"] == "identity"
    assert request["headers"]["authorization"] == "Bearer secret"
    payload = json.loads(request["body"])
    assert payload.pop("stream_options") == {"x": 1, "include_usage": True}
    assert payload == {**BODY, "stream": True}
    assert sent.started_at.tzinfo is UTC
    assert abs(sent.wall_minus_monotonic_s) < 0.5
    assert sent.start_monotonic_s > 0


def test_a_proxy_in_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy and localhost: nothing stands between the clock and 127.0.0.1."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert play(answer((0, content("a")), (1, DONE))).answer.text == "a"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:1",
        "https://127.0.0.1:1",
        "http://[::1]:1",
        "http://u:p@127.0.0.1:1",
        "http://example.org",
        "127.0.0.1:1",
        "http://127.0.0.1.example.org",
        "http://a b",
        "",
    ],
)
def test_only_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="not"):
        stream_chat(url, BODY, PATIENT)


@pytest.mark.parametrize("key", ["a\nb", "ż"])
def test_a_bad_key_is_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as caught:
        stream_chat("http://127.0.0.1:1", BODY, PATIENT, api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("role_only_first", "ok"),
        ("utf8_split", "ok"),
        ("error_event_in_200", "server_error"),
        ("error_body_unframed", "server_error"),
        ("clean_close_no_finish_no_done", "truncated_stream"),
        ("reset_mid_stream", "connection_lost"),
        ("unauthorized_401", "unauthorized"),
        ("unknown_model_404", "http_error"),
        ("loading_503", "not_ready"),
    ],
)
def test_recorded_streams_live(name: str, expected: str) -> None:
    replay = load(name)
    got = play(replay).answer
    assert status(got) == expected
    assert got.http_status == replay.status
    if replay.close == "reset":
        assert got.closed == "reset"
        assert len(got.chunks) >= 2


def test_a_chunked_body_that_breaks_off_is_a_reset() -> None:
    cut = answer((0, content("a")), chunked=True, close="reset")
    assert status(play(cut).answer) == "connection_lost"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    got = stream_chat(f"http://127.0.0.1:{port}", BODY, PATIENT).answer
    assert (got.http_status, got.closed) == (0, "reset")
    assert got.error
    assert status(got) == "connection_lost"


def test_redirects_are_not_followed() -> None:
    moved = answer(status=307, headers={"location": "http://127.0.0.1:9/"})
    assert status(play(moved).answer) == "http_error"


def test_a_long_refusal_is_cut() -> None:
    page = answer((0, b"<p>" + b"x" * 300_000), status=500)
    got = play(page).answer
    assert got.error is not None
    assert got.error.startswith("<p>xxx")
    assert len(got.error) == 300


# Deadlines

EVERY_20_MS = range(0, 5000, 20)


@pytest.mark.parametrize(
    "noise",
    [
        b": keepalive\n\n",
        b"x",
        event(chunk({"role": "assistant", "content": ""}) | {"model": "keepalive"}),
        event({"choices": [], "prompt_progress": {"processed": 1}}),
    ],
)
def test_noise_does_not_defeat_the_first_token_deadline(noise: bytes) -> None:
    replay = answer(*((at, noise) for at in EVERY_20_MS), close_ms=5000)
    got = play(replay, Timeouts(1.0, 0.3, 9.0, 9.0)).answer
    assert (got.closed, got.chunks) == ("timeout", ())
    assert 0.29 <= got.end_s < 1.5
    assert status(got) == "client_timeout"


def test_silence_before_the_headers() -> None:
    """Client timeout: the first byte has a deadline of its own."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        got = stream_chat(url, BODY, Timeouts(1.0, 0.3, 9.0, 9.0)).answer
    assert (got.http_status, got.closed) == (0, "timeout")
    assert status(got) == "client_timeout"


def test_no_token_for_a_long_time() -> None:
    got = play(load("no_bytes_for_20s"), Timeouts(1.0, 0.3, 9.0, 9.0)).answer
    assert (got.http_status, status(got)) == (200, "client_timeout")


def test_keepalives_do_not_defeat_the_idle_deadline() -> None:
    writes = [(0.0, content("a")), *((float(at), b": hm\n\n") for at in EVERY_20_MS)]
    got = play(answer(*writes, close_ms=5000), Timeouts(1.0, 9.0, 0.3, 9.0)).answer
    assert (got.closed, got.text) == ("timeout", "a")
    assert 0.29 <= got.end_s < 1.5


def test_tokens_do_not_defeat_the_total_deadline() -> None:
    replay = answer(*((float(at), content("a")) for at in EVERY_20_MS), close_ms=5000)
    got = play(replay, Timeouts(1.0, 9.0, 9.0, 0.4)).answer
    assert (got.closed, bool(got.chunks)) == ("timeout", True)
    assert 0.39 <= got.end_s < 1.6


def test_a_server_that_does_not_hang_up_after_done() -> None:
    got = play(answer((0, content("a")), (1, DONE), close_ms=5000)).answer
    assert (got.closed, got.done, got.text) == ("clean", True, "a")
    assert got.end_s < 2.5


def test_timeouts_grow_with_the_work() -> None:
    small, large = Timeouts.scaled(100, 10), Timeouts.scaled(33_000, 256)
    assert small.connect_s == large.connect_s == 5.0
    assert large.first_token_s == 60 + 33_000 / 20
    assert large.total_s == large.first_token_s + 60 + 256
    assert small.first_token_s < small.total_s


# One read, one arrival


def test_events_of_one_read_share_their_arrival() -> None:
    first = [event(chunk({"content": f"w{i} "})) for i in range(16)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in first)  # 16 HTTP chunks, one write
    tail = b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in (content("z"), DONE)) + b"0\r\n\r\n"
    headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
    got = play(answer((20, framed), (120, tail), close_ms=130, headers=headers)).answer
    assert len(got.chunks) == 17
    assert len({c.at_s for c in got.chunks[:16]}) == 1
    assert got.chunks[16].at_s - got.chunks[0].at_s > 0.05


@pytest.mark.parametrize("enabled", [True, False])
def test_gc_is_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        play(answer((0, content("a")), (1, DONE)))
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


# Small requests


def test_complete_once() -> None:
    reply = answer((0, b'{"model": "m", "choices": []}'), headers={}, close_ms=1)
    with ReplayServer(reply) as server:
        got = complete_once(server.url, {**BODY, "stream": True}, 5.0, "k")
        (request,) = server.requests
    assert got == (200, {"model": "m", "choices": []})
    assert json.loads(request["body"])["stream"] is False
    assert request["headers"]["authorization"] == "Bearer k"


@pytest.mark.parametrize("body", [b"not json", b"[1]", b"", b"[" * 5000])
def test_complete_once_without_an_object(body: bytes) -> None:
    with ReplayServer(answer((0, body), headers={}, close_ms=1, status=503)) as server:
        assert complete_once(server.url, BODY, 5.0) == (503, None)


def test_get_json() -> None:
    reply = answer((0, b'{"data": [{"id": "m"}]}'), headers={}, close_ms=1)
    with ReplayServer(reply) as server:
        assert get_json(server.url, "/v1/models", 5.0) == (200, {"data": [{"id": "m"}]})
        assert server.requests[0]["method"] == "GET"


def test_small_requests_end_in_time() -> None:
    trickle = answer(*((float(at), b" ") for at in EVERY_20_MS), close_ms=5000)
    with ReplayServer(trickle) as server:
        assert get_json(server.url, "/v1/models", 0.3) == (0, None)
        assert complete_once(server.url, BODY, 0.3) == (0, None)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert get_json(f"http://127.0.0.1:{port}", "/health", 0.5) == (0, None)


def test_the_replaying_server_leaves_no_thread() -> None:
    before = threading.active_count()
    play(load("no_bytes_for_20s"), Timeouts(1.0, 0.1, 9.0, 9.0))
    assert threading.active_count() == before
