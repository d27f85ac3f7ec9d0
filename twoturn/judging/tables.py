"""A table of runs: a run per row, or a pair of runs per row with a column for each arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from twoturn.errors import UserError
from twoturn.judging import rows
from twoturn.judging.study import MAX_RUNS, Recorded, Run, Study, metric_of, number, study

ROLES = {
    "arm": "name of the arm",
    "value": "the measured value",
    "round": "number of the round",
    "time": "when the run was made: seconds on any clock, or date and time",
    "metric": "name of the metric",
    "session": "what was measured without a break",
    "prompt": "name of the prompt",
    "kind": "`round`, `warmup` or `control`; only `round` is compared",
    "version": "of the arm's program",
    "fingerprint": "of all that was measured: one for the whole file",
    "unit": "of the value: one per metric",
}
"""Columns that mean something. Of another name in the file: `--columns ROLE=NAME`."""

ROUND, WARMUP, CONTROL = KINDS = ("round", "warmup", "control")


@dataclass(frozen=True)
class Wanted:
    """How to read a table. `columns`: role → name, "" to leave a column out. `pairs`: arm → its
    column of values. `where`: (column, value) that a row must have. `in_order`: rows stand in the
    order of measuring, and the columns of `pairs` in the order within a row."""

    columns: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    where: tuple[tuple[str, str], ...] = ()
    metric: str | None = None
    in_order: bool = False


def read(files: Sequence[Path], wanted: Wanted) -> Study:
    """The runs of all files as one study. Raises UserError as told in `study`, and for a column
    that is not there, a row that cannot be read, and a file without a row that is wanted."""
    told = ", ".join(str(file) for file in files)
    seen = _Seen()
    found = [one for file in files for one in _runs(file, wanted, seen)]
    if not found:
        raise UserError("no row holds a run", file=told, cure="see --where, or give another file")
    if wanted.in_order:
        found = _in_order(found)
    runs = [run for kind, run in found if kind == ROUND]
    recorded = Recorded(
        control=any(kind == CONTROL for kind, _ in found),
        versions=bool(runs) and all(run.version for run in runs),
    )
    return study(runs, name=files[0].stem, file=told, recorded=recorded)


def _in_order(found: Sequence[tuple[str, Run]]) -> list[tuple[str, Run]]:
    """The place in the file as the time; times that are there must agree with it."""
    for (_, first), (_, second) in pairwise(found):
        if (first.time_s or 0.0) > (second.time_s or 0.0):
            raise UserError(
                f"the time is earlier than at {first.place}",
                file=second.file,
                key=second.place,
                cure="sort the rows, or leave out --in-order",
            )
    return [
        (kind, run if run.time_s is not None else replace(run, time_s=float(place)))
        for place, (kind, run) in enumerate(found)
    ]


@dataclass
class _Seen:
    """What has to be alike in all rows of all files."""

    fingerprint: str | None = None
    units: dict[str, str] = field(default_factory=dict)
    kind_of_time: type | None = None


def _runs(file: Path, wanted: Wanted, seen: _Seen) -> Iterator[tuple[str, Run]]:
    roles = _roles(file, rows.columns(file), wanted)
    needed = [*roles.values(), *wanted.pairs.values(), *(name for name, _ in wanted.where)]
    values_there: dict[str, set[str]] = {name: set() for name, _ in wanted.where}
    count = 0
    for place, row in rows.read(file, list(dict.fromkeys(needed))):
        for name, _ in wanted.where:
            if len(values_there[name]) < 8:
                values_there[name].add(_text(row[name]))
        if any(_text(row[name]) != value for name, value in wanted.where):
            continue
        for kind, run in _of_row(str(file), place, row, roles, wanted, seen, count):
            count += 1
            if count > MAX_RUNS:
                raise UserError(
                    f"more than {MAX_RUNS} runs",
                    file=file,
                    key=place,
                    cure="give one value for each arm and round",
                )
            yield kind, run
    for name, value in wanted.where if not count else ():
        if value not in values_there[name]:
            raise UserError(
                f"no row has the value {value!r}",
                file=file,
                key=name,
                cure=f"there are {', '.join(sorted(values_there[name])) or 'no rows'}",
            )


def _roles(file: Path, names: Sequence[str], wanted: Wanted) -> dict[str, str]:
    """Role → column, of those that are there. Raises UserError for one that has to be."""
    have = f"the columns are {', '.join(names)}"
    if odd := set(wanted.columns) - set(ROLES):
        raise UserError(
            "no such role", file=file, key=min(odd), cure=f"the roles are {', '.join(ROLES)}"
        )
    given = {**wanted.columns, **{f"--pairs {arm}": name for arm, name in wanted.pairs.items()}}
    for role, name in [*given.items(), *(("--where", name) for name, _ in wanted.where)]:
        if name and name not in names:
            raise UserError(f"no column {name!r}", file=file, key=role, cure=have)
    roles = {role: wanted.columns.get(role, role) for role in ROLES}
    roles = {role: name for role, name in roles.items() if name in names}
    if wanted.pairs:
        if timed := wanted.columns.get("time"):
            raise UserError(
                f"the one time {timed!r} of a row is not that of two runs",
                file=file,
                key="time",
                cure="leave it out; if rows and columns stand in the order of measuring, say "
                "--in-order",
            )
        return {role: name for role, name in roles.items() if role not in ("arm", "value", "time")}
    for role in ("arm", "value"):
        if role not in roles:
            raise UserError(
                "no such column",
                file=file,
                key=role,
                cure=f"name it with --columns {role}=NAME, or a column for each arm with "
                f"--pairs ARM=NAME,ARM=NAME; {have}",
            )
    return roles


def _of_row(
    file: str,
    place: str,
    row: rows.Row,
    roles: Mapping[str, str],
    wanted: Wanted,
    seen: _Seen,
    count: int,
) -> Iterator[tuple[str, Run]]:
    """The runs of one row that are of a wanted metric and no warm-up."""
    told = {role: row[name] for role, name in roles.items()}
    texts = {role: _text(value) for role, value in told.items()}
    metric = texts.get("metric") or wanted.metric
    if metric is None:
        raise UserError(
            "nothing says whether more or less is better",
            file=file,
            key="metric",
            cure="say which metric it is: --metric decode_tok_s, ttft_s, …",
        )
    metric_of(metric, file, f"{place}: metric")
    kind = texts.get("kind") or ROUND
    if kind not in KINDS:
        raise UserError(
            f"unknown kind {kind!r}",
            file=file,
            key=place,
            cure=f"use {', '.join(KINDS)}, or leave the column out with --columns kind=",
        )
    if kind == WARMUP or (wanted.metric and metric != wanted.metric):
        return
    _alike(seen, texts, metric, file, place)
    numbered = "round" in roles and kind == ROUND
    round_ = _round(told["round"], file, place) if numbered else None
    pairs = wanted.pairs or {texts.get("arm", ""): roles.get("value", "")}
    if wanted.pairs and round_ is None:
        round_ = count // len(pairs) + 1
    for arm, column in pairs.items():
        if not arm:
            raise UserError(
                "the arm has no name", file=file, key=place, cure=f"fill in {roles['arm']!r}"
            )
        yield (
            kind,
            Run(
                file=file,
                place=place,
                metric=metric,
                arm=arm,
                value=number(row[column], file, f"{place}: {column}"),
                round=round_,
                time_s=_time(told["time"], file, place, seen) if "time" in roles else None,
                session=texts.get("session", ""),
                prompt=texts.get("prompt", ""),
                version=texts.get("version", ""),
            ),
        )


def _alike(seen: _Seen, texts: Mapping[str, str], metric: str, file: str, place: str) -> None:
    if (found := texts.get("fingerprint")) is not None:
        seen.fingerprint = found if seen.fingerprint is None else seen.fingerprint
        if found != seen.fingerprint:
            raise UserError(
                f"fingerprint {found!r}, and {seen.fingerprint!r} before",
                file=file,
                key=place,
                cure="judge one of the two: --where with the column and the value",
            )
    if (unit := texts.get("unit")) is not None and seen.units.setdefault(metric, unit) != unit:
        raise UserError(
            f"unit {unit!r}, and {seen.units[metric]!r} before",
            file=file,
            key=place,
            cure="write all values of a metric in one unit",
        )


def _round(value: Any, file: str, place: str) -> int:
    try:
        found = float(value)
        if not isinstance(value, bool) and found.is_integer():
            return int(found)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UserError(
        f"{_text(value)[:40]!r} is no number of a round",
        file=file,
        key=f"{place}: round",
        cure="use whole numbers, or leave the column out with --columns round=",
    )


def _time(value: Any, file: str, place: str, seen: _Seen) -> float:
    """Seconds since any beginning. All times of a file are numbers, or all are dates."""
    try:
        moment = value if isinstance(value, datetime) else float(value)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = math.nan
    kind: Any = type(moment)
    if isinstance(moment, datetime):
        kind = (kind, moment.tzinfo is None)
        # Without a zone it means UTC: this machine's zone is not the measurement's.
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    seconds = moment.timestamp() if isinstance(moment, datetime) else moment
    if math.isfinite(seconds) and seen.kind_of_time in (None, kind):
        seen.kind_of_time = kind
        return seconds
    raise UserError(
        f"{_text(value)[:40]!r} is no time like the others",
        file=file,
        key=f"{place}: time",
        cure="use seconds, or dates as 2026-11-29T18:32:05Z throughout",
    )


def _text(value: Any) -> str:
    """A field as text; what is not known is empty."""
    return "" if value is None or value != value else str(value)
