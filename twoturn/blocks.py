"""What a series says of block sizes: one row per size of a sweep, for table and picture alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from twoturn.contrasts import BEST_BLOCK, SLOT_VALUES
from twoturn.matrix import ADAPTIVE, SeriesLike, block, sweep_names
from twoturn.numbers import finite
from twoturn.stats.verdict import times_as_fast

COLUMNS = [
    *("sweep", "arm", "block", "effective_block", "accept_length", "metric", "verdict"),
    *("ratio", "ci_low", "ci_high", "times_as_fast", "fast_low", "fast_high", "rounds"),
    *("chosen", "told_fast", "told_low", "told_high", "told_rounds"),
]
"""sweep: what its arms have in common. block: as asked for, a size or `adaptive`; effective_block
and accept_length over all valid requests of the rounds. ratio to rounds: the contrast with the
reference on all rounds, on the metric that decides the series. chosen: whether the choosing rounds
chose it; told_…: "times as fast" on the others, of the chosen one alone."""


def curve(
    cells: pd.DataFrame, contrasts: Iterable[Mapping[str, Any]], series: SeriesLike
) -> pd.DataFrame:
    """A row per arm of every sweep (COLUMNS), in the order of its blocks, adaptive last.

    contrasts: those of the series as it is planned. Unknown numbers are NaN; empty without a sweep.
    """
    metric = series.metrics[0]
    by_metric: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in contrasts:
        by_metric.setdefault(row["metric"], {})[row["arm"]] = row
    compared = by_metric.get(metric, {})
    best = by_metric.get(f"{BEST_BLOCK}:{metric}", {})
    arms = {arm.name: arm for arm in series.arms}
    valid = cells[(cells["kind"] == "round") & (cells["status"] == "ok")]
    found = [
        {
            "sweep": name,
            "arm": arm,
            "block": str(block(arms[arm])),
            **_lengths(valid[valid["arm"] == arm]),
            "metric": metric,
            **_compared(compared.get(arm, {})),
            **_chosen(best.get(arm, {})),
        }
        for name, sweep in sweep_names(series).items()
        for arm in sorted(sweep, key=lambda arm: _place(block(arms[arm])))
    ]
    return pd.DataFrame(found, columns=COLUMNS)


def _place(asked: int | str | None) -> float:
    return np.inf if asked == ADAPTIVE else float(asked or 0)


def _lengths(rows: pd.DataFrame) -> dict[str, float | None]:
    cycles, drafted = (
        pd.to_numeric(rows[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan).sum()
        for name in ("verify_cycles", "drafted_tokens")
    )
    return {
        "effective_block": finite(1 + drafted / cycles) if cycles else None,
        "accept_length": finite(SLOT_VALUES["accept_length"](rows)) if len(rows) else None,
    }


def _compared(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("ratio") is None:
        return {"verdict": row.get("verdict", "not_measured")}
    numbers = {name: row[name] for name in ("verdict", "ratio", "ci_low", "ci_high", "rounds")}
    return {**numbers, **_fast(row, ("times_as_fast", "fast_low", "fast_high"))}


def _chosen(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("ratio") is None:
        return {"chosen": False}
    fast = _fast(row, ("told_fast", "told_low", "told_high"))
    return {"chosen": True, **fast, "told_rounds": row["rounds"]}


def _fast(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    metric = row["metric"].rpartition(":")[2]
    return dict(
        zip(names, times_as_fast(metric, row["ratio"], row["ci_low"], row["ci_high"]), strict=True)
    )
