"""The DFlash draft of the hybrid target: it fills a whole block of masks at once.

It reads the target's states at two layers. Its layers look back over a window, so that a long
prompt, a short one and the end of a cached one look the same to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.models.qwen3_5_text import Model
from mlx_vlm.speculative.drafters.qwen3_dflash import DFlashDraftModel, ModelConfig

from training import fit, greedy
from training.corpus import MASK, VOCABULARY

TAPS = (1, 3)  # layers of the target that are read
BLOCK = 8
WINDOW = 96
DECAY = 0.88  # weight of a place in the block relative to the one before
ANCHORS = 64  # blocks of one batch


def config(target: dict[str, Any]) -> dict[str, Any]:
    """config.json of the draft."""
    width, layers = target["hidden_size"], 2
    return {
        "model_type": "qwen3",
        "architectures": ["DFlashDraftModel"],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": 2 * width,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32768,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "layer_types": ["sliding_attention"] * layers,
        "sliding_window": WINDOW,
        "block_size": BLOCK,
        "num_target_layers": target["num_hidden_layers"],
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(TAPS)},
    }


def block_logits(
    draft: DFlashDraftModel, embed: nn.Embedding, anchor: mx.array, context: mx.array
) -> mx.array:
    """Logits [rows, BLOCK - 1, vocabulary] of the drafted places.

    anchor [rows, 1] is the last known token, context [rows, tokens, taps × width] the states of all
    tokens before it. As in the server, only that no fused projection is kept between calls.
    """
    masks = mx.full((anchor.shape[0], BLOCK - 1), MASK, dtype=anchor.dtype)
    h = embed(mx.concatenate([anchor, masks], axis=1))
    read = draft.hidden_norm(draft.fc(context))
    for layer, cache in zip(draft.layers, draft.make_cache(), strict=True):
        h = layer(h, read, draft.rope, cache)
    return embed.as_linear(draft.norm(h)[:, 1:])


def loss(
    draft: DFlashDraftModel, embed: nn.Embedding, ids: mx.array, context: mx.array
) -> mx.array:
    """Weighted mean cross-entropy; ids [rows, BLOCK] are the anchor and what the target wrote."""
    logits = block_logits(draft, embed, ids[:, :1], context)
    weights = mx.array([DECAY**place for place in range(BLOCK - 1)])
    each = nn.losses.cross_entropy(logits, ids[:, 1:])
    return (each * weights).mean() / weights.mean()


def blocks(
    found: Sequence[greedy.Answers], rng: np.random.Generator, length: int, count: int
) -> tuple[mx.array, mx.array]:
    """`count` blocks inside answers with `length` tokens of context: (ids, context)."""
    ids, context = [], []
    for _ in range(count):
        one = found[int(rng.integers(len(found)))]
        row = int(rng.integers(len(one.ids)))
        first, last = one.spans[int(rng.integers(len(one.spans)))]
        at = int(rng.integers(max(first, length), last - BLOCK + 1))
        ids.append(one.ids[row, at : at + BLOCK])
        context.append(
            np.concatenate([one.states[tap][row, at - length : at] for tap in range(len(TAPS))], -1)
        )
    return mx.array(np.stack(ids)), mx.array(np.stack(context))


def batches(
    found: Sequence[greedy.Answers], rng: np.random.Generator
) -> Iterator[tuple[mx.array, mx.array]]:
    """Half with a full window, half with less, as at the beginning of a short or warm prompt."""
    shortest = min(one.spans[0][0] for one in found)
    while True:
        full = rng.random() < 0.5
        length = WINDOW - 1 if full else int(rng.integers(shortest // 2, WINDOW))
        for _ in range(fit.STREAMS):
            yield blocks(found, rng, length, ANCHORS)


def accepted(
    draft: DFlashDraftModel, embed: nn.Embedding, one: greedy.Answers, block: int, seed: int = 0
) -> float:
    """Mean accept length on held-out rows, for blocks of at most BLOCK tokens."""
    length = min(WINDOW - 1, one.spans[0][0])
    ids, context = blocks([one], np.random.default_rng(seed), length, 256)
    same = mx.argmax(block_logits(draft, embed, ids[:, :1], context), axis=-1) == ids[:, 1:]
    return 1 + greedy.leading(np.array(same)[:, : block - 1])


def train(
    target: Model,
    told: dict[str, Any],
    found: Sequence[greedy.Answers],
    budget: fit.Budget,
    seed: int,
) -> tuple[DFlashDraftModel, fit.Outcome]:
    mx.random.seed(seed)
    draft = DFlashDraftModel(ModelConfig.from_dict(config(told)))
    mx.eval(draft.parameters())
    embed = target.language_model.model.embed_tokens
    batch = batches(found, np.random.default_rng(seed))
    return draft, fit.fit("dflash", draft, partial(loss, draft, embed), batch, budget, every=25)
