"""What the files of a checkpoint say: bits per weight, and the block a draft was trained for.

Names promise bits that files do not keep, so bits come from `config.json` or from how a checkpoint
is made. What cannot be read here is not known, and is never guessed from a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from twoturn import checkpoints
from twoturn.config import Campaign

GGUF_BITS: dict[str, tuple[int, ...]] = {"f32": (), "f16": (), "q8_0": (8,)}


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


def of_config(config: Mapping[str, Any]) -> Weights:
    """What a `config.json` says. `quantization` is MLX's key, `quantization_config` everybody's;
    layers may have bits of their own. A DFlash draft's `block_size` stands at the top or, in some,
    inside `dflash_config`; that of an MTP head, which drafts token by token, is no limit."""
    told = config.get("quantization") or config.get("quantization_config") or {}
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
        return source
    made = checkpoints.made_folder(name, root)
    folder = made if entry.path is None else root / entry.path
    called = None if entry.path is None else PurePosixPath(entry.path).name
    return replace(of_folder(folder), model=called)


def of_folder(folder: Path) -> Weights:
    """What the `config.json` in a checkpoint's folder says, if there is one."""
    try:
        told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Weights()
    return of_config(told) if isinstance(told, dict) else Weights()


def _count(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if known else None
