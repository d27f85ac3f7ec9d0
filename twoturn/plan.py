"""The plan of a campaign: series, rounds, arms, order and fingerprints. Pure: no I/O at all.

A series' fingerprint covers the recipes that its numbers depend on and nothing else. It is part of
the path of every cell, so a changed recipe means other paths, and missing files are what starts a
measurement. A series is the unit: a ratio between a number of today and one of last week is none.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from twoturn import config, matrix

PROTOCOL = 1  # raise when the meaning of a measured number changes; every series is then new
GENERATOR = 1  # raise when `workloads` cuts other prompts from the same text
CHECKER = 2  # raise when `tasks` reads an answer otherwise, so that its score may be another
MACHINE_FACTS = ("chip", "memory_gb", "os", "os_build", "arch", "accelerator")

METRICS: dict[str, tuple[str, ...]] = {
    "chat": ("decode_tok_s", "ttft_s"),
    "conversation": ("conversation_s", "turn2_ttft_s", "decode_tok_s"),
    "prefill": ("prefill_tok_s",),
    "replay": ("conversation_s", "turns_ttft_s"),
    "quality": (),
}
"""Kind of workload → what is compared, the metric that decides first. Lengths are compared each for
itself: `prefill_tok_s@4096` is the rate at a prompt of 4096 tokens."""


def metrics(workload: Mapping[str, Any]) -> tuple[str, ...]:
    """Metrics of a workload that is given as a spec has it."""
    named = METRICS[workload["kind"]]
    if workload["kind"] != "prefill":
        return named
    return tuple(f"{name}@{length}" for name in named for length in workload["lengths"])


@dataclass(frozen=True)
class Arm:
    """One thing that is compared. `version` is its server's, `null` marks the null arm, `attached`
    a server that the workflow did not start, `adaptive` one that chooses the block itself."""

    name: str
    checkpoint: str
    server: str
    adapter: str
    version: str
    speculation: str
    block_size: int | None
    draft: str | None
    settings: Mapping[str, Any]
    args: tuple[str, ...]
    null: bool = False
    attached: bool = False
    adaptive: bool = False

    @property
    def slug(self) -> str:
        return config.slug(self.name)

    @property
    def engine(self) -> str:
        """Server plus speculation mode."""
        return self.server if self.speculation == "none" else f"{self.server} + {self.speculation}"


@dataclass(frozen=True)
class Series:
    """One workload, its arms and its rounds. `spec` is exactly what the fingerprint covers."""

    name: str
    workload: config.Workload
    rounds: int
    reference: str
    null_arm: str | None
    arms: tuple[Arm, ...]
    spec: Mapping[str, Any]

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.spec)

    @property
    def directory(self) -> str:
        return f"results/cells/{config.slug(self.name)}/{self.fingerprint}"

    @property
    def metrics(self) -> tuple[str, ...]:
        return metrics(self.spec["workload"])

    @property
    def pictures(self) -> tuple[str, ...]:
        """Kinds of pictures that show something of it; their files are KIND_SERIES_LANGUAGE.svg.
        Series that score answers share one, which lies beside these."""
        if not self.workload.timed:
            return ()
        shown = {
            "turns": "turn2_ttft_s" in self.metrics,
            "blocks": matrix.sweeps(self),
            "kinds": self.prompt_kinds,
            "prefill": self.workload.kind == "prefill",
        }
        return ("slots", "forest", *(kind for kind, some in shown.items() if some))

    @property
    def prompt_kinds(self) -> tuple[str, ...]:
        """The kinds of prompts that arms with speculation are sent, if its workload has any."""
        kinds = self.workload.kinds if isinstance(self.workload, config.Chat) else None
        speculates = any(arm.speculation != "none" for arm in self.arms)
        return tuple(kinds or ()) if speculates else ()

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def order(self, round_number: int) -> tuple[str, ...]:
        """Arm names in the order in which a round (from 1) measures them."""
        return order([arm.name for arm in self.arms], self.workload.seed, round_number)

    def cells(self, round_number: int) -> list[str]:
        """Paths of one round's cells, in measuring order."""
        folder = f"{self.directory}/{round_name(round_number)}"
        return [f"{folder}/{self.arm(name).slug}.parquet" for name in self.order(round_number)]

    def round_numbers(self) -> range:
        return range(1, self.rounds + 1)


@dataclass(frozen=True)
class Plan:
    """A campaign as it will be measured, in this order."""

    name: str | None
    machine: str
    languages: tuple[str, ...]
    facts: Mapping[str, Any]
    series: tuple[Series, ...]

    def one(self, name: str) -> Series:
        return next(series for series in self.series if series.name == name)

    def rounds(self) -> Iterator[tuple[Series, int]]:
        for series in self.series:
            for number in series.round_numbers():
                yield series, number

    def priority(self, series: Series, round_number: int) -> int:
        """Unique and falling, above every other rule: one round after the other."""
        jobs = [(one.name, number) for one, number in self.rounds()]
        return 1 + len(jobs) - jobs.index((series.name, round_number))


def fingerprint(spec: Mapping[str, Any]) -> str:
    """12 hex digits over the canonical JSON of the recipes."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()[:12]


def round_name(round_number: int) -> str:
    return f"{round_number:02d}"


def canonical(value: Any) -> str:
    """JSON that is equal when the value is equal: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def order(names: Sequence[str], seed: int, round_number: int) -> tuple[str, ...]:
    """Order of the arms in a round: a fresh seeded shuffle, then its mirror (ABBA for two arms).

    A mirrored block cancels a linear drift exactly, where A B A B has a bias of D/(2n - 1).
    It depends on the names, the seed and the block alone, so rounds may be added later.
    """
    block, second_half = divmod(round_number - 1, 2)
    shuffled = sorted(names)
    random.Random(f"{seed}/{block}").shuffle(shuffled)
    return tuple(reversed(shuffled) if second_half else shuffled)


def make(
    campaign: config.Campaign, lock: Mapping[str, Any], recipes: Mapping[str, Mapping[str, Any]]
) -> Plan:
    """(campaign, lock, recipes) to the plan. Recipes come from `recipes.collect`."""
    facts = {key: lock["machine"].get(key) for key in MACHINE_FACTS}
    series = tuple(_series(name, entry, facts, recipes) for name, entry in campaign.series.items())
    return Plan(campaign.name, campaign.machine, tuple(campaign.languages), facts, series)


def _series(
    name: str,
    entry: config.Series,
    facts: Mapping[str, Any],
    recipes: Mapping[str, Mapping[str, Any]],
) -> Series:
    arms = [_arm(arm_name, arm, recipes) for arm_name, arm in entry.arms.items()]
    null_arm = config.null_name(entry.reference) if entry.null_arm else None
    if null_arm is not None:
        arms.append(_arm(null_arm, entry.arms[entry.reference], recipes, null=True))
    spec = {
        "protocol": PROTOCOL,
        "machine": dict(facts),
        "workload": _workload_recipe(entry.workload, recipes),
        "reference": entry.reference,
        "arms": {arm.name: _arm_recipe(arm, recipes) for arm in arms},
    }
    return Series(name, entry.workload, entry.rounds, entry.reference, null_arm, tuple(arms), spec)


def _workload_recipe(
    workload: config.Workload, recipes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The name of a file is no part of it: a recording's may tell whose it is. Nor is a decoy,
    which is sent when a cell has nothing more to time."""
    recorded = {"turns": recipes["turns"][workload.source]} if workload.kind == "replay" else {}
    return {
        **workload.model_dump(exclude={workload.source_key, "decoy"}, exclude_none=True),
        **recorded,
        "text_sha256": recipes["texts"][workload.source],
        **({"generator": GENERATOR} if workload.timed else {"checker": CHECKER}),
    }


def _arm(
    name: str, entry: config.Arm, recipes: Mapping[str, Mapping[str, Any]], null: bool = False
) -> Arm:
    server = recipes["servers"][entry.server]
    return Arm(
        name=name,
        checkpoint=entry.checkpoint,
        server=entry.server,
        adapter=server["adapter"],
        version=server["version"],
        speculation=entry.speculation,
        **split_block(entry.block_size),
        draft=entry.draft,
        settings=entry.settings,
        args=tuple(entry.args),
        null=null,
        attached=server.get("attached", False),
    )


def split_block(block: int | str | None) -> dict[str, Any]:
    """A block as a campaign and a recipe hold it, as `matrix.block` joins it again."""
    adaptive = block == matrix.ADAPTIVE
    return {"block_size": None if adaptive else block, "adaptive": adaptive}


def _arm_recipe(arm: Arm, recipes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "checkpoint": recipes["checkpoints"][arm.checkpoint],
        "draft": recipes["checkpoints"][arm.draft] if arm.draft else None,
        "server": {"name": arm.server, **recipes["servers"][arm.server]},
        "speculation": arm.speculation,
        "block_size": matrix.block(arm),
        "settings": dict(arm.settings),
        "args": list(arm.args),
    }


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two specs, in words: "mlx-vlm 0.7.9 → 0.7.10". Sorted, each once."""
    found: dict[str, None] = {}
    for key in MACHINE_FACTS:
        before, after = old.get("machine", {}).get(key), new["machine"].get(key)
        if before != after:
            found[f"{key} {before} → {after}"] = None
    if old.get("protocol") != new["protocol"]:
        found[f"protocol {old.get('protocol')} → {new['protocol']}"] = None
    for key in sorted({*old.get("workload", {}), *new["workload"]}):
        before, after = old.get("workload", {}).get(key), new["workload"].get(key)
        if before != after:
            name = key.removesuffix("_sha256")
            text = f"workload {name} changed" if name != key else f"{key} {before} → {after}"
            found[text] = None
    if old.get("reference") != new["reference"]:
        found[f"reference {old.get('reference')} → {new['reference']}"] = None
    old_arms = old.get("arms", {})
    for name in sorted({*old_arms, *new["arms"]}):
        if name not in old_arms:
            found[f"arm {name} is new"] = None
        elif name not in new["arms"]:
            found[f"arm {name} is gone"] = None
        else:
            found.update(dict.fromkeys(_arm_changes(name, old_arms[name], new["arms"][name])))
    return list(found)


def _arm_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    old_server, new_server = old["server"], new["server"]
    server = new_server["name"]
    if old_server.get("name") != server:
        yield f"server of {name} {old_server.get('name')} → {server}"
    elif old_server.get("version") != new_server.get("version"):
        yield f"{server} {old_server.get('version')} → {new_server.get('version')}"
    old_packages, new_packages = old_server.get("packages", {}), new_server.get("packages", {})
    moved = [
        f"{package} {old_packages.get(package)} → {new_packages.get(package)}"
        for package in sorted({*old_packages, *new_packages})
        if old_packages.get(package) != new_packages.get(package)
        and package != new_server.get("adapter")
    ]
    if moved:
        more = f" and {len(moved) - 3} more packages" if len(moved) > 3 else ""
        yield f"environment of {server}: {', '.join(moved[:3])}{more}"
    rest = ("adapter", "environment_sha256", "command", "attached")
    told = moved or old_server.get("version") != new_server.get("version")
    if not told and any(old_server.get(key) != new_server.get(key) for key in rest):
        yield f"recipe of {server} changed"
    for key in ("checkpoint", "draft"):
        if old[key] != new[key]:
            yield f"{key} of {name} changed"
    for key in ("speculation", "block_size"):
        if old[key] != new[key]:
            yield f"{key} of {name} {old[key]} → {new[key]}"
    if old["args"] != new["args"]:
        before, after = (" ".join(one["args"]) or "none" for one in (old, new))
        yield f"args of {name} {before} → {after}"
    for key in sorted({*old["settings"], *new["settings"]}):
        before, after = old["settings"].get(key, "unset"), new["settings"].get(key, "unset")
        if before != after:
            yield f"{key} of {name} {before} → {after}"
