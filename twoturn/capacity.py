"""Whether a prompt of some length fits a checkpoint and a machine, from `config.json` alone. Pure.

The keys are those of Hugging Face's configurations; a multimodal one has them in `text_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
GB = 2**30


def why_not(
    told: Mapping[str, Any],
    weights_bytes: int,
    memory_gb: float | None,
    tokens: int,
    each: float | None = None,
) -> str | None:
    """Why so many tokens, answer included, cannot be had; None where nothing speaks against it.
    `each`: as of `cache_bytes`.

    Memory speaks against it only where weights and keys and values alone are more than the machine
    has: a lower bound, so nothing is left out that might fit.
    """
    most = context(told)
    if most is not None and tokens > most:
        return f"{tokens} tokens are more than its context of {most}"
    needed = weights_bytes + (cache_bytes(told, each) or 0) * tokens
    if memory_gb is not None and needed > (memory_gb + 1) * GB:  # it is told in whole GB
        return (
            f"weights and cache of {tokens} tokens need {needed / GB:.0f} GB, "
            f"the machine has {memory_gb:.0f}"
        )
    return None


def context(told: Mapping[str, Any]) -> int | None:
    """The longest context in tokens, None where it is not told. With a `factor` of rope scaling it
    is that times the original one, where that is more."""
    text = {**told, **(told.get("text_config") or {})}
    most = text.get("max_position_embeddings")
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    if isinstance(original, int) and isinstance(factor, int | float):
        most = max(most or 0, int(original * factor))
    return most if isinstance(most, int) and most > 0 else None


def cache_bytes(told: Mapping[str, Any], each: float | None = None) -> int | None:
    """Bytes of keys and values per token, of layers that attend to everything; None where the
    configuration is of another make (latent attention, sliding windows). `each`: bytes of one
    number, None where it has the checkpoint's own type."""
    text = {**told, **(told.get("text_config") or {})}
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    if not isinstance(layers, int) or not isinstance(heads, int) or "kv_lora_rank" in text:
        return None
    types = text.get("layer_types")
    if isinstance(types, list):
        layers = sum(one == "full_attention" for one in types)
    elif isinstance(every := text.get("full_attention_interval"), int) and every > 0:
        layers //= every
    elif text.get("sliding_window"):
        return None
    size = text.get("head_dim") or (text.get("hidden_size") or 0) // heads
    pairs = text.get("num_key_value_heads") or heads
    each = each or BYTES.get(str(text.get("dtype") or text.get("torch_dtype")), 2)
    return int(2 * layers * pairs * size * each) or None
