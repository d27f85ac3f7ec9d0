"""Whether a count of cached tokens agrees with the clock: real cells and others."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoturn.cache_check import SHORTEST_S, Request, block, findings, of_arm, of_cell, suspects

NAN = math.nan


def cell(
    cold: float, second: float, cached: float, *, first: int = 4096, prompt: int = 4160
) -> list[Request]:
    """A first turn, the second, and a decoy that is as cold as the first."""
    return [
        Request(True, False, False, first, 0, cold),
        Request(False, False, False, prompt, cached, second),
        Request(True, True, False, first, 0, cold),
    ]


@pytest.mark.parametrize(
    ("requests", "finding"),
    [
        (cell(6.0, 0.5, 0), "zero_but_warm"),  # as oMLX once reported it
        (cell(16.4, 16.4, 0), "agrees"),
        (cell(16.4, 1.8, 4096), "agrees"),
        (cell(6.0, 6.1, 4096), "hit_but_cold"),
        (cell(6.0, 0.5, NAN), None),  # not reported is no lie
        (cell(6.0, 6.1, NAN), None),
        (cell(6.0, 6.1, 1024), None),  # most is processed again, as reported
        (cell(6.0, 2.8, 4096), "agrees"),  # a cache on a disk takes its time
        (cell(0.02, 0.02, 4096), None),  # nothing but what a request costs anyway
        (cell(0.02, 0.001, 0), None),
        (cell(NAN, 0.5, 0), None),
        (cell(6.0, NAN, 0), None),
        (cell(6.0, math.inf, 4096), None),
        ([], None),
    ],
)
def test_a_cell(requests: list[Request], finding: str | None) -> None:
    assert of_cell(requests) == finding


def test_a_slow_first_turn_is_no_cold_one() -> None:
    """The decoy knows how long a cold prompt really takes."""
    hiccup = cell(6.0, 2.5, 0)
    hiccup[2] = Request(True, True, False, 4096, 0, 2.5)
    assert of_cell(hiccup) == "agrees"


def test_a_first_turn_that_came_from_the_cache_is_none() -> None:
    known = cell(6.0, 0.5, 0)[:2]
    known[0] = Request(True, False, True, 4096, 4096, 6.0)
    assert of_cell(known) is None


def test_a_warm_decoy() -> None:
    told = cell(6.0, 0.5, 4096)
    told[2] = Request(True, True, True, 4096, 4000, 6.0)
    assert of_cell(told) == "decoy_warm"


def test_one_cell_is_a_hiccup_and_most_are_a_habit() -> None:
    lie, truth, silent = cell(6.0, 0.5, 0), cell(6.0, 6.1, 0), cell(0.1, 0.1, 0)
    assert of_arm([lie, truth, truth, silent]) == "agrees"
    assert of_arm([lie, lie, truth, silent, silent]) == "zero_but_warm"
    assert of_arm([lie, truth]) is None
    assert of_arm([silent]) is None


@given(
    overhead=st.floats(0.0, 0.2),
    rate=st.floats(50, 50_000),
    first=st.integers(16, 40_000),
    later=st.integers(8, 400),
    kept=st.floats(0, 1),
    noise=st.floats(0.97, 1.03),
)
def test_an_honest_counter_is_never_suspect(
    overhead: float, rate: float, first: int, later: int, kept: float, noise: float
) -> None:
    """Any server whose prefill takes its time per new token and 0.2 s beside it, or less."""
    cached = int(kept * first)
    cold, second = overhead + first / rate, overhead + (first + later - cached) / rate
    found = of_cell(cell(cold, second * noise, cached, first=first, prompt=first + later))
    assert found in (None, "agrees")
    assert found is None or cold >= SHORTEST_S


def rows(**changes: Any) -> pd.DataFrame:
    one = {"arm": "a", "round": 1, "session_id": "s", "kind": "round", "status": "ok"}
    told = [
        {**one, "turn": 1, "prompt_tokens": 4096, "cached_tokens": 0, "ttft_s": 6.0},
        {**one, "turn": 2, "prompt_tokens": 4160, "cached_tokens": 0, "ttft_s": 0.5},
    ]
    return pd.DataFrame([{**row, **changes} for row in told])


def test_tables() -> None:
    honest = rows(arm="b").assign(cached_tokens=[0, 4096])
    assert findings(pd.concat([rows(), honest])) == {"a": "zero_but_warm", "b": "agrees"}
    assert suspects(pd.concat([rows(), honest])) == {"a": "zero_but_warm"}
    assert findings(rows(kind="control")) == findings(rows(status="stopped_early")) == {}
    assert findings(rows(cached_tokens=None)) == findings(rows(ttft_s=None)) == {}
    assert findings(rows().head(0)) == {}


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([2816, 3072], 256),
        ([4096, 32768], 4096),
        ([32768, 32768], 32768),  # one count: a block of 2048 cannot be told from a larger one
        ([5064, 5013], None),
        ([399], None),
        ([48], None),  # one count in sixteen is a multiple of 16
        ([48, 80], 16),
        ([0, 0], None),
        ([], None),
    ],
)
def test_blocks(counts: list[int], found: int | None) -> None:
    assert block(counts) == found
