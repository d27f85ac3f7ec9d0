"""From cells to contrasts: slot values, the checks that make a series invalid, null arm, drift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

from twoturn import contrasts
from twoturn.cells import NO_PROMPT
from twoturn.errors import UserError

CHAT = ("decode_tok_s", "ttft_s")
CONVERSATION = ("conversation_s", "turn2_ttft_s", "decode_tok_s")
NULL = "plain (null)"
NUMBERS = [field.name for field in contrasts.SCHEMA if str(field.type) in ("double", "int64")]


@dataclass(frozen=True)
class Arm:
    name: str
    checkpoint: str = "demo-q4"
    server: str = "one"
    speculation: str = "none"
    block_size: int | None = None
    draft: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    attached: bool = False
    adaptive: bool = False


@dataclass(frozen=True)
class Series:
    """As much of a planned series as contrasts need."""

    arms: tuple[Arm, ...]
    metrics: tuple[str, ...] = CONVERSATION
    null_arm: str | None = None
    rounds: int = 6
    name: str = "two_turns"
    fingerprint: str = "0123456789ab"
    reference: str = "plain"

    def order(self, round_number: int, /) -> tuple[str, ...]:
        names = tuple(arm.name for arm in self.arms)
        return names if round_number % 2 else names[::-1]


def series_of(*names: str, null: bool = False, **changes: Any) -> Series:
    arms = ("plain", *names, *((NULL,) if null else ()))
    return Series(tuple(Arm(name) for name in arms), null_arm=NULL if null else None, **changes)


def cells_of(
    series: Series,
    decode: Mapping[str, float] | None = None,
    ttft: Mapping[str, float] | None = None,
    drift: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Cells as a campaign would give them, with 2 % noise: two turns, two prompts, a control.

    decode, ttft: arm → how many times the reference's tokens per second, or its time.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    now = 0.0
    slots = [
        (number, arm, "round")
        for number in range(1, series.rounds + 1)
        for arm in series.order(number)
    ]
    for place, (number, arm, kind) in enumerate([*slots, (series.rounds, "plain", "control")]):
        pace = math.exp(drift * place / len(slots))
        for prompt in ("a", "b"):
            for turn in (1, 2):
                rate = 40 * pace * (decode or {}).get(arm, 1) * math.exp(rng.normal(0, 0.02))
                first = 4 / turn / pace * (ttft or {}).get(arm, 1) * math.exp(rng.normal(0, 0.02))
                rows.append(
                    {
                        "series": series.name,
                        "fingerprint": series.fingerprint,
                        "arm": arm,
                        "checkpoint": "demo-q4",
                        "server_version": "1.0",
                        "round": number,
                        "turn": turn,
                        "prompt_id": prompt,
                        "kind": kind,
                        "status": "ok",
                        "session_id": "s1",
                        "started_at": pd.Timestamp("2025-11-29T18:00:00Z")
                        + pd.Timedelta(seconds=now),
                        "start_monotonic_s": 1000.0 + now,
                        "prompt_tokens": 512 * turn,
                        "cached_tokens": 512 if turn == 2 else 0,
                        "prefix_share": 1.0 if turn == 2 else math.nan,
                        "completion_tokens": 256,
                        "decode_tokens": 255.0,
                        "decode_s": 255 / rate,
                        "ttft_s": first,
                        "e2e_s": first + 255 / rate,
                        "verify_cycles": 100,
                        "accepted_tokens": 155,
                    }
                )
                now += first + 255 / rate + 0.5
        now += 20.0
    return pd.DataFrame(rows)


def verdicts(cells: pd.DataFrame, series: Series) -> dict[tuple[str, str], str]:
    return {
        (row["arm"], row["metric"]): row["verdict"]
        for row in contrasts.from_cells(cells, [series]).to_pylist()
    }


def only_reason(cells: pd.DataFrame, series: Series) -> str:
    """The first reason code, if every contrast is invalid with it and holds no number."""
    rows = contrasts.from_cells(cells, [series]).to_pylist()
    assert {row["verdict"] for row in rows} == {"invalid"}
    assert all(row[number] is None for row in rows for number in NUMBERS)
    (reason,) = {row["warnings"][0] for row in rows}
    return str(reason)


# Values -------------------------------------------------------------------------------------------


def test_a_rate_is_a_sum_over_a_sum_and_a_latency_a_median() -> None:
    series = series_of("mtp", metrics=("decode_tok_s", "prefill_tok_s", "accept_length", "ttft_s"))
    cells = cells_of(series)
    slot = (cells["arm"] == "mtp") & (cells["round"] == 1)
    cells.loc[slot, "decode_tokens"] = [100.0, 100.0, 100.0, 300.0]
    cells.loc[slot, "decode_s"] = [1.0, 1.0, 1.0, 7.0]
    cells.loc[slot, "ttft_s"] = [1.0, 5.0, 3.0, 5.0]
    cells.loc[slot, "accepted_tokens"] = [0, 0, 0, 600]
    found = contrasts.slots(cells, series)
    mine = found[(found["arm"] == "mtp") & (found["round"] == 1)].set_index("metric")["value"]
    assert mine["decode_tok_s"] == pytest.approx(600 / 10)
    assert mine["prefill_tok_s"] == pytest.approx(4 * 512 / 14)
    assert mine["accept_length"] == pytest.approx(1 + 600 / 400)
    assert mine["ttft_s"] == pytest.approx(2.0)  # the first turns alone


@pytest.mark.parametrize(
    ("accepted", "cycles", "length"),
    [
        ((3, 0), (2, 0), 2.5),  # nothing was drafted for the second
        ((0, 0), (0, 0), math.nan),
        ((3, None), (2, None), math.nan),
        ((3, 1), (2, -1), math.inf),  # cannot be
    ],
)
def test_a_request_without_a_draft_counts_with_no_cycle(
    accepted: tuple[int, int], cycles: tuple[int, int], length: float
) -> None:
    rows = pd.DataFrame({"accepted_tokens": accepted, "verify_cycles": cycles})
    assert contrasts.SLOT_VALUES["accept_length"](rows) == pytest.approx(length, nan_ok=True)


def test_conversation_time_is_the_sum_of_the_turns_and_time_is_mid_slot() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    found = contrasts.slots(cells, series)
    assert list(found.columns) == contrasts.SLOT_COLUMNS
    first = cells[(cells["arm"] == "plain") & (cells["round"] == 1)]
    slot = found[(found["arm"] == "plain") & (found["round"] == 1)].set_index("metric")
    assert slot.loc["conversation_s", "value"] == pytest.approx(first["e2e_s"].sum() / 2)
    assert slot.loc["turn2_ttft_s", "value"] == pytest.approx(
        first[first["turn"] == 2]["ttft_s"].median()
    )
    length = first["e2e_s"].sum() + 3 * 0.5
    assert slot.loc["conversation_s", "time_s"] == pytest.approx(length / 2, abs=1e-3)


def test_unknown_cached_tokens_are_not_zero() -> None:
    series = series_of("mtp", metrics=("prefill_tok_s",))
    cells = cells_of(series).assign(cached_tokens=None)
    assert only_reason(cells, series) == "no_value"


# Verdicts -----------------------------------------------------------------------------------------


def test_fast_decoding_can_lose_the_conversation() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 1.4}, ttft={"mtp": 3.0}, drift=-0.3)
    table = contrasts.from_cells(cells, [series])
    assert table.schema.equals(contrasts.SCHEMA, check_metadata=True)
    found = verdicts(cells, series)
    assert found["mtp", "decode_tok_s"] == "faster"
    assert found["mtp", "turn2_ttft_s"] == "slower"
    assert found["mtp", "conversation_s"] == "slower"
    assert found[NULL, "decode_tok_s"] in ("same", "unresolved")
    assert contrasts.null_arm_state(table.to_pylist(), series) == "passed"
    decode = next(row for row in table.to_pylist() if row["metric"] == "decode_tok_s")
    assert decode["ci_low"] < 1.4 < decode["ci_high"]
    assert (decode["rounds"], decode["df"], decode["confidence"]) == (6, 8, 0.99)
    assert decode["drift_ratio"] == pytest.approx(math.exp(-0.3), abs=0.05)
    assert "strong_drift" in decode["warnings"]


def test_row_order_and_foreign_rows_change_nothing() -> None:
    series = series_of("mtp")
    cells = cells_of(series, decode={"mtp": 1.2})
    expected = contrasts.from_cells(cells, [series])
    other = cells_of(series_of("mtp", name="another"), decode={"mtp": 0.5})
    warmup = cells.assign(kind="warmup", round=0, status="stopped_early")
    mixed = pd.concat([other, warmup, cells]).sample(frac=1, random_state=1)
    assert contrasts.from_cells(mixed, [series]).equals(expected)


def test_the_control_enters_no_contrast() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    without = cells[cells["kind"] == "round"]
    assert contrasts.from_cells(cells, [series]).equals(contrasts.from_cells(without, [series]))


def test_one_arm_has_no_contrasts_and_rounds_beyond_the_plan_are_left_out() -> None:
    assert contrasts.from_cells(cells_of(series_of()), [series_of()]).num_rows == 0
    longer, shorter = series_of("mtp", rounds=8), series_of("mtp", rounds=6)
    table = contrasts.from_cells(cells_of(longer), [shorter])
    assert set(table["rounds"].to_pylist()) == {6}


# Invalid series -----------------------------------------------------------------------------------


def _first_start(cells: pd.DataFrame, number: int, arm: str) -> pd.Series:
    return (cells["round"] == number) & (cells["arm"] == arm) & (cells["kind"] == "round")


def _swapped_arms(cells: pd.DataFrame) -> pd.DataFrame:
    names = {"plain": "mtp", "mtp": "plain"}
    return cells.assign(
        arm=[
            names[arm] if number == 2 else arm
            for arm, number in zip(cells["arm"], cells["round"], strict=True)
        ]
    )


def _swapped_rounds(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.assign(round=cells["round"].replace({2: 4, 4: 2}))


def _parallel(cells: pd.DataFrame) -> pd.DataFrame:
    late = _first_start(cells, 1, "mtp")
    shift = pd.Timedelta(seconds=25)
    return (
        cells.assign(started_at=cells["started_at"].where(~late, cells["started_at"] - shift))
        .drop(columns="start_monotonic_s")
        .assign(start_monotonic_s=0.0)
    )


def _clock_set_back(cells: pd.DataFrame) -> pd.DataFrame:
    """From round 3 on, the wall clock is an hour behind."""
    behind = cells["started_at"] - pd.Timedelta(hours=1)
    return cells.assign(started_at=cells["started_at"].where(cells["round"] < 3, behind))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_swapped_arms, "order_broken"),
        (_swapped_rounds, "order_broken"),
        (_parallel, "slots_overlap"),
        (_clock_set_back, "clock_backwards"),
        (lambda cells: pd.concat([cells, cells.head(1)]), "duplicate_rows"),
        (
            lambda cells: cells.assign(
                fingerprint=cells["fingerprint"].where(cells["round"] != 2, "ffffffffffff")
            ),
            "other_fingerprint",
        ),
        (lambda cells: cells.assign(arm=cells["arm"].replace("mtp", "gone")), "unknown_arm"),
        (
            lambda cells: cells.assign(
                server_version=cells["server_version"].where(cells["round"] != 2, "1.1")
            ),
            "versions_differ",
        ),
        (
            lambda cells: cells.assign(
                started_at=cells["started_at"].where(cells["round"] != 2, pd.NaT)
            ),
            "no_time",
        ),
        (lambda cells: cells[cells["round"] < 6], "incomplete"),
        (
            lambda cells: cells[~_first_start(cells, 3, "mtp")],
            "incomplete",
        ),
        (
            lambda cells: cells[~(_first_start(cells, 3, "mtp") & (cells["prompt_id"] == "b"))],
            "rows_missing",
        ),
    ],
)
def test_a_fault_in_the_cells_makes_every_contrast_invalid(
    spoil: Callable[[pd.DataFrame], pd.DataFrame], reason: str
) -> None:
    series = series_of("mtp")
    assert only_reason(spoil(cells_of(series, decode={"mtp": 1.5})), series) == reason


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0, -1.0, None])
@pytest.mark.parametrize("column", ["decode_tokens", "decode_s"])
def test_a_value_that_is_no_positive_number_is_invalid(column: str, bad: float | None) -> None:
    series = series_of("mtp", metrics=("decode_tok_s",))
    cells = cells_of(series)
    cells.loc[_first_start(cells, 3, "mtp"), column] = bad
    assert only_reason(cells, series) in ("no_value", "bad_value")


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.inf, math.nan])
@pytest.mark.parametrize("column", ["decode_s", "ttft_s", "e2e_s"])
def test_one_impossible_row_is_not_hidden_by_the_others(column: str, bad: float) -> None:
    metric = {"decode_s": "decode_tok_s", "ttft_s": "ttft_s", "e2e_s": "conversation_s"}[column]
    series = series_of("mtp", metrics=(metric,))
    cells = cells_of(series)
    slot = _first_start(cells, 3, "mtp") & (cells["turn"] == 1)
    cells.loc[cells.index[slot][0], column] = bad
    assert only_reason(cells, series) == ("no_value" if math.isnan(bad) else "bad_value")


def test_equal_values_are_no_measurements() -> None:
    series = series_of("mtp", metrics=("decode_tok_s",))
    assert only_reason(cells_of(series).assign(decode_s=2.0), series) == "no_noise"


@pytest.mark.parametrize(("rounds", "reason"), [(2, "too_few_rounds"), (5, "odd_rounds")])
def test_few_or_odd_rounds(rounds: int, reason: str) -> None:
    series = series_of("mtp", rounds=rounds)
    assert only_reason(cells_of(series, decode={"mtp": 2}), series) == reason


def test_nothing_measured_is_not_invalid() -> None:
    series = series_of("mtp", "dflash")
    empty = cells_of(series).head(0)
    assert set(verdicts(empty, series).values()) == {"not_measured"}
    cells = cells_of(series)
    found = verdicts(cells[cells["arm"] != "dflash"], series)
    assert found["dflash", "decode_tok_s"] == "not_measured"
    assert found["mtp", "decode_tok_s"] in ("same", "unresolved")


@pytest.mark.parametrize(
    ("status", "reason"),
    [("stopped_early", "row_not_ok:stopped_early"), ("client_timeout", "censored:mtp")],
)
def test_a_failed_request_costs_its_own_pair_only(status: str, reason: str) -> None:
    series = series_of("mtp", "dflash")
    cells = cells_of(series, decode={"dflash": 1.5})
    one = cells.index[_first_start(cells, 3, "mtp")][0]
    cells.loc[one, "status"] = status
    rows = contrasts.from_cells(cells, [series]).to_pylist()
    assert {row["warnings"][0] for row in rows if row["arm"] == "mtp"} == {reason}
    assert verdicts(cells, series)["dflash", "decode_tok_s"] == "faster"
    slot = contrasts.slots(cells, series).query("arm == 'mtp' and round == 3")
    assert slot["value"].isna().all()
    assert set(slot["reason"]) == {reason}


def test_other_work_is_not_compared() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    mine = cells["arm"] == "mtp"
    template = cells.assign(prompt_tokens=cells["prompt_tokens"].where(~mine, 514))
    assert only_reason(template, series) == "prompts_differ"
    shorter = cells.assign(completion_tokens=cells["completion_tokens"].where(~mine, 200))
    found = {
        row["metric"]: row["warnings"]
        for row in contrasts.from_cells(shorter, [series]).to_pylist()
    }
    assert found["conversation_s"] == ["lengths_differ"]
    assert "lengths_differ" not in found["decode_tok_s"]


def test_one_unknown_count_hides_no_other_work() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    mine = cells["arm"] == "mtp"
    cells["completion_tokens"] = cells["completion_tokens"].astype(float)
    cells.loc[mine, "completion_tokens"] /= 2
    cells.loc[mine, "e2e_s"] /= 2
    cells.loc[cells.index[mine][0], "completion_tokens"] = np.nan
    (found,) = [
        row
        for row in contrasts.from_cells(cells, [series]).to_pylist()
        if (row["metric"], row["arm"]) == ("conversation_s", "mtp")
    ]
    assert (found["verdict"], found["warnings"]) == ("invalid", ["lengths_differ"])


def test_a_missing_column_is_told_in_one_line() -> None:
    series = series_of("mtp")
    with pytest.raises(UserError, match="no column decode_s"):
        contrasts.from_cells(cells_of(series).drop(columns="decode_s"), [series])


# Null arm -----------------------------------------------------------------------------------------


def test_a_null_arm_that_differs_makes_the_series_invalid() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 2.0, NULL: 1.2})
    assert only_reason(cells, series).startswith("null_arm_differs:")
    assert (
        contrasts.null_arm_state(contrasts.from_cells(cells, [series]).to_pylist(), series)
        == "failed"
    )


def test_a_null_arm_that_failed_is_a_warning_for_the_others() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 2.0})
    cells.loc[_first_start(cells, 3, NULL), "status"] = "stopped_early"
    table = contrasts.from_cells(cells, [series])
    assert contrasts.null_arm_state(table.to_pylist(), series) == "unchecked"
    mtp = [row for row in table.to_pylist() if row["arm"] == "mtp"]
    assert all("null_arm_unchecked" in row["warnings"] for row in mtp)
    assert contrasts.null_arm_state(table.to_pylist(), series_of("mtp")) == "absent"


# Drift --------------------------------------------------------------------------------------------


def test_drift_shows_the_control_beside_the_curve() -> None:
    series = series_of("mtp", null=True)
    found = contrasts.drift(cells_of(series, drift=-0.3), series)
    assert list(found.columns) == contrasts.DRIFT_COLUMNS
    decode = found[found["metric"] == "decode_tok_s"]
    assert decode["kind"].value_counts().to_dict() == {"curve": 49, "slot": 6, "control": 1}
    control = decode[decode["kind"] == "control"].iloc[0]
    assert control["ratio_to_first"] == pytest.approx(math.exp(-0.3), abs=0.06)
    assert control["ratio_to_fitted"] == pytest.approx(1, abs=0.06)
    assert (decode["low"] < decode["fitted"]).all()
    assert (decode["fitted"] < decode["high"]).all()


def test_drift_of_one_arm_of_nothing_and_of_a_broken_order() -> None:
    alone, pair = series_of(), series_of("mtp")
    assert set(contrasts.drift(cells_of(alone), alone)["kind"]) == {"slot", "control", "curve"}
    assert contrasts.drift(cells_of(pair).head(0), pair).empty
    assert contrasts.drift(_swapped_arms(cells_of(pair)), pair).empty
    steady = cells_of(pair).assign(decode_s=2.0)
    rates = contrasts.drift(steady, pair).query("metric == 'decode_tok_s'")
    assert rates["fitted"].isna().all()
    assert set(rates["kind"]) == {"slot", "control"}


# Cells as they come from a file -------------------------------------------------------------------


def test_null_and_nullable_columns_are_read_alike() -> None:
    series = series_of("mtp")
    cells = cells_of(series, decode={"mtp": 1.3})
    cells["verify_cycles"] = None
    typed = cells.convert_dtypes()
    boxed = cells.astype({"decode_tokens": object, "e2e_s": object})
    expected = contrasts.from_cells(cells, [series])
    assert contrasts.from_cells(typed, [series]).equals(expected)
    assert contrasts.from_cells(boxed, [series]).equals(expected)


@pytest.mark.parametrize(
    "column", [name for name in contrasts.COLUMNS if name not in ("series", "kind")]
)
@pytest.mark.parametrize("rows", ["all", "one"])
def test_a_column_of_nulls_is_never_a_traceback(column: str, rows: str) -> None:
    series = series_of("mtp", rounds=4)
    cells = cells_of(series, decode={"mtp": 1.3}).astype({column: object})
    cells.loc[cells.index if rows == "all" else [20], column] = None
    for row in contrasts.from_cells(cells, [series]).to_pylist():
        silent = row["verdict"] in ("invalid", "not_measured")
        assert all((row[number] is None) == silent for number in NUMBERS)
    contrasts.drift(cells, series)


def test_a_server_that_did_not_start_takes_its_own_pair_alone() -> None:
    """Its cell is one row that no other cell holds, with the clocks of that moment."""
    series = series_of("fast", "flaky")
    cells = cells_of(series, decode={"fast": 1.4})
    here = (cells["arm"] == "flaky") & (cells["round"] == 3)
    row = (
        cells[here]
        .iloc[[0]]
        .assign(
            status="start_failed",
            prompt_id=NO_PROMPT,
            turn=1,
            **dict.fromkeys(
                ("ttft_s", "e2e_s", "decode_s", "decode_tokens", "completion_tokens"), None
            ),
        )
    )
    table = contrasts.from_cells(pd.concat([cells[~here], row]), [series]).to_pylist()
    decode = {one["arm"]: one for one in table if one["metric"] == "decode_tok_s"}
    assert decode["flaky"]["verdict"] == "invalid"
    assert decode["flaky"]["warnings"][0] == "row_not_ok:start_failed"
    assert decode["fast"]["verdict"] == "faster"


# Caches and templates -----------------------------------------------------------------------------


def test_a_template_that_breaks_the_prefix_takes_the_second_turn_alone() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series)
    broken = (cells["arm"] == "mtp") & (cells["turn"] == 2) & (cells["round"] == 3)
    cells.loc[broken, "prefix_share"] = 0.94
    rows = contrasts.from_cells(cells, [series]).to_pylist()
    second = {row["arm"]: row for row in rows if row["metric"] == "turn2_ttft_s"}
    assert second["mtp"]["warnings"] == ["template_breaks_prefix:demo-q4"]
    assert second["mtp"]["verdict"] == "invalid"
    assert second[NULL]["ratio"] is not None
    assert all(row["ratio"] for row in rows if row["metric"] != "turn2_ttft_s")
    cells.loc[cells["turn"] == 2, "prefix_share"] = 0.94  # of every arm: the null arm is no proof
    rows = contrasts.from_cells(cells, [series]).to_pylist()
    assert contrasts.null_arm_state(rows, series) == "passed"
    assert not any("null_arm_unchecked" in row["warnings"] for row in rows)


def test_a_table_of_an_older_version_knows_no_share() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    older = cells.drop(columns=list(contrasts.LATER_COLUMNS))
    assert contrasts.from_cells(older, [series]).equals(contrasts.from_cells(cells, [series]))


def test_a_counter_that_the_clock_contradicts_is_a_warning() -> None:
    series = series_of("mtp", "dflash")
    cells = cells_of(series)
    lie = (cells["arm"] == "mtp") & (cells["turn"] == 2)
    cells.loc[lie, "cached_tokens"] = 0
    cells.loc[lie, "ttft_s"] /= 10
    warned = {
        (row["metric"], row["arm"])
        for row in contrasts.from_cells(cells, [series]).to_pylist()
        if "cache_counter_suspect" in row["warnings"]
    }
    assert warned == {("turn2_ttft_s", "mtp")}


def test_decoys_enter_nothing() -> None:
    series = series_of("mtp")
    cells = cells_of(series)
    decoys = cells[(cells["kind"] == "round") & (cells["turn"] == 1)].assign(
        kind="decoy", prompt_id="p1-decoy", ttft_s=99.0, status="not_cold"
    )
    both = pd.concat([cells, decoys], ignore_index=True)
    slots = contrasts.slots(both, series)
    assert slots.equals(contrasts.slots(cells, series))
    rows = contrasts.from_cells(both, [series]).to_pylist()
    assert [row["ratio"] for row in rows] == [
        row["ratio"] for row in contrasts.from_cells(cells, [series]).to_pylist()
    ]
    # A prompt that nobody sent was found in the cache: no count of these servers is believed.
    assert [row["warnings"] for row in rows if row["metric"] == "turn2_ttft_s"] == [
        ["cache_counter_suspect"]
    ]
