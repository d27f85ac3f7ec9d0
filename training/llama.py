"""Train the Llama pair for a classic draft: a target and a much smaller draft, one tokenizer.

    python -m training.llama OUT

Run it with the Python of this project, because mlx-lm has the model class. The draft learns what
the target would write, on the target's own answers and on the text.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import llama
from mlx_lm.models.cache import KVCache

from training import corpus, fit, greedy
from training.corpus import END, VOCABULARY, Corpus

SEED = 7
STEPS = {"llama": 500, "llama-draft": 300}
SHORT, LONG = (6, 128), (1, 1536)  # rows and tokens of a batch
LONG_SHARE = 0.05
LENGTHS = ((40, 64), (128, 48), (512, 16), (1536, 8))


def config(
    hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int
) -> dict[str, Any]:
    """config.json of one model of the pair."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32768,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": END,
    }


CONFIGS = {
    "llama": config(128, 384, 4, 4, 2),
    "llama-draft": config(64, 192, 1, 2, 1),
}


def build(told: dict[str, Any]) -> llama.Model:
    model = llama.Model(llama.ModelArgs.from_dict(dict(told)))
    mx.eval(model.parameters())
    return model


def text_loss(model: llama.Model, ids: mx.array) -> mx.array:
    """Mean cross-entropy of [rows, length + 1] tokens; where the end token comes next, none."""
    wanted = ids[:, 1:]
    counted = wanted != END
    each = nn.losses.cross_entropy(model(ids[:, :-1]), wanted) * counted
    return each.sum() / counted.sum()


def draft_loss(draft: llama.Model, ids: mx.array, wanted: mx.array, weights: mx.array) -> mx.array:
    """Mean cross-entropy against the target's choice; all [rows, length]."""
    each = nn.losses.cross_entropy(draft(ids), wanted) * weights
    return each.sum() / weights.sum()


def text_batches(text: Corpus, rng: np.random.Generator) -> Iterator[tuple[mx.array, ...]]:
    while True:
        rows, length = LONG if rng.random() < LONG_SHARE else SHORT
        for _ in range(fit.STREAMS):
            yield (mx.array(text.rows(rng, rows, length + 1)),)


def draft_batches(
    found: Sequence[greedy.Answers], rng: np.random.Generator
) -> Iterator[tuple[mx.array, ...]]:
    """Rows of one conversation length: ids, the target's choice after each, weights."""
    while True:
        one = found[int(rng.integers(len(found)))]
        size = min(len(one.ids), max(1, 1600 // one.ids.shape[1]))
        weights = np.full(one.ids.shape[1], 0.1, dtype=np.float32)
        for first, last in one.spans:
            weights[first - 1 : last - 1] = 1.0
        for _ in range(fit.STREAMS):
            rows = rng.choice(len(one.ids), size=size, replace=False)
            choice = one.states[0][rows, :, 0].astype(np.int32)
            yield (
                mx.array(one.ids[rows]),
                mx.array(choice),
                mx.array(np.broadcast_to(weights, choice.shape)),
            )


def forward(
    model: llama.Model, ids: mx.array, cache: Any, offset: int
) -> tuple[mx.array, list[mx.array]]:
    """Logits, and the chosen token after each position as the only state (see greedy.Forward)."""
    logits = model(ids, cache=cache)
    return logits, [mx.argmax(logits, axis=-1, keepdims=True)]


def agreement(draft: llama.Model, one: greedy.Answers) -> np.ndarray:
    """Whether the draft chooses the target's token, inside the first answers: [rows, tokens]."""
    first, last = one.spans[0]
    chosen = mx.argmax(draft(mx.array(one.ids[:, : last - 1])), axis=-1)[:, first - 1 :]
    return np.array(chosen == mx.array(one.ids[:, first:last]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rows", type=float, default=1.0, help="share of the greedy answers")
    for name, steps in STEPS.items():
        parser.add_argument(f"--steps-{name}", type=int, default=steps)
        parser.add_argument(f"--seconds-{name}", type=float, default=math.inf, help="cap")
    wanted = vars(parser.parse_args())
    budgets = {
        name: fit.Budget(
            wanted[f"steps_{name}".replace("-", "_")], wanted[f"seconds_{name}".replace("-", "_")]
        )
        for name in STEPS
    }
    out, seed = wanted["out"], wanted["seed"]
    documents = corpus.texts()
    tokenizer = corpus.train_tokenizer(documents)
    text = Corpus.of(tokenizer, documents)
    for name in STEPS:
        corpus.save_tokenizer(tokenizer, out / name)

    mx.random.seed(seed)
    model = build(CONFIGS["llama"])
    batches = text_batches(text, np.random.default_rng(seed))
    outcome = fit.fit(
        "llama", model, partial(text_loss, model), batches, budgets["llama"], every=50
    )
    fit.save(model, CONFIGS["llama"], out / "llama")
    fit.note(out, outcome, {})

    lengths = [(length, max(2, int(rows * wanted["rows"]))) for length, rows in LENGTHS]
    layers = CONFIGS["llama"]["num_hidden_layers"]
    made = greedy.collect(
        lambda ids, cache, offset: forward(model, ids, cache, offset),
        lambda: [KVCache() for _ in range(layers)],
        text,
        seed,
        lengths,
    )
    share, longest = greedy.repeats(made)
    print(f"answers of one repeated token: {share:.1%}; longest run {longest}", flush=True)
    trained, kept = zip(*(one.split(max(1, len(one.ids) // 8)) for one in made), strict=True)
    mx.random.seed(seed)
    draft = build(CONFIGS["llama-draft"])
    batches = draft_batches(trained, np.random.default_rng(seed))
    outcome = fit.fit(
        "llama-draft", draft, partial(draft_loss, draft), batches, budgets["llama-draft"], every=50
    )
    fit.save(draft, CONFIGS["llama-draft"], out / "llama-draft")
    fit.note(
        out,
        outcome,
        {
            f"{one.spans[0][0]} tokens, {drafted} drafted": round(
                1
                + greedy.leading(
                    np.lib.stride_tricks.sliding_window_view(agreement(draft, one), drafted, axis=1)
                ),
                2,
            )
            for one in kept
            for drafted in (2, 4)
        },
    )


if __name__ == "__main__":
    main()
