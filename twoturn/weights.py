"""What the files of a checkpoint say: bits per weight, its size, the block a draft was trained for.

Names promise bits that files do not keep, so nothing is guessed from a name. What is asked for
stands in `config.json`, or in how a checkpoint is made. What a weight takes is another number:
every group of weights stores a scale (and an offset) beside them, so 4 bits in groups of 64 are 4.5
bits per weight, and single layers may be of another precision. So bytes and weights are counted
from the headers of the weight files.

    bits per weight = 8 · bytes of all tensors ÷ weights

MLX packs quantised weights into 32-bit words, `X.weight`, beside `X.scales` (one per group):
words · 32 ÷ (scales · group size) are the bits of that tensor, whatever config.json says.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from twoturn import checkpoints, files
from twoturn.config import Campaign
from twoturn.errors import UserError

GGUF_BITS: dict[str, tuple[int, ...]] = {"f32": (), "f16": (), "q8_0": (8,), "q4_0": (4,)}

MAX_HEADER = 100 * 2**20  # bytes of a safetensors header; what the format allows

BITS = {
    **{"C64": 64, "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16},
    **{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8},
    **{"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}
"""Bits of one element, by the names of the safetensors format."""

FILE = "checkpoints.json"
PACKED = "U32"
GROUP_SIZE = 64
"""What mlx groups by where config.json says nothing."""


@dataclass(frozen=True)
class Weights:
    """bits: every number of bits per weight that occurs, () where nothing is quantised, None where
    that is not known. trained_block: tokens of the blocks a DFlash draft was trained on, the anchor
    included. model: what its hub or its folder calls it; a name and no proof."""

    bits: tuple[int, ...] | None = None
    trained_block: int | None = None
    model: str | None = None

    @property
    def quantised(self) -> bool | None:
        return None if self.bits is None else bool(self.bits)


@dataclass(frozen=True)
class Precision:
    """`weights`: how many numbers the model has; `bytes`: what all tensors take. `stored`: bits
    ("4") or type ("f16") → share of the weights. `group_sizes`: of the quantised ones.
    `overrides`: layer → what config.json says of it alone, in words."""

    weights: int
    bytes: int
    stored: Mapping[str, float]
    group_sizes: tuple[int, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.bytes / self.weights

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "bits_per_weight": self.bits_per_weight}


@dataclass(frozen=True)
class Tensor:
    """One entry of a weight file's header."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BITS[self.dtype] // 8


# What is said ------------------------------------------------------------------------------------


def of_config(config: Mapping[str, Any]) -> Weights:
    """What a `config.json` says; layers may have bits of their own. A DFlash draft's `block_size`
    stands at the top or, in some, inside `dflash_config`; that of an MTP head, which drafts token
    by token, is no limit."""
    told = _quantization(config)
    layers = [one for one in told.values() if isinstance(one, Mapping)]
    found = {bits for one in (told, *layers) if (bits := _count(one.get("bits"))) is not None}
    dflash = config.get("dflash_config")
    block = None
    if isinstance(dflash, Mapping) or "DFlashDraftModel" in (config.get("architectures") or ()):
        inner = dflash if isinstance(dflash, Mapping) else {}
        block = _count(config.get("block_size", inner.get("block_size")))
    return Weights(
        bits=tuple(sorted(found)) if found or not told else None,
        trained_block=block,
    )


def of_campaign(campaign: Campaign, root: Path) -> dict[str, Weights]:
    """Checkpoint → its weights, as far as they can be known here."""
    return {name: _of(name, campaign, root) for name in campaign.checkpoints}


def _of(name: str, campaign: Campaign, root: Path) -> Weights:
    entry = campaign.checkpoints[name]
    if entry.repo is not None:
        return Weights(model=PurePosixPath(entry.repo).name)
    if entry.make is not None and entry.make.from_ is not None:
        source = _of(entry.make.from_, campaign, root)
        if entry.make.bits is not None:
            return replace(source, bits=(entry.make.bits,))
        if entry.make.gguf is not None:
            return replace(source, bits=GGUF_BITS[entry.make.gguf])
        return replace(source, bits=source.bits or ())  # only what is unquantised can be a source
    made = checkpoints.made_folder(name, root)
    folder = made if entry.path is None else root / entry.path
    called = None if entry.path is None else PurePosixPath(entry.path).name
    told = replace(of_folder(folder), model=called)
    # A GGUF file may be of any precision, and config.json beside it tells none.
    return replace(told, bits=told.bits or None) if any(folder.glob("*.gguf")) else told


def of_folder(folder: Path) -> Weights:
    """What the `config.json` in a checkpoint's folder says, if there is one."""
    told = read_config(folder)
    return Weights() if told is None else of_config(told)


def read_config(folder: Path) -> dict[str, Any] | None:
    """A checkpoint's `config.json`; None where it is not there or not readable."""
    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`quantization` is MLX's key, `quantization_config` everybody's; {} where nothing is said."""
    told = config.get("quantization") or config.get("quantization_config")
    return told if isinstance(told, Mapping) else {}


def _count(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if known else None


# What is counted ---------------------------------------------------------------------------------


def counted(folder: Path) -> Precision | None:
    """The precision of a checkpoint, or None where its weights are in no file that is read here
    (safetensors, GGUF). Raises UserError for a broken file."""
    if found := tensors(folder):
        return count_tensors(found, read_config(folder) or {})
    ggufs = sorted(folder.glob("*.gguf"))
    return count_gguf(ggufs[0]) if ggufs else None


def tensors(folder: Path) -> dict[str, Tensor]:
    """What the headers of a checkpoint's safetensors files hold, by name. Raises UserError."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= _header(file)
    return found


def keep(found: Mapping[str, Precision], file: Path) -> None:
    """Keep what was found beside the cells, so that it can be told where the weights are not."""
    if file.is_file() or not found:
        return
    told = {name: one.as_json() for name, one in found.items()}
    files.write_text(file, json.dumps(told, indent=1, sort_keys=True))


def kept(folders: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """What lies beside the cells of several series, by name of the checkpoint."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            found |= json.loads((folder / FILE).read_text(encoding="utf-8"))
    return found


def _header(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file: 8 bytes of length, then JSON. Raises UserError."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(file.stat().st_size, MAX_HEADER):
                raise ValueError
            header = json.loads(stream.read(length))
        found = {
            name: Tensor(entry["dtype"], tuple(entry["shape"]))
            for name, entry in header.items()
            if name != "__metadata__"
        }
        if not all(one.dtype in BITS for one in found.values()):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise UserError(
            "the header of the weight file cannot be read", file=file.name, cure="fetch it again"
        ) from None
    return found


def count_tensors(found: Mapping[str, Tensor], config: Mapping[str, Any]) -> Precision:
    """Counted from the tensors' headers; of `config.json` the sizes of groups alone."""
    quantization = _quantization(config)
    stored: dict[str, int] = {}
    groups: set[int] = set()
    for name, tensor in found.items():
        base = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")) and f"{name.rpartition('.')[0]}.weight" in found:
            continue  # they belong to their weights
        scales = found.get(f"{base}.scales")
        if tensor.dtype == PACKED and scales is not None:
            group = _group_size(quantization, base)
            weights = scales.elements * group
            label = f"{tensor.elements * 32 / weights:g}"
            groups.add(group)
        else:
            weights, label = tensor.elements, tensor.dtype.lower()
        stored[label] = stored.get(label, 0) + weights
    total = sum(stored.values())
    return Precision(
        weights=total,
        bytes=sum(tensor.bytes for tensor in found.values()),
        stored={label: count / total for label, count in sorted(stored.items())},
        group_sizes=tuple(sorted(groups)),
        overrides=dict(_overrides(quantization)),
    )


def _overrides(quantization: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Layer → what config.json gives it alone: `8 bits, group 64`, or `unquantised`."""
    for layer, own in sorted(quantization.items()):
        if own is False:
            yield layer, "unquantised"
        elif isinstance(own, dict) and "bits" in own:
            yield layer, f"{own['bits']} bits, group {_group_size(quantization, layer)}"


def _group_size(quantization: Mapping[str, Any], layer: str) -> int:
    """As config.json says it of the layer, else of all."""
    own = quantization.get(layer)
    found = own.get("group_size") if isinstance(own, dict) else None
    return int(found or quantization.get("group_size") or GROUP_SIZE)


def count_gguf(file: Path) -> Precision:
    """Counted from the tensor table of a GGUF file. Raises UserError."""
    from gguf import GGUFReader

    try:
        tensors = GGUFReader(file).tensors
        total = sum(int(one.n_elements) for one in tensors)
        stored: dict[str, int] = {}
        for one in tensors:
            label = one.tensor_type.name.lower()
            stored[label] = stored.get(label, 0) + int(one.n_elements)
        size = sum(int(one.n_bytes) for one in tensors)
    except (OSError, ValueError, IndexError, KeyError):
        raise UserError(
            "the header of the weight file cannot be read", file=file.name, cure="fetch it again"
        ) from None
    return Precision(total, size, {k: n / total for k, n in sorted(stored.items())})
