"""Every recorded answer, read by its adapter and held to what its own file says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.test_stream import load_capture
from twoturn import metrics
from twoturn.engines import Engine
from twoturn.engines.dflash_mlx import DflashMlx
from twoturn.engines.llama_cpp import LlamaCpp
from twoturn.engines.mlx_dspark import MlxDspark
from twoturn.engines.mlx_lm import MlxLm
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.engines.omlx import Omlx
from twoturn.stream import Answer, parse

TESTS = Path(__file__).parent
ADAPTERS: dict[str, type[Engine]] = {
    "dflash-mlx": DflashMlx,
    "llama_cpp": LlamaCpp,
    "mlx-dspark": MlxDspark,
    "mlx-lm": MlxLm,
    "mlx_vlm": MlxVlm,
    "omlx": Omlx,
}
STREAMS = sorted((*TESTS.glob("captures/*/*.sse"), *TESTS.glob("fixtures/mlx_vlm/*.sse")))
FAULTY = {
    "dflash_moe_ERROR_midstream_turn1_stream": "server_error",
    "mlx_vlm_dflash_rq3_turn1": "server_error",
    "mtp_moe_turn2_nousage_stream": "missing_usage",
}


def answered(file: Path) -> Answer:
    """With its times where the file has them, otherwise as if all had come at once."""
    if file.read_bytes().startswith(b"# status"):
        arrivals = load_capture(str(file))
        return parse(arrivals, arrivals[-1][0])
    return parse([(1.0, file.read_bytes())], 2.0)


def said(file: Path) -> dict[str, Any]:
    """What the file says, by its data lines alone: usage, timings, finish_reason, text."""
    lines = re.findall(r"^(?:[\d.]+\t)?data: (\{.*)$", file.read_text(), re.MULTILINE)
    found: dict[str, Any] = {"usage": {}, "timings": {}, "finish_reason": None, "text": ""}
    for chunk in map(json.loads, lines):
        found |= {key: chunk[key] for key in ("usage", "timings") if chunk.get(key)}
        for choice in chunk.get("choices", []):
            delta = choice.get("delta", {})
            found["text"] += (delta.get("reasoning") or "") + (delta.get("content") or "")
            found["finish_reason"] = choice.get("finish_reason") or found["finish_reason"]
    return found


def test_every_server_has_recorded_streams() -> None:
    assert {file.parent.name for file in STREAMS} == set(ADAPTERS)


@pytest.mark.parametrize("file", STREAMS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_recorded_stream_is_read_to_what_it_says(file: Path) -> None:
    answer, known = answered(file), said(file)
    usage, timings = known["usage"], known["timings"]
    wanted = metrics.Wanted(None, usage.get("completion_tokens", 1), usage.get("prompt_tokens"))
    row = metrics.measure(answer, wanted, None)
    assert row.status == FAULTY.get(file.stem, "ok")
    assert (answer.usage or {}) == usage
    assert (answer.timings or {}) == timings
    assert (answer.full_text, answer.finish_reason) == (known["text"], known["finish_reason"])
    assert row.prompt_tokens == usage.get("prompt_tokens")
    assert row.completion_tokens == usage.get("completion_tokens")
    assert row.cached_tokens == usage.get("prompt_tokens_details", {}).get("cached_tokens")
    told = ADAPTERS[file.parent.name]().telemetry(answer, "")
    assert told.drafted == timings.get("draft_n")
    assert told.accepted == timings.get("draft_n_accepted")
    assert told.cycles == timings.get("draft_rounds")
    rate = timings.get("predicted_per_second", usage.get("generation_tokens_per_second"))
    assert told.decode_tok_s == rate


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        # A hybrid target with a draft: HTTP 200 and nothing.
        ("mlx-lm/hybrid_draft", "empty_stream", "no token"),
        ("mlx-lm/no_usage", "truncated_stream", "after 2 token chunks"),
        ("mlx-lm/load_failed", "http_error", "HTTP 404: generation thread died"),
        ("mlx-lm/unknown_model", "http_error", "HTTP 404: Cannot find an appropriate cached "),
        ("mlx-lm/bad_json", "http_error", "HTTP 400: Invalid JSON in request body: "),
        ("llama_cpp/context_overflow", "http_error", "HTTP 400: request (2031 tokens) exceeds "),
        ("llama_cpp/bad_json", "http_error", "HTTP 500: [json.exception.parse_error.101] "),
    ],
)
def test_a_recorded_refusal_is_a_row_with_its_reason(name: str, status: str, reason: str) -> None:
    head, _, body = (TESTS / "captures" / f"{name}.http").read_text().partition("\n\n")
    arrivals = [(1.0, body.encode())] if body else []
    answer = parse(arrivals, 2.0, http_status=int(head.split()[1]))
    row = metrics.measure(answer, metrics.Wanted(None, 2, None), None)
    assert row.status == status
    assert str(row.reason).startswith(reason)
