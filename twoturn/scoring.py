"""Which answers of a cell pass: checked when its server has stopped, text by text.

Of the texts only the scores are kept, beside their hashes.
"""

from __future__ import annotations

from twoturn import config, sandbox, tasks
from twoturn.bench import Cell, Round

ANSWERED = ("ok", "repeated_token", "empty_stream")
"""Statuses of an answer that can be scored: one token over and over, or none, is a bad answer and
no fault of the measurement."""


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
        if task is not None and row["status"] in ANSWERED:
            outcome = tasks.score(task, request.text)
            row["passed"], row["failed_because"] = outcome.passed, outcome.reason
            row["status"] = "ok"
    cell.metadata["executor"] = sandbox.enforced()
