"""The figures of a request: the known stream exactly, and every status."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.replay import USAGE_SHAPES, Replay, UsageShape, chunk, event, known_stream
from tests.test_stream import DONE, JUNK, answer_of, content, load, load_capture, parse_bytes
from twoturn.metrics import STATUSES, Measured, Status, Tokenize, Wanted, longest_run, measure
from twoturn.stream import Answer, TokenChunk, parse

ANY = Wanted(model=None, max_tokens=10**6, prompt_tokens=None, exact_length=False)


def words(text: str) -> list[int]:
    """A tokenizer of which every word is a token."""
    return [hash(word) for word in text.split()]


def measure_stream(name: str, max_tokens: int, **wanted: Any) -> Measured:
    return measure(
        answer_of(load(name)),
        Wanted(**{"model": "target-4bit", "prompt_tokens": None} | wanted, max_tokens=max_tokens),
    )


# The known stream


@pytest.mark.parametrize("tokenize", [None, words])
@pytest.mark.parametrize("usage", USAGE_SHAPES)
@pytest.mark.parametrize("channel", [None, "reasoning", "reasoning_content"])
def test_known_stream_is_exact(
    channel: str | None, usage: UsageShape, tokenize: Tokenize | None
) -> None:
    row = measure(answer_of(known_stream(channel, usage)), Wanted("m", 60, 268), tokenize)
    assert (row.status, row.reason) == ("ok", None)
    assert row.ttft_s == 0.200
    assert row.ttf_content_s == (0.700 if channel else 0.200)
    assert row.decode_tok_s is not None
    assert math.isclose(row.decode_tok_s, 60.0, rel_tol=1e-9)
    assert row.first_chunk_tokens is not None
    assert math.isclose(row.first_chunk_tokens, 3.0, rel_tol=1e-9)
    assert row.first_chunk_source == (
        "usage" if usage == "cumulative" else "tokenizer" if tokenize else "characters"
    )
    assert (row.ttfb_s, row.e2e_s) == (0.020, 1.150)
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (268, 60, None)
    assert row.prefill_tok_s is None
    assert len(row.chunk_times_s) == 20


def test_known_stream_without_usage() -> None:
    answer = answer_of(known_stream("reasoning", "none"))
    bare = measure(answer, Wanted("m", 60, 268))
    assert (bare.status, bare.decode_tok_s) == ("missing_usage", None)
    assert bare.reason
    told = measure(answer, Wanted("m", 60, 268), words)
    assert (told.status, told.completion_tokens) == ("missing_usage", None)
    assert told.decode_tok_s is not None
    assert math.isclose(told.decode_tok_s, 60.0, rel_tol=1e-9)


# Recorded streams


def test_several_tokens_in_one_chunk() -> None:
    row = measure_stream("multi_token_chunks", 8)
    assert row.status == "ok"
    assert (row.first_chunk_tokens, row.first_chunk_source) == (1.0, "characters")
    assert row.decode_tok_s is not None
    assert math.isclose(row.decode_tok_s, 35.0)


@pytest.mark.parametrize(
    ("name", "max_tokens", "status"),
    [
        ("role_only_first", 4, "ok"),
        ("role_with_null_content", 4, "ok"),
        ("reasoning_content", 9, "ok"),
        ("reasoning_field_only_capped", 6, "ok"),
        ("empty_choices_everywhere", 4, "ok"),
        ("usage_every_chunk_cumulative", 4, "ok"),
        ("utf8_split", 6, "ok"),
        ("u2028_u0085_raw", 7, "ok"),
        ("error_event_in_200", 4, "server_error"),
        ("error_body_unframed", 4, "server_error"),
        ("clean_empty_close", 4, "empty_stream"),
        ("reset_mid_stream", 4, "connection_lost"),
        ("clean_close_no_finish_no_done", 4, "truncated_stream"),
        ("stop_before_budget", 4, "stopped_early"),
        ("cached_zero", 3, "overlong"),
        ("loading_503", 4, "not_ready"),
        ("unknown_model_404", 4, "http_error"),
        ("unauthorized_401", 4, "unauthorized"),
    ],
)
def test_status_of_recorded_streams(name: str, max_tokens: int, status: str) -> None:
    row = measure_stream(name, max_tokens)
    assert row.status == status
    assert (row.reason is None) == (status == "ok") or row.decode_s is None


def test_a_capped_thought_is_a_valid_row() -> None:
    row = measure_stream("reasoning_field_only_capped", 6)
    assert (row.status, row.ttft_s, row.ttf_content_s) == ("ok", 0.3, None)


def test_one_arrival_has_no_rate_and_says_so() -> None:
    row = measure_stream("utf8_split", 6)
    assert (row.decode_tok_s, row.decode_s, row.decode_tokens) == (None, None, None)
    assert row.reason == "no decode rate: no token came after the first arrival"


@pytest.mark.parametrize(
    ("name", "cached"),
    [
        ("cached_absent", None),
        ("cached_nullobj", None),
        ("cached_null", None),
        ("cached_zero", 0),
        ("cached_hit2048", 2048),
    ],
)
def test_cached_tokens_have_three_states(name: str, cached: int | None) -> None:
    """Cached-tokens shapes: absent and null are not known, 0 is a reported miss."""
    row = measure_stream(name, 4)
    assert row.cached_tokens == cached
    expected = None if cached is None else (3218 - cached) / 0.4
    assert row.prefill_tok_s == expected


@pytest.mark.parametrize("odd", [-1, 1.5, True, "7", float("nan"), [7], {"a": 1}, 10**30])
def test_odd_counts_are_not_known(odd: object) -> None:
    usage = {"prompt_tokens": odd, "completion_tokens": odd, "cached_tokens": odd}
    row = measure(parse_bytes(content("a"), event({"usage": usage}), DONE), ANY)
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (None, None, None)
    assert row.status == "missing_usage"


def test_cached_tokens_at_the_top_of_usage() -> None:
    for details in ({}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}):
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "cached_tokens": 60, **details}
        row = measure(parse_bytes(content("a"), event({"usage": usage}), DONE), ANY)
        assert (row.cached_tokens, row.prefill_tok_s) == (60, 40.0)


@pytest.mark.parametrize("cached", [100, 101])
def test_nothing_prefilled_has_no_rate(cached: int) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "cached_tokens": cached}
    row = measure(parse_bytes(content("a"), event({"usage": usage}), DONE), ANY)
    assert row.prefill_tok_s is None


def test_mlx_vlm_as_recorded() -> None:
    arrivals = load_capture("q35_mlxvlm_mtp_b4_turn1.sse")
    row = measure(parse(arrivals, arrivals[-1][0]), Wanted("models/q35/target", 128, 1437))
    assert (row.status, row.prompt_tokens, row.cached_tokens) == ("ok", 1437, 0)
    assert row.completion_tokens == 128
    assert row.decode_tok_s == pytest.approx(127 / (1.3854 - 0.6253), rel=1e-6)
    assert row.prefill_tok_s == pytest.approx(1437 / 0.6253)


# The first arrival


def small(*chunks: tuple[float, str, int | None], n: int = 10, **more: Any) -> Answer:
    """An answer of n tokens with chunks (at_s, text, running usage)."""
    fields = {
        "http_status": 200,
        "closed": "clean",
        "end_s": 9.0,
        "usage": {"completion_tokens": n},
        "finish_reason": "length",
        "done": True,
    }
    token_chunks = tuple(TokenChunk(at_s, text, "content", told) for at_s, text, told in chunks)
    return Answer(chunks=token_chunks, **fields | more)


def test_chunks_of_one_read_are_one_arrival() -> None:
    row = measure(small((1.0, "a ", 1), (1.0, "b ", 2), (2.0, "c d", 4), n=4), ANY)
    assert (row.first_chunk_tokens, row.first_chunk_source) == (2.0, "usage")
    assert (row.decode_tokens, row.decode_s, row.decode_tok_s) == (2.0, 1.0, 2.0)


@pytest.mark.parametrize("running", [0, 10, 11])
def test_running_usage_that_does_not_run_is_not_believed(running: int) -> None:
    answer = small((1.0, "a b ", running), (2.0, "c d e f g h i j", running))
    assert measure(answer, ANY, words).first_chunk_source == "tokenizer"
    assert measure(answer, ANY, lambda text: []).first_chunk_source == "characters"
    assert measure(answer, ANY).first_chunk_source == "characters"


# Statuses

LOOP = " and" * 100


@pytest.mark.parametrize(
    ("answer", "wanted", "status"),
    [
        (small(), ANY, "empty_stream"),
        (small((1.0, "a", None), done=False), ANY, "ok"),
        (small((1.0, "a", None), done=False, usage=None), ANY, "truncated_stream"),
        (small((1.0, "a", None), done=False, finish_reason=None), ANY, "truncated_stream"),
        (small((1.0, "a", None), finish_reason=None), ANY, "ok"),
        (small((1.0, "a", None), finish_reason="error"), ANY, "server_error"),
        (small((1.0, "a", None), closed="reset"), ANY, "ok"),
        (small((1.0, "a", None), closed="reset", done=False), ANY, "connection_lost"),
        (small((1.0, "a", None), closed="timeout", done=False), ANY, "client_timeout"),
        (small(closed="timeout", done=False, http_status=0), ANY, "client_timeout"),
        (small(closed="reset", done=False, http_status=0, error="x"), ANY, "connection_lost"),
        (small((1.0, "a", None), closed="reset", error="x"), ANY, "server_error"),
        (small(http_status=403), ANY, "unauthorized"),
        (small(http_status=307), ANY, "http_error"),
        (small((1.0, "a", None), n=0), ANY, "missing_usage"),
        (small((1.0, "a", None), models=("m", "x")), Wanted("m", 10, None), "wrong_model"),
        (small((1.0, "a", None), models=("m",)), Wanted("m", 10, None), "ok"),
        (small((1.0, "a", None), models=("x",)), Wanted(None, 10, None), "ok"),
        (small((1.0, "a", None)), Wanted(None, 11, None), "stopped_early"),
        (small((1.0, "a", None)), Wanted(None, 11, None, exact_length=False), "ok"),
        (small((1.0, "a", None)), Wanted(None, 9, None), "overlong"),
        (small((1.0, LOOP, None)), Wanted(None, 9, None), "repeated_token"),
        (small((1.0, "!" * 64, None)), ANY, "repeated_token"),
        (small((1.0, "!" * 63, None)), ANY, "ok"),
        (small((1.0, "-" * 70 + "x" * 71, None)), ANY, "repeated_token"),
        (small((1.0, "-" * 70 + "xy" * 70, None)), ANY, "ok"),
        (small((1.0, " a b" * 200, None)), ANY, "ok"),
    ],
)
def test_status(answer: Answer, wanted: Wanted, status: str) -> None:
    row = measure(answer, wanted)
    assert row.status == status
    assert row.reason


@pytest.mark.parametrize(
    ("reported", "status"), [(7900, "ok"), (7505, "ok"), (7504, "prompt_truncated"), (None, "ok")]
)
def test_prompt_length_is_compared(reported: int | None, status: str) -> None:
    """Silent truncation: HTTP 200 and a prompt that was cut."""
    usage = {"completion_tokens": 1, "prompt_tokens": reported}
    assert measure(small((1.0, "a", None), usage=usage), Wanted(None, 1, 7900)).status == status
    usage["prompt_tokens"] = 2050
    row = measure(small((1.0, "a", None), usage=usage), Wanted(None, 1, 7900))
    assert row.reason == "sent 7900 tokens, the server read 2050"


def test_every_status_is_explained() -> None:
    assert set(STATUSES) == set(get_args(Status))


def test_longest_run() -> None:
    assert [longest_run(x) for x in ("", "a", "abab", "abbba", [1, 1])] == [0, 1, 1, 3, 2]
    assert measure(small((1.0, LOOP, None)), ANY).longest_repeat == 100
    assert measure(small((1.0, LOOP, None)), ANY, lambda text: [5] * 7).longest_repeat == 7


def test_output_is_the_whole_text() -> None:
    answer = answer_of(load("reasoning_content"))
    row = measure(answer, ANY)
    assert row.output_sha256 == hashlib.sha256(answer.full_text.encode()).hexdigest()
    assert row.output_chars == len(answer.full_text)
    empty = measure(small(), ANY)
    assert (empty.output_sha256, empty.output_chars, empty.longest_repeat) == (None, None, None)


@given(st.lists(JUNK, max_size=12), st.sampled_from(["clean", "reset", "timeout"]))
@settings(deadline=None)
def test_junk_never_raises(parts: list[bytes], how: Any) -> None:
    for tokenize in (None, words):
        row = measure(parse(list(enumerate(parts)), 100.0, how), Wanted("m", 4, 9), tokenize)
        assert row.status in STATUSES
        for value in dataclasses.astuple(row):
            assert not (isinstance(value, float) and not math.isfinite(value))


def test_times_shift_with_the_stream() -> None:
    """A stream that starts later has the same rate and a later first token."""
    known = known_stream()
    late = Replay(tuple((at + 1000, data) for at, data in known.writes), known.close_ms + 1000)
    row = measure(answer_of(late), Wanted("m", 60, 268))
    assert row.ttft_s == 1.2
    assert row.decode_tok_s == pytest.approx(60.0, rel=1e-9)


def test_an_empty_delta_with_usage_is_not_a_last_token() -> None:
    usage = {"completion_tokens": 2}
    tail = event(chunk({}, finish="length", usage=usage))
    row = measure(parse_bytes(content("a"), content("b"), tail, DONE), Wanted("m", 2, None))
    assert (row.e2e_s, row.decode_tok_s) == (2, 1.0)
