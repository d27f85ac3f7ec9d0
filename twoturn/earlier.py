"""Series as they were measured before: with other versions, settings or checkpoints than today's.

Where today's plan of a series is not measured, its newest earlier measurement is still worth
telling, as what it is: of its own day and versions. It is read from what lies beside its cells and
enters no comparison with anything of today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from twoturn import cells, config, plan, reasons
from twoturn.errors import UserError

MIN_ROUNDS = 4
"""Fewer give no verdict, so they are nothing to tell."""


@dataclass(frozen=True)
class Earlier:
    """A measured series with another fingerprint than today's, as contrasts need it."""

    name: str
    fingerprint: str
    rounds: int
    reference: str
    null_arm: str | None
    arms: tuple[plan.Arm, ...]
    metrics: tuple[str, ...]
    seed: int
    folder: Path
    last: datetime

    def order(self, round_number: int, /) -> tuple[str, ...]:
        return plan.order([arm.name for arm in self.arms], self.seed, round_number)

    def files(self) -> list[tuple[Path, str]]:
        """Its cells, as `cells.join` takes them."""
        return [(file, self.fingerprint) for file in cells.of_series(self.folder, self.rounds)]

    def measured_on(self) -> str:
        """JSON: the date (UTC) of its last round, its servers with their versions, fingerprint."""
        versions = sorted({f"{arm.server} {arm.version}" for arm in self.arms})
        told = {
            "date": f"{self.last:%Y-%m-%d}",
            "versions": versions,
            "fingerprint": self.fingerprint,
        }
        return json.dumps(told, sort_keys=True)


def of_plan(planned: plan.Plan, root: Path) -> list[Earlier]:
    """`newest` of every series that has one."""
    return [old for one in planned.series if (old := newest(one, root)) is not None]


def newest(series: plan.Series, root: Path) -> Earlier | None:
    """The earlier measurement that stands in for a series which today's plan has not measured.

    It asked the same: the same workload, and arms of the same names. None where all of today's
    rounds are there, or no such measurement has four whole ones.
    """
    today = root / series.directory
    if not reasons.missing_rounds(series, root):
        return None
    files = sorted(today.parent.glob("*/spec.json"))
    found = [_read(series, file) for file in files if file.parent != today]
    return max(filter(None, found), key=lambda one: one.last, default=None)


def _read(series: plan.Series, file: Path) -> Earlier | None:
    """What lies in one folder of cells, or None where it is no whole measurement of the same."""
    try:
        spec = json.loads(file.read_text(encoding="utf-8"))
        same = set(spec["arms"]) == set(series.spec["arms"])
        if not same or spec["workload"] != series.spec["workload"]:
            return None  # another campaign's series of the same name
        arms = tuple(_arm(arm, recipe) for arm, recipe in spec["arms"].items())
        reference, workload = str(spec["reference"]), spec["workload"]
        metrics, seed = plan.metrics(workload), int(workload["seed"])
        rounds = _whole_rounds(file.parent, arms)
        if rounds < MIN_ROUNDS:
            return None
        last = file.parent / plan.round_name(rounds) / f"{config.slug(reference)}.parquet"
        moment = max(cells.read(last)[0]["started_at"].to_pylist())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return None  # of an older version, or broken: nothing that could be told
    null = config.null_name(reference)
    return Earlier(
        name=series.name,
        fingerprint=file.parent.name,
        rounds=rounds,
        reference=reference,
        null_arm=null if null in spec["arms"] else None,
        arms=arms,
        metrics=metrics,
        seed=seed,
        folder=file.parent,
        last=moment,
    )


def _arm(name: str, recipe: Mapping[str, Any]) -> plan.Arm:
    """An arm from its recipe. Names of checkpoints are not kept there; their recipes tell them
    apart as well."""
    server = recipe["server"]
    return plan.Arm(
        name=name,
        checkpoint=plan.canonical(recipe["checkpoint"]),
        server=server["name"],
        adapter=server["adapter"],
        version=server["version"],
        speculation=recipe["speculation"],
        **plan.split_block(recipe["block_size"]),
        draft=plan.canonical(recipe["draft"]) if recipe["draft"] else None,
        settings=recipe["settings"],
        args=tuple(recipe["args"]),
        attached=server.get("attached", False),
    )


def _whole_rounds(folder: Path, arms: tuple[plan.Arm, ...]) -> int:
    """How many rounds have all their cells, from the first on without a gap; an even number."""
    number = 0
    while all(
        (folder / plan.round_name(number + 1) / f"{arm.slug}.parquet").is_file() for arm in arms
    ):
        number += 1
    return number - number % 2
