"""Whether the texts of a round are right, and where they part: answers of a round compared with
the reference arm's, and put to servers that know nothing else yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from twoturn import bench, engines, metrics, prefix, servers, text_gate
from twoturn.bench import Cell, Round
from twoturn.exchange import send
from twoturn.messages import Messages
from twoturn.plan import Arm


def _answers(measured: Sequence[Cell]) -> list[tuple[dict[str, Any], text_gate.Request]]:
    """Valid rows with what was asked and answered."""
    return [
        (row, request)
        for cell in measured
        for row, request in zip(cell.rows, cell.requests, strict=True)
        if row["status"] == "ok"
    ]


def compare(this: Round, measured: Sequence[Cell], against: Sequence[Cell]) -> None:
    """Fill in where each answer first differs from the reference arm's among `against`, in
    characters, and how close the reference was to another token there; null where both are the
    same, or where one of the two is no valid answer."""
    of_reference = {
        (row["prompt_id"], row["turn"]): request
        for row, request in _answers(against)
        if request.arm.name == this.series.reference
    }
    for row, request in _answers(measured):
        if (other := of_reference.get((row["prompt_id"], row["turn"]))) is not None:
            place = text_gate.first_difference(request.text, other.text)
            row["divergence_index"] = place
            row["divergence_gap_nats"] = None if place is None else other.gap_at(place)


def judge(this: Round, measured: Sequence[Cell]) -> None:
    """Fill in whether greedy texts are right; a row that is wrong when warm is no measurement."""
    workload = this.series.workload
    if workload.temperature > 0 or workload.kind == "prefill" or not workload.timed:
        return  # samples differ rightly; of prefill no text is timed, of tasks the score counts
    timed = {cell.arm.name for cell in measured if _tells_time(this, cell.arm)}
    answers = [
        (row, request)
        for row, request in _answers(measured)
        if row["kind"] == "round" and request.arm.name not in timed
    ]
    arms = sorted(this.series.arms, key=lambda arm: arm.name != this.series.reference)
    found = text_gate.examine([request for _, request in answers], arms, _Cold(this))
    for (row, request), finding in zip(answers, found, strict=True):
        row["text_gate"] = finding.verdict
        if finding.other is None:
            continue
        tokenizer = bench.tokenizer(this, request.arm)
        encode: Callable[[str], Sequence[Any]] = tokenizer.encode if tokenizer else str.split
        place = text_gate.first_difference(encode(request.text), encode(finding.other))
        row["divergence_token"] = None if place is None else place + 1
        if finding.verdict == "wrong_when_warm":
            row["status"] = finding.verdict
            since = "" if place is None else f", from token {place + 1} on"
            row["reason"] = f"turn {row['turn']} is not what a fresh server writes{since}"


def _tells_time(this: Round, arm: Arm) -> bool:
    """Whether the same question is another prompt when it is put again: then no answer is wrong."""
    tokenizer = bench.tokenizer(this, arm)
    return tokenizer is not None and prefix.tells_time(tokenizer)


class _Cold:
    """What a fresh server of an arm answers to messages that are the first that it is sent, or None
    if it gives no whole answer. The same question is asked once.

    None too where no such server can be had: one that already ran cannot be started afresh, and not
    every server can do without speculation."""

    def __init__(self, this: Round) -> None:
        self.this = this
        self.known: dict[tuple[str, Messages], str | None] = {}

    def __call__(self, arm: Arm, messages: Messages) -> str | None:
        modes = engines.get(self.this.loaded.campaign, arm.server).modes
        if arm.attached or arm.speculation not in modes:
            return None
        recipe = dataclasses.replace(arm, name="", null=False)  # copies of an arm answer alike
        key = (repr(recipe), messages)
        if key not in self.known:
            self.this.say(f"cold run {self.this.number}: {arm.name}, {arm.speculation}")
            self.known[key] = self._ask(arm, messages)
        return self.known[key]

    def _ask(self, arm: Arm, messages: Messages) -> str | None:
        this, found = self.this, list[str | None]()

        def ask(
            base_url: str, model: str, timeout_s: float, api_key: str | None
        ) -> tuple[int, dict[str, Any] | None]:
            sent = send(this, base_url, model, api_key, messages, None, extra=this.extra)
            if sent.answer.http_status != 200:
                return sent.answer.http_status, {"error": sent.answer.error}
            workload = this.series.workload
            wanted = metrics.Wanted(model, workload.max_tokens, None, workload.exact_length)
            whole = metrics.measure(sent.answer, wanted).status == "ok"
            found.append(sent.answer.full_text if whole else None)
            return 200, {"choices": [None]}

        try:
            with bench.cell_folder(this.loaded.root) as folder:
                place = bench.place(this, arm, folder)
                launch = engines.get(this.loaded.campaign, arm.server).launch(arm, place)
                with servers.run(launch, place.port, folder / "server.log", ask):
                    return found[-1]
        except servers.ServerFault as fault:
            what = fault.status if this.private else fault
            this.say(f"cold run {this.number}: {arm.name}: {what}")
            return None
