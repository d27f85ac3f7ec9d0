"""From cells to contrasts: slot values, the checks of a series, a verdict per pair and metric.

A contrast is made within one series, from the slots of two arms, or it is not made. What makes it
`invalid` is told as reason codes in `warnings`, the gravest first; a code may carry a detail after
a colon (`row_not_ok:stopped_early`). `claims.REASONS` puts the codes into words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from twoturn import cache_check, prefix
from twoturn.cells import NO_PROMPT, TOO_LONG
from twoturn.errors import UserError
from twoturn.matrix import SeriesLike, engine, sweeps
from twoturn.stats import best_of, pair_fit, prompts, stacking
from twoturn.stats.base import CONFIDENCE, Estimate, Refusal, Slot
from twoturn.stats.drift_curve import Curve, curve
from twoturn.stats.stacking import Square
from twoturn.stats.verdict import (
    MARGIN,
    STACKED,
    STACKING,
    Verdict,
    compare,
    judge,
    larger_is_better,
)

SCHEMA = pa.schema(
    [
        pa.field("series", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("reference", pa.string(), nullable=False),
        pa.field("ratio", pa.float64()),
        pa.field("ci_low", pa.float64()),
        pa.field("ci_high", pa.float64()),
        pa.field("confidence", pa.float64()),
        pa.field("p_value", pa.float64()),
        pa.field("df", pa.int64()),
        pa.field("rounds", pa.int64()),
        pa.field("hl_ratio", pa.float64()),
        pa.field("hl_confidence", pa.float64()),
        pa.field("drift_ratio", pa.float64()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("warnings", pa.list_(pa.string()), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
    ],
    metadata={"schema_version": "1"},
)
"""results/contrasts.parquet. Every number is null when the verdict is invalid or not_measured.

A row of the metric STACKING is about a square of four arms (`squares`): `arm` is the one that holds
both changes, ratio is combined ÷ product of the single ratios, and `faster` means more than the
product. It has no cross-check and no drift of its own.

A row of `best_block:<metric>` is about a sweep (`sweeps`): `arm` is the block size that one part of
the rounds chose, all numbers are those of the other part, which `rounds` counts.

A row of `beside_best:<metric>` follows for every other arm of that sweep: `reference` is the chosen
arm, and the rounds are those that did not choose.

A row of `prompts:<metric>` is about prompts like these: one ratio per prompt, `df` is their number
less one.
"""

BEST_BLOCK = "best_block"
BESIDE_BEST = "beside_best"
PROMPTS = "prompts"

SLOT_COLUMNS = ["series", "metric", "arm", "round", "session_id", "time_s", "value", "reason"]

DRIFT_COLUMNS = [
    *("series", "metric", "kind", "round", "session_id", "time_s", "value"),
    *("fitted", "low", "high", "ratio_to_first", "ratio_low", "ratio_high", "ratio_to_fitted"),
]

COLUMNS = (
    *("series", "fingerprint", "arm", "checkpoint", "server_version", "round", "turn"),
    *("prompt_id", "kind", "status", "session_id", "started_at", "start_monotonic_s"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "decode_tokens", "decode_s"),
    *("ttft_s", "e2e_s", "verify_cycles", "accepted_tokens"),
)
"""Columns of results/cells.parquet that are read here."""

LATER_COLUMNS = ("prefix_share",)
"""Read too, and null in a table that an older version made."""

COLD = ("ttft_s", "turn2_ttft_s", "turns_ttft_s", "prefill_tok_s", "conversation_s")
"""Metrics that depend on what a server's cache held before the first request. Of a server that the
workflow did not start nobody knows that, not of the second turn either: its prompt may be there
from an earlier run."""

COLD_NOT_PROVABLE = "cold_not_provable"

SECOND_TURN = "turn2_ttft_s"
"""The metric that is about reuse of the first turn and nothing else."""

TEMPLATE_BREAKS_PREFIX = "template_breaks_prefix"
CACHE_COUNTER_SUSPECT = "cache_counter_suspect"

CLOCK_STEP_S = 1.0
"""Wall clocks are set by small steps; only a larger overlap of two slots means anything."""

LONGEST_S = 1e7
"""A request that claims to have lasted longer (four months) tells nothing about when it ended."""

CURVE_POINTS = 49

GRAVEST = ("wrong_when_warm", "censored", "row_")
"""Reasons of slots by what they begin with, the gravest first: the speed of a wrong text is none,
and a censored slot hides how slow its arm is."""


NullArm = Literal["absent", "passed", "failed", "unchecked"]


# The value of a slot ------------------------------------------------------------------------------


Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


def _numbers(rows: pd.DataFrame, column: str) -> Numbers:
    """One column as floats, unknown as NaN: a sum or median with an unknown in it is unknown."""
    return pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _sound(values: Numbers) -> Numbers:
    """The values, or infinity for all if one is impossible, so that no sum or median hides it."""
    impossible = (values <= 0) | np.isinf(values)
    return np.full_like(values, np.inf) if impossible.any() else values


def _quotient(above: float, below: float) -> float:
    return above / below if below else math.nan


def _decode_rate(rows: pd.DataFrame) -> float:
    """Σ decode_tokens ÷ Σ decode_s over all rows, of every turn."""
    tokens, seconds = (_sound(_numbers(rows, name)) for name in ("decode_tokens", "decode_s"))
    return _quotient(tokens.sum(), seconds.sum())


def _prefill_rate(rows: pd.DataFrame) -> float:
    """Σ (prompt_tokens − cached_tokens) ÷ Σ ttft_s; an unknown number of cached tokens is not 0."""
    fresh = _numbers(rows, "prompt_tokens") - _numbers(rows, "cached_tokens")
    return _quotient(_sound(fresh).sum(), _sound(_numbers(rows, "ttft_s")).sum())


def _accept_length(rows: pd.DataFrame) -> float:
    """1 + Σ accepted_tokens ÷ Σ verify_cycles: the bonus token is included. A request for which
    nothing was drafted counts with no cycle, as n-grams of a text that does not repeat."""
    accepted, cycles = (_numbers(rows, name) for name in ("accepted_tokens", "verify_cycles"))
    if (cycles < 0).any() or np.isinf(cycles).any():
        return math.inf
    return 1 + _quotient(accepted.sum(), cycles.sum())


def _ttft(turn: int) -> Callable[[pd.DataFrame], float]:
    """Median over the prompts of the time to the first token of one turn."""

    def value(rows: pd.DataFrame) -> float:
        times = _sound(_numbers(rows[rows["turn"] == turn], "ttft_s"))
        return float(np.median(times)) if len(times) else math.nan

    return value


def _over_turns(column: str) -> Callable[[pd.DataFrame], float]:
    """Σ of a column over the turns of a conversation, the mean if there are several prompts."""

    def value(rows: pd.DataFrame) -> float:
        return _quotient(_sound(_numbers(rows, column)).sum(), rows["prompt_id"].nunique())

    return value


SLOT_VALUES: dict[str, Callable[[pd.DataFrame], float]] = {
    "decode_tok_s": _decode_rate,
    "prefill_tok_s": _prefill_rate,
    "accept_length": _accept_length,
    "ttft_s": _ttft(1),
    "turn2_ttft_s": _ttft(2),
    "conversation_s": _over_turns("e2e_s"),
    "turns_ttft_s": _over_turns("ttft_s"),
}


def value_of(metric: str, rows: pd.DataFrame) -> float:
    """The value of one slot, of rows that are all valid."""
    return SLOT_VALUES[named(metric)](at_length(metric, rows))


def named(metric: str) -> str:
    """A metric without the length that it is taken at."""
    return metric.partition("@")[0]


def at_length(metric: str, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that a metric is about: those of its own length, and that of a server which did not
    start. Of a metric without a length all."""
    _, _, length = metric.partition("@")
    return rows[rows["prompt_id"].isin([f"n{length}", NO_PROMPT])] if length else rows


def slots(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """One row per metric, arm and round (SLOT_COLUMNS), in order of time.

    `time_s` is the middle of the slot, from the start of its first request to the end of its last,
    in seconds since the series' first slot began. `value` is NaN where `reason` is not None:
    `censored:<arm>` (a request ran into the client's time limit: the true value is larger),
    `wrong_when_warm:<arm>` (it wrote another text than a fresh server), `too_long:<arm>` (it cannot
    hold a prompt of the metric's length), `row_not_ok:<status>`,
    `rows_missing` (a prompt or turn that other slots have),
    `no_value` (not reported), `bad_value` (not a positive finite number).
    Raises UserError if a column is missing or a metric unknown.
    """
    rows = _rows(cells, series, "round")
    return _slots(rows, series, _origin(rows), _requests(rows))


def _rows(cells: pd.DataFrame, series: SeriesLike, kind: str) -> pd.DataFrame:
    """The series' rows of one kind, by start, with `start` and `end`; no round beyond the plan."""
    missing = [column for column in COLUMNS if column not in cells.columns]
    if missing:
        raise UserError(
            f"the table of cells has no column {', '.join(missing)}",
            cure="remove the results that an older version made and measure again",
        )
    if unknown := [metric for metric in series.metrics if named(metric) not in SLOT_VALUES]:
        raise UserError(f"unknown metric {', '.join(unknown)}", key=series.name)
    rows = cells[(cells["series"] == series.name) & (cells["kind"] == kind)]
    rows = rows[rows["round"] <= series.rounds] if kind == "round" else rows
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *LATER_COLUMNS])))
    start = pd.to_datetime(rows["started_at"], utc=True, errors="coerce")
    lasted = _numbers(rows, "e2e_s")
    lasted = np.where((lasted > 0) & (lasted < LONGEST_S), lasted, 0.0)
    return rows.assign(start=start, end=start + pd.to_timedelta(lasted, unit="s")).sort_values(
        ["start", "start_monotonic_s", "arm", "turn", "prompt_id"], ignore_index=True
    )


def _origin(rows: pd.DataFrame) -> Any:
    return rows["start"].min()


def _requests(rows: pd.DataFrame) -> set[tuple[Any, ...]]:
    """Every (prompt, turn) that some slot has; a server that did not start has none."""
    rows = rows[rows["prompt_id"] != NO_PROMPT]
    return set(rows[["prompt_id", "turn"]].itertuples(index=False, name=None))


def _slots(
    rows: pd.DataFrame, series: SeriesLike, origin: Any, requests: set[tuple[Any, ...]]
) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    for (arm, number, session), slot in rows.groupby(["arm", "round", "session_id"], sort=False):
        middle = slot["start"].min() + (slot["end"].max() - slot["start"].min()) / 2
        for metric in series.metrics:
            fault = _slot_fault(metric, slot, requests)
            value = value_of(metric, slot) if fault is None else math.nan
            reason = fault or _value_fault(value)
            found.append(
                {
                    "series": series.name,
                    "metric": metric,
                    "arm": arm,
                    "round": number,
                    "session_id": session,
                    "time_s": (middle - origin).total_seconds(),
                    "value": value if reason is None else math.nan,
                    "reason": reason,
                }
            )
    table = pd.DataFrame(found, columns=SLOT_COLUMNS)
    table["reason"] = table["reason"].astype(object).where(table["reason"].notna(), None)
    return table


def _slot_fault(metric: str, slot: pd.DataFrame, requests: set[tuple[Any, ...]]) -> str | None:
    """Why a slot has no value on a metric."""
    _, _, length = metric.partition("@")
    if length:
        slot = at_length(metric, slot)
        requests = {request for request in requests if request[0] == f"n{length}"}
    if len(slot) == 0:
        return "rows_missing"
    failed = sorted({str(status) for status in slot["status"] if status != "ok"})
    if "client_timeout" in failed:
        return f"censored:{slot['arm'].iloc[0]}"
    if "wrong_when_warm" in failed:
        return f"wrong_when_warm:{slot['arm'].iloc[0]}"
    if TOO_LONG in failed:
        return f"{TOO_LONG}:{slot['arm'].iloc[0]}"
    if failed:
        return f"row_not_ok:{failed[0]}"
    return "rows_missing" if _requests(slot) != requests else None


def _value_fault(value: float) -> str | None:
    if math.isnan(value):
        return "no_value"
    return None if 0 < value < math.inf else "bad_value"


# The checks ---------------------------------------------------------------------------------------


def series_fault(cells: pd.DataFrame, series: SeriesLike) -> str | None:
    """The code of what makes every contrast of a series invalid, or None.

    `other_fingerprint`, `unknown_arm`, `duplicate_rows`, `no_time`, `clock_backwards` (the wall
    clock was set back within a session), `order_broken` (rounds, or arms in a round, not in the
    planned order), `slots_overlap` (two arms ran at once), `versions_differ` (one arm, two server
    versions).
    """
    rows = _rows(cells, series, "round")
    if (rows["fingerprint"] != series.fingerprint).any():
        return "other_fingerprint"
    if not set(rows["arm"]) <= {arm.name for arm in series.arms}:
        return "unknown_arm"
    if rows.duplicated(["arm", "round", "turn", "prompt_id"]).any():
        return "duplicate_rows"
    if rows["start"].isna().any():
        return "no_time"
    if (rows.groupby("session_id")["start_monotonic_s"].diff() < 0).any():
        return "clock_backwards"
    ran = rows.groupby(["round", "arm"], as_index=False).agg(
        start=("start", "min"), end=("end", "max")
    )
    ran = ran.sort_values("start", ignore_index=True)
    planned = [
        (number, arm)
        for number in sorted(set(ran["round"]))
        for arm in series.order(number)
        if ((ran["round"] == number) & (ran["arm"] == arm)).any()
    ]
    if list(ran[["round", "arm"]].itertuples(index=False, name=None)) != planned:
        return "order_broken"
    overlap = (ran["end"].shift() - ran["start"]).dt.total_seconds()
    if (overlap > CLOCK_STEP_S).any():
        return "slots_overlap"
    if (rows.groupby("arm")["server_version"].nunique() > 1).any():
        return "versions_differ"
    return None


def work_fault(rows: pd.DataFrame, metric: str, arm: str, reference: str) -> str | None:
    """Whether two arms were given different work, as far as token counts show it.

    `prompts_differ`: the first prompts differ in length although the checkpoint is the same
    (another template, thinking switched off for one arm only), or all prompts together by more
    than the margin. `lengths_differ`: so do the outputs, and the metric is a time that grows with
    them.
    """
    mine, other = rows[rows["arm"] == arm], rows[rows["arm"] == reference]
    if set(mine["checkpoint"]) == set(other["checkpoint"]):
        first = [
            pd.Series(
                _numbers(part, "prompt_tokens"),
                pd.MultiIndex.from_frame(part[["prompt_id", "round"]]),
            )
            for part in (mine[mine["turn"] == 1], other[other["turn"] == 1])
        ]
        if ((first[0] - first[1]).abs() > 0).any():
            return "prompts_differ"
    if _differ(mine, other, "prompt_tokens"):
        return "prompts_differ"
    if metric == "conversation_s" and _differ(mine, other, "completion_tokens"):
        return "lengths_differ"
    return None


def template_fault(rows: pd.DataFrame, arms: Sequence[str]) -> str | None:
    """Whether a chat template changed what came before, so that the second turn of one of the arms
    did not begin with the first, whatever its engine can do."""
    second = rows[rows["arm"].isin(arms) & (rows["turn"] == 2)]
    broken = second[_numbers(second, "prefix_share") < prefix.KEPT]
    if broken.empty:
        return None
    return f"{TEMPLATE_BREAKS_PREFIX}:{broken['checkpoint'].iloc[0]}"


def _differ(mine: pd.DataFrame, other: pd.DataFrame, column: str) -> bool:
    """Whether the mean of a count per request differs by more than the margin, as far as it is
    known; where an arm tells none: no."""
    means = [pd.Series(_numbers(rows, column)).mean() for rows in (mine, other)]  # NaN left out
    ratio = _quotient(*means)
    return ratio > 1 + MARGIN or ratio < 1 / (1 + MARGIN)


# The contrasts ------------------------------------------------------------------------------------


def from_cells(cells: pd.DataFrame, series_list: Iterable[SeriesLike]) -> pa.Table:
    """Every arm against the reference, on every metric of every series: a table of SCHEMA.

    After the arms of a series come its sweeps of block sizes, its squares (STACKING), and, where it
    has prompts enough, what the arms are for prompts like these.

    A null arm that is called faster or slower on one metric makes the whole series invalid
    (`null_arm_differs:<metric>`); one that could not be judged is a warning (`null_arm_unchecked`).
    """
    return pa.Table.from_pylist(
        [contrast for series in series_list for contrast in _series_contrasts(cells, series)],
        schema=SCHEMA,
    )


def _series_contrasts(cells: pd.DataFrame, series: SeriesLike) -> list[dict[str, Any]]:
    if not series.metrics:
        return []  # nothing of it is timed
    rows = _rows(cells, series, "round")
    fault = series_fault(cells, series)
    table = slots(cells, series)
    found = [
        _contrast(rows, table, series, metric, arm.name, fault)
        for metric in series.metrics
        for arm in series.arms
        if arm.name != series.reference
    ]
    for sweep in sweeps(series):
        found += _best_block(rows, table, series, sweep, fault)
    found += [_stacking(rows, table, series, square, fault) for square in squares(series)]
    found += [more for one in found if (more := _for_prompts(rows, series, one)) is not None]
    suspects = cache_check.suspects(cells[cells["series"] == series.name])
    for contrast in found:
        both = {contrast["arm"], series.reference}
        if contrast["metric"] == SECOND_TURN and both & set(suspects) and _has_numbers(contrast):
            contrast["warnings"].append(CACHE_COUNTER_SUSPECT)
    nulls = [contrast for contrast in found if contrast["arm"] == series.null_arm]
    for contrast in nulls:
        if contrast["verdict"] in (Verdict.FASTER, Verdict.SLOWER):
            code = f"null_arm_differs:{contrast['metric']}"
            return [without_numbers(one, Verdict.INVALID, (code,)) for one in found]
    if any(not _has_numbers(contrast) for contrast in claimable(nulls)):
        for contrast in found:
            if _has_numbers(contrast):
                contrast["warnings"].append("null_arm_unchecked")
    return found


def _head(series: SeriesLike, metric: str, arm: str) -> dict[str, Any]:
    """What a row is about."""
    return {
        "series": series.name,
        "metric": metric,
        "arm": arm,
        "reference": series.reference,
        "fingerprint": series.fingerprint,
    }


def _contrast(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    series: SeriesLike,
    metric: str,
    arm: str,
    fault: str | None,
) -> dict[str, Any]:
    """One row of SCHEMA."""
    head = _head(series, metric, arm)
    both = (arm, series.reference)
    pair = table[(table["metric"] == metric) & table["arm"].isin(both)]
    if fault is not None:
        return without_numbers(head, Verdict.INVALID, (fault,))
    if set(pair["arm"]) != set(both):
        return without_numbers(head, Verdict.NOT_MEASURED, ())
    if reasons := _pair_faults(rows, pair, series, metric, arm):
        return without_numbers(head, Verdict.INVALID, reasons)
    return compared(head, as_slots(pair))


def compared(head: Mapping[str, Any], slots: Sequence[Slot]) -> dict[str, Any]:
    """One row of SCHEMA about the slots of two arms; `head` names series, metric and arms."""
    arm, reference = head["arm"], head["reference"]
    metric = head["metric"].rpartition(":")[2]
    result = compare(slots, metric=metric, arm=arm, reference=reference)
    if result.estimate is None or result.check is None:
        return without_numbers(head, result.verdict, result.warnings)
    return {
        **head,
        **_told(result.estimate, result.check),
        "rounds": sum(slot.arm == reference for slot in slots),
        "verdict": str(result.verdict),
        "warnings": list(result.warnings),
    }


def _told(estimate: Estimate, check: Estimate | None) -> dict[str, Any]:
    """The numbers of an estimate and its cross-check as columns of SCHEMA."""
    return {
        "ratio": _exp(estimate.log_ratio),
        "ci_low": _exp(estimate.low),
        "ci_high": _exp(estimate.high),
        "confidence": estimate.confidence,
        "p_value": estimate.p_value,
        "df": estimate.df,
        "hl_ratio": None if check is None else _exp(check.log_ratio),
        "hl_confidence": None if check is None else check.confidence,
        "drift_ratio": _exp(estimate.drift_log),
    }


def _pair_faults(
    rows: pd.DataFrame, pair: pd.DataFrame, series: SeriesLike, metric: str, arm: str
) -> tuple[str, ...]:
    """Reason codes of one pair, the gravest first."""
    found = sorted(
        {reason for reason in pair["reason"] if isinstance(reason, str)},
        key=lambda code: (
            next((n for n, start in enumerate(GRAVEST) if code.startswith(start)), len(GRAVEST)),
            code,
        ),
    )
    mine = at_length(metric, rows)
    if not found and (differs := work_fault(mine, metric, arm, series.reference)):
        found.append(differs)
    if named(metric) in COLD and any(
        one.attached and one.name in (arm, series.reference) for one in series.arms
    ):
        found.append(COLD_NOT_PROVABLE)
    if metric == SECOND_TURN and (breaks := template_fault(rows, (arm, series.reference))):
        found.append(breaks)
    if len(pair) < 2 * series.rounds:
        found.append("incomplete")
    return tuple(found)


def _group_faults(
    rows: pd.DataFrame, mine: pd.DataFrame, series: SeriesLike, metric: str, arms: Sequence[str]
) -> tuple[str, ...]:
    """Reason codes of the pairs of several arms with the reference, each once."""
    found = (
        _pair_faults(rows, mine[mine["arm"].isin([arm, series.reference])], series, metric, arm)
        for arm in arms
    )
    return tuple(dict.fromkeys(code for codes in found for code in codes))


# Sweeps of block sizes ----------------------------------------------------------------------------


def _best_block(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    series: SeriesLike,
    sweep: tuple[str, ...],
    fault: str | None,
) -> list[dict[str, Any]]:
    """The block size that is best on the metric that decides the series, and the others beside it.

    The arm that looks best among k owes part of that to luck. So it is chosen on one part of the
    rounds and its ratio is that of the others (`stats.best_of`), as are the ratios of the other
    arms to it. Without a choice, the first arm of the sweep stands for all.
    """
    metric = series.metrics[0]
    head = _head(series, f"{BEST_BLOCK}:{metric}", sweep[0])
    mine = table[(table["metric"] == metric) & table["arm"].isin([*sweep, series.reference])]
    if fault is not None:
        return [without_numbers(head, Verdict.INVALID, (fault,))]
    if set(mine["arm"]) != {*sweep, series.reference}:
        return [without_numbers(head, Verdict.NOT_MEASURED, ())]
    if reasons := _group_faults(rows, mine, series, metric, sweep):
        return [without_numbers(head, Verdict.INVALID, reasons)]
    choice = best_of.choose(
        as_slots(mine),
        arms=sweep,
        reference=series.reference,
        metric_is_time=not larger_is_better(metric),
    )
    if isinstance(choice, Refusal):
        few = choice.reason == "too_few_rounds"
        reason = "too_few_to_choose" if few else choice.reason
        return [without_numbers(head, Verdict.INVALID, (reason,))]
    best = {
        **_head(series, f"{BEST_BLOCK}:{metric}", choice.arm),
        **_told(choice.estimate, choice.check),
        "rounds": len(choice.reported_on),
        "verdict": str(judge(metric, choice.estimate, choice.check)),
        "warnings": list(choice.estimate.warnings),
    }
    left = mine[mine["round"].isin(choice.reported_on)]
    return [
        best,
        *(
            _beside_best(left, series, metric, arm, choice.arm)
            for arm in sweep
            if arm != choice.arm
        ),
    ]


def _beside_best(
    left: pd.DataFrame, series: SeriesLike, metric: str, arm: str, chosen: str
) -> dict[str, Any]:
    """One row of SCHEMA: an arm of a sweep against the chosen one."""
    head = {**_head(series, f"{BESIDE_BEST}:{metric}", arm), "reference": chosen}
    return compared(head, as_slots(left[left["arm"].isin([arm, chosen])]))


# Prompts like these -------------------------------------------------------------------------------


def _for_prompts(
    rows: pd.DataFrame, series: SeriesLike, contrast: dict[str, Any]
) -> dict[str, Any] | None:
    """The row of SCHEMA that widens a contrast from these prompts to prompts like these, or None.

    A round sends the same texts as every other, under another number, so what counts is the prompt
    and not prompt × round: each gives one log ratio, of a pair fit over its own rounds. At either
    end the wider interval is told, this one's or the contrast's, because an interval over prompts
    does not see the noise that the prompts of a cell share: where that was 2 % and all prompts were
    alike, it held the true ratio in 42 % of simulated series, the wider one in 99 %. None for the
    null arm, without numbers, or with too few prompts.
    """
    metric, arm = contrast["metric"], contrast["arm"]
    if metric not in series.metrics or arm == series.null_arm or not _has_numbers(contrast):
        return None
    if "@" in metric:
        return None  # a length is one prompt
    pair = rows[rows["arm"].isin([arm, series.reference])]
    ratios = []
    for prompt, mine in pair.groupby("prompt_id", sort=True):
        table = _slots(mine, series, _origin(pair), _requests(mine))
        table = table[table["metric"] == metric]
        fit = pair_fit.estimate(as_slots(table), arm=arm, reference=series.reference)
        if isinstance(fit, Refusal):
            return None
        ratios.append((str(prompt), fit.log_ratio))
    result = prompts.estimate(ratios)
    if isinstance(result, Refusal):
        return None
    wide = replace(
        result,
        low=min(result.low, math.log(contrast["ci_low"])),
        high=max(result.high, math.log(contrast["ci_high"])),
        p_value=max(result.p_value or 0.0, contrast["p_value"]),
    )
    check = Estimate(math.log(contrast["hl_ratio"]), -math.inf, math.inf, contrast["hl_confidence"])
    return {
        **_head(series, f"{PROMPTS}:{metric}", arm),
        **_told(wide, None),
        "rounds": contrast["rounds"],
        "verdict": str(judge(metric, wide, check)),
        "warnings": list(contrast["warnings"]),
    }


# Squares of arms ----------------------------------------------------------------------------------


def squares(series: SeriesLike) -> tuple[Square, ...]:
    """Every 2 × 2 of a series, in the order of its arms: reference, arms that differ from it in the
    checkpoint alone or in all else alone, and the arm with both. Only where decoding is timed."""
    if STACKED not in series.metrics:
        return ()
    arms = [arm for arm in series.arms if arm.name != series.null_arm]
    named = {(arm.checkpoint, engine(arm)): arm.name for arm in reversed(arms)}
    reference = next(arm for arm in arms if arm.name == series.reference)
    found = []
    for arm in arms:
        if arm.checkpoint == reference.checkpoint or engine(arm) == engine(reference):
            continue
        first = named.get((arm.checkpoint, engine(reference)))
        second = named.get((reference.checkpoint, engine(arm)))
        if first is not None and second is not None:
            found.append(Square(reference.name, (first, second), arm.name))
    return tuple(found)


def _stacking(
    rows: pd.DataFrame, table: pd.DataFrame, series: SeriesLike, square: Square, fault: str | None
) -> dict[str, Any]:
    """One row of SCHEMA about a square. What makes a single contrast invalid makes it so too."""
    head = _head(series, STACKING, square.both)
    mine = table[(table["metric"] == STACKED) & table["arm"].isin(list(square.signs))]
    if fault is not None:
        return without_numbers(head, Verdict.INVALID, (fault,))
    if set(mine["arm"]) != set(square.signs):
        return without_numbers(head, Verdict.NOT_MEASURED, ())
    if reasons := _group_faults(rows, mine, series, STACKED, (*square.single, square.both)):
        return without_numbers(head, Verdict.INVALID, reasons)
    result = stacking.estimate(as_slots(mine), square)
    if isinstance(result, Refusal):
        return without_numbers(head, Verdict.INVALID, (result.reason,))
    return {
        **head,
        **_told(result, None),
        "rounds": len(mine) // len(square.signs),
        "verdict": str(stacking.judge(result)),
        "warnings": list(result.warnings),
    }


def as_slots(table: pd.DataFrame) -> list[Slot]:
    """Rows of SLOT_COLUMNS as slots."""
    columns = [table[name] for name in ("arm", "round", "session_id", "time_s", "value")]
    return [
        Slot(str(arm), int(number), str(session), float(time), float(value))
        for arm, number, session, time, value in zip(*columns, strict=True)
    ]


def _exp(log: float | None) -> float | None:
    """exp; None stays None, and an absurd value stays a finite double on both sides of 1."""
    return None if log is None else float(np.exp(np.clip(log, -700, 700)))


def without_numbers(
    contrast: Mapping[str, Any], verdict: Verdict, reasons: Sequence[str]
) -> dict[str, Any]:
    """A row of SCHEMA that tells what `contrast` is about, a verdict and its reasons."""
    keep = ("series", "metric", "arm", "reference", "fingerprint")
    return {
        **{name: None for name in SCHEMA.names},
        **{name: contrast[name] for name in keep},
        "verdict": str(verdict),
        "warnings": list(reasons),
    }


def _has_numbers(contrast: dict[str, Any]) -> bool:
    return contrast.get("ratio") is not None


def claimable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those of which nothing could be claimed for any arm, so nothing has to be checked."""
    unprovable = (COLD_NOT_PROVABLE, TEMPLATE_BREAKS_PREFIX, TOO_LONG)
    return [
        row
        for row in rows
        if not any(code.partition(":")[0] in unprovable for code in row["warnings"])
    ]


def of_series(rows: Iterable[dict[str, Any]], series: SeriesLike) -> list[dict[str, Any]]:
    """The contrasts of a series as it is planned: those of its earlier fingerprints are none."""
    wanted = (series.name, series.fingerprint)
    return [row for row in rows if (row["series"], row["fingerprint"]) == wanted]


def null_arm_state(contrasts: Iterable[dict[str, Any]], series: SeriesLike) -> NullArm:
    """`passed`: judged on every metric and never called different; `failed`: called different;
    `unchecked`: planned, but not judged on every metric; `absent`: not planned."""
    if series.null_arm is None:
        return "absent"
    own = of_series(contrasts, series)
    if any(code.startswith("null_arm_differs") for row in own for code in row["warnings"]):
        return "failed"
    nulls = claimable(row for row in own if row["arm"] == series.null_arm)
    return "passed" if nulls and all(_has_numbers(row) for row in nulls) else "unchecked"


# Drift --------------------------------------------------------------------------------------------


def drift(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """The reference over time, per metric (DRIFT_COLUMNS). It corrects nothing.

    Three kinds of row. `slot`: the reference in its rounds. `control`: the reference measured once
    more after the last round; it does not enter the fit. `curve`: points of the fitted drift,
    `fitted` with its 99 % interval from `low` to `high` in the metric's unit. `ratio_to_first` is
    the value ÷ that of the first reference slot, of the curve the fitted value ÷ that at its start
    with its 99 % interval from `ratio_low` to `ratio_high`; `ratio_to_fitted` the value ÷ the curve
    at the same time. What cannot be known is NaN, and where no curve can be fitted there is none. A
    broken order empties the table.
    """
    rows = _rows(cells, series, "round")
    if rows.empty or series_fault(cells, series) is not None:
        return pd.DataFrame([], columns=DRIFT_COLUMNS)
    origin, requests = _origin(rows), _requests(rows)
    measured = _slots(rows, series, origin, requests)
    last = _rows(cells, series, "control")
    last = last[(last["arm"] == series.reference) & (last["fingerprint"] == series.fingerprint)]
    controls = _slots(last, series, origin, requests)
    found: list[dict[str, Any]] = []
    for metric in series.metrics:
        usable = measured[(measured["metric"] == metric) & measured["reason"].isna()]
        fitted = curve(as_slots(usable), reference=series.reference)
        reference = usable[usable["arm"] == series.reference]
        control = controls[(controls["metric"] == metric) & controls["reason"].isna()]
        found += _drift_points(series.name, metric, reference, control, fitted)
    return pd.DataFrame(found, columns=DRIFT_COLUMNS)


def _drift_points(
    series: str,
    metric: str,
    reference: pd.DataFrame,
    control: pd.DataFrame,
    fitted: Curve | Refusal,
) -> list[dict[str, Any]]:
    first = next(iter(reference.loc[reference["round"] == 1, "value"]), math.nan)
    points: list[dict[str, Any]] = []
    for kind, table in (("slot", reference), ("control", control)):
        for slot, number in zip(as_slots(table), table["round"], strict=True):
            point = _curve_point(series, metric, kind, slot.time_s, slot.session, fitted)
            points.append(
                {
                    **point,
                    "round": number,
                    "value": slot.value,
                    "ratio_to_first": slot.value / first,
                    "ratio_to_fitted": slot.value / point["fitted"],
                }
            )
    if isinstance(fitted, Curve) and points:
        drawn: list[dict[str, Any]] = []
        for session in fitted.basis.sessions:
            times = [point["time_s"] for point in points if point["session_id"] == session]
            if times:
                drawn += [
                    _curve_point(series, metric, "curve", float(time), session, fitted)
                    for time in np.linspace(min(times), max(times), CURVE_POINTS)
                ]
        points += [{**point, **_moved(fitted, drawn[0], point)} for point in drawn]
    return points


def _moved(fitted: Curve, start: dict[str, Any], point: dict[str, Any]) -> dict[str, float]:
    """How far the curve has come since its start, with the interval of that ratio: the arms' own
    intercepts are the same at both ends and cancel."""
    first, here = (
        fitted.basis.columns([one["time_s"]], [one["session_id"]])[0] for one in (start, point)
    )
    way = np.concatenate([np.zeros(fitted.others), here - first])
    ratio, low, high = np.exp(fitted.fit.interval(way, CONFIDENCE))
    return {"ratio_to_first": ratio, "ratio_low": low, "ratio_high": high}


def _curve_point(
    series: str, metric: str, kind: str, time_s: float, session: str, fitted: Curve | Refusal
) -> dict[str, Any]:
    """One row of DRIFT_COLUMNS without a value; a curve is drawn within a session, not between."""
    centre, low, high = (
        fitted.at(time_s, session, CONFIDENCE)
        if isinstance(fitted, Curve)
        else (math.nan, math.nan, math.nan)
    )
    return {
        "series": series,
        "metric": metric,
        "kind": kind,
        "session_id": session,
        "time_s": time_s,
        "fitted": centre,
        "low": low,
        "high": high,
    }
