"""Runs of any origin, put together to slots after the checks that need all of them."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from twoturn.claims import METRICS
from twoturn.errors import UserError
from twoturn.stats.base import Slot

KNOWN_METRICS = tuple(name for name in METRICS if ":" not in name)
"""Metrics that a value can have: `prompts:ttft_s` and its kind are verdicts about others."""

MAX_RUNS = 100_000
"""More runs than a person has measured one by one; a longer file holds something else."""

ONE_UNIT_WITHIN = 100.0
ONE_UNIT_BETWEEN = 500.0
"""Values of one arm, or medians of two, that are further apart stand in two units, such as
milliseconds and seconds."""


LONGEST_S = 1e9
"""Thirty years: times that reach further are no seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured value. `time_s`: on any clock of the file, None where it is not known; `round`
    likewise. `place` is where it stands, as a reader would say it: `row 7`."""

    file: str
    place: str
    metric: str
    arm: str
    value: float
    round: int | None = None
    time_s: float | None = None
    session: str = ""
    prompt: str = ""
    version: str = ""


@dataclass(frozen=True)
class Recorded:
    """What a file says of its runs beside their values. `repetitions`: the most within one value.
    `also`: fields, other than the one that makes the arms, in which arms differ."""

    control: bool = False
    versions: bool = False
    repetitions: int = 1
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """Everything from one measurement that is compared. `slots`: metric → slots of all arms.

    `ordered`: `time_s` of the slots is their real order. `numbered`: the file itself has rounds.
    `contrasts` are rows of `contrasts.SCHEMA` where the whole gate was run by another reader.
    """

    name: str
    file: str
    arms: tuple[str, ...]
    slots: Mapping[str, tuple[Slot, ...]]
    ordered: bool
    numbered: bool
    prompts: int
    recorded: Recorded
    reference: str | None = None
    null_arm: str | None = None
    fingerprint: str = ""
    contrasts: tuple[dict[str, Any], ...] | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self.slots)


@dataclass(frozen=True)
class Arm:
    """An arm of which the name alone is known: no two of them make a square."""

    name: str
    checkpoint: str = ""
    server: str = ""
    speculation: str = ""
    block_size: int | None = None
    draft: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    args: Sequence[str] = ()
    attached: bool = False
    adaptive: bool = False


@dataclass(frozen=True)
class Series:
    """What contrasts and claims need of a series, of one that no campaign has planned."""

    name: str
    metrics: tuple[str, ...]
    reference: str
    arms: tuple[Arm, ...]
    null_arm: str | None
    rounds: int = 0
    fingerprint: str = ""
    orders: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def order(self, round_number: int, /) -> tuple[str, ...]:
        return self.orders.get(round_number, ())


def number(value: Any, file: str, key: str) -> float:
    """A measured value: a positive finite number, or UserError."""
    cure = "remove the run, or measure it again"
    if value is None or value == "":
        raise UserError("there is no value", file=file, key=key, cure=cure)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise UserError("not a number", file=file, key=key, cure=cure)
    try:
        if "_" in str(value):
            raise ValueError  # Python would read 4_0 as 40
        found = float(value)
    except (ValueError, OverflowError):
        shown = str(value)[:40]
        if isinstance(value, str) and value.count(",") == 1:
            cure = "write numbers with a decimal point"
        raise UserError(f"{shown!r} is not a number", file=file, key=key, cure=cure) from None
    if not (math.isfinite(found) and found > 0):
        raise UserError("the value is not a positive finite number", file=file, key=key, cure=cure)
    return found


def metric_of(name: str, file: str, key: str) -> str:
    if name not in KNOWN_METRICS:
        raise UserError(
            f"unknown metric {name!r}", file=file, key=key, cure=f"use {', '.join(KNOWN_METRICS)}"
        )
    return name


def study(runs: Sequence[Run], *, name: str, file: str, recorded: Recorded) -> Study:
    """Check runs and put them together: the value of a slot is the geometric mean over its prompts.

    Without prompts a slot is one run. Without rounds the n-th run of an arm is its round n.
    Raises UserError: one arm, one run per arm, a value twice, a prompt that other slots have, a
    round without one of the arms, two versions of one arm, times that contradict the rounds,
    values in two units, values that are all equal.
    """
    arms = tuple(dict.fromkeys(run.arm for run in runs))
    if len(arms) < 2:
        told = f"one arm, {arms[0]!r}" if arms else "no arm"
        raise UserError(
            f"it holds {told}", file=file, cure="a comparison needs runs of at least two"
        )
    _one_version(runs, file)
    slots: dict[str, tuple[Slot, ...]] = {}
    for metric in dict.fromkeys(run.metric for run in runs):
        own = [run for run in runs if run.metric == metric]
        slots[metric] = _slots(own, file)
        _plausible(slots[metric], metric, file, recorded)
    return Study(
        name=name,
        file=file,
        arms=arms,
        slots=slots,
        ordered=all(run.time_s is not None for run in runs),
        numbered=all(run.round is not None for run in runs),
        prompts=len({run.prompt for run in runs}),
        recorded=recorded,
    )


def _one_version(runs: Iterable[Run], file: str) -> None:
    seen: dict[str, Run] = {}
    for run in runs:
        first = seen.setdefault(run.arm, run)
        if first.version != run.version:
            raise UserError(
                f"arm {run.arm!r} has two versions, {first.version!r} at {first.place} and "
                f"{run.version!r}",
                file=file,
                key=run.place,
                cure="judge the runs of one version, or name the arms by their versions",
            )


def _slots(runs: Sequence[Run], file: str) -> tuple[Slot, ...]:
    numbered = all(run.round is not None for run in runs)
    if not numbered and len({run.prompt for run in runs}) > 1:
        raise UserError(
            "several prompts and no rounds: nothing says which runs belong together",
            file=file,
            key="round",
            cure="add the column, or keep the rows of one prompt with --where",
        )
    count: Counter[str] = Counter()
    cells: dict[tuple[str, int], dict[str, Run]] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: run.time_s or 0.0):
        count[run.arm] += 1
        cell = cells[run.arm, count[run.arm] if run.round is None else run.round]
        if run.prompt in cell:
            raise UserError(
                f"arm {run.arm!r} has round {run.round} twice; it stands at "
                f"{cell[run.prompt].place} already",
                file=file,
                key=run.place,
                cure="number the rounds, remove one of the two, or name the column of prompts",
            )
        cell[run.prompt] = run
    _whole(cells, file, numbered)
    slots = tuple(_slot(arm, number, list(cell.values())) for (arm, number), cell in cells.items())
    if all(run.time_s is not None for run in runs):
        _clock(slots, file)
        return _from_zero(slots, file)
    return slots


def _from_zero(slots: Sequence[Slot], file: str) -> tuple[Slot, ...]:
    first = min(slot.time_s for slot in slots)
    if max(slot.time_s for slot in slots) - first > LONGEST_S:
        raise UserError(
            "the times reach over more than thirty years",
            file=file,
            key="time",
            cure="give seconds, or dates; nanoseconds are divided by a thousand million",
        )
    return tuple(replace(slot, time_s=slot.time_s - first) for slot in slots)


def _slot(arm: str, number: int, runs: Sequence[Run]) -> Slot:
    times = [run.time_s for run in runs if run.time_s is not None]
    middle = (min(times) + max(times)) / 2 if times else float(number)
    value = statistics.geometric_mean(run.value for run in runs)
    return Slot(arm, number, runs[0].session, middle, value)


def _whole(cells: Mapping[tuple[str, int], Mapping[str, Run]], file: str, numbered: bool) -> None:
    """Every slot has the same prompts and, where rounds are numbered, every round every arm."""
    prompts = dict.fromkeys(prompt for cell in cells.values() for prompt in cell)
    for (arm, number), cell in cells.items():
        if missing := [prompt for prompt in prompts if prompt not in cell]:
            raise UserError(
                f"arm {arm!r} has no prompt {missing[0]!r} in round {number}",
                file=file,
                key="prompt",
                cure="measure it, or remove the prompt from all rounds",
            )
    arms = dict.fromkeys(arm for arm, _ in cells)
    for number in dict.fromkeys(number for _, number in cells) if numbered else ():
        if missing := [arm for arm in arms if (arm, number) not in cells]:
            raise UserError(
                f"round {number} has no run of arm {missing[0]!r}",
                file=file,
                key="round",
                cure="measure it, or remove the round",
            )


def _clock(slots: Sequence[Slot], file: str) -> None:
    """A later round of an arm is later in time, and no two slots share a moment."""
    for arm in dict.fromkeys(slot.arm for slot in slots):
        own = sorted((slot for slot in slots if slot.arm == arm), key=lambda slot: slot.round)
        for first, second in pairwise(own):
            if second.time_s <= first.time_s:
                raise UserError(
                    f"arm {arm!r} has round {second.round} at an earlier or the same time as round "
                    f"{first.round}",
                    file=file,
                    key="time",
                    cure="the clock was set back or the rounds are misnumbered: correct it, or "
                    "leave the times out with --columns time=",
                )
    for time_s, count in Counter(slot.time_s for slot in slots).items():
        if count > 1:
            raise UserError(
                f"{count} runs share the time {time_s:g} s",
                file=file,
                key="time",
                cure="give times that tell the order; a table can leave them out with "
                "--columns time=",
            )


def _plausible(slots: Sequence[Slot], metric: str, file: str, recorded: Recorded) -> None:
    values: dict[str, list[float]] = defaultdict(list)
    for slot in slots:
        values[slot.arm].append(slot.value)
    if recorded.repetitions == 1:
        if max(len(own) for own in values.values()) == 1:
            raise UserError(
                f"{metric}: a single run of each arm, and no repetition",
                file=file,
                cure="nothing tells noise from a difference: measure at least four rounds",
            )
        if len({value for own in values.values() for value in own}) == 1:
            raise UserError(
                f"{metric}: all values are equal, so they are not measurements",
                file=file,
                cure="name the column of measured values: --columns value=NAME",
            )
    for arm, own in values.items():
        if max(own) > ONE_UNIT_WITHIN * min(own):
            raise UserError(
                f"{metric}: the values of arm {arm!r} seem to stand in two units",
                file=file,
                cure="write all of them in one, seconds or tokens per second",
            )
    medians = {arm: statistics.median(own) for arm, own in values.items()}
    low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    if medians[high] > ONE_UNIT_BETWEEN * medians[low]:
        raise UserError(
            f"{metric}: arms {low!r} and {high!r} seem to stand in two units",
            file=file,
            cure="write both in one, seconds or tokens per second",
        )
