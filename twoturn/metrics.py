"""The figures of one request, from what its stream said and when. Pure.

    ttft_s          = arrival of the first token chunk (reasoning, content or tool call)
    e2e_s           = arrival of the last token chunk (a late [DONE] is not the model's time)
    decode_tok_s    = (n - k) / (t_last - t_first)
    prefill_tok_s   = (prompt_tokens - cached_tokens) / ttft_s

n is `completion_tokens` of the last usage; k are the tokens that came with the first arrival: by
running usage, else by tokenizing their text, else by their share of the characters. The usual n - 1
is wrong by (n - 1)/(n - k): by nothing for a plain server, by 13 % for an answer of 128 tokens
whose first chunk is a speculated block of 16, so it favours one arm. Chunks with the very same
arrival time came in one read from the socket and are one arrival.

None means "not known" and is never 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from twoturn.stream import Answer, as_count, joined

Tokenize: TypeAlias = Callable[[str], Sequence[int]]
FirstChunkSource: TypeAlias = Literal["usage", "tokenizer", "characters"]
Status: TypeAlias = Literal[
    "ok",
    "http_error",
    "unauthorized",
    "not_ready",
    "server_error",
    "empty_stream",
    "connection_lost",
    "truncated_stream",
    "client_timeout",
    "missing_usage",
    "wrong_model",
    "prompt_truncated",
    "repeated_token",
    "stopped_early",
    "overlong",
]

# In order of precedence: of two faults the one that stands first is told.
STATUSES: Final[Mapping[Status, str]] = {
    "unauthorized": "the server refused the key (HTTP 401 or 403)",
    "not_ready": "the server was still loading (HTTP 503)",
    "http_error": "the server answered with another HTTP status than 200",
    "server_error": "the server reported an error inside its answer",
    "client_timeout": "no token, or no end, within the time allowed: the true time is longer",
    "connection_lost": "the connection was refused or broke off",
    "empty_stream": "the answer held no token",
    "truncated_stream": "the stream ended without its end marks",
    "wrong_model": "another model answered than the one asked for",
    "missing_usage": "the server did not say how many tokens it wrote",
    "prompt_truncated": "the server read a prompt of another length than the one sent",
    "repeated_token": "most of the answer is one token over and over",
    "stopped_early": "the answer is shorter than asked for",
    "overlong": "the answer is longer than allowed",
    "ok": "a valid measurement",
}
FAILED_FINISH_REASONS = frozenset({"error", "abort"})
PROMPT_TOLERANCE = 0.05
REPEAT_MIN_RUN = 64
REPEAT_MIN_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the request asked for. None: not known, not checked.

    `exact_length` False allows an answer to stop before `max_tokens`.
    """

    model: str | None
    max_tokens: int
    prompt_tokens: int | None
    exact_length: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """The columns of a cell's row which a stream determines. Units are in the names."""

    status: Status
    reason: str | None
    model: str | None
    prompt_tokens: int | None
    cached_tokens: int | None  # 0: a reported miss; None: not reported
    completion_tokens: int | None
    first_chunk_tokens: float | None
    first_chunk_source: FirstChunkSource | None
    finish_reason: str | None
    ttfb_s: float | None
    ttft_s: float | None
    ttf_content_s: float | None
    e2e_s: float | None
    decode_tokens: float | None  # n - k
    decode_s: float | None
    decode_tok_s: float | None
    prefill_tok_s: float | None
    output_sha256: str | None
    output_chars: int | None
    longest_repeat: int | None  # in tokens; without a tokenizer in words
    chunk_times_s: tuple[float, ...]


def measure(answer: Answer, wanted: Wanted, tokenize: Tokenize | None = None) -> Measured:
    """All figures of one answer, and whether they may be used.

    `tokenize` gives the token ids of a text without special tokens. Without usage it yields a rate
    for information; the row's status is `missing_usage` all the same.
    """
    usage = answer.usage or {}
    reported = as_count(usage.get("completion_tokens"))
    prompt_tokens = as_count(usage.get("prompt_tokens"))
    cached_tokens = _cached_tokens(usage, prompt_tokens)
    text = answer.full_text
    units: Sequence[object] = tokenize(text) if tokenize else text.split()
    n = reported or (len(units) if tokenize else None)

    k, source = _first_chunk_tokens(answer, n, tokenize) if n else (None, None)
    first, last = answer.first_token_s, answer.last_token_s
    decode_tokens = decode_s = None  # both or neither: a slot's rate is a ratio of their sums
    if n and k and first is not None and last is not None and n > k and last > first:
        decode_tokens, decode_s = n - k, last - first
    status, reason = _status(answer, wanted, reported, prompt_tokens, units, text)
    if status == "ok" and decode_s is None:
        reason = "no decode rate: no token came after the first arrival"
    return Measured(
        status=status,
        reason=reason,
        model=", ".join(answer.models) or None,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        completion_tokens=reported,
        first_chunk_tokens=k,
        first_chunk_source=source,
        finish_reason=answer.finish_reason,
        ttfb_s=answer.ttfb_s,
        ttft_s=first,
        ttf_content_s=answer.first_content_s,
        e2e_s=last,
        decode_tokens=decode_tokens,
        decode_s=decode_s,
        decode_tok_s=decode_tokens / decode_s if decode_tokens and decode_s else None,
        prefill_tok_s=_prefill_tok_s(prompt_tokens, cached_tokens, first),
        output_sha256=hashlib.sha256(text.encode()).hexdigest() if text else None,
        output_chars=len(text) if text else None,
        longest_repeat=longest_run(units) if text else None,
        chunk_times_s=tuple(chunk.at_s for chunk in answer.chunks),
    )


def longest_run(units: Iterable[object]) -> int:
    """Length of the longest run of equal neighbours; 0 for nothing."""
    return max((sum(1 for _ in run) for _, run in groupby(units)), default=0)


def _first_chunk_tokens(
    answer: Answer, n: int, tokenize: Tokenize | None
) -> tuple[float | None, FirstChunkSource | None]:
    """(k, how it is known): the tokens of the first arrival, of n in all.

    A figure that leaves no token to the later chunks is not believed (some servers send the final
    usage with each chunk).
    """
    if not answer.chunks:
        return None, None
    first = [chunk for chunk in answer.chunks if chunk.at_s == answer.chunks[0].at_s]
    most = n if len(first) == len(answer.chunks) else n - 1
    running = next((c.completion_tokens for c in reversed(first) if c.completion_tokens), None)
    if running is not None and running <= most:
        return float(running), "usage"
    text = joined(chunk.text for chunk in first)
    if tokenize is not None and 1 <= (tokens := len(tokenize(text))) <= most:
        return float(tokens), "tokenizer"
    # Fewer than one token cannot have come.
    return max(1.0, n * len(text) / len(answer.full_text)), "characters"


def _cached_tokens(usage: Mapping[str, Any], prompt_tokens: int | None) -> int | None:
    """None too where more tokens came from the cache than the prompt has: such a counter counts
    something else."""
    details = usage.get("prompt_tokens_details")
    cached = as_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    cached = cached if cached is not None else as_count(usage.get("cached_tokens"))
    if cached is None or prompt_tokens is None:
        return cached
    return cached if cached <= prompt_tokens else None


def _prefill_tok_s(prompt: int | None, cached: int | None, ttft_s: float | None) -> float | None:
    """None too where the cache held the whole prompt: then no prefill was seen."""
    if prompt is None or cached is None or not ttft_s or cached == prompt:
        return None
    return (prompt - cached) / ttft_s


def _status(
    answer: Answer,
    wanted: Wanted,
    n: int | None,
    prompt_tokens: int | None,
    units: Sequence[object],
    text: str,
) -> tuple[Status, str | None]:
    """(status, reason), the first fault in the order of STATUSES."""
    return (
        _transport_fault(answer)
        or _answer_fault(answer, wanted, n, prompt_tokens)
        or _repetition(units, "token or word")
        or _repetition(text, "character")
        or _length_fault(wanted, n)
        or ("ok", None)
    )


def _transport_fault(answer: Answer) -> tuple[Status, str] | None:
    """Did a whole answer come? After [DONE] it does not matter how the connection ended."""
    message = answer.error or f"HTTP status {answer.http_status}"
    if answer.http_status in (401, 403):
        return "unauthorized", message
    if answer.http_status == 503:
        return "not_ready", message
    if answer.http_status not in (0, 200):
        return "http_error", f"HTTP {answer.http_status}: {answer.error or 'no message'}"
    if answer.http_status == 200 and answer.error is not None:
        return "server_error", answer.error
    if answer.finish_reason in FAILED_FINISH_REASONS:
        return "server_error", f"finish_reason {answer.finish_reason}"
    if answer.closed == "timeout" and not answer.done:
        what = "no token" if not answer.chunks else "no end"
        return "client_timeout", f"{what} within {answer.end_s:.1f} s"
    if answer.closed == "reset" and not answer.done:
        return "connection_lost", answer.error or f"after {len(answer.chunks)} token chunks"
    return None


def _answer_fault(
    answer: Answer, wanted: Wanted, n: int | None, prompt_tokens: int | None
) -> tuple[Status, str] | None:
    """Is it the answer to the question that was asked, and is its length known?"""
    if not answer.chunks:
        return "empty_stream", f"no token text, although usage says {n}" if n else "no token"
    if answer.malformed:
        return "truncated_stream", f"{answer.malformed} chunks of the stream could not be read"
    if not answer.done and (answer.finish_reason is None or answer.usage is None):
        return "truncated_stream", f"after {len(answer.chunks)} token chunks"
    others = [model for model in answer.models if model != wanted.model]
    if wanted.model is not None and others:
        return "wrong_model", f"asked for {wanted.model}, answered by {', '.join(others)}"
    if not n:
        return "missing_usage", "no completion_tokens in the usage"
    expected = wanted.prompt_tokens
    if expected is None or prompt_tokens is None:
        return None
    if abs(prompt_tokens - expected) > PROMPT_TOLERANCE * expected:
        return "prompt_truncated", f"sent {expected} tokens, the server read {prompt_tokens}"
    return None


def _repetition(units: Sequence[object], name: str) -> tuple[Status, str] | None:
    """One unit over and over. A repeated cycle ("a b a b") may be an honest list: not meant."""
    run = longest_run(units)
    if run >= REPEAT_MIN_RUN and run > REPEAT_MIN_SHARE * len(units):
        return "repeated_token", f"one {name} {run} times in a row, of {len(units)}"
    return None


def _length_fault(wanted: Wanted, n: int | None) -> tuple[Status, str] | None:
    if n is not None and n < wanted.max_tokens and wanted.exact_length:
        return "stopped_early", f"{n} of {wanted.max_tokens} tokens"
    if n is not None and n > wanted.max_tokens:
        return "overlong", f"{n} tokens, {wanted.max_tokens} allowed"
    return None
