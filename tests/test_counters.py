"""Lifetime counters of servers as one request's figures: pages, never a running server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.test_engines import PLACE, PLAIN, RUNNING
from twoturn import client
from twoturn.engines import Engine, Telemetry, scale
from twoturn.engines.counters import Counters, samples
from twoturn.engines.dflash_mlx import DflashMlx
from twoturn.engines.mlx_dspark import MlxDspark, reading
from twoturn.engines.sglang import SgLang
from twoturn.engines.vllm import Vllm
from twoturn.stream import Answer

CAPTURES = Path(__file__).parent / "captures"
Data = dict[str, Any]
Pages = Callable[..., None]


def answer(tokens: int | None) -> Answer:
    return Answer(200, "clean", 1.0, usage={"completion_tokens": tokens})


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    """What GET /metrics answers, one page after the other, the last one for ever."""

    def serve(*bodies: str | None) -> None:
        left = list(bodies)

        def get_body(_: str, path: str, *__: Any) -> tuple[int, bytes | None]:
            if path != "/metrics":
                return 404, b"{}"
            body = left.pop(0) if len(left) > 1 else left[0]
            return (0, None) if body is None else (200, body.encode())

        monkeypatch.setattr(client, "get_body", get_body)
        monkeypatch.setattr("twoturn.engines.counters.SETTLE_S", 0.1)

    return serve


def told(engine: Engine, tokens: int | None = 101) -> Telemetry:
    engine.read_back(RUNNING, PLAIN)
    return engine.telemetry(answer(tokens), "")


# Reading


def test_samples_are_summed_over_their_labels_and_taken_by_their_whole_name() -> None:
    page = (CAPTURES / "vllm" / "before.txt").read_text()
    found = samples(page)
    assert found["vllm:spec_decode_num_drafts_total"] == 1000.0
    assert found["vllm:request_success_total"] == 12.0  # stop, length, abort
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 3000.0  # not …_created
    assert found["vllm:spec_decode_num_accepted_tokens_created"] > 1e9


@pytest.mark.parametrize("text", ["<html>", 'a{b="c} 1', "name one two three"])
def test_what_is_no_such_page(text: str) -> None:
    assert samples(text) == {}


def counting(*values: float | None) -> Counters:
    pages: Iterator[dict[str, float]] = iter(
        [{} if v is None else {"n": v, "x": 10 * v} for v in values]
    )
    last: dict[str, float] = {}

    def read() -> dict[str, float]:
        nonlocal last
        last = next(pages, last)
        return last

    return Counters(read, "n")


@pytest.mark.parametrize(
    ("values", "gained"),
    [
        ((5, 6), {"n": 1, "x": 10}),
        ((5, 5, 5, 6), {"n": 1, "x": 10}),  # counted a moment later
        ((None, 1), {"n": 1, "x": 10}),  # there from the first request on
        ((5, 7), {}),  # somebody else's too
        ((5, 0), {}),  # another server
        ((5, None), {}),
        ((None, None), {}),
    ],
)
def test_what_one_request_added(
    monkeypatch: pytest.MonkeyPatch, values: tuple[float | None, ...], gained: dict[str, float]
) -> None:
    monkeypatch.setattr("twoturn.engines.counters.SETTLE_S", 0.3)
    assert counting(*values).gained() == gained


def test_each_request_starts_where_the_last_one_ended() -> None:
    counters = counting(5, 6, 7)
    assert counters.gained() == counters.gained() == {"n": 1, "x": 10}


# vLLM


def vllm_page(name: str) -> str:
    return (CAPTURES / "vllm" / f"{name}.txt").read_text()


def test_vllm_figures_are_those_of_the_request_and_not_of_its_life(pages: Pages) -> None:
    pages(vllm_page("before"), vllm_page("after"))
    telemetry = told(Vllm(), 601)
    assert (telemetry.cycles, telemetry.drafted, telemetry.accepted) == (100, 700, 500)
    assert telemetry.target_steps == 100
    assert telemetry.ttft_s == pytest.approx(0.25)
    assert telemetry.decode_tok_s == pytest.approx(600 / 5.0)
    row = scale(telemetry, 601)
    assert row["accept_length"] == 6.0  # 1 + 500/100, and not the lifetime's 1 + 3500/1100
    assert row["accept_rate"] == pytest.approx(500 / 700)
    assert row["effective_block_size"] == 8.0


def test_vllm_steps_without_a_draft_are_not_guessed(pages: Pages) -> None:
    pages(vllm_page("before"), vllm_page("after"))
    telemetry = told(Vllm(), 651)  # 650 > 100 + 500
    assert telemetry.cycles == 100
    assert telemetry.target_steps is None


def test_vllm_without_speculation(pages: Pages) -> None:
    pages("vllm:request_success_total 1.0\n", "vllm:request_success_total 2.0\n")
    assert told(Vllm()) == Telemetry(target_steps=100)


@pytest.mark.parametrize("engine", [Vllm, SgLang, MlxDspark, DflashMlx])
@pytest.mark.parametrize("page", [None, "", "{}", "[1]", "null", "#"])
def test_without_counters_all_is_null(pages: Pages, engine: type[Engine], page: str | None) -> None:
    pages(page)
    assert told(engine()) == Telemetry()
    assert engine().telemetry(answer(9), "") == Telemetry()


def test_another_request_meanwhile_makes_all_null(pages: Pages) -> None:
    after = vllm_page("after").replace(
        'finished_reason="length",model_name="m"} 5.0',
        'finished_reason="length",model_name="m"} 6.0',
    )
    assert after != vllm_page("after")
    pages(vllm_page("before"), after)
    assert told(Vllm(), 601) == Telemetry()


DRAFTED = replace(PLAIN, speculation="dflash", block_size=16, draft="head")


def test_vllm_command_line() -> None:
    launch = Vllm().launch(DRAFTED, PLACE)
    start = (
        "/env/bin/python -m vllm.entrypoints.cli.main serve models/demo --served-model-name "
        "models/demo --enable-prompt-tokens-details --host 127.0.0.1 --port 4321 "
        "--enable-prefix-caching --speculative-config"
    )
    *words, how = launch.argv
    assert words == start.split()
    # a block of 16 is one anchor and 15 drafted tokens
    assert json.loads(how) == {
        "method": "dflash",
        "model": "models/head",
        "num_speculative_tokens": 15,
    }
    assert launch.env["HF_HUB_OFFLINE"] == launch.env["VLLM_NO_USAGE_STATS"] == "1"


def test_vllm_settings() -> None:
    settings = {"prefix_cache": False, "max_model_len": 4096}
    argv = Vllm().launch(replace(PLAIN, settings=settings, args=("--x",)), PLACE).argv
    assert list(argv)[-4:] == ["--no-enable-prefix-caching", "--max-model-len", "4096", "--x"]


@pytest.mark.parametrize("engine", [Vllm, SgLang])
def test_a_program_of_the_machine(engine: type[Engine]) -> None:
    here = replace(PLACE, python=None, executable=Path("/opt/bin/program"))
    assert list(engine().launch(PLAIN, here).argv)[:2] == ["/opt/bin/program", "serve"]


# SGLang


def sglang_page(verified: float, requests: float) -> str:
    page = (CAPTURES / "sglang" / "metrics.txt").read_text()
    return page.replace("VERIFIED", str(verified)).replace("REQUESTS", str(requests))


def test_sglang_counts_verify_rounds_and_nothing_else(pages: Pages) -> None:
    pages(sglang_page(40.0, 3.0), sglang_page(60.0, 4.0))
    telemetry = told(SgLang(), 81)
    assert telemetry.cycles == telemetry.target_steps == 20
    assert telemetry.accepted == 60
    assert telemetry.drafted is None
    row = scale(telemetry, 81)
    assert row["accept_length"] == 4.0  # its own figure would be 81/20
    assert row["tokens_per_step"] == 4.0
    assert row["accept_rate"] is row["effective_block_size"] is None


def test_sglang_without_speculation(pages: Pages) -> None:
    pages(sglang_page(0.0, 3.0), sglang_page(0.0, 4.0))
    assert told(SgLang()) == Telemetry(target_steps=100)


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        ("dflash", "--speculative-algorithm DFLASH --speculative-draft-model-path models/head "
         "--speculative-num-draft-tokens 16"),
        ("mtp", "--speculative-algorithm NEXTN --speculative-draft-model-path models/head "
         "--speculative-num-draft-tokens 16 --speculative-num-steps 15 --speculative-eagle-topk 1"),
    ],
)  # fmt: skip
def test_sglang_command_line(speculation: str, words: str) -> None:
    start = (
        "/env/bin/python -m sglang.launch_server --model-path models/demo --served-model-name "
        "models/demo --host 127.0.0.1 --port 4321 --enable-metrics --enable-cache-report"
    )
    launch = SgLang().launch(replace(DRAFTED, speculation=speculation), PLACE)
    assert list(launch.argv) == [*start.split(), *words.split()]
    plain = replace(PLAIN, settings={"prefix_cache": False, "context_length": 512})
    more = ["--disable-radix-cache", "--context-length", "512"]
    assert list(SgLang().launch(plain, PLACE).argv) == [*start.split(), *more]


# dflash-mlx


def dflash_page(requests: int, **last: Any) -> str:
    page = json.loads((CAPTURES / "dflash-mlx" / "metrics.json").read_text())
    page["totals"]["requests"] = requests
    page["last_request"] |= last
    return json.dumps(page)


@pytest.fixture
def dflash(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> Pages:
    """Through the same pages, as JSON."""
    monkeypatch.setattr(
        client,
        "get_json",
        lambda base, path, *_: (200, json.loads(client.get_body(base, path, 1)[1] or b"null")),
    )
    return pages


def test_dflash_mlx_as_recorded(dflash: Pages) -> None:
    """Its acceptance rate of 0.604 is a share of the output: 29 of 48, in 19 cycles."""
    dflash(dflash_page(3), dflash_page(4))
    telemetry = told(DflashMlx(), 48)
    assert (telemetry.cycles, telemetry.accepted, telemetry.drafted) == (19, 29, None)
    row = scale(telemetry, 48)
    assert row["draft_share"] == pytest.approx(0.6041666)
    assert row["accept_length"] == pytest.approx(1 + 29 / 19)
    assert row["tokens_per_step"] == pytest.approx(47 / 19)
    assert row["accept_rate"] is row["effective_block_size"] is None
    assert telemetry.decode_tok_s == pytest.approx(65.97, abs=0.01)


@pytest.mark.parametrize(
    ("requests", "last"),
    [
        (3, {}),
        (5, {}),
        (4, {"mode_used": "ar_fastpath"}),
        (4, {"mode_used": "dflash_fallback"}),
        (4, {"cycles": None}),
    ],
)
def test_dflash_mlx_tells_nothing_of_another_request_or_mode(
    dflash: Pages, requests: int, last: Data
) -> None:
    dflash(dflash_page(3), dflash_page(requests, **last))
    assert told(DflashMlx(), 48) == Telemetry()


def test_dflash_mlx_reads_back(dflash: Pages) -> None:
    dflash(dflash_page(3))
    said, wrong = DflashMlx().read_back(RUNNING, PLAIN)
    assert (said["mode"], said["version"], said["prefix_cache_enabled"]) == (
        "dflash",
        "0.1.8",
        True,
    )
    assert wrong == []
    off = replace(PLAIN, settings={"prefix_cache": False})
    assert DflashMlx().read_back(RUNNING, off)[1] == [
        "prefix_cache: asked False, the server says True"
    ]


def test_dflash_mlx_command_line() -> None:
    settings = {"prefix_cache": False, "verify_mode": "dflash", "prefill_step_size": 64}
    launch = DflashMlx().launch(replace(DRAFTED, settings=settings), PLACE)
    words = (
        "/env/bin/dflash serve --model models/demo --draft-quant none --host 127.0.0.1 "
        "--port 4321 --no-prefix-cache-l2 --no-prefix-cache --draft-model models/head "
        "--verify-len-cap 16 --verify-mode dflash --prefill-step-size 64"
    )
    assert list(launch.argv) == words.split()


# mlx-dspark


def dspark_page(name: str) -> str:
    return (CAPTURES / "mlx-dspark" / f"{name}.json").read_text()


FRESH = json.dumps({"requests": 1, "rounds": None})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Two requests were recorded; here as if they had been one of 95 tokens.
        ("dflash", Telemetry(cycles=94, drafted=376, accepted=0, target_steps=94)),
        ("lookup", Telemetry(cycles=34, drafted=57, accepted=57, target_steps=37)),
        ("baseline", Telemetry(target_steps=94)),
    ],
)
def test_mlx_dspark_rounds_as_recorded(pages: Pages, name: str, expected: Telemetry) -> None:
    pages(FRESH, dspark_page(name))
    assert told(MlxDspark(), 95) == expected


def test_mlx_dspark_page() -> None:
    assert reading(json.loads(dspark_page("lookup"))) == {
        "requests": 2, "rounds": 37, "committed": 94, "draft_rounds": 34, "drafted": 57,
    }  # fmt: skip
    assert reading({"requests": 1, "rounds": {"position_offered": ["x"]}}) == {}


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (PLAIN, "baseline --model models/demo --host 127.0.0.1 --port 4321"),
        (
            replace(DRAFTED, block_size=5),
            "dflash --model models/demo --host 127.0.0.1 --port 4321 --drafter models/head "
            "--max-draft 4",
        ),
        (
            replace(PLAIN, speculation="ngram", settings={"prefix_cache": False, "tuned": False}),
            "lookup --model models/demo --host 127.0.0.1 --port 4321 --no-prefix-cache "
            "--no-warmup --no-small-m --no-sdpa-split --no-multirow-attn --cpu-split 0 "
            "--wide-gemm-min 0",
        ),
    ],
)
def test_mlx_dspark_command_line(arm: Any, words: str) -> None:
    argv = list(MlxDspark().launch(arm, PLACE).argv)
    assert argv == ["/env/bin/mlx-dspark", "serve", "--mode", *words.split()]


@pytest.mark.parametrize(
    ("health", "wrong"),
    [
        ({"mode": "baseline"}, []),
        (None, []),
        ({"mode": "dflash"}, ["mode: asked baseline, the server says dflash"]),
    ],
)
def test_mlx_dspark_reads_back(
    monkeypatch: pytest.MonkeyPatch, health: Any, wrong: list[str]
) -> None:
    monkeypatch.setattr(
        client, "get_json", lambda _, path, *__: (200, health if path == "/health" else None)
    )
    assert MlxDspark().read_back(RUNNING, PLAIN)[1] == wrong
