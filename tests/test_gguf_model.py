"""A checkpoint as a GGUF file: tensors, tokens, what is refused; there and back unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest

from twoturn import checkpoints, gguf_model, making
from twoturn.errors import UserError

DEMO = Path(__file__).parent.parent / "checkpoints" / "demo"
pytest.importorskip("gguf")


def tokenizer(place: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((place / "tokenizer.json").read_text(encoding="utf-8"))
    return told


def test_names_go_there_and_back() -> None:
    for name in making.read_weights(DEMO / "llama"):
        assert gguf_model.llama_name(gguf_model.gguf_name(name)) == name
    with pytest.raises(UserError, match="no name for the tensor vision"):
        gguf_model.gguf_name("vision.weight")


def test_rows_are_interleaved_within_each_head() -> None:
    rows = np.arange(16).reshape(8, 2)
    assert gguf_model.interleaved(rows, 2)[:, 0].tolist() == [0, 4, 2, 6, 8, 12, 10, 14]


@pytest.mark.parametrize("name", ["llama", "llama-draft"])
def test_exact_there_and_back(tmp_path: Path, name: str) -> None:
    """Written in f32 and read by the reader of packages: config, weights and tokens as before."""
    made, back = tmp_path / "made", tmp_path / "back"
    for folder in (made, back):
        folder.mkdir()
    making.to_gguf(DEMO / name, made, "f32")
    making.from_gguf(checkpoints.gguf_file(made), back)
    source, weights = making.read_weights(DEMO / name), making.read_weights(back)
    assert set(weights) == set(source)
    assert all(bool(mx.array_equal(weights[key], source[key])) for key in source)
    told, kept = (json.loads((place / "config.json").read_text()) for place in (DEMO / name, back))
    told["rms_norm_eps"] = float(np.float32(told["rms_norm_eps"]))  # GGUF's numbers are float32
    assert {key: kept.get(key) for key in told} == told
    own, other = tokenizer(DEMO / name)["model"], tokenizer(back)["model"]
    assert other["vocab"] == own["vocab"]
    assert [tuple(pair) for pair in other["merges"]] == [tuple(pair) for pair in own["merges"]]
    assert (made / "tokenizer.json").read_bytes() == (DEMO / name / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("f16", 1.7e6, 2.1e6), ("q8_0", 0.9e6, 1.2e6), ("q4_0", 0.5e6, 0.7e6)],
)
def test_a_precision_has_its_size(tmp_path: Path, kind: str, least: float, most: float) -> None:
    making.to_gguf(DEMO / "llama", tmp_path, kind)
    assert least < (tmp_path / "model.gguf").stat().st_size < most
    assert not list(tmp_path.glob("*.safetensors"))  # nobody takes it for the unquantised one


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_weights_are_read_as_they_stand_in_the_file(tmp_path: Path, kind: str) -> None:
    """Against llama.cpp's own package, in float32: half precision would be off by a tenth of a
    step of q8_0."""
    making.to_gguf(DEMO / "llama", tmp_path, kind)
    weights, _ = making.read_gguf(tmp_path / "model.gguf")
    for one in gguf.GGUFReader(tmp_path / "model.gguf").tensors:
        name = gguf_model.llama_name(one.name)
        if ".q_proj." in name or ".k_proj." in name:
            continue  # their rows are put into another order
        theirs = gguf.quants.dequantize(one.data, one.tensor_type).astype(np.float32)
        ours = np.array(weights[name])
        assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max(), name


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (BYTES, "gpt-2"),
        ({"type": "Sequence", "pretokenizers": [DIGITS, BYTES]}, "smollm"),
        ({"type": "Sequence", "pretokenizers": [BYTES, DIGITS]}, None),
        (
            {"type": "Sequence", "pretokenizers": [DIGITS | {"individual_digits": False}, BYTES]},
            None,
        ),
        (BYTES | {"add_prefix_space": True}, None),
        (BYTES | {"use_regex": False}, None),
        ({"type": "Metaspace"}, None),
        (None, None),
    ],
)
def test_how_texts_are_split_has_a_name_or_is_refused(
    told: dict[str, Any] | None, name: str | None
) -> None:
    whole = {"pre_tokenizer": told, "normalizer": None, "model": {"type": "BPE"}}
    if name is None:
        with pytest.raises(UserError, match=r"splits texts in a way .* not known"):
            gguf_model.pre_tokenizer(whole)
    else:
        assert gguf_model.pre_tokenizer(whole) == name
        with pytest.raises(UserError):
            gguf_model.pre_tokenizer(whole | {"normalizer": {"type": "NFC"}})


def test_tokens_in_the_order_of_their_ids() -> None:
    told = {
        "model": {"vocab": {"b": 1, "a": 0}},
        "added_tokens": [
            {"id": 2, "content": "<s>", "special": True},
            {"id": 3, "content": "<x>", "special": False},
        ],
    }
    assert gguf_model.tokens(told, 5) == (["a", "b", "<s>", "<x>", "[PAD4]"], [1, 1, 3, 4, 5])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "qwen3"}, "a model of type 'qwen3' is not written as GGUF"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is not written"),
        ({"quantization": {"bits": 4}}, "quantised already"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(DEMO / "llama", source)
    told = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(told | changes))
    plan = {"from": "source", "gguf": "f16"}
    with pytest.raises(UserError, match=said) as caught:
        making.make(plan, source, tmp_path, "c.yaml", "checkpoints.x.make")
    assert str(caught.value).startswith("c.yaml: checkpoints.x.make: ")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(DEMO / "llama", source)
    (source / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"holds no readable tokenizer\.json"):
        making.to_gguf(source, tmp_path, "f16")
