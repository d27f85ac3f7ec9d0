"""The embedded demo checkpoints as they are committed, and the programs that train them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tokenizers import Tokenizer

from training import corpus, fit, greedy
from twoturn import hashes, making, tokens

REPOSITORY = Path(__file__).parent.parent
DEMO = REPOSITORY / "checkpoints" / "demo"
MODELS = ("target", "mtp", "dflash", "llama", "llama-draft")
LIMIT = 12_000_000  # bytes of the whole family


def told(model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEMO / model / "config.json").read_text())
    return found


# --- the committed files --------------------------------------------------------------------------


def test_the_family_is_small_and_whole() -> None:
    assert all((DEMO / model / "model.safetensors").is_file() for model in MODELS)
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) < LIMIT


def test_the_card_tells_every_file() -> None:
    card = (DEMO / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([^`]+)` \|[^|]*\| `([0-9a-f]{64})` \|$", card, re.MULTILINE))
    files = {
        path.relative_to(DEMO).as_posix(): hashes.sha256_file(path)
        for path in DEMO.rglob("*")
        if path.is_file() and path.name not in ("README.md", "training.json")
    }
    assert listed == files


def test_weights_are_float32_and_of_the_told_shape() -> None:
    for model in MODELS:
        weights = mx.load(str(DEMO / model / "model.safetensors"))
        assert isinstance(weights, dict)
        assert {weight.dtype for weight in weights.values()} == {mx.float32}
        assert all(bool(mx.all(mx.isfinite(weight))) for weight in weights.values())
    for model, name in (
        ("target", "language_model.model.embed_tokens.weight"),
        ("llama", "model.embed_tokens.weight"),
        ("llama-draft", "model.embed_tokens.weight"),
    ):
        weights = mx.load(str(DEMO / model / "model.safetensors"))
        assert weights[name].shape == (1024, told(model)["hidden_size"])  # type: ignore[index,call-overload]


def test_the_configs_belong_together() -> None:
    target, head, draft = told("target"), told("mtp"), told("dflash")
    assert target["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]
    assert head["model_type"] == "qwen3_5_mtp"
    assert head["text_config"] == target
    assert draft["block_size"] == 8
    assert max(draft["dflash_config"]["target_layer_ids"]) < target["num_hidden_layers"]
    making.check_draft(DEMO / "target", DEMO / "mtp", "mtp", 8)
    making.check_draft(DEMO / "target", DEMO / "dflash", "dflash", 8)
    making.check_draft(DEMO / "llama", DEMO / "llama-draft", "draft", 9)


def test_all_targets_have_one_tokenizer() -> None:
    first, *others = (
        (DEMO / model / "tokenizer.json").read_bytes() for model in ("llama", "llama-draft")
    )
    assert (DEMO / "target/tokenizer.json").read_bytes() == first
    assert all(other == first for other in others)
    tokenizer = Tokenizer.from_file(str(DEMO / "target/tokenizer.json"))
    assert tokenizer.get_vocab_size() == 1024
    assert [tokenizer.token_to_id(token) for token in corpus.SPECIAL] == [0, 1, 2, 3]
    text = "def f(x): # ąćę 日本 \U0001f600\n\treturn x ** 2\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("model", ["target", "llama"])
def test_a_second_turn_begins_with_the_first(model: str) -> None:
    chat = tokens.load(DEMO / model)
    assert chat is not None
    first = [{"role": "user", "content": "A list is mutable."}]
    answer = "It can be changed\nin place."
    second = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": "More"}]
    before = chat.render(first)
    assert chat.render(second).startswith(before + answer)
    head = chat.encode(before)
    assert chat.encode(chat.render(second))[: len(head)] == head


# --- training, without a model --------------------------------------------------------------------


def test_the_text_is_cut_as_prompts_are() -> None:
    documents = corpus.texts()
    assert len(documents) == len(set(documents)) > 50
    text = corpus.Corpus.of(Tokenizer.from_file(str(DEMO / "target/tokenizer.json")), documents[:5])
    rng = np.random.default_rng(1)
    for length in (40, 300, 1536):
        prompt = text.prompt(rng, length)
        assert len(prompt) == length
        assert re.match(r"<\|im_start\|>user\n\d{4}\. ", text.tokenizer.decode(prompt, False))
    rows = text.rows(rng, 3, 257)
    assert rows.shape == (3, 257)
    assert (rows[:, 0] == corpus.START).all()


def test_the_same_seed_gives_the_same_rows() -> None:
    text = corpus.Corpus.of(
        Tokenizer.from_file(str(DEMO / "target/tokenizer.json")), corpus.texts()[:5]
    )
    first, again, other = (text.rows(np.random.default_rng(seed), 2, 64) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_accept_length_counts_leading_agreement() -> None:
    same = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]], dtype=bool)
    assert greedy.leading(same) == pytest.approx((2 + 0 + 3 + 1) / 4)


def test_repeated_tokens_are_found() -> None:
    ids = np.arange(200)[None].repeat(2, 0)
    ids[1, 20:90] = 5
    found = greedy.Answers(ids, (), ((10, 100),))
    assert greedy.repeats([found]) == (0.5, 70)


def test_a_budget_is_steps_or_seconds() -> None:
    assert fit.Budget(10).spent(5, 1e9) == 0.5
    assert fit.Budget(10, 4).spent(5, 3) == 0.75
    assert fit.Budget(10, 4).spent(20, 3) == 1.0
    assert fit.rate(0.0, 0) == pytest.approx(1 / fit.WARM_UP)
    assert fit.rate(1.0, 999) == pytest.approx(fit.FLOOR)


# --- the trainers ---------------------------------------------------------------------------------


def run(python: Path | str, module: str, *arguments: str) -> None:
    ended = subprocess.run(
        [str(python), "-m", module, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_the_hybrid_family_is_trained(tmp_path: Path) -> None:
    pythons = sorted((REPOSITORY / ".twoturn/envs").glob("mlx-vlm-*/.complete"))
    if not pythons:
        pytest.skip("the server's environment is not made here")
    caps = [f"--seconds-{name}=2" for name in ("target", "mtp", "dflash")]
    python = pythons[0].parent / "bin/python"
    run(python, "training.hybrid", str(tmp_path), *caps, "--rows", "0.02")
    for model in ("target", "mtp", "dflash"):
        made, committed = tmp_path / model, DEMO / model
        assert (made / "config.json").read_bytes() == (committed / "config.json").read_bytes()
        shapes = [
            {name: weight.shape for name, weight in mx.load(str(f / "model.safetensors")).items()}  # type: ignore[union-attr]
            for f in (made, committed)
        ]
        assert shapes[0] == shapes[1]
    assert set(json.loads((tmp_path / "training.json").read_text())) == {"target", "mtp", "dflash"}


@pytest.mark.slow
def test_the_llama_pair_is_trained(tmp_path: Path) -> None:
    caps = ["--seconds-llama=2", "--seconds-llama-draft=2"]
    run(sys.executable, "training.llama", str(tmp_path), *caps, "--rows", "0.05")
    for model in ("llama", "llama-draft"):
        assert json.loads((tmp_path / model / "config.json").read_text()) == told(model)
    assert set(json.loads((tmp_path / "training.json").read_text())) == {"llama", "llama-draft"}
