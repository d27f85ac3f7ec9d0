"""A joined table of this project's cells (`results/cells.parquet`), judged by its own whole gate.

The table does not hold the plan, so the series is read back from the cells: the reference is the
arm of the control, the order of a round that of the column `position`, and prompts that are named
by their length are those of a prefill series. Series whose answers are scored are passed over:
nothing of them is timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from twoturn import config, contrasts, plan
from twoturn.cells import JOINED, NO_PROMPT
from twoturn.errors import UserError
from twoturn.judging.rows import columns, unreadable
from twoturn.judging.study import MAX_RUNS, Arm, Recorded, Series, Study, metric_of

COLUMNS = (*contrasts.COLUMNS, "position", "load_s")
SCORED = "passed"
"""The column that a series of tasks alone fills."""


def is_one(columns: Sequence[str]) -> bool:
    return set(COLUMNS) <= set(columns)


def read(
    file: Path,
    *,
    metric: str | None = None,
    reference: str | None = None,
    where: Sequence[tuple[str, str]] = (),
) -> list[Study]:
    """Every timed series of the table. Raises UserError."""
    names = columns(file)
    for name, _ in where:
        if name not in names:
            cure = f"the columns are {', '.join(names)}"
            raise UserError(f"no column {name!r}", file=file, key="--where", cure=cure)
    try:
        if pq.ParquetFile(file).metadata.num_rows > MAX_RUNS:
            raise UserError(f"more than {MAX_RUNS} requests", file=file, cure="judge less at once")
        later = [name for name in (*contrasts.LATER_COLUMNS, SCORED) if name in names]
        wanted = dict.fromkeys([*COLUMNS, *later, *(name for name, _ in where)])
        table = pq.read_table(file, columns=list(wanted))
        known = [
            JOINED.field(name) if name in JOINED.names else table.field(name) for name in wanted
        ]
        cells = table.cast(pa.schema(known)).to_pandas()
    except (OSError, pa.ArrowException, ValueError) as error:
        raise unreadable(file, error, "run `make article`, which makes it anew") from None
    for name, value in where:
        known = sorted(cells[name].astype(str).unique())
        cells = cells[cells[name].astype(str) == value]
        if cells.empty:
            cure = f"there are {', '.join(known[:8])}"
            raise UserError(f"no request has {value!r}", file=file, key=name, cure=cure)
    found = [
        _study(rows, str(name), file, metric, reference)
        for name, rows in cells.groupby("series", sort=False)
        if SCORED not in rows or rows[SCORED].isna().all()
    ]
    if not found:
        told = "the table is empty" if cells.empty else "no series of it is timed"
        raise UserError(told, file=file, cure="measure first: `make article`")
    return found


def _study(
    cells: pd.DataFrame, name: str, file: Path, metric: str | None, reference: str | None
) -> Study:
    rounds = cells[cells["kind"] == "round"]
    prints = sorted(set(cells["fingerprint"]))
    if len(prints) > 1:
        raise UserError(
            f"series {name!r} has cells of {len(prints)} fingerprints",
            file=file,
            key="fingerprint",
            cure=f"judge one of them: --where fingerprint={prints[0]}",
        )
    metrics = _metrics(rounds)
    if metric is not None:
        named = metric_of(metric, str(file), "--metric")
        metrics = tuple(one for one in metrics if contrasts.named(one) == named) or (named,)
    orders = _orders(rounds)
    arms = tuple(dict.fromkeys(arm for order in orders.values() for arm in order))
    if len(arms) < 2:
        raise UserError(
            f"series {name!r} holds one arm" if arms else f"series {name!r} holds no round",
            file=file,
            cure="a comparison needs rounds of at least two",
        )
    controls = sorted(set(cells.loc[cells["kind"] == "control", "arm"]))
    own = reference or (controls[0] if len(controls) == 1 else None)
    if own not in arms:
        raise UserError(
            f"nothing says what the arms of series {name!r} are compared with"
            if own is None
            else f"series {name!r} has no arm {own!r}",
            file=file,
            cure=f"its arms are {', '.join(arms)}; say --reference {arms[0]}",
        )
    null_arm = config.null_name(own)
    # A server that answered and has no start was not started here.
    attached = set(rounds.loc[(rounds["status"] == "ok") & rounds["load_s"].isna(), "arm"])
    series = Series(
        name=name,
        metrics=metrics,
        reference=own,
        arms=tuple(Arm(arm, attached=arm in attached) for arm in arms),
        null_arm=null_arm if null_arm in arms else None,
        rounds=max(orders),
        fingerprint=prints[0],
        orders=orders,
    )
    table = contrasts.slots(cells, series)
    sound = table[table["reason"].isna()]
    slots = {
        metric: tuple(contrasts.as_slots(sound[sound["metric"] == metric])) for metric in metrics
    }
    return Study(
        name=name,
        file=str(file),
        arms=arms,
        slots=slots,
        ordered=True,
        numbered=True,
        prompts=rounds["prompt_id"].nunique(),
        recorded=Recorded(control=bool(controls), versions=True),
        reference=own,
        null_arm=series.null_arm,
        fingerprint=prints[0],
        contrasts=tuple(contrasts.from_cells(cells, [series]).to_pylist()),
    )


def _metrics(rounds: pd.DataFrame) -> tuple[str, ...]:
    """Those of the workload that such cells come from."""
    prompts = set(rounds["prompt_id"]) - {NO_PROMPT}
    lengths = [re.fullmatch(r"n(\d+)", prompt) for prompt in prompts]
    if lengths and all(lengths):
        found = sorted(int(length[1]) for length in lengths if length)
        return plan.metrics({"kind": "prefill", "lengths": found})
    return plan.METRICS["conversation" if rounds["turn"].max() > 1 else "chat"]


def _orders(rounds: pd.DataFrame) -> Mapping[int, tuple[str, ...]]:
    """Round → its arms by position."""
    places = rounds.drop_duplicates(["round", "arm"]).sort_values(["round", "position"])
    return {
        int(number): tuple(map(str, places.loc[places["round"] == number, "arm"]))
        for number in sorted(set(places["round"]))
    }
