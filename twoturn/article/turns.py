"""What conversations have to tell turn by turn, as raw numbers. Reads no file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from twoturn import cache_check, config, plan, prefix
from twoturn.numbers import finite

SHOWN = (1, 2, 3)
"""Turns of a long conversation that are told, and the last."""


@dataclass(frozen=True)
class TurnOf:
    """One turn of one arm: medians over its valid requests. Tokens are None where a request does
    not report them or its server's count is not to be believed."""

    arm: str
    turn: int
    prompt_tokens: float | None
    cached_tokens: float | None
    new_tokens: float | None
    ttft_s: float | None
    decode_tok_s: float | None


@dataclass(frozen=True)
class Suspect:
    """An arm whose count of cached tokens does not agree with the clock: the count and the time to
    the first token in the second turn, and that of cold prompts."""

    arm: str
    finding: cache_check.Finding
    cached_tokens: float | None
    ttft_s: float | None
    cold_s: float | None


@dataclass(frozen=True)
class Turns:
    """`turns`: of conversations. `decoys`: arm → (how many were sent, how many stayed cold), of
    servers that report. `blocks`: arm → the largest step of its cache. `broken`: checkpoint → the
    smallest share that its template keeps, where that is too little."""

    turns: tuple[TurnOf, ...]
    decoys: tuple[tuple[str, int, int], ...]
    suspects: tuple[Suspect, ...]
    blocks: tuple[tuple[str, int], ...]
    broken: tuple[tuple[str, float], ...]


def gather(rows: pd.DataFrame, series: plan.Series) -> Turns:
    """rows: of the series, all kinds, the rounds that are planned."""
    valid = rows[(rows["kind"] == "round") & (rows["status"] == "ok")]
    suspects = cache_check.suspects(rows)
    workload = series.workload
    last = workload.turns if isinstance(workload, config.Conversation) else 0
    return Turns(
        turns=tuple(
            _turn(valid, arm.name, turn, arm.name in suspects)
            for arm in series.arms
            if (valid["arm"] == arm.name).any()
            for turn in sorted({*(one for one in SHOWN if one < last), last} - {0})
        ),
        decoys=tuple(_decoys(rows, series)),
        suspects=tuple(
            _suspect(rows, arm.name, suspects[arm.name])
            for arm in series.arms
            if arm.name in suspects
        ),
        blocks=tuple(
            (arm.name, block)
            for arm in series.arms
            if arm.name not in suspects
            and (block := cache_check.block(_counts(valid, arm.name))) is not None
        ),
        broken=tuple(_broken(valid)),
    )


def _turn(valid: pd.DataFrame, arm: str, turn: int, suspect: bool) -> TurnOf:
    mine = valid[(valid["arm"] == arm) & (valid["turn"] == turn)]
    cached = None if suspect else median(mine["cached_tokens"])
    prompt = median(mine["prompt_tokens"])
    new = None if cached is None else median(mine["prompt_tokens"] - mine["cached_tokens"])
    return TurnOf(
        arm, turn, prompt, cached, new, median(mine["ttft_s"]), median(mine["decode_tok_s"])
    )


def median(values: pd.Series[Any]) -> float | None:
    """None if one is not known: it may have been anything."""
    numbers = pd.to_numeric(values, errors="coerce")
    return None if numbers.isna().any() or numbers.empty else finite(numbers.median())


def _decoys(rows: pd.DataFrame, series: plan.Series) -> list[tuple[str, int, int]]:
    decoys = rows[(rows["kind"] == "decoy") & rows["status"].isin(["ok", "not_cold"])]
    decoys = decoys[decoys["cached_tokens"].notna()]
    found = []
    for arm in series.arms:
        mine = decoys[decoys["arm"] == arm.name]
        if len(mine) and not arm.attached:  # of a server that already ran nothing cold is told
            found.append((arm.name, len(mine), int((mine["status"] == "ok").sum())))
    return found


def _suspect(rows: pd.DataFrame, arm: str, finding: cache_check.Finding) -> Suspect:
    mine = rows[(rows["arm"] == arm) & rows["kind"].isin(["round", "decoy"])]
    second, first = (mine[mine["turn"] == turn] for turn in (2, 1))
    if finding == "decoy_warm":
        second = mine[(mine["kind"] == "decoy") & (mine["status"] == "not_cold")]
        first = mine[(mine["kind"] == "round") & (mine["turn"] == 1)]
    cached, ttft_s = (median(second[name].dropna()) for name in ("cached_tokens", "ttft_s"))
    return Suspect(arm, finding, cached, ttft_s, median(first["ttft_s"].dropna()))


def _counts(valid: pd.DataFrame, arm: str) -> list[int]:
    counts = valid.loc[(valid["arm"] == arm) & (valid["turn"] > 1), "cached_tokens"].dropna()
    return [int(count) for count in counts]


def _broken(valid: pd.DataFrame) -> list[tuple[str, float]]:
    shares = valid[valid["turn"] == 2].dropna(subset=["prefix_share"])
    least = shares.groupby("checkpoint", sort=True)["prefix_share"].min()
    return [(str(name), float(one)) for name, one in least.items() if one < prefix.KEPT]
