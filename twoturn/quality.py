"""From scored cells to quality: every arm of a quality series against its reference, task by task.

The first row of a series is the reference's first round against its control: how much is noise.
Rows are about tasks like these; what is faster is told elsewhere, and `links` finds the arm of a
quality series that an arm of a speed series is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from twoturn.matrix import SeriesLike, configuration
from twoturn.stats import paired
from twoturn.stats.base import CONFIDENCE, Refusal
from twoturn.stats.paired import Quality

SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), False) for name in ("series", "arm", "reference")),
        *(pa.field(name, pa.int64()) for name in ("tasks", "passed", "passed_reference")),
        *(pa.field(name, pa.int64()) for name in ("only_arm", "only_reference")),
        *(pa.field(name, pa.float64()) for name in ("difference", "ci_low", "ci_high")),
        *(pa.field(name, pa.float64()) for name in ("confidence", "p_value")),
        *(pa.field(name, pa.int64()) for name in ("tasks_needed", "texts", "same_texts")),
        pa.field("first_divergence", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("gaps", "near_ties")),
        pa.field("first_gap_nats", pa.float64()),
        pa.field("verdict", pa.string(), False),
        pa.field("warnings", pa.list_(pa.string()), False),
        pa.field("fingerprint", pa.string(), False),
    ],
    metadata={"schema_version": "2"},
)
"""results/quality.parquet. Every number of a comparison is null where the verdict is invalid or
not_measured. `reference` is `arm` itself in the row that compares the reference with its
control."""


METRIC = "quality"
NEAR_TIE = 0.1
"""nats: the likeliest token is less than 1.11 times as likely as the next. Rounding may be enough
to turn it, so a text that parts there says little about the model."""


def is_quality(series: Any) -> bool:
    """Whether a series of the plan scores answers and times none."""
    return getattr(getattr(series, "workload", None), "kind", None) == METRIC


def from_cells(cells: pd.DataFrame, series_list: Iterable[SeriesLike]) -> pa.Table:
    """A table of SCHEMA: of every quality series the reference with itself, then all other arms.

    A null arm, or a repetition, that is called better or worse makes the whole series invalid
    (`null_arm_differs:quality`).
    """
    found = [row for one in series_list if is_quality(one) for row in _series(cells, one)]
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _series(cells: pd.DataFrame, series: SeriesLike) -> list[dict[str, Any]]:
    mine = cells[(cells["series"] == series.name) & (cells["fingerprint"] == series.fingerprint)]
    mine = mine[mine["round"] <= series.rounds]
    scores = {arm.name: _scores(mine, arm.name) for arm in series.arms}
    own = scores[series.reference]
    # The control answers once: held against all rounds together it would pass more often.
    once = _scores(mine[mine["round"] == 1], series.reference)
    again = _scores(mine, series.reference, "control")
    found = [_row(mine, series, series.reference, again, once)] if again else []
    found += [
        _row(mine, series, arm.name, scores[arm.name], own)
        for arm in series.arms
        if arm.name != series.reference
    ]
    copies = (series.reference, series.null_arm)
    if any(row["arm"] in copies and row["verdict"] in ("better", "worse") for row in found):
        return [_silent(row, Quality.INVALID, "null_arm_differs:quality") for row in found]
    return found


def _scores(rows: pd.DataFrame, arm: str, kind: str = "round") -> dict[str, bool]:
    """Task → whether it passed in every round; none of a task that has no score in one of them."""
    rows = rows[(rows["arm"] == arm) & (rows["kind"] == kind)]
    whole = rows.groupby("prompt_id")["passed"].apply(
        lambda passed: None if passed.isna().any() else bool(passed.all())
    )
    return {str(task): bool(passed) for task, passed in whole.items() if passed is not None}


def _row(
    rows: pd.DataFrame,
    series: SeriesLike,
    arm: str,
    mine: Mapping[str, bool],
    other: Mapping[str, bool],
) -> dict[str, Any]:
    head: dict[str, Any] = {
        **{name: None for name in SCHEMA.names},
        **{"series": series.name, "arm": arm, "reference": series.reference},
        "fingerprint": series.fingerprint,
        "warnings": [],
    }
    faulty = rows[rows["arm"].isin((arm, series.reference)) & (rows["kind"] != "warmup")]
    if len(bad := sorted(set(faulty.loc[faulty["status"] != "ok", "status"]))):
        return _silent(head, Quality.INVALID, f"row_not_ok:{bad[0]}")
    if not mine or not other:
        return _silent(head, Quality.NOT_MEASURED, None)
    counts = paired.count(mine, other)
    if isinstance(counts, Refusal):
        return _silent(head, Quality.INVALID, counts.reason)
    result = paired.compare(counts)
    needed = paired.tasks_needed(counts.difference, counts.discordant)
    unresolved = result.verdict == Quality.UNRESOLVED
    return {
        **head,
        "tasks": counts.tasks,
        "passed": counts.both + counts.only_arm,
        "passed_reference": counts.both + counts.only_reference,
        "only_arm": counts.only_arm,
        "only_reference": counts.only_reference,
        "difference": counts.difference,
        "ci_low": result.low,
        "ci_high": result.high,
        "confidence": CONFIDENCE,
        "p_value": result.p_value,
        "tasks_needed": needed if unresolved and isinstance(needed, int) else None,
        **_texts(rows, series, arm),
        "verdict": str(result.verdict),
    }


def _silent(row: Mapping[str, Any], verdict: Quality, reason: str | None) -> dict[str, Any]:
    keep = ("series", "arm", "reference", "fingerprint")
    return {
        **{name: None for name in SCHEMA.names},
        **{name: row[name] for name in keep},
        "verdict": str(verdict),
        "warnings": [reason] if reason else [],
    }


def _texts(rows: pd.DataFrame, series: SeriesLike, arm: str) -> dict[str, Any]:
    """Of how many tasks the arm wrote the very text of the reference, in the first round that both
    have, at which character (from 1, the median) the others part, and how close the reference was
    to another token there, where its server tells it."""
    first = rows[rows["kind"] == "round"].sort_values("round")
    own = first[first["arm"] == series.reference].drop_duplicates("prompt_id")
    repeated = rows[(rows["arm"] == arm) & (rows["kind"] == "control")]
    others = repeated if arm == series.reference else first[first["arm"] == arm]
    both = own.merge(others.drop_duplicates("prompt_id"), on="prompt_id", suffixes=("_own", ""))
    hashes = both[["output_sha256_own", "output_sha256"]].fillna("")
    same = hashes["output_sha256_own"] == hashes["output_sha256"]
    parted, gaps = (
        pd.to_numeric(both.loc[~same, name], errors="coerce").dropna()
        for name in ("divergence_index", "divergence_gap_nats")
    )
    return {
        "texts": len(both),
        "same_texts": int(same.sum()),
        "first_divergence": int(parted.median()) + 1 if len(parted) else None,
        "gaps": len(gaps),
        "near_ties": int((gaps < NEAR_TIE).sum()) if len(gaps) else None,
        "first_gap_nats": float(gaps.median()) if len(gaps) else None,
    }


# Quality and speed --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """An arm of a speed series and the quality row of the same configuration."""

    series: str
    arm: str
    reference: str
    quality: Mapping[str, Any]
    same_reference: bool


def links(series_list: Sequence[SeriesLike], table: pa.Table) -> list[Link]:
    """Every arm of a timed series that some quality series holds too, null arms and references left
    out. `same_reference`: both are compared with the same configuration, so that speed and quality
    may be told side by side."""
    rows = {(row["series"], row["arm"]): row for row in table.to_pylist()}
    found = []
    for scored in filter(is_quality, series_list):
        own = {configuration(arm): arm.name for arm in scored.arms if arm.name != scored.null_arm}
        for timed in series_list:
            if is_quality(timed):
                continue
            reference = next(arm for arm in timed.arms if arm.name == timed.reference)
            for arm in timed.arms:
                name = own.get(configuration(arm))
                row = rows.get((scored.name, name or ""))
                if row is None or arm.name in (timed.reference, timed.null_arm):
                    continue
                if name == scored.reference:
                    continue  # compared with itself: how much is noise, and nothing about the arm
                same = own.get(configuration(reference)) == scored.reference
                found.append(Link(timed.name, arm.name, timed.reference, row, same))
    return found


def worse(series_list: Sequence[SeriesLike], table: pa.Table) -> dict[str, frozenset[str]]:
    """Timed series → arms whose answers are worse than those of a quality series' reference."""
    found: dict[str, set[str]] = {}
    for link in links(series_list, table):
        if link.quality["verdict"] == Quality.WORSE:
            found.setdefault(link.series, set()).add(link.arm)
    return {name: frozenset(arms) for name, arms in found.items()}


def by_group(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """Tasks of the first round by kind, level and arm: how many there are, and how many passed."""
    rows = cells[(cells["series"] == series.name) & (cells["kind"] == "round")]
    rows = rows[(rows["round"] == 1) & rows["passed"].notna()]
    parts = rows["prompt_id"].str.split("/", n=2, expand=True)
    if rows.empty:
        return pd.DataFrame([], columns=["task", "level", "arm", "tasks", "passed"])
    told = rows.assign(task=parts[0], level=parts[1].astype(int), scored=rows["passed"].astype(int))
    grouped = told.groupby(["task", "level", "arm"], as_index=False, sort=False)
    return grouped.agg(tasks=("scored", "size"), passed=("scored", "sum"))
