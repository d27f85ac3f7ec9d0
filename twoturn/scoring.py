"""Which answers of a cell pass: checked when its server has stopped, text by text.

Of the texts only the scores are kept, beside their hashes. What a model thought is no answer: where
the server tells it apart, it is not read.
"""

from __future__ import annotations

from typing import Any

from twoturn import config, engines, sandbox, tasks
from twoturn.bench import Cell, Round

ANSWERED = ("ok", "repeated_token", "empty_stream")
"""Statuses of an answer that can be scored: one token over and over, or none, is a bad answer and
no fault of the measurement."""
UNREADABLE = "the server could not read what the model wrote"


def score(this: Round, cell: Cell) -> None:
    """Fill in `passed` and `failed_because` of a quality cell's valid rows.

    A server that broke off has no score: null is not 0. What a model's code does to itself is a
    failed task and never a fault of the measurement.
    """
    workload = this.series.workload
    if not isinstance(workload, config.Quality):
        return
    known = {task.prompt_id: task for task in tasks.parse(this.text, workload.text)}
    for row, request in zip(cell.rows, cell.requests, strict=True):
        task = known.get(row["prompt_id"])
        if task is None:
            continue
        if row["status"] in ANSWERED:
            outcome = tasks.score(task, request.visible)
            row |= {"passed": outcome.passed, "failed_because": outcome.reason, "status": "ok"}
        elif _is_unreadable(row, this, cell):
            row |= {"passed": False, "failed_because": UNREADABLE, "status": "ok"}
    cell.metadata["executor"] = sandbox.enforced()


def _is_unreadable(row: dict[str, Any], this: Round, cell: Cell) -> bool:
    """Whether the server gave up on the model's own words: a bad answer too, whoever says so."""
    if row["status"] != "server_error":
        return False
    words = engines.get(this.loaded.campaign, cell.arm.server).cannot_read
    return bool(words) and words in (row["reason"] or "")
