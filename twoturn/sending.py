"""What one cell sends: a warm-up request of the same shape, then its dialogues turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twoturn import bench, servers, text_gate, workloads
from twoturn.bench import Cell, Round
from twoturn.engines import Engine
from twoturn.exchange import Exchange
from twoturn.messages import Messages, as_sent
from twoturn.plan import round_name

WARM_UP_TOKENS = 32
COLD_TOKENS = 16  # shared with the warm-up request by chance, beside the template's own first ones


def send_workload(
    this: Round, engine: Engine, cell: Cell, running: servers.Running, facts: Mapping[str, Any]
) -> None:
    """Fill the cell's rows and requests, one request at a time."""
    workload, arm = this.series.workload, cell.arm
    tokenizer = bench.tokenizer(this, arm)
    cold = COLD_TOKENS + (tokenizer.shared() if tokenizer else 0)
    key = f"{round_name(this.number)}-{facts['kind']}"
    short = min(WARM_UP_TOKENS, workload.max_tokens)
    exchange = Exchange(this, engine, arm, running, tokenizer, short)
    warm_up = workloads.warm_up(workload, this.text, tokenizer, f"{key}-warmup")
    row, answer = exchange(warm_up.turns[0], warm_up.prompt_tokens)
    place = {"turn": 1, "prompt_id": f"{warm_up.prompt_id}-warmup", "kind": "warmup"}
    cell.rows.append({**facts, **row, **place})
    cell.requests.append(text_gate.Request(arm, warm_up.turns[0], answer.full_text))
    exchange = Exchange(this, engine, arm, running, tokenizer, workload.max_tokens)
    for dialogue in workloads.dialogues(workload, this.text, tokenizer, key):
        history: Messages = ()
        for turn, said in enumerate(dialogue.turns, start=1):
            history += said
            expected = tokenizer.count(as_sent(history)) if tokenizer else None
            row, answer = exchange(history, expected)
            if turn == 1 and row["status"] == "ok" and (row["cached_tokens"] or 0) > cold:
                reason = f"{row['cached_tokens']} tokens of a new prompt came from a cache"
                # Nothing cold is claimed of a server that already ran, so its row stays valid.
                row |= {"reason": reason} | ({} if arm.attached else {"status": "not_cold"})
            cell.rows.append({**facts, **row, "turn": turn, "prompt_id": dialogue.prompt_id})
            cell.requests.append(text_gate.Request(arm, history, answer.full_text))
            history += workloads.goes_back(workload, answer.text)
