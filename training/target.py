"""The hybrid target: three gated-delta layers and one attention layer, as mlx-vlm serves them.

The end token is never a training target: answers have the length that was asked for, at every
precision. What a row holds of user messages is learnt like the rest, as plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_vlm.models.qwen3_5 import gated_delta
from mlx_vlm.models.qwen3_5_text import Model, ModelConfig

from training import fit
from training.corpus import END, VOCABULARY, Corpus

SHORT, LONG = (4, 256), (1, 1536)  # rows and tokens of a batch
LONG_SHARE = 0.12
# A chunk of 16 costs a third of the default 64 on a processor; the result is the same recurrence.
gated_delta.gated_delta_chunked = partial(gated_delta.gated_delta_chunked, C=16)


def config(hidden: int = 128, intermediate: int = 256, layers: int = 4) -> dict[str, Any]:
    """config.json of the target."""
    return {
        "model_type": "qwen3_5_text",
        "architectures": ["Qwen3_5ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32768,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "type": "default",
            "mrope_section": [2, 1, 1],
            "rope_theta": 100000.0,
            "partial_rotary_factor": 0.25,
        },
        "bos_token_id": 0,
        "eos_token_id": END,
        "torch_dtype": "float32",
    }


def build(told: dict[str, Any]) -> Model:
    model = Model(ModelConfig.from_dict(dict(told)))
    mx.eval(model.parameters())
    return model


def load(folder: Path, told: dict[str, Any]) -> Model:
    """A trained target, ready to answer."""
    model = build(told)
    model.load_weights(str(folder / "model.safetensors"))
    model.eval()
    return model


def positions(rows: int, length: int) -> mx.array:
    """[rows, length] positions from 0."""
    return mx.broadcast_to(mx.arange(length)[None], (rows, length))


def loss(model: Model, ids: mx.array) -> mx.array:
    """Mean cross-entropy of [rows, length + 1] tokens; where the end token comes next, none."""
    given, wanted = ids[:, :-1], ids[:, 1:]
    logits = model.language_model(given, position_ids=positions(*given.shape)).logits
    counted = wanted != END
    each = nn.losses.cross_entropy(logits, wanted) * counted
    return each.sum() / counted.sum()


def batches(corpus: Corpus, rng: np.random.Generator) -> Iterator[tuple[mx.array, ...]]:
    """Short rows, and now and then one as long as a long prompt."""
    while True:
        rows, length = LONG if rng.random() < LONG_SHARE else SHORT
        for _ in range(fit.STREAMS):  # equal work for each stream of a step
            yield (mx.array(corpus.rows(rng, rows, length + 1)),)


def train(corpus: Corpus, budget: fit.Budget, seed: int, folder: Path) -> tuple[Model, fit.Outcome]:
    mx.random.seed(seed)
    told = config()
    model = build(told)
    model.train()
    outcome = fit.fit(
        "target",
        model,
        partial(loss, model),
        batches(corpus, np.random.default_rng(seed)),
        budget,
        keep=lambda: fit.save(model, told, folder),
    )
    model.eval()
    return model, outcome
