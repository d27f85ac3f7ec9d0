"""One training loop for all models, and how their files are written."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map

MATRIX_RATE, OTHER_RATE = 0.02, 3e-3  # Muon for matrices, AdamW for embeddings, norms, gates
WARM_UP = 20  # steps
STREAMS = 2  # batches of one step, each on a processor thread of its own
FLOOR = 0.05  # share of the rate that is left at the end


@dataclass(frozen=True)
class Budget:
    """How long to train: a number of steps, which repeats, and a cap in seconds, which does not."""

    steps: int
    seconds: float = math.inf

    def spent(self, step: int, elapsed: float) -> float:
        """Share of the budget that is used up, from 0 to 1."""
        return min(1.0, max(step / self.steps, elapsed / self.seconds))


@dataclass(frozen=True)
class Outcome:
    """What the card tells about one training."""

    name: str
    parameters: int
    steps: int
    seconds: float
    loss: float  # running mean over about 20 steps, nats per token

    def told(self) -> dict[str, Any]:
        return {**self.__dict__, "seconds": round(self.seconds), "loss": round(self.loss, 3)}


def _is_matrix(name: str, weight: mx.array) -> bool:
    return weight.ndim == 2 and "embed" not in name


def rate(spent: float, step: int) -> float:
    """Factor on the learning rate: linear warm-up, then a cosine down to FLOOR."""
    return min(1.0, (step + 1) / WARM_UP) * (
        FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * spent))
    )


def fit(
    name: str,
    model: nn.Module,
    loss: Callable[..., mx.array],
    batches: Iterator[tuple[mx.array, ...]],
    budget: Budget,
    every: int = 25,
    keep: Callable[[], None] | None = None,
) -> Outcome:
    """Train `model` on `loss(*batch)`, a scalar. `keep` is called now and then, and at the end.

    A step takes one batch per stream: a processor works off each stream on a thread of its own.
    """
    muon = optim.Muon(learning_rate=MATRIX_RATE, weight_decay=0.0)
    adam = optim.AdamW(learning_rate=OTHER_RATE, betas=[0.9, 0.95], weight_decay=0.01)
    optimiser = optim.MultiOptimizer([muon, adam], [_is_matrix])
    one = nn.value_and_grad(model, loss)
    streams = [mx.new_stream(mx.cpu) for _ in range(STREAMS)]
    begun, running, step = time.monotonic(), math.nan, 0
    while (spent := budget.spent(step, time.monotonic() - begun)) < 1.0:
        factor = rate(spent, step)
        muon.learning_rate, adam.learning_rate = MATRIX_RATE * factor, OTHER_RATE * factor
        value, gradients = _mean([_on(stream, one, next(batches)) for stream in streams])
        gradients, _ = optim.clip_grad_norm(gradients, 1.0)
        optimiser.update(model, gradients)
        mx.eval(model.parameters(), optimiser.state, value)
        running = value.item() if math.isnan(running) else 0.95 * running + 0.05 * value.item()
        step += 1
        if step % every == 0:
            took = time.monotonic() - begun
            print(f"{name}: step {step}, loss {running:.3f}, {took:.0f} s", flush=True)
            if keep is not None and step % (8 * every) == 0:
                keep()
    if keep is not None:
        keep()
    count = sum(weight.size for _, weight in tree_flatten(model.parameters()))
    return Outcome(name, count, step, time.monotonic() - begun, running)


def _on(stream: mx.Stream, one: Callable[..., Any], batch: tuple[mx.array, ...]) -> Any:
    """(loss, gradients) of one batch, to be worked off on a stream."""
    with mx.stream(stream):
        return one(*batch)


def _mean(parts: list[Any]) -> Any:
    return tree_map(lambda *each: sum(each) / len(each), *parts)


def save(model: nn.Module, config: dict[str, Any], folder: Path) -> None:
    """model.safetensors and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def note(folder: Path, outcome: Outcome, accepted: dict[str, float]) -> None:
    """Add what came out to `training.json` beside the models."""
    file = folder / "training.json"
    known = json.loads(file.read_text()) if file.is_file() else {}
    known[outcome.name] = {**outcome.told(), **({"accept_length": accepted} if accepted else {})}
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
