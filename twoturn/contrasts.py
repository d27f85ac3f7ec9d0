"""From cells to contrasts: slot values, the checks of a series, a verdict per pair and metric.

A contrast is made within one series, from the slots of two arms, or it is not made. What makes it
`invalid` is told as reason codes in `warnings`, the gravest first; a code may carry a detail after
a colon (`row_not_ok:stopped_early`). `claims.REASONS` puts the codes into words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from twoturn.cells import NO_PROMPT
from twoturn.errors import UserError
from twoturn.stats import stacking
from twoturn.stats.base import CONFIDENCE, Refusal, Slot
from twoturn.stats.drift_curve import Curve, curve
from twoturn.stats.stacking import Square
from twoturn.stats.verdict import MARGIN, STACKED, STACKING, Verdict, compare

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
"""

SLOT_COLUMNS = ["series", "metric", "arm", "round", "session_id", "time_s", "value", "reason"]

DRIFT_COLUMNS = [
    *("series", "metric", "kind", "round", "session_id", "time_s", "value"),
    *("fitted", "low", "high", "ratio_to_first", "ratio_to_fitted"),
]

COLUMNS = (
    *("series", "fingerprint", "arm", "checkpoint", "server_version", "round", "turn"),
    *("prompt_id", "kind", "status", "session_id", "started_at", "start_monotonic_s"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "decode_tokens", "decode_s"),
    *("ttft_s", "e2e_s", "verify_cycles", "accepted_tokens"),
)
"""Columns of results/cells.parquet that are read here."""

CLOCK_STEP_S = 1.0
"""Wall clocks are set by small steps; only a larger overlap of two slots means anything."""

LONGEST_S = 1e7
"""A request that claims to have lasted longer (four months) tells nothing about when it ended."""

CURVE_POINTS = 49


class ArmLike(Protocol):
    """What is needed of an arm of the plan."""

    @property
    def name(self) -> str: ...
    @property
    def checkpoint(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def speculation(self) -> str: ...
    @property
    def block_size(self) -> int | None: ...
    @property
    def draft(self) -> str | None: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def args(self) -> Sequence[str]: ...


class SeriesLike(Protocol):
    """What is needed of a series of the plan; `arms` includes the reference and the null arm."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def rounds(self) -> int: ...
    @property
    def reference(self) -> str: ...
    @property
    def null_arm(self) -> str | None: ...
    @property
    def arms(self) -> Sequence[ArmLike]: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...
    def order(self, round_number: int, /) -> tuple[str, ...]: ...


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
    """1 + Σ accepted_tokens ÷ Σ verify_cycles: the bonus token is included."""
    cycles = _sound(_numbers(rows, "verify_cycles"))
    return 1 + _quotient(_numbers(rows, "accepted_tokens").sum(), cycles.sum())


def _ttft(turn: int) -> Callable[[pd.DataFrame], float]:
    """Median over the prompts of the time to the first token of one turn."""

    def value(rows: pd.DataFrame) -> float:
        times = _sound(_numbers(rows[rows["turn"] == turn], "ttft_s"))
        return float(np.median(times)) if len(times) else math.nan

    return value


def _conversation(rows: pd.DataFrame) -> float:
    """Σ e2e_s over the turns of a conversation, the mean if there are several prompts."""
    return _quotient(_sound(_numbers(rows, "e2e_s")).sum(), rows["prompt_id"].nunique())


SLOT_VALUES: dict[str, Callable[[pd.DataFrame], float]] = {
    "decode_tok_s": _decode_rate,
    "prefill_tok_s": _prefill_rate,
    "accept_length": _accept_length,
    "ttft_s": _ttft(1),
    "turn2_ttft_s": _ttft(2),
    "conversation_s": _conversation,
}


def slots(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """One row per metric, arm and round (SLOT_COLUMNS), in order of time.

    `time_s` is the middle of the slot, from the start of its first request to the end of its last,
    in seconds since the series' first slot began. `value` is NaN where `reason` is not None:
    `censored:<arm>` (a request ran into the client's time limit: the true value is larger),
    `row_not_ok:<status>`, `rows_missing` (a prompt or turn that other slots have),
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
    if unknown := [metric for metric in series.metrics if metric not in SLOT_VALUES]:
        raise UserError(f"unknown metric {', '.join(unknown)}", key=series.name)
    rows = cells[(cells["series"] == series.name) & (cells["kind"] == kind)]
    rows = rows[rows["round"] <= series.rounds] if kind == "round" else rows
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
        fault = _slot_fault(slot, requests)
        for metric in series.metrics:
            value = SLOT_VALUES[metric](slot) if fault is None else math.nan
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


def _slot_fault(slot: pd.DataFrame, requests: set[tuple[Any, ...]]) -> str | None:
    """Why a slot has no value on any metric."""
    failed = sorted({str(status) for status in slot["status"] if status != "ok"})
    if "client_timeout" in failed:
        return f"censored:{slot['arm'].iloc[0]}"
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
        for number in range(1, series.rounds + 1)
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


def _differ(mine: pd.DataFrame, other: pd.DataFrame, column: str) -> bool:
    """Whether the mean of a count per request differs by more than the margin; unknown: no."""
    ratio = _quotient(_numbers(mine, column).mean(), _numbers(other, column).mean())
    return ratio > 1 + MARGIN or ratio < 1 / (1 + MARGIN)


# The contrasts ------------------------------------------------------------------------------------


def from_cells(cells: pd.DataFrame, series_list: Iterable[SeriesLike]) -> pa.Table:
    """Every arm against the reference, on every metric of every series: a table of SCHEMA.

    After the arms of a series come its squares (STACKING).

    A null arm that is called faster or slower on one metric makes the whole series invalid
    (`null_arm_differs:<metric>`); one that could not be judged is a warning (`null_arm_unchecked`).
    """
    return pa.Table.from_pylist(
        [contrast for series in series_list for contrast in _series_contrasts(cells, series)],
        schema=SCHEMA,
    )


def _series_contrasts(cells: pd.DataFrame, series: SeriesLike) -> list[dict[str, Any]]:
    rows = _rows(cells, series, "round")
    fault = series_fault(cells, series)
    table = slots(cells, series)
    found = [
        _contrast(rows, table, series, metric, arm.name, fault)
        for metric in series.metrics
        for arm in series.arms
        if arm.name != series.reference
    ]
    found += [_stacking(rows, table, series, square, fault) for square in squares(series)]
    nulls = [contrast for contrast in found if contrast["arm"] == series.null_arm]
    for contrast in nulls:
        if contrast["verdict"] in (Verdict.FASTER, Verdict.SLOWER):
            code = f"null_arm_differs:{contrast['metric']}"
            return [_without_numbers(one, Verdict.INVALID, (code,)) for one in found]
    if any(not _has_numbers(contrast) for contrast in nulls):
        for contrast in found:
            if _has_numbers(contrast):
                contrast["warnings"].append("null_arm_unchecked")
    return found


def _contrast(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    series: SeriesLike,
    metric: str,
    arm: str,
    fault: str | None,
) -> dict[str, Any]:
    """One row of SCHEMA."""
    head = {
        "series": series.name,
        "metric": metric,
        "arm": arm,
        "reference": series.reference,
        "fingerprint": series.fingerprint,
    }
    both = (arm, series.reference)
    pair = table[(table["metric"] == metric) & table["arm"].isin(both)]
    if fault is not None:
        return _without_numbers(head, Verdict.INVALID, (fault,))
    if set(pair["arm"]) != set(both):
        return _without_numbers(head, Verdict.NOT_MEASURED, ())
    if reasons := _pair_faults(rows, pair, series, metric, arm):
        return _without_numbers(head, Verdict.INVALID, reasons)
    result = compare(_as_slots(pair), metric=metric, arm=arm, reference=series.reference)
    if result.estimate is None or result.check is None:
        return _without_numbers(head, Verdict.INVALID, result.warnings)
    ratio, low, high, drift, check = (
        _exp(log)
        for log in (
            result.estimate.log_ratio,
            result.estimate.low,
            result.estimate.high,
            result.estimate.drift_log,
            result.check.log_ratio,
        )
    )
    return {
        **head,
        "ratio": ratio,
        "ci_low": low,
        "ci_high": high,
        "confidence": result.estimate.confidence,
        "p_value": result.estimate.p_value,
        "df": result.estimate.df,
        "rounds": len(pair) // 2,
        "hl_ratio": check,
        "hl_confidence": result.check.confidence,
        "drift_ratio": drift,
        "verdict": str(result.verdict),
        "warnings": list(result.warnings),
    }


def _pair_faults(
    rows: pd.DataFrame, pair: pd.DataFrame, series: SeriesLike, metric: str, arm: str
) -> tuple[str, ...]:
    """Reason codes of one pair, the gravest first: a censored slot hides how slow its arm is."""
    found = sorted(
        {reason for reason in pair["reason"] if isinstance(reason, str)},
        key=lambda code: (not code.startswith("censored"), not code.startswith("row_"), code),
    )
    if not found and (differs := work_fault(rows, metric, arm, series.reference)):
        found.append(differs)
    if len(pair) < 2 * series.rounds:
        found.append("incomplete")
    return tuple(found)


# Squares of arms ----------------------------------------------------------------------------------


def squares(series: SeriesLike) -> tuple[Square, ...]:
    """Every 2 × 2 of a series, in the order of its arms: reference, arms that differ from it in the
    checkpoint alone or in all else alone, and the arm with both. Only where decoding is timed."""
    if STACKED not in series.metrics:
        return ()
    arms = [arm for arm in series.arms if arm.name != series.null_arm]
    named = {(arm.checkpoint, _engine(arm)): arm.name for arm in reversed(arms)}
    reference = next(arm for arm in arms if arm.name == series.reference)
    found = []
    for arm in arms:
        if arm.checkpoint == reference.checkpoint or _engine(arm) == _engine(reference):
            continue
        first = named.get((arm.checkpoint, _engine(reference)))
        second = named.get((reference.checkpoint, _engine(arm)))
        if first is not None and second is not None:
            found.append(Square(reference.name, (first, second), arm.name))
    return tuple(found)


def _engine(arm: ArmLike) -> str:
    """All of an arm but its name and checkpoint, as one comparable text."""
    settings = sorted(arm.settings.items())
    return repr((arm.server, arm.speculation, arm.block_size, arm.draft, settings, tuple(arm.args)))


def _stacking(
    rows: pd.DataFrame, table: pd.DataFrame, series: SeriesLike, square: Square, fault: str | None
) -> dict[str, Any]:
    """One row of SCHEMA about a square. What makes a single contrast invalid makes it so too."""
    head = {
        "series": series.name,
        "metric": STACKING,
        "arm": square.both,
        "reference": series.reference,
        "fingerprint": series.fingerprint,
    }
    mine = table[(table["metric"] == STACKED) & table["arm"].isin(list(square.signs))]
    if fault is not None:
        return _without_numbers(head, Verdict.INVALID, (fault,))
    if set(mine["arm"]) != set(square.signs):
        return _without_numbers(head, Verdict.NOT_MEASURED, ())
    reasons = {
        reason: None
        for arm in (*square.single, square.both)
        for reason in _pair_faults(
            rows, mine[mine["arm"].isin([arm, series.reference])], series, STACKED, arm
        )
    }
    if reasons:
        return _without_numbers(head, Verdict.INVALID, tuple(reasons))
    result = stacking.estimate(_as_slots(mine), square)
    if isinstance(result, Refusal):
        return _without_numbers(head, Verdict.INVALID, (result.reason,))
    return {
        **_without_numbers(head, stacking.judge(result), result.warnings),
        "ratio": _exp(result.log_ratio),
        "ci_low": _exp(result.low),
        "ci_high": _exp(result.high),
        "confidence": result.confidence,
        "p_value": result.p_value,
        "df": result.df,
        "rounds": len(mine) // len(square.signs),
    }


def _as_slots(table: pd.DataFrame) -> list[Slot]:
    columns = [table[name] for name in ("arm", "round", "session_id", "time_s", "value")]
    return [
        Slot(str(arm), int(number), str(session), float(time), float(value))
        for arm, number, session, time, value in zip(*columns, strict=True)
    ]


def _exp(log: float | None) -> float | None:
    """exp; None stays None, and an absurd value stays a finite double on both sides of 1."""
    return None if log is None else float(np.exp(np.clip(log, -700, 700)))


def _without_numbers(
    contrast: dict[str, Any], verdict: Verdict, reasons: Sequence[str]
) -> dict[str, Any]:
    keep = ("series", "metric", "arm", "reference", "fingerprint")
    return {
        **{name: None for name in SCHEMA.names},
        **{name: contrast[name] for name in keep},
        "verdict": str(verdict),
        "warnings": list(reasons),
    }


def _has_numbers(contrast: dict[str, Any]) -> bool:
    return contrast.get("ratio") is not None


def null_arm_state(contrasts: pa.Table, series: SeriesLike) -> NullArm:
    """`passed`: judged on every metric and never called different; `failed`: called different;
    `unchecked`: planned, but not judged on every metric; `absent`: not planned."""
    if series.null_arm is None:
        return "absent"
    own = [row for row in contrasts.to_pylist() if row["series"] == series.name]
    if any(code.startswith("null_arm_differs") for row in own for code in row["warnings"]):
        return "failed"
    nulls = [row for row in own if row["arm"] == series.null_arm]
    return "passed" if nulls and all(_has_numbers(row) for row in nulls) else "unchecked"


# Drift --------------------------------------------------------------------------------------------


def drift(cells: pd.DataFrame, series: SeriesLike) -> pd.DataFrame:
    """The reference over time, per metric (DRIFT_COLUMNS). It corrects nothing.

    Three kinds of row. `slot`: the reference in its rounds. `control`: the reference measured once
    more after the last round; it does not enter the fit. `curve`: points of the fitted drift,
    `fitted` with its 99 % interval from `low` to `high` in the metric's unit. `ratio_to_first` is
    the value ÷ that of the first reference slot, `ratio_to_fitted` the value ÷ the curve at the
    same time. What cannot be known is NaN, and where no curve can be fitted there is none. A
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
        fitted = curve(_as_slots(usable), reference=series.reference)
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
        for slot, number in zip(_as_slots(table), table["round"], strict=True):
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
        for session in fitted.basis.sessions:
            times = [point["time_s"] for point in points if point["session_id"] == session]
            if times:
                points += [
                    _curve_point(series, metric, "curve", float(time), session, fitted)
                    for time in np.linspace(min(times), max(times), CURVE_POINTS)
                ]
    return points


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
