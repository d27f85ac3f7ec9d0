"""Let the checkpoints of a campaign read the same text with mlx_lm, and write how they differ."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pyarrow as pa

from twoturn import campaign, cells, forced, making
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    loaded = campaign.load(wanted.campaign, Path.cwd())

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    places = {}
    for name in forced.checkpoints(loaded.plan):
        folder = making.ensure(name, loaded.campaign, loaded.root, loaded.file, say)
        places[name] = forced.place(name, folder, loaded)
    text = wanted.text.read_text(encoding="utf-8")
    rows = forced.compare(places, text, load, say, loaded.plan.facts.get("memory_gb"))
    cells.write(pa.Table.from_pylist(rows, forced.SCHEMA), wanted.output)


def load(place: Path) -> tuple[Callable[..., list[int]], Callable[..., np.ndarray]]:
    """Tokenizer and log probabilities of a checkpoint's folder or GGUF file, by mlx_lm."""
    import mlx_lm

    if place.is_file():
        with tempfile.TemporaryDirectory() as passing:
            making.beside_config(place, Path(passing))
            return load(Path(passing))
    model, tokenizer = mlx_lm.load(str(place))

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    def predict(ids: list[int]) -> np.ndarray:
        logits = model(mx.array([ids]))[0].astype(mx.float32)
        return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))

    return encode, predict


if __name__ == "__main__":
    sys.exit(run(main))
