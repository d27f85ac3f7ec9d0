"""Train the hybrid family: target, MTP head and DFlash draft.

    python -m training.hybrid OUT                        about an hour of a busy processor core
    python -m training.hybrid OUT --parts mtp dflash     drafts anew for the target that is in OUT

Run it with the Python of the mlx-vlm server's environment. Steps and seeds are fixed, so a training
is meant to repeat on one machine; a cap in seconds gives that up.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.qwen3_5_text import Model

from training import corpus, dflash, fit, greedy, mtp, target

SEED = 7
STEPS = {"target": 480, "mtp": 300, "dflash": 600}


def forward(
    model: Model, ids: mx.array, cache: Any, offset: int
) -> tuple[mx.array, list[mx.array]]:
    """Logits, and the states at dflash.TAPS and after the last layer (see greedy.Forward)."""
    places = offset + target.positions(*ids.shape)
    found = model.language_model(
        ids,
        cache=cache,
        position_ids=places,
        capture_layer_ids=list(dflash.TAPS),
        return_hidden=True,
    )
    return found.logits, found.hidden_states


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--answers", type=Path, help=".npz that keeps the target's greedy answers")
    parser.add_argument("--rows", type=float, default=1.0, help="share of the greedy answers")
    for name, steps in STEPS.items():
        parser.add_argument(f"--steps-{name}", type=int, default=steps)
        parser.add_argument(f"--seconds-{name}", type=float, default=math.inf, help="cap")
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    budgets = {
        name: fit.Budget(getattr(wanted, f"steps_{name}"), getattr(wanted, f"seconds_{name}"))
        for name in STEPS
    }
    out: Path = wanted.out
    documents = corpus.texts()
    tokenizer = corpus.train_tokenizer(documents)
    text = corpus.Corpus.of(tokenizer, documents)
    told = target.config()
    if "target" in wanted.parts:
        corpus.save_tokenizer(tokenizer, out / "target")
        model, outcome = target.train(text, budgets["target"], wanted.seed, out / "target")
        fit.note(out, outcome, {})
    else:
        model = target.load(out / "target", told)
    if not {"mtp", "dflash"} & set(wanted.parts):
        return
    lengths = [(length, max(2, int(rows * wanted.rows))) for length, rows in greedy.LENGTHS]
    if wanted.answers is not None and wanted.answers.is_file():
        made = greedy.read(wanted.answers)
    else:
        made = greedy.collect(
            lambda ids, cache, offset: forward(model, ids, cache, offset),
            model.language_model.make_cache,
            text,
            wanted.seed,
            lengths,
        )
        if wanted.answers is not None:
            greedy.write(made, wanted.answers)
    share, longest = greedy.repeats(made)
    print(f"answers of one repeated token: {share:.1%}; longest run {longest}", flush=True)
    trained, kept = zip(*(one.split(max(1, len(one.ids) // 8)) for one in made), strict=True)
    embed = model.language_model.model.embed_tokens
    if "mtp" in wanted.parts:
        head, outcome = mtp.train(model, told, trained, budgets["mtp"], wanted.seed)
        fit.save(head, mtp.config(told), out / "mtp")
        seen = {
            f"{one.spans[0][0]} tokens, block {block}": round(
                mtp.accepted(head, embed, one, block - 1), 2
            )
            for one in kept
            for block in (2, 4, 6)
        }
        fit.note(out, outcome, seen)
    if "dflash" in wanted.parts:
        draft, outcome = dflash.train(model, told, trained, budgets["dflash"], wanted.seed)
        fit.save(draft, dflash.config(told), out / "dflash")
        seen = {
            f"{one.spans[0][0]} tokens, block {block}": round(
                dflash.accepted(draft, embed, one, block), 2
            )
            for one in kept
            for block in (3, 5, 8)
        }
        fit.note(out, outcome, seen)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
