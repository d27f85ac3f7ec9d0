"""The target's own greedy answers: what a draft has to foresee, and all it is trained on.

Prompts have the lengths that are measured later, and each answer is followed by a second turn, as
in a conversation. The hidden states that a draft reads are kept while the answers are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from training.corpus import Corpus

ANSWER, SECOND_TURN = 80, 64  # tokens of an answer, and of what the user sends after the first
# (prompt tokens, conversations): as many tokens in long contexts as in short ones
LENGTHS = ((40, 96), (64, 96), (128, 64), (256, 48), (512, 32), (1024, 24), (1536, 24))
Forward = Callable[[mx.array, Any, int], tuple[mx.array, list[mx.array]]]


@dataclass(frozen=True)
class Answers:
    """Conversations of equal length. Shapes: ids [rows, tokens], states [rows, tokens, width]."""

    ids: np.ndarray
    states: tuple[np.ndarray, ...]
    spans: tuple[tuple[int, int], ...]  # where the answers lie: [first, last + 1)

    def split(self, held_out: int) -> tuple[Answers, Answers]:
        """(training, held-out) rows."""
        cut = len(self.ids) - held_out
        first, last = slice(None, cut), slice(cut, None)
        return (
            Answers(self.ids[first], tuple(s[first] for s in self.states), self.spans),
            Answers(self.ids[last], tuple(s[last] for s in self.states), self.spans),
        )


def answers(
    forward: Forward,
    new_cache: Callable[[], Any],
    corpus: Corpus,
    rng: np.random.Generator,
    length: int,
    rows: int,
) -> Answers:
    """`rows` conversations of two turns whose first prompt has `length` tokens.

    `forward(ids, cache, offset)` gives the logits and the states of [rows, tokens] ids.
    """
    cache, offset = new_cache(), 0
    ids: list[np.ndarray] = []
    states: list[list[np.ndarray]] = []
    spans = []
    for turn in range(2):
        asked = [
            corpus.prompt(rng, length) if turn == 0 else corpus.next_turn(rng, SECOND_TURN)
            for _ in range(rows)
        ]
        given = mx.array(asked, dtype=mx.int32)
        first = offset + given.shape[1]
        spans.append((first, first + ANSWER))
        for _ in range(ANSWER + 1):  # once more than asked, so that the last state is there too
            logits, seen = forward(given, cache, offset)
            ids.append(np.array(given))
            mx.eval(seen)
            states.append([np.array(state) for state in seen])
            offset += given.shape[1]
            given = mx.argmax(logits[:, -1:], axis=-1).astype(mx.int32)
            mx.eval(given)
    joined = tuple(np.concatenate(parts, axis=1) for parts in zip(*states, strict=True))
    return Answers(np.concatenate(ids, axis=1), joined, tuple(spans))


def collect(
    forward: Forward,
    new_cache: Callable[[], Any],
    corpus: Corpus,
    seed: int,
    lengths: Sequence[tuple[int, int]] = LENGTHS,
) -> list[Answers]:
    """Answers at all prompt lengths."""
    rng = np.random.default_rng(seed)
    found = []
    for length, rows in lengths:
        found.append(answers(forward, new_cache, corpus, rng, length, rows))
        print(f"greedy answers: {rows} conversations of {length} tokens and more", flush=True)
    return found


def leading(same: np.ndarray) -> float:
    """Mean number of leading True along the last axis: what a verifying target would accept."""
    return float(np.cumprod(same, axis=-1).sum(axis=-1).mean())


def repeats(found: Sequence[Answers], limit: int = 64) -> tuple[float, int]:
    """(share of answers that repeat one token `limit` times or more, longest such run)."""
    runs = []
    for one in found:
        for first, last in one.spans:
            for row in one.ids[:, first:last]:
                edges = np.flatnonzero(np.diff(row)) + 1
                runs.append(int(np.diff([0, *edges, len(row)]).max()))
    return float(np.mean(np.array(runs) >= limit)), max(runs)


def write(found: Sequence[Answers], file: Path) -> None:
    """Keep answers, so that drafts can be trained on them once more."""
    arrays = {}
    for index, one in enumerate(found):
        arrays |= {f"{index}.ids": one.ids, f"{index}.spans": np.array(one.spans)}
        arrays |= {f"{index}.state{place}": state for place, state in enumerate(one.states)}
    np.savez(file, **arrays)


def read(file: Path) -> list[Answers]:
    """Answers that were kept."""
    with np.load(file) as kept:
        arrays = dict(kept)
    found = []
    for index in range(sum(name.endswith(".ids") for name in arrays)):
        states = sorted(name for name in arrays if name.startswith(f"{index}.state"))
        spans = tuple((int(first), int(last)) for first, last in arrays[f"{index}.spans"])
        found.append(Answers(arrays[f"{index}.ids"], tuple(arrays[name] for name in states), spans))
    return found
