"""Checkpoints on the same text: figures that can be worked out by hand, and who cannot be read."""

from __future__ import annotations

import json
import math
import runpy
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from twoturn import forced, making
from twoturn.campaign import load as load_campaign

ROOT = Path(__file__).parent.parent
VOCABULARY = 4
TEXT = "abcd" * 300


def checkpoint(folder: Path, dtype: str) -> Path:
    folder.mkdir()
    bits = {"F32": 4, "F16": 2}[dtype]
    header = {"w": {"dtype": dtype, "shape": [10], "data_offsets": [0, 10 * bits]}}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return folder


def encode(text: str) -> list[int]:
    return ["abcd".index(letter) for letter in text]


def sure(chance: float) -> forced.LogProbabilities:
    """A model that gives the letter that really follows a probability, and the rest alike."""

    def predict(ids: Sequence[int]) -> forced.Numbers:
        table = np.full((len(ids), VOCABULARY), (1 - chance) / (VOCABULARY - 1))
        table[np.arange(len(ids)), [(one + 1) % VOCABULARY for one in ids]] = chance
        return np.log(table).astype(np.float32)

    return predict


def loader(
    models: dict[str, forced.LogProbabilities], odd: str = ""
) -> Callable[[Path], tuple[Callable[[str], list[int]], forced.LogProbabilities]]:
    def load(place: Path) -> tuple[Callable[[str], list[int]], forced.LogProbabilities]:
        own = (lambda text: encode(text)[::2]) if place.name == odd else encode
        return own, models[place.name]

    return load


def test_figures_by_hand(tmp_path: Path) -> None:
    places = {
        "half": checkpoint(tmp_path / "half", "F16"),
        "full": checkpoint(tmp_path / "full", "F32"),
    }
    load = loader({"half": sure(0.4), "full": sure(0.7)})
    half, full = forced.compare(places, TEXT, load)
    assert [half["against"], full["against"]] == ["full", "full"]
    assert full["perplexity"] == pytest.approx(1 / 0.7, rel=1e-5)
    assert half["perplexity"] == pytest.approx(1 / 0.4, rel=1e-5)
    assert full["kl_divergence"] == pytest.approx(0, abs=1e-6)
    wanted = 0.7 * math.log(0.7 / 0.4) + 0.3 * math.log(0.1 / 0.2)
    assert half["kl_divergence"] == pytest.approx(wanted, rel=1e-4)
    assert (half["same_top"], half["tokens"]) == (1.0, forced.WINDOWS * forced.TOKENS)
    assert (half["bits_per_weight"], full["bits_per_weight"]) == (16.0, 32.0)


def test_who_cannot_be_read(tmp_path: Path) -> None:
    names = ("full", "odd", "broken")
    places = {name: checkpoint(tmp_path / name, "F32") for name in names}
    (tmp_path / "gguf").mkdir()
    places["gguf"] = tmp_path / "gguf"
    load = loader({"full": sure(0.7), "odd": sure(0.7)}, odd="odd")
    rows = {row["checkpoint"]: row for row in forced.compare(places, TEXT, load)}
    assert {name: row["reason"] for name, row in rows.items()} == {
        "full": None,
        "odd": "other_tokens",
        "broken": "cannot_load",
        "gguf": "no_safetensors",
    }


def test_what_is_no_number_is_not_told_as_no_divergence(tmp_path: Path) -> None:
    names = ("broken", "full", "same")
    places = {name: checkpoint(tmp_path / name, "F32") for name in names}

    def nothing(ids: Sequence[int]) -> forced.Numbers:
        return np.full((len(ids), VOCABULARY), np.nan, np.float32)

    load = loader({"broken": nothing, "full": sure(0.7), "same": sure(0.7)})
    broken, full, same = forced.compare(places, TEXT, load)
    figures = [broken[name] for name in ("reason", "perplexity", "kl_divergence", "same_top")]
    assert figures == ["not_finite", None, None, None]
    assert [full["against"], same["against"]] == ["full", "full"]


def test_a_model_that_fails_while_it_reads_stops_nothing(tmp_path: Path) -> None:
    places = {name: checkpoint(tmp_path / name, "F32") for name in ("broken", "full")}

    def failing(ids: Sequence[int]) -> forced.Numbers:
        raise ValueError("shapes")

    load = loader({"broken": failing, "full": sure(0.7)})
    broken, full = forced.compare(places, TEXT, load)
    assert (broken["reason"], full["reason"], full["against"]) == ("cannot_load", None, "full")


def test_a_gguf_file_that_does_not_fit_into_memory_is_not_tried(tmp_path: Path) -> None:
    making.to_gguf(ROOT / "checkpoints" / "demo" / "llama", tmp_path, "q4_0")
    places = {"small": tmp_path / "model.gguf"}

    def load(place: Path) -> tuple[Callable[[str], list[int]], forced.LogProbabilities]:
        return encode, sure(0.7)

    def reason(memory_gb: float | None) -> str | None:
        (row,) = forced.compare(places, TEXT, load, memory_gb=memory_gb)
        told: str | None = row["reason"]
        return told

    assert [reason(known) for known in (0.001, 8, None)] == ["too_large", None, None]


def test_gguf_files_are_read_as_what_they_were_made_of(tmp_path: Path) -> None:
    """The file of a real model: without loss in f32, and with more of it the fewer bits it has."""
    places = {"source": ROOT / "checkpoints" / "demo" / "llama"}
    for kind in ("f32", "q8_0", "q4_0"):
        (tmp_path / kind).mkdir()
        making.to_gguf(places["source"], tmp_path / kind, kind)
        places[kind] = tmp_path / kind / "model.gguf"
    load = runpy.run_path(str(ROOT / "scripts" / "forced.py"))["load"]
    text = (ROOT / forced.TEXT).read_text(encoding="utf-8")
    rows = {row["checkpoint"]: row for row in forced.compare(places, text, load)}
    assert {row["reason"] for row in rows.values()} == {None}
    assert rows["f32"]["perplexity"] == pytest.approx(rows["source"]["perplexity"], rel=1e-6)
    loss = [rows[name]["kl_divergence"] for name in ("source", "f32", "q8_0", "q4_0")]
    assert loss[0] == loss[1] == pytest.approx(0, abs=1e-6)
    assert 0 < loss[2] < loss[3] / 10
    assert 4 < rows["q4_0"]["bits_per_weight"] < 5 < 8 < rows["q8_0"]["bits_per_weight"] < 9


def test_what_is_read_is_what_the_server_loads(tmp_path: Path) -> None:
    campaign = tmp_path / "two.yaml"
    campaign.write_text(
        """
name: two
servers:
  llama-cpp: {install: workflow/envs/llama-cpp.lock}
  mlx-lm: {install: workflow/envs/mlx-lm.lock}
checkpoints:
  llama: {path: checkpoints/demo/llama}
  packed: {make: {from: llama, gguf: q8_0}}
series:
  answers:
    workload: {kind: quality}
    reference: plain
    arms:
      plain: {checkpoint: llama, server: mlx-lm}
      packed: {checkpoint: packed, server: llama-cpp}
"""
    )
    (tmp_path / "model.gguf").touch()
    loaded = load_campaign(str(campaign), ROOT)
    assert forced.checkpoints(loaded.plan) == ["llama", "packed"]
    campaign.write_text(campaign.read_text().replace("reference: plain", "reference: packed"))
    other = load_campaign(str(campaign), ROOT)
    assert forced.checkpoints(other.plan) == ["packed", "llama"]
    assert forced.path(other) != forced.path(loaded)
    assert forced.place("llama", tmp_path, loaded) == tmp_path
    assert forced.place("packed", tmp_path, loaded) == tmp_path / "model.gguf"


def test_windows_of_a_short_and_of_a_long_text() -> None:
    assert forced.windows(range(10)) == [list(range(10))]
    pieces = forced.windows(range(5000))
    assert len(pieces) == forced.WINDOWS
    assert {len(piece) for piece in pieces} == {forced.TOKENS + 1}
    assert (pieces[0][0], pieces[-1][-1]) == (0, 4999)


def test_the_path_changes_with_a_checkpoint_and_with_nothing_else() -> None:
    one = forced.fingerprint({"a": {"files_sha256": "1"}}, "text")
    assert one == forced.fingerprint({"a": {"files_sha256": "1"}}, "text")
    assert one != forced.fingerprint({"a": {"files_sha256": "2"}}, "text")
    assert one != forced.fingerprint({"a": {"files_sha256": "1"}}, "other")
