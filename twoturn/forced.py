"""Teacher-forced comparison: checkpoints read the same text, and nothing is generated.

At each token of some windows of a text, a checkpoint gives the probability p of what really stands
there, and of all other tokens:

    perplexity     exp(mean of -ln p(token))
    kl_divergence  mean of Σ q ln(q / p) over the vocabulary, q of the checkpoint with most bits (of
                   several that of a series' reference)
    same_top       share of tokens for which both hold the same token likeliest

A checkpoint whose tokenizer is another reads other tokens, so it is compared with none. Of a GGUF
file the weights are compared, computed with in float32 and not as llama.cpp does. It runs in a
process of its own (scripts/forced.py), because mlx_lm holds a whole model in memory.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from twoturn import engines, plan, weights
from twoturn.campaign import Loaded
from twoturn.hashes import sha256_file

TEXT = "texts/python-topics.txt"
WINDOWS, TOKENS = 4, 96
"""Windows spread evenly over the text, and tokens of each; the first token of a window is given."""

READING = 3  # in 1 no GGUF file was read, in 2 what is no number was told as no divergence

UNPACKED_BYTES = 8
"""What a weight of a GGUF file takes while it is read: 4 in the model, 4 in a passing file, which
may lie in memory too."""

SCHEMA = pa.schema(
    [
        pa.field("checkpoint", pa.string(), False),
        pa.field("against", pa.string()),
        *(pa.field(name, pa.float64()) for name in ("bits_per_weight", "perplexity")),
        *(pa.field(name, pa.float64()) for name in ("kl_divergence", "same_top")),
        pa.field("tokens", pa.int64()),
        pa.field("reason", pa.string()),
    ],
    metadata={"schema_version": "1"},
)
"""results/forced/<fingerprint>.parquet. `against`: the checkpoint with most bits per weight.
`reason`: the code of why it was not read, else null."""

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
LogProbabilities: TypeAlias = Callable[[Sequence[int]], Numbers]
"""Token ids → log probabilities of the next token after each, (len(ids), vocabulary)."""


def fingerprint(recipes: Mapping[str, Any], text_sha256: str) -> str:
    """12 hex digits over what the figures depend on: checkpoints, text, windows, versions."""
    versions = {name: importlib.metadata.version(name) for name in ("mlx", "mlx-lm")}
    of = {
        "checkpoints": recipes,
        "order": list(recipes),
        "text": text_sha256,
        "windows": [WINDOWS, TOKENS],
        "reading": READING,
        **versions,
    }
    return hashlib.sha256(plan.canonical(of).encode()).hexdigest()[:12]


def path(loaded: Loaded) -> str:
    """Where the figures of a campaign lie, "" where it scores no answers."""
    names = checkpoints(loaded.plan)
    if not names:
        return ""
    known = loaded.recipes["checkpoints"]
    text = sha256_file(loaded.root / TEXT)
    return f"results/forced/{fingerprint({name: known[name] for name in names}, text)}.parquet"


def windows(ids: Sequence[int]) -> list[list[int]]:
    """WINDOWS pieces of TOKENS + 1 ids, spread evenly; fewer where the text is short."""
    length = TOKENS + 1
    count = max(1, min(WINDOWS, len(ids) // length))
    last = max(0, len(ids) - length)
    starts = [place * last // max(1, count - 1) for place in range(count)]
    return [list(ids[start : start + length]) for start in starts]


def scores(mine: Numbers, best: Numbers, following: Sequence[int]) -> dict[str, float]:
    """Sums over the positions of one window: surprise, divergence, agreement."""
    places = np.arange(len(following))
    sure = np.exp(best.astype(np.float64))
    return {
        "surprise": -float(mine[places, list(following)].astype(np.float64).sum()),
        "kl": float((sure * (best.astype(np.float64) - mine)).sum()),
        "same": float((mine.argmax(-1) == best.argmax(-1)).sum()),
    }


def compare(
    places: Mapping[str, Path],
    text: str,
    load: Callable[[Path], tuple[Callable[[str], list[int]], LogProbabilities]],
    say: Callable[[str], None] = lambda line: None,
    memory_gb: float | None = None,
) -> list[dict[str, Any]]:
    """Rows of SCHEMA, one per checkpoint: a folder of safetensors files, or a GGUF file. `load`
    gives tokenizer and model of a place; what it raises becomes the reason `cannot_load`. A GGUF
    file whose weights do not fit into the machine's memory is not tried: whoever runs out of it is
    killed and tells nothing."""
    counted = {
        name: _size(place)
        for name, place in places.items()
        if place.is_file() or any(place.glob("*.safetensors"))
    }
    sizes = {name: size and size.bits_per_weight for name, size in counted.items()}
    rows: dict[str, dict[str, Any]] = {
        name: {**dict.fromkeys(SCHEMA.names), "checkpoint": name, "reason": "no_safetensors"}
        for name in places
    }
    best: tuple[str, list[list[int]], list[Numbers]] | None = None
    for name in sorted(sizes, key=lambda one: -(sizes[one] or 0.0)):
        say(f"forced: {name}")
        rows[name] |= {"bits_per_weight": sizes[name], "reason": None}
        size = counted[name] if places[name].is_file() else None
        if memory_gb and size and UNPACKED_BYTES * size.weights > memory_gb * 2**30:
            rows[name]["reason"] = "too_large"
            continue
        try:
            encode, model = load(places[name])
            pieces = windows(encode(text))
            if best is not None and pieces != best[1]:
                rows[name]["reason"] = "other_tokens"
                continue
            read = [model(piece[:-1]) for piece in pieces]
        except Exception as error:  # whatever a model's code makes of a folder
            say(f"forced: {name}: {type(error).__name__}")
            rows[name]["reason"] = "cannot_load"
            continue
        against, _, theirs = best or (name, pieces, read)
        told = _figures(pieces, read, theirs)
        if not all(map(math.isfinite, told.values())):  # weights beyond all bounds
            rows[name]["reason"] = "not_finite"
            continue
        best = best or (name, pieces, read)
        rows[name] |= {"against": against, **told}
    return list(rows.values())


def _figures(
    pieces: Sequence[Sequence[int]], mine: Sequence[Numbers], best: Sequence[Numbers]
) -> dict[str, float]:
    """The figures of a row of SCHEMA, from all windows together."""
    total = dict.fromkeys(("surprise", "kl", "same"), 0.0)
    for piece, own, other in zip(pieces, mine, best, strict=True):
        for key, value in scores(own, other, piece[1:]).items():
            total[key] += value
    count = sum(len(piece) - 1 for piece in pieces)
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(total["surprise"] / count))
    divergence = total["kl"] / count
    return {
        "perplexity": perplexity,
        "kl_divergence": 0.0 if divergence < 0 else divergence,  # rounding; nan stays what it is
        "same_top": total["same"] / count,
        "tokens": count,
    }


def _size(place: Path) -> weights.Precision | None:
    return weights.count_gguf(place) if place.is_file() else weights.counted(place)


def place(name: str, folder: Path, loaded: Loaded) -> Path:
    """What is read of a checkpoint: the file that its server loads, where that is another one."""
    for arm in (arm for series in loaded.plan.series for arm in series.arms):
        engine = engines.get(loaded.campaign, arm.server)
        if arm.checkpoint == name and isinstance(engine, engines.ReadsOtherFiles):
            return engine.weights(folder)
    return folder


def checkpoints(planned: plan.Plan) -> list[str]:
    """The targets of all series that score answers, each once, those of references first: of
    several with most bits per weight the first one is what the others are held against."""
    return list(
        dict.fromkeys(
            arm.checkpoint
            for series in planned.series
            if not series.workload.timed
            for arm in sorted(series.arms, key=lambda arm: arm.name != series.reference)
        )
    )
