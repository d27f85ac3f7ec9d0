"""The multi-token-prediction head of the hybrid target: one attention layer that is run in a chain.

Link 1 reads a token and the target's state before it; every further link reads the token that was
drafted and the state of the link before. In the server, a link sees link 1 at all earlier tokens
and its own chain; here the same is said with a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.models.qwen3_5_text import Model
from mlx_vlm.speculative.drafters.qwen3_5_mtp.config import Qwen3_5MTPConfig
from mlx_vlm.speculative.drafters.qwen3_5_mtp.qwen3_5_mtp import Qwen3_5MTPDraftModel

from training import fit, greedy

CHAIN = 5  # links that are trained
DECAY = 0.85  # weight of a link relative to the one before
STATE = -1  # the target's last state among the kept ones
BLOCK = 4  # the server's default
TOKENS = 1000  # of one batch


def config(target: dict[str, Any]) -> dict[str, Any]:
    """config.json of the head."""
    return {
        "model_type": "qwen3_5_mtp",
        "text_config": target,
        "block_size": BLOCK,
        "tie_word_embeddings": True,
    }


class Seen:
    """Keys and values of the links so far (the part of a cache that the layer asks for)."""

    def __init__(self) -> None:
        self.offset = 0
        self.parts: list[tuple[mx.array, mx.array]] = []

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.parts.append((keys, values))
        self.offset += keys.shape[2]
        all_keys, all_values = zip(*self.parts, strict=True)
        return mx.concatenate(all_keys, axis=2), mx.concatenate(all_values, axis=2)


def _link(
    head: Qwen3_5MTPDraftModel,
    embedded: mx.array,
    state: mx.array,
    seen: Seen,
    mask: mx.array,
    first: int,
) -> mx.array:
    """States [rows, tokens, width] after one link; `first` is the position of the first token."""
    both = [head.pre_fc_norm_embedding(embedded), head.pre_fc_norm_hidden(state)]
    h = head.fc(mx.concatenate(both, axis=-1))
    positions = mx.broadcast_to(first + mx.arange(h.shape[1])[None], h.shape[:2])
    h = head.layers[0](h, mask=mask, cache=seen, position_ids=positions)
    return head.norm(h)


def chain(
    head: Qwen3_5MTPDraftModel,
    embed: nn.Embedding,
    ids: mx.array,
    state: mx.array,
    start: int,
    links: int,
) -> list[mx.array]:
    """Logits of each link, [rows, bases, vocabulary], for the bases from `start` on.

    ids [rows, n], state [rows, n, width]: base t has read token t + 1 and foresees token t + 2.
    """
    bases = ids.shape[1] - 1 - links - start
    seen, end = Seen(), start + bases
    causal = mx.tril(mx.ones((end, end), dtype=mx.bool_))
    h = _link(head, embed(ids[:, 1 : end + 1]), state[:, :end], seen, causal, 0)[:, start:]
    found = [embed.as_linear(h)]
    sees = [causal[start:]]
    for link in range(2, links + 1):
        sees.append(mx.eye(bases, dtype=mx.bool_))
        given = embed(ids[:, start + link : end + link])
        h = _link(head, given, h, seen, mx.concatenate(sees, axis=1), start + link - 1)
        found.append(embed.as_linear(h))
    return found


def loss(
    head: Qwen3_5MTPDraftModel, embed: nn.Embedding, ids: mx.array, state: mx.array, start: int
) -> mx.array:
    """Weighted mean cross-entropy of the links."""
    total, weights = mx.array(0.0), 0.0
    logits = chain(head, embed, ids, state, start, CHAIN)
    for link, one in enumerate(logits, start=1):
        wanted = ids[:, start + link + 1 : start + link + 1 + one.shape[1]]
        total += DECAY**link * nn.losses.cross_entropy(one, wanted, reduction="mean")
        weights += DECAY**link
    return total / weights


def window(
    one: greedy.Answers, rng: np.random.Generator, whole: bool, tokens: int = TOKENS
) -> tuple[mx.array, mx.array, int]:
    """(ids, states, start) of some rows around one answer.

    `whole` begins with the first token, as after a cold prompt; else later, as after a warm one,
    where the server gives the head only what was not cached.
    """
    first, last = one.spans[int(rng.integers(len(one.spans)))]
    begin = 0 if whole else max(0, first - int(2 ** rng.uniform(3.5, 8)))
    rows = rng.choice(
        len(one.ids), size=min(len(one.ids), max(1, tokens // (last - begin))), replace=False
    )
    ids = mx.array(one.ids[rows, begin:last])
    return ids, mx.array(one.states[STATE][rows, begin:last]), first - 1 - begin


def batches(
    found: Sequence[greedy.Answers], rng: np.random.Generator
) -> Iterator[tuple[mx.array, mx.array, int]]:
    while True:
        one, whole = found[int(rng.integers(len(found)))], rng.random() < 0.6
        for _ in range(fit.STREAMS):
            yield window(one, rng, whole)


def accepted(
    head: Qwen3_5MTPDraftModel, embed: nn.Embedding, one: greedy.Answers, links: int
) -> float:
    """Mean accept length on the first answers of held-out rows, after cold prompts."""
    first, last = one.spans[0]
    ids, state = mx.array(one.ids[:, :last]), mx.array(one.states[STATE][:, :last])
    logits = chain(head, embed, ids, state, first - 1, links)
    same = [
        np.array(mx.argmax(each, axis=-1) == ids[:, first + link : first + link + each.shape[1]])
        for link, each in enumerate(logits, start=1)
    ]
    return 1 + greedy.leading(np.stack(same, axis=-1))


def train(
    target: Model,
    told: dict[str, Any],
    found: Sequence[greedy.Answers],
    budget: fit.Budget,
    seed: int,
) -> tuple[Qwen3_5MTPDraftModel, fit.Outcome]:
    mx.random.seed(seed)
    head = Qwen3_5MTPDraftModel(Qwen3_5MTPConfig.from_dict(config(dict(told))))
    mx.eval(head.parameters())
    embed = target.language_model.model.embed_tokens
    batch = batches(found, np.random.default_rng(seed))
    return head, fit.fit("mtp", head, partial(loss, head, embed), batch, budget, every=25)
