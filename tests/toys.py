"""A toy of random weights, and two turns with a real server on it.

Random weights accept what luck gives: they show that figures are read and add up, never a speed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import qwen3

from tests.workflow import REPOSITORY, environment
from twoturn import client, servers
from twoturn.engines import ADAPTERS, Place, scale
from twoturn.plan import Arm

DEMO = REPOSITORY / "checkpoints/demo"
SHAPE = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings", "rope_theta"),
)
TOKENS = 32

Turn = tuple[dict[str, Any], dict[str, Any]]


def dflash_arm(server: str, **settings: Any) -> Arm:
    return Arm("dflash", "toy", server, server, "0", "dflash", 5, "head", settings, ())


def make_qwen3(folder: Path) -> None:
    """A Qwen3 of the width and depth that the demo's DFlash draft is made for, its tokenizer."""
    draft = json.loads((DEMO / "dflash/config.json").read_text())
    config = {
        **{key: draft[key] for key in SHAPE},
        "model_type": "qwen3",
        "num_hidden_layers": draft["num_target_layers"],
        "tie_word_embeddings": True,
    }
    mx.random.seed(0)
    weights = dict(tree_flatten(qwen3.Model(qwen3.ModelArgs.from_dict(config)).parameters()))
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / "target" / file, folder)


def two_turns(arm: Arm, folder: Path) -> list[Turn]:
    """(usage, columns of speculation) of two turns against a server in its own environment."""
    make_qwen3(folder / "models/toy")
    (folder / "models/head").symlink_to(DEMO / "dflash")
    (folder / "home").mkdir()
    python = environment(arm.adapter)
    models = {"toy": "models/toy", "head": "models/head"}
    at = Place(REPOSITORY, folder, servers.free_port(), python, folder, models)
    engine, found = ADAPTERS[arm.adapter](), []
    with servers.run(engine.launch(arm, at), at.port, folder / "log") as running:
        _, wrong = engine.read_back(running, arm)
        assert wrong == []
        messages = [{"role": "user", "content": "one two three four " * 12}]
        for _ in range(2):
            body = {"model": running.model, "messages": messages, "max_tokens": TOKENS}
            log = servers.LogTail(running.log_file)
            sent = client.stream_chat(
                running.base_url, {**body, "temperature": 0}, client.Timeouts(5, 60, 60, 120)
            )
            assert sent.answer.error is None
            usage = dict(sent.answer.usage or {})
            telemetry = engine.telemetry(sent.answer, log.since())
            found.append((usage, scale(telemetry, usage["completion_tokens"])))
            text = sent.answer.text
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "x"}]
    return found
