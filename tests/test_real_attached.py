"""A real llama-server that a user has started by hand, measured through the whole workflow."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.workflow import REPOSITORY, Clone, environment, measured_for_real, rounds_of
from twoturn import making, servers
from twoturn.engines.llama_cpp import PROGRAM

pytestmark = [pytest.mark.slow, pytest.mark.machine]
DEMO = REPOSITORY / "checkpoints/demo"
CAMPAIGN = """
name: real
languages: [en]
servers:
  llama-cpp: {{install: workflow/envs/llama-cpp.lock}}
  theirs: {{attach: "http://127.0.0.1:{port}", version: b10434, adapter: llama-cpp}}
checkpoints:
  llama: {{path: checkpoints/demo/llama}}
  llama-draft: {{path: checkpoints/demo/llama-draft}}
  target: {{make: {{from: llama, gguf: f32}}}}
series:
  short:
    workload: {{kind: chat, prompts: 1, prompt_tokens: 64, max_tokens: 160, seed: 7}}
    rounds: 6
    reference: plain
    arms:
      plain: {{checkpoint: target, server: llama-cpp, settings: {{threads: 1, kv_type: f32}}}}
      attached:
        checkpoint: target
        server: theirs
        speculation: draft
        draft: llama-draft
        block_size: 5
        settings: {{model: their-model}}
"""


@dataclass(frozen=True)
class Measured:
    clone: Clone
    process: subprocess.Popen[bytes]
    port: int


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("theirs")
    for name in ("llama", "llama-draft"):
        (folder / name).mkdir()
        making.to_gguf(DEMO / name, folder / name, "f32")
    port = servers.free_port()
    program = environment("llama-cpp").with_name(PROGRAM)
    argv = [
        *(str(program), "--model", "llama/model.gguf", "--alias", "their-model"),
        *("--spec-type", "draft-simple", "--model-draft", "llama-draft/model.gguf"),
        *("--spec-draft-n-max", "4", "--host", "127.0.0.1", "--port", str(port)),
        *("--parallel", "1", "--threads", "1", "--cache-type-k", "f32", "--cache-type-v", "f32"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not servers.is_open(f"http://127.0.0.1:{port}") and time.monotonic() < deadline:
            time.sleep(0.05)
        text = CAMPAIGN.format(port=port)
        yield Measured(measured_for_real(folder / "campaign", text), process, port)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def rows(measured: Measured) -> list[dict[str, Any]]:
    return [row for row in rounds_of(measured.clone) if row["arm"] == "attached"]


def test_it_is_left_running(measured: Measured) -> None:
    assert measured.process.poll() is None
    told = httpx.get(f"http://127.0.0.1:{measured.port}/health", trust_env=False).json()
    assert told == {"status": "ok"}


def test_its_rows_are_valid_and_tell_what_an_answer_tells(rows: list[dict[str, Any]]) -> None:
    """Its draft shows in the answer; its rounds stand in a log that only its user has."""
    assert len(rows) == 6
    for row in rows:
        assert (row["status"], row["model"]) == ("ok", "their-model")
        assert row["drafted_tokens"] > row["accepted_tokens"] > 0
        assert row["tokens_per_step"] == pytest.approx(159 / (159 - row["accepted_tokens"]))
        assert row["decode_tok_s"] == pytest.approx(row["server_decode_tok_s"], rel=0.4)
        assert row["verify_cycles"] is row["accept_length"] is row["load_s"] is None


def test_nothing_says_how_it_was_started(measured: Measured) -> None:
    file = next((measured.clone.folder / "results/cells/short").glob("*/01/attached.parquet"))
    told = json.loads(pq.read_schema(file).metadata[b"twoturn"])
    assert told["command_line"] is None
    assert told["settings_read_back"]["model"] == "their-model"
    assert told["settings_read_back"]["speculation"] is True


def test_nothing_cold_is_claimed_of_it(measured: Measured) -> None:
    table = pq.read_table(measured.clone.folder / "results/real/contrasts.parquet").to_pylist()
    found = {row["metric"]: row for row in table if row["arm"] == "attached"}
    assert found["ttft_s"]["verdict"] == "invalid"
    assert found["ttft_s"]["ratio"] is None
    assert found["decode_tok_s"]["verdict"] in ("faster", "slower", "same", "unresolved")
    article = (measured.clone.folder / "reports/real/article_en.md").read_text()
    assert "cold cache cannot be proved" in article
