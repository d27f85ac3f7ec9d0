"""What one cell sends: a warm-up request of the same shape, its dialogues turn by turn, a decoy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twoturn import bench, lengths, prefix, servers, text_gate, workloads
from twoturn.bench import Cell, Round
from twoturn.config import Conversation
from twoturn.engines import Engine
from twoturn.exchange import Exchange
from twoturn.messages import Messages, as_sent
from twoturn.plan import Arm, round_name
from twoturn.stream import Answer

WARM_UP_TOKENS = 32
COLD_TOKENS = 16  # shared with the warm-up request by chance, beside the template's own first ones


def send_workload(
    this: Round, engine: Engine, cell: Cell, running: servers.Running, facts: Mapping[str, Any]
) -> None:
    """Fill the cell's rows and requests, one request at a time."""
    workload, arm = this.series.workload, cell.arm
    tokenizer, tools = bench.tokenizer(this, arm), this.extra.get("tools", ())
    cold = COLD_TOKENS + (tokenizer.shared() if tokenizer else 0)
    key = f"{round_name(this.number)}-{facts['kind']}"
    short = min(WARM_UP_TOKENS, workload.max_tokens)

    def keep(row: Mapping[str, Any], answer: Answer, history: Messages, **place: Any) -> None:
        cell.rows.append({**facts, **row, **place})
        gaps = tuple((len(chunk.text), chunk.gap_nats) for chunk in answer.chunks)
        texts = {"text": answer.full_text, "visible": answer.text}
        cell.requests.append(text_gate.Request(arm, history, gaps=gaps, **texts))

    exchange = Exchange(this, engine, arm, running, tokenizer, short)
    warm_up = workloads.alike(workload, this.text, tokenizer, f"{key}-warmup")
    row, answer = exchange(warm_up.turns[0], warm_up.prompt_tokens)
    name = f"{warm_up.prompt_id}-warmup"
    keep(row, answer, warm_up.turns[0], turn=1, prompt_id=name, kind="warmup")
    workload, left_out = lengths.possible(this, arm)
    cell.rows += [{**facts, **row} for row in left_out]
    cell.requests += [text_gate.Request(arm, (), "") for _ in left_out]
    extra = {**this.extra, **_gaps_of(this, arm, engine)}
    exchange = Exchange(this, engine, arm, running, tokenizer, workload.max_tokens, extra)
    dialogues = workloads.dialogues(workload, this.text, tokenizer, key)
    for place, dialogue in enumerate(dialogues, start=1):
        if len(dialogues) > 1:
            this.say(
                f"{facts['kind']} {this.number}: {arm.name}, prompt {place} of {len(dialogues)}"
            )
        history: Messages = ()
        before: tuple[prefix.Turn, str | None] | None = None
        for turn, said in enumerate(dialogue.turns, start=1):
            history += said
            expected = tokenizer.count(as_sent(history), tools) if tokenizer else None
            row, answer = exchange(history, expected)
            if turn == 1 and dialogue.new:
                row |= _unless_cold(row, cold, attached=arm.attached)
            now = prefix.Turn(history, row["started_at"], tools)
            if before and tokenizer:
                row["prefix_share"] = prefix.share(tokenizer, *before, now)
            keep(row, answer, history, turn=turn, prompt_id=dialogue.prompt_id)
            before = now, workloads.unchanged(workload, answer)
            history += workloads.goes_back(workload, answer)
    if isinstance(workload, Conversation) and workload.decoy and facts["kind"] == "round":
        decoy = workloads.alike(workload, this.text, tokenizer, f"{key}-decoy")
        row, answer = exchange(decoy.turns[0], decoy.prompt_tokens)
        row |= _unless_cold(row, cold, attached=arm.attached)
        name = f"{decoy.prompt_id}-decoy"
        keep(row, answer, decoy.turns[0], turn=1, prompt_id=name, kind="decoy")


def _gaps_of(this: Round, arm: Arm, engine: Engine) -> Mapping[str, Any]:
    """What asks for the reference's log probabilities, so that it is known how close a token was
    where another arm parts from it. Never where time is measured, nor of speculation, which some
    servers leave out for it."""
    plain = arm.name == this.series.reference and arm.speculation == "none"
    return {} if this.series.workload.timed or not plain else engine.top_two


def _unless_cold(row: Mapping[str, Any], cold: int, *, attached: bool) -> dict[str, Any]:
    """What a row says of a new prompt that came from a cache, as far as the server tells."""
    if row["status"] != "ok" or (row["cached_tokens"] or 0) <= cold:
        return {}
    reason = f"{row['cached_tokens']} tokens of a new prompt came from a cache"
    # Nothing cold is claimed of a server that already ran, so its row stays valid.
    return {"reason": reason} | ({} if attached else {"status": "not_cold"})
