"""The size of a checkpoint comes from its files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from twoturn import weights
from twoturn.errors import UserError
from twoturn.weights import Tensor

MIXED = {"quantization": {"bits": 4, "group_size": 64, "model.layers.0.mlp.gate": {"bits": 8}}}


def packed(bits: int, rows: int = 8, columns: int = 128, group: int = 64) -> dict[str, Tensor]:
    """A quantised layer as mlx stores it: words, and a scale and an offset per group."""
    return {
        "weight": Tensor("U32", (rows, columns * bits // 32)),
        "scales": Tensor("F16", (rows, columns // group)),
        "biases": Tensor("F16", (rows, columns // group)),
    }


def layers(**made: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{part}": one for name, parts in made.items() for part, one in parts.items()}


def test_four_bits_in_groups_of_64_take_four_and_a_half() -> None:
    size = weights.count_tensors(layers(up=packed(4)), MIXED)
    assert (size.weights, size.bits_per_weight) == (1024, 4.5)
    assert (size.stored, size.group_sizes) == ({"4": 1.0}, (64,))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_bits_come_from_the_shapes(bits: int) -> None:
    size = weights.count_tensors(layers(up=packed(bits)), {"quantization": {"bits": 4}})
    assert size.stored == {str(bits): 1.0}
    assert size.bits_per_weight == bits + 0.5


def test_a_layer_of_a_precision_of_its_own() -> None:
    """What config.json calls 4 bits holds a gate of 8."""
    gate = packed(8)
    tensors = layers(up=packed(4)) | {
        f"model.layers.0.mlp.gate.{name}": one for name, one in gate.items()
    }
    size = weights.count_tensors(tensors, MIXED)
    assert size.overrides == {"model.layers.0.mlp.gate": "8 bits, group 64"}
    assert size.stored == {"4": 0.5, "8": 0.5}
    assert size.bits_per_weight == 6.5


def test_an_unquantised_layer_and_a_group_of_its_own() -> None:
    told = {"quantization": {"group_size": 64, "bits": 4, "head": False, "up": {"group_size": 32}}}
    tensors = layers(up=packed(4, group=32)) | {"head.weight": Tensor("BF16", (8, 128))}
    size = weights.count_tensors(tensors, told)
    assert size.stored == {"4": 0.5, "bf16": 0.5}
    assert size.group_sizes == (32,)
    assert size.overrides == {"head": "unquantised"}


def weight_file(folder: Path, header: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def test_a_folder(tmp_path: Path) -> None:
    header = {"__metadata__": {}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    weight_file(tmp_path, json.dumps(header).encode())
    size = weights.counted(tmp_path)
    assert size is not None
    assert (size.bits_per_weight, size.bytes) == (32.0, 24)
    weights.keep({"a-4bit": size}, tmp_path / weights.FILE)
    assert weights.kept([tmp_path])["a-4bit"]["bits_per_weight"] == 32.0


def test_a_folder_without_weights(tmp_path: Path) -> None:
    assert weights.counted(tmp_path) is None
    assert weights.kept([tmp_path]) == {}


@pytest.mark.parametrize("header", [b"{", b"[]", b'{"w": {"dtype": "F99", "shape": []}}', b"{}x"])
def test_a_broken_weight_file(tmp_path: Path, header: bytes) -> None:
    weight_file(tmp_path, header)
    with pytest.raises(UserError, match="the header of the weight file cannot be read"):
        weights.counted(tmp_path)


def test_the_embedded_checkpoints() -> None:
    demo = Path(__file__).parents[1] / "checkpoints/demo"
    for name in ("target", "mtp", "dflash"):
        size = weights.counted(demo / name)
        assert size is not None
        assert size.bits_per_weight == 32.0
