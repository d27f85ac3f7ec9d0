"""A Llama-type model as a GGUF file, the format of llama.cpp.

Names of tensors follow `gguf.constants`; that package of llama.cpp's also writes the file. Rows
of q and k are interleaved for its kind of rotary embedding (convert_hf_to_gguf.py,
LlamaModel.permute).

Tokens must be those of tokenizer.json. llama.cpp splits a text before its byte pairs are merged by
rules that it finds by name alone (`tokenizer.ggml.pre`, llama-vocab.cpp): `gpt-2` for a byte-level
tokenizer as it is, `smollm` where every digit stands for itself first. Others are refused, because
a wrong name gives other tokens and no error. Nothing is put before a text (`add_bos_token`): the
chat template says what stands there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twoturn.errors import UserError

# GGUF's part of a tensor's name and transformers' part.
NAMES = (
    ("token_embd.", "model.embed_tokens."),
    ("output_norm.", "model.norm."),
    ("blk.", "model.layers."),
    ("attn_q.", "self_attn.q_proj."),
    ("attn_k.", "self_attn.k_proj."),
    ("attn_v.", "self_attn.v_proj."),
    ("attn_output.", "self_attn.o_proj."),
    ("ffn_gate.", "mlp.gate_proj."),
    ("ffn_up.", "mlp.up_proj."),
    ("ffn_down.", "mlp.down_proj."),
    ("attn_norm.", "input_layernorm."),
    ("ffn_norm.", "post_attention_layernorm."),
)
CONTROL, NORMAL, USER_DEFINED, UNUSED = 3, 1, 4, 5  # GGUF's types of tokens
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def llama_name(name: str) -> str:
    """A GGUF tensor's name as transformers' Llama has it."""
    if name.startswith("output."):
        return name.replace("output.", "lm_head.", 1)
    for old, new in NAMES:
        name = name.replace(old, new)
    return name


def gguf_name(name: str) -> str:
    """A tensor's name of transformers' Llama as GGUF has it. Raises UserError."""
    given = name
    if name.startswith("lm_head."):
        return name.replace("lm_head.", "output.", 1)
    for new, old in NAMES:
        name = name.replace(old, new)
    if name == given:
        raise UserError(f"GGUF has no name for the tensor {name}", cure="take a Llama-type model")
    return name


def interleaved(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of q or k from halves, as transformers has them, to pairs."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for how tokenizer.json splits a text. Raises UserError."""
    told = tokenizer.get("pre_tokenizer") or {}
    parts = told.get("pretokenizers", []) if told.get("type") == "Sequence" else [told]
    kinds = [
        next(
            (known["type"] for known in (_BYTE_LEVEL, _DIGITS) if known.items() <= one.items()),
            None,
        )
        for one in parts
    ]
    names = {("ByteLevel",): "gpt-2", ("Digits", "ByteLevel"): "smollm"}
    plain = tokenizer.get("normalizer") is None and tokenizer["model"].get("type") == "BPE"
    if not plain or (name := names.get(tuple(map(str, kinds)))) is None:
        raise UserError(
            "its tokenizer splits texts in a way that is not known to be one of llama.cpp's",
            cure="take a GGUF file of the model's makers and put it beside its config.json",
        )
    return name


def write(
    file: Path,
    told: Mapping[str, Any],
    weights: Mapping[str, npt.NDArray[Any]],
    tokenizer: Mapping[str, Any],
    template: str | None,
    kind: str,
) -> None:
    """A GGUF file from config.json, float32 weights, tokenizer.json and the chat template. `kind`
    (f32, f16, q8_0, q4_0) is the precision of matrices; vectors stay float32. Raises UserError."""
    import gguf

    if told.get("model_type") != "llama" or told.get("rope_scaling"):
        raise UserError(
            f"a model of type {told.get('model_type')!r} is not written as GGUF"
            if told.get("model_type") != "llama"
            else "a model with rope_scaling is not written as GGUF",
            cure="take a plain Llama-type model, or a GGUF file of the model's makers",
        )
    before = pre_tokenizer(tokenizer)
    heads = int(told["num_attention_heads"])
    kv_heads = int(told.get("num_key_value_heads", heads))
    head_size = int(told.get("head_dim") or told["hidden_size"] // heads)
    precision = gguf.GGMLQuantizationType[kind.upper()]
    most = "ALL" if kind == "f32" else "MOSTLY"
    file_type = gguf.LlamaFileType[f"{most}_{kind.upper()}"]

    out = gguf.GGUFWriter(str(file), "llama")
    out.add_file_type(file_type)
    out.add_block_count(told["num_hidden_layers"])
    out.add_context_length(told["max_position_embeddings"])
    out.add_embedding_length(told["hidden_size"])
    out.add_feed_forward_length(told["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head_size)
    out.add_value_length(head_size)
    out.add_rope_dimension_count(head_size)
    out.add_rope_freq_base(float(told.get("rope_theta", 10000.0)))
    out.add_layer_norm_rms_eps(float(told["rms_norm_eps"]))
    out.add_vocab_size(told["vocab_size"])

    names, kinds = tokens(tokenizer, int(told["vocab_size"]))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(before)
    out.add_token_list(names)
    out.add_token_types(kinds)
    merges = tokenizer["model"]["merges"]
    out.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    for add, value in (
        (out.add_bos_token_id, told.get("bos_token_id")),
        (out.add_eos_token_id, _one(told.get("eos_token_id"))),
    ):
        if value is not None:
            add(value)
    out.add_add_bos_token(False)
    if template is not None:
        out.add_chat_template(template)

    for name, weight in weights.items():
        rows = weight.astype(np.float32)
        if ".q_proj." in name or ".k_proj." in name:
            rows = interleaved(rows, heads if ".q_proj." in name else kv_heads)
        if rows.ndim == 1:
            out.add_tensor(gguf_name(name), rows)
        else:
            made = gguf.quants.quantize(np.ascontiguousarray(rows), precision)
            out.add_tensor(gguf_name(name), made, raw_dtype=precision)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def tokens(tokenizer: Mapping[str, Any], size: int) -> tuple[list[str], list[int]]:
    """All tokens in the order of their ids, and GGUF's type of each."""
    names = [f"[PAD{index}]" for index in range(size)]
    kinds = [UNUSED] * size
    for name, index in tokenizer["model"]["vocab"].items():
        names[index], kinds[index] = name, NORMAL
    for added in tokenizer.get("added_tokens", []):
        names[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added.get("special") else USER_DEFINED
    return names, kinds


def _one(ids: int | list[int] | None) -> int | None:
    """The end token, of which config.json may name several."""
    return next(iter(ids), None) if isinstance(ids, list) else ids
