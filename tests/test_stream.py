"""The stream parser: recorded faults of servers, the framing rules, any bytes at all."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.replay import Replay, chunk, event, known_stream, load_replay
from twoturn.stream import Answer, StreamParser, clean_message, parse

STREAMS = Path(__file__).parent / "fixtures" / "streams"
MLX_VLM = Path(__file__).parent / "fixtures" / "mlx_vlm"
DONE = b"data: [DONE]\n\n"


def load(name: str) -> Replay:
    return load_replay(STREAMS / f"{name}.replay.jsonl")


def answer_of(replay: Replay) -> Answer:
    return parse(replay.arrivals(), replay.close_ms / 1000, replay.close, replay.status)


def parse_bytes(*parts: bytes) -> Answer:
    """Each part arrives one second after the other, the first at 1 s."""
    return parse(list(enumerate(parts, start=1)), len(parts) + 1.0)


def without_times(answer: Answer) -> Answer:
    chunks = tuple(dataclasses.replace(c, at_s=0.0) for c in answer.chunks)
    return dataclasses.replace(answer, chunks=chunks, ttfb_s=None, end_s=0.0)


def content(text: str) -> bytes:
    return event(chunk({"content": text}))


def with_gaps(*tokens: object) -> bytes:
    told = chunk({"content": "x"})
    told["choices"][0]["logprobs"] = {"content": list(tokens)}
    return event(told)


def top(*values: object) -> dict[str, object]:
    return {"token": "x", "top_logprobs": [{"token": "y", "logprob": value} for value in values]}


@pytest.mark.parametrize(
    ("tokens", "gap"),
    [
        ([top(-0.5, -1.25)], 0.75),
        ([top(-1.25, -0.5, -9)], 0.75),  # in any order
        ([top(-0.5, -1.25), top(-0.25, -0.5)], 0.25),  # the least of several
        ([top(0, -0.0)], 0.0),
        ([top(-0.5)], None),
        ([top(-0.5, -1.25), top(-0.5)], None),  # one is not told, so the least is not known
        ([top(-0.5, float("nan"))], None),
        ([top(-0.5, float("-inf"))], None),
        ([top(-0.5, 0.5)], None),
        ([top(True, "-1")], None),
        ([{"top_logprobs": 3}], None),
        ([], None),
    ],
)
def test_how_close_a_token_was(tokens: list[object], gap: float | None) -> None:
    (found,) = parse_bytes(with_gaps(*tokens), DONE).chunks
    assert (found.text, found.gap_nats) == ("x", gap)


@pytest.mark.parametrize("told", [None, 3, [], {"content": 3}, {"content": [3, None]}, {}])
def test_log_probabilities_that_are_none(told: object) -> None:
    odd = chunk({"content": "x"})
    odd["choices"][0]["logprobs"] = told
    (found,) = parse_bytes(event(odd), DONE).chunks
    assert found.gap_nats is None


# Recorded streams


@pytest.mark.parametrize("name", ["role_only_first", "role_with_null_content"])
def test_a_role_is_not_a_token(name: str) -> None:
    answer = answer_of(load(name))
    assert answer.ttfb_s == 0.005
    assert answer.first_token_s == 0.4
    assert answer.last_token_s == 0.46
    assert answer.text == " one two three four"
    assert answer.models == ("target-4bit",)
    assert (answer.finish_reason, answer.done, answer.closed) == ("length", True, "clean")


def test_reasoning_is_a_token_and_no_content() -> None:
    answer = answer_of(load("reasoning_content"))
    assert (answer.first_token_s, answer.first_content_s) == (0.3, 0.6)
    assert answer.text == " one two three four"
    assert answer.full_text == "r0 r1 r2 r3 r4  one two three four"


def test_reasoning_alone() -> None:
    answer = answer_of(load("reasoning_field_only_capped"))
    assert (answer.first_token_s, answer.first_content_s) == (0.3, None)
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == len(answer.chunks) == 6


def test_empty_choices_come_anywhere() -> None:
    answer = answer_of(load("empty_choices_everywhere"))
    assert (answer.ttfb_s, answer.first_token_s) == (0.002, 0.4)
    assert answer.extras == {"prompt_progress": {"total": 50, "processed": 25}}


def test_running_usage() -> None:
    answer = answer_of(load("usage_every_chunk_cumulative"))
    assert [c.completion_tokens for c in answer.chunks] == [1, 2, 3, 4]
    assert answer.usage == {"prompt_tokens": 50, "completion_tokens": 4, "total_tokens": 54}


def test_utf8_cut_between_writes() -> None:
    answer = answer_of(load("utf8_split"))
    assert answer.text == "zażółć 🦀"
    assert answer.first_token_s == 0.42


def test_only_cr_and_lf_end_lines() -> None:
    replay = load("u2028_u0085_raw")
    crlf = [(t, d.replace(b"data: ", b"data:").replace(b"\n", b"\r\n")) for t, d in replay.writes]
    for variant in (replay, dataclasses.replace(replay, writes=tuple(crlf))):
        answer = answer_of(variant)
        assert answer.text == "a\u2028b\u0085c\u2029d"
        assert answer.malformed == 0


def test_errors_inside_200() -> None:
    framed = answer_of(load("error_event_in_200"))
    assert framed.error == "prefill would exceed the memory cap"
    assert framed.text == " one two"
    bare = answer_of(load("error_body_unframed"))
    assert bare.error == ("request (6009 tokens) exceeds the available context size (4096 tokens)")


@pytest.mark.parametrize(
    ("name", "closed", "chunks"),
    [
        ("clean_empty_close", "clean", 0),
        ("reset_mid_stream", "reset", 3),
        ("clean_close_no_finish_no_done", "clean", 3),
    ],
)
def test_streams_without_an_end(name: str, closed: str, chunks: int) -> None:
    answer = answer_of(load(name))
    assert (answer.closed, len(answer.chunks)) == (closed, chunks)
    assert (answer.finish_reason, answer.done, answer.usage) == (None, False, None)


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("unauthorized_401", 401, "Invalid API key"),
        ("unknown_model_404", 404, "model 'target-4bit' not found"),
        ("loading_503", 503, "Loading model"),
    ],
)
def test_refusals_say_why(name: str, status: int, error: str) -> None:
    answer = answer_of(load(name))
    assert (answer.http_status, answer.error) == (status, error)


def test_llama_cpp_timings() -> None:
    timings = answer_of(load("llamacpp_timings")).timings
    assert timings is not None
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (48, 30)


def load_capture(name: str) -> list[tuple[float, bytes]]:
    """A captured stream: lines are `seconds TAB line`; blank lines have no own time."""
    arrivals: list[tuple[float, bytes]] = []
    for line in (MLX_VLM / name).read_bytes().split(b"\n")[1:]:
        time, tab, rest = line.partition(b"\t")
        if tab:
            arrivals.append((float(time), rest + b"\n"))
        elif arrivals:
            arrivals.append((arrivals[-1][0], line + b"\n"))
    return arrivals


@pytest.mark.parametrize(
    ("name", "prompt", "n", "cached", "rounds", "ttft_s"),
    [
        ("q35_mlxvlm_mtp_b4_turn1.sse", 1437, 128, 0, 59, 0.6253),
        ("q35_mlxvlm_dflash_b5_turn2.sse", 1643, 128, 1436, 106, 0.1858),
        ("q35_mlxvlm_nodraft_turn1.sse", 1437, 128, 0, None, 0.6115),
        ("mlx_vlm_mtp_apc1_turn2.sse", 1746, 48, 1597, 47, 0.0996),
    ],
)
def test_mlx_vlm_as_recorded(
    name: str, prompt: int, n: int, cached: int, rounds: int | None, ttft_s: float
) -> None:
    arrivals = load_capture(name)
    answer = parse(arrivals, arrivals[-1][0])
    assert answer.usage is not None
    assert answer.timings is not None
    assert (answer.usage["prompt_tokens"], answer.usage["completion_tokens"]) == (prompt, n)
    assert answer.usage["prompt_tokens_details"]["cached_tokens"] == cached
    assert answer.timings.get("draft_rounds") == rounds
    assert answer.first_token_s == ttft_s
    assert (answer.finish_reason, answer.done, answer.malformed) == ("length", True, 0)
    assert 0 < len(answer.chunks) <= n


def test_mlx_vlm_error_as_recorded() -> None:
    answer = parse(load_capture("mlx_vlm_dflash_rq3_turn1.sse"), 4.0)
    assert answer.error is not None
    assert answer.error.startswith("concatenate(): incompatible function arguments.")
    assert "\n" not in answer.error
    assert answer.chunks == ()


# Framing


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("prefix", [b"data: ", b"data:"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_spaces_and_bom(end: bytes, prefix: bytes, bom: bytes) -> None:
    body = json.dumps(chunk({"content": "x"})).encode()
    stream = bom + prefix + body + end + end + prefix + b"[DONE]" + end + end
    answer = parse_bytes(stream)
    assert (answer.text, answer.done, answer.malformed, answer.error) == ("x", True, 0, None)


def test_cr_at_the_end_of_an_arrival_ends_the_line_at_once() -> None:
    answer = parse_bytes(content("x").rstrip() + b"\r", b"\n\r\n" + content("y"))
    assert [(c.at_s, c.text) for c in answer.chunks] == [(1, "x"), (2, "y")]


def test_one_event_over_many_data_lines() -> None:
    pretty = json.dumps(chunk({"content": "a"}), indent=1).encode()
    lines = b"".join(b"data: " + line + b"\n" for line in pretty.split(b"\n"))
    answer = parse_bytes(lines + b"\n" + DONE)
    assert (answer.text, answer.malformed) == ("a", 0)


def test_events_without_blank_lines_keep_their_times() -> None:
    answer = parse_bytes(content("a")[:-1], content("b")[:-1], DONE[:-1])
    assert [(c.at_s, c.text) for c in answer.chunks] == [(1, "a"), (2, "b")]
    assert answer.done


def test_the_last_line_may_lack_its_end() -> None:
    assert parse_bytes(content("a"), b'data: {"error": "no memory"}').error == "no memory"


def test_keepalives_are_not_tokens() -> None:
    fake = chunk({"role": "assistant", "content": ""}) | {"model": "keepalive", "created": 0}
    loud = chunk({"content": "."}) | {"object": "keepalive"}
    named = b"event: keepalive\n" + event(chunk({"content": "."}))
    answer = parse_bytes(b": keepalive 15/16\n\n", event(fake), event(loud), named, content("x"))
    assert (answer.ttfb_s, answer.first_token_s) == (1, 5)
    assert (answer.models, answer.text) == (("m",), "x")


def test_the_name_of_an_event_ends_with_it() -> None:
    answer = parse_bytes(
        b"event: ping\ndata: 12:30 noon\n\n", b"event: ping\ndata: {}\n", content("x")
    )
    assert (answer.text, answer.malformed) == ("x", 0)


@pytest.mark.parametrize(
    "stream",
    [
        b'event: error\ndata: {"message": "boom"}\n\n',
        b"event: error\ndata: boom\n\n",
        b'error: {"code": 500, "message": "boom"}\n\n',
        b'data: {"error": "boom"}\n\n',
        b'data: {"error": {"message": "boom"}}\n\n',
        b'data: {"object": "error", "message": "boom"}\n\n',
        b'{\n  "error": {\n    "message": "boom"\n  }\n}\n',
        content("x") + b'{"error": {"message": "boom"}}\n',
    ],
)
def test_errors_in_every_form(stream: bytes) -> None:
    assert parse_bytes(stream).error == "boom"


def test_a_page_is_not_a_stream() -> None:
    assert parse_bytes(b"<html>Bad gateway</html>").error == (
        "not an event stream: <html>Bad gateway</html>"
    )
    assert parse([(1.0, b"<h1>No</h1>")], 2.0, http_status=502).error == "<h1>No</h1>"
    assert parse([], 2.0, http_status=500).error == "no message"
    detail = parse([(1.0, b'{"detail": "Not Found"}')], 2.0, http_status=404)
    assert detail.error == "Not Found"


def test_lines_that_are_not_json_are_counted() -> None:
    bad = [b"data: hello\n\n", b'data: {"a": tru}\n\n', b'data: {"cut": \n\n', b"data: {'a'}\n\n"]
    answer = parse_bytes(*bad, content("x"), DONE)
    assert (answer.malformed, answer.text, answer.done) == (4, "x", True)


def test_tool_calls_are_tokens() -> None:
    call = {"index": 0, "function": {"name": "get", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"a":'}}
    empty = {"index": 0, "id": "1", "function": {"arguments": ""}}
    answer = parse_bytes(*(event(chunk({"tool_calls": [c]})) for c in (empty, call, more)))
    assert [(c.at_s, c.text, c.channel) for c in answer.chunks] == [
        (2, "get", "tool"),
        (3, '{"a":', "tool"),
    ]
    assert answer.text == ""


def test_reasoning_under_both_names_counts_once() -> None:
    delta = {"reasoning": "r", "reasoning_content": "r", "content": "c"}
    answer = parse_bytes(event(chunk(delta)))
    assert [(c.text, c.channel) for c in answer.chunks] == [("r", "reasoning"), ("c", "content")]
    assert answer.full_text == "rc"


def test_a_surrogate_pair_in_two_chunks_is_one_character() -> None:
    answer = parse_bytes(content("\ud83e"), content("\udd80"), content("\udd80"))
    assert answer.full_text == "🦀\ufffd"


def test_usage_null_or_empty_does_not_erase_usage() -> None:
    told = event({"choices": [], "usage": {"completion_tokens": 3}})
    answer = parse_bytes(told, event({"usage": None}), event({"usage": {}}), event({"usage": 7}))
    assert answer.usage == {"completion_tokens": 3}


ODD = [None, True, -1, 1.5, float("nan"), "x", [], [None], {}, {"a": None}, 10**40]


@pytest.mark.parametrize("odd", ODD)
def test_any_json_anywhere(odd: object) -> None:
    keys = ("choices", "usage", "timings", "model", "error", "object", "x_extra")
    inner = ({"delta": odd}, {"index": odd}, {"finish_reason": odd}, {"delta": {"content": odd}})
    tools = ([odd], [{"function": odd}], [{"function": {"name": odd, "arguments": odd}}])
    values = [odd, *({key: odd} for key in keys), *({"choices": [c]} for c in inner)]
    values += [{"choices": [{"delta": {"tool_calls": t, "function_call": odd}}]} for t in tools]
    answer = parse_bytes(*(event(value) for value in values))
    assert answer.malformed == 0


def test_deep_nesting_does_not_raise() -> None:
    for depth in (500, 900, 990, 5000):
        deep = b'data: {"error": ' + b"[" * depth + b"]" * depth + b"}\n\n"
        parse_bytes(deep, b"data: " + b"[" * depth + b"\n\n")


@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_size_limits(cut: int) -> None:
    stream = content("a") + b"data: " + b"x" * 500 + b"\n\n" + content("b")
    line = StreamParser(max_line_bytes=400)
    total = StreamParser(max_total_bytes=400)
    for start in range(0, len(stream), cut):
        line.feed(1.0, stream[start : start + cut])
        total.feed(1.0, stream[start : start + cut])
    for parser in (line, total):
        assert parser.too_large
        answer = parser.close(2.0, "clean")
        assert (answer.error, answer.text) == ("stream too large", "a")


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        ("cannot open /Users/jan/models/x.gguf: no", "cannot open <path>: no"),
        ("cannot open '/Users/Jan K/models/x'", "cannot open '<path>'"),
        ("no /Users/Jan Kowalski/models here", "no <path> here"),
        ("path=/home/jan/x, ~/y and C:\\Users\\jan\\z", "path=<path>, <path> and <path>"),
        ("file:///home/jan/x", "file://<path>"),
        ("see https://host.org/a/b, 1/2 and n/a or </think>", None),
        ("model org/name not found", None),
    ],
)
def test_messages_hold_no_paths(message: str, cleaned: str | None) -> None:
    assert clean_message(message) == (message if cleaned is None else cleaned)


def test_messages_are_short_lines() -> None:
    assert clean_message("a\n  b") == "a b"
    assert len(clean_message("x" * 10_000)) == 300


# Properties

SAMPLE = (
    b"\xef\xbb\xbf: hi\r\n\r\n"
    + known_stream("reasoning_content", "cumulative").body[:2500]
    + b"\n\ndata: nonsense\r\rdata: {\ndata: }\n\r\n"
    + event(chunk({"content": "ł🦀\u2028"})).replace(b"\n", b"\r\n")
    + 'data:{"choices":[{"delta":{"content":"ż🦀\u2028\u0085"}}]}\r\n\r\n'.encode()
    + b'{"stray": 1}\n'
    + event({"usage": {"completion_tokens": 9}, "x": {}})
    + DONE
)


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=40))
@settings(deadline=None)
def test_how_bytes_are_cut_changes_times_alone(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(SAMPLE)]
    parts = [SAMPLE[a:b] for a, b in itertools.pairwise(edges)]
    assert without_times(parse_bytes(*parts)) == without_times(parse_bytes(SAMPLE))


def test_byte_by_byte() -> None:
    parts = [SAMPLE[i : i + 1] for i in range(len(SAMPLE))]
    assert without_times(parse_bytes(*parts)) == without_times(parse_bytes(SAMPLE))


NOISE = st.sampled_from([b": keepalive\n\n", b"\n", b":\r\n", b"\r\n\r\n", b"id: 3\nretry: 5\n\n"])


@given(st.lists(st.tuples(st.integers(0, 23), NOISE), max_size=30))
@settings(deadline=None)
def test_comments_and_blank_lines_change_nothing(noise: list[tuple[int, bytes]]) -> None:
    writes = [data for _, data in known_stream("reasoning").writes]
    expected = without_times(parse_bytes(*writes))
    for place, data in sorted(noise, reverse=True):
        writes.insert(place, data)
    assert without_times(parse_bytes(*writes)) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "reasoning",
                    "usage",
                    "error",
                    "message",
                    "model",
                    "tool_calls",
                    "function",
                    "arguments",
                    "index",
                    "finish_reason",
                    "timings",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
JUNK = st.one_of(
    st.binary(max_size=60),
    JSON.map(event),
    JSON.map(lambda value: event({"choices": [value], "usage": value})),
    st.sampled_from([b"data:", b"data: {", b"\r", b"\n", b"event: error\n", b"error:", DONE]),
)


@given(st.lists(JUNK, max_size=12), st.sampled_from([0, 200, 404]))
@settings(deadline=None)
def test_junk_never_raises(parts: list[bytes], status: int) -> None:
    answer = parse(list(enumerate(parts)), 100.0, "reset", status)
    answer.full_text.encode()
    (answer.error or "").encode()
    "".join(answer.models).encode()
