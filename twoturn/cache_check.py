"""Whether a server's count of cached tokens agrees with the clock. Pure.

A counter may say 0 while the cache works, or report a hit while everything is processed again. The
time to the first token is ours, so it is asked. A cell has requests that are cold for sure, the
first turn of a fresh server and the decoy; T is the shortest of their times to the first token.

    zero_but_warm   0 of a longer prompt came from the cache, and the first token came within T/2.
                    What a request costs beside its prompt only makes that harder to reach.
    hit_but_cold    the count leaves at most half of the first prompt to process, and the first
                    token still took 0.9 T. That would be right where 4/5 of T did not depend on the
                    prompt, so nothing is said below T = 0.25 s: local servers spend less than
                    0.2 s on a request beside its prompt.
    decoy_warm      a prompt that was never sent came from the cache.

One cell may be a hiccup of the machine: an arm is suspect if most of its cells that tell anything
tell the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, inf
from typing import Literal, TypeAlias

import pandas as pd

Finding: TypeAlias = Literal["agrees", "zero_but_warm", "hit_but_cold", "decoy_warm"]

SHORTEST_S = 0.25
WARM = 0.5  # of T
COLD = 0.9  # of T
CLEAR_HIT = 0.5  # of the first prompt is left to process
KNOWN = 0.1  # of a prompt may come from the cache if it is still to count as cold
SMALLEST_BLOCK = 16
LARGE_BLOCK = 256


@dataclass(frozen=True)
class Request:
    """`first`: the server cannot know the prompt, `decoy`: nor should it ever."""

    first: bool
    decoy: bool
    warm: bool
    prompt_tokens: float
    cached_tokens: float
    ttft_s: float


def of_cell(requests: Sequence[Request]) -> Finding | None:
    """What the requests of one cell say, None if nothing. Unknown numbers are NaN."""
    if any(one.decoy and one.warm for one in requests):
        return "decoy_warm"
    cold = [
        one
        for one in requests
        if one.first and not one.cached_tokens > KNOWN * one.prompt_tokens and 0 < one.ttft_s < inf
    ]
    if not cold or (shortest := min(one.ttft_s for one in cold)) < SHORTEST_S:
        return None
    length = cold[0].prompt_tokens
    found = [_of_turn(one, length, shortest) for one in requests if not one.first]
    return next((one for one in found if one not in (None, "agrees")), (found or [None])[0])


def _of_turn(turn: Request, first_tokens: float, cold_s: float) -> Finding | None:
    if not 0 < turn.ttft_s < inf:
        return None
    if turn.cached_tokens == 0 and turn.prompt_tokens >= first_tokens:
        return "zero_but_warm" if turn.ttft_s < WARM * cold_s else "agrees"
    if turn.prompt_tokens - turn.cached_tokens <= CLEAR_HIT * first_tokens:
        return "hit_but_cold" if turn.ttft_s > COLD * cold_s else "agrees"
    return None


def of_arm(cells: Iterable[Sequence[Request]]) -> Finding | None:
    """What most of the cells say of those that say anything; of two the first."""
    found = [one for cell in cells if (one := of_cell(cell)) is not None]
    told, count = Counter(found).most_common(1)[0] if found else (None, 0)
    return told if 2 * count > len(found) else None


def findings(rows: pd.DataFrame) -> dict[str, Finding]:
    """Arm → finding, of the rows of one series that are of its rounds or their decoys."""
    rows = rows[rows["kind"].isin(["round", "decoy"]) & rows["status"].isin(["ok", "not_cold"])]
    found = {}
    for arm, mine in rows.groupby("arm", sort=False):
        cells = [_requests(cell) for _, cell in mine.groupby(["round", "session_id"])]
        if (finding := of_arm(cells)) is not None:
            found[str(arm)] = finding
    return found


def suspects(rows: pd.DataFrame) -> dict[str, Finding]:
    """Arms whose counter is not to be believed."""
    return {arm: one for arm, one in findings(rows).items() if one != "agrees"}


def _requests(cell: pd.DataFrame) -> list[Request]:
    numbers = cell[["prompt_tokens", "cached_tokens", "ttft_s"]].astype("Float64")
    values = numbers.to_numpy(dtype=float, na_value=float("nan"))
    return [
        Request(turn == 1, kind == "decoy", status == "not_cold", *map(float, told))
        for turn, kind, status, told in zip(
            cell["turn"], cell["kind"], cell["status"], values, strict=True
        )
    ]


def block(counts: Iterable[int]) -> int | None:
    """The most that a server's cache may hold and reuse at a time, in tokens, from counts of cached
    tokens: the largest power of two in all of them. None where it may well be single tokens: below
    16, or with a single count below 256, a common factor is soon an accident."""
    seen = {count for count in counts if count > 0}
    factor = gcd(*seen) if seen else 0
    power = factor & -factor
    enough = SMALLEST_BLOCK if len(seen) > 1 else LARGE_BLOCK
    return power if power >= enough else None
