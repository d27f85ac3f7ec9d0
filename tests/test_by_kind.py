"""Accept lengths by kind of prompt, as a table and as a picture."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest

from twoturn import by_kind, kind_dots, plan

from .conftest import planned

ACCEPTED = {"code-1": (10, 30), "code-2": (10, 10), "chat-1": (20, 10)}
"""Prompt → verify cycles, accepted tokens of each request."""


@pytest.fixture
def series(data: dict[str, Any], found: dict[str, Any]) -> plan.Series:
    data["series"]["first"]["workload"]["kinds"] = ["code", "chat"]
    return planned(data, found).one("first")


@pytest.fixture
def cells() -> pd.DataFrame:
    rows = [
        {
            **{"arm": arm, "prompt_id": prompt, "kind": kind, "status": "ok", "round": number},
            "verify_cycles": cycles if arm == "quick" else None,
            "accepted_tokens": accepted if arm == "quick" else None,
        }
        for number in (1, 2)
        for arm in ("plain", "quick")
        for kind in ("round", "control")
        for prompt, (cycles, accepted) in ACCEPTED.items()
    ]
    return pd.DataFrame(rows)


def test_each_kind_has_its_own_accept_length(series: plan.Series, cells: pd.DataFrame) -> None:
    found = by_kind.acceptance(cells, series)
    assert list(found.columns) == by_kind.COLUMNS
    assert found.to_dict("records") == [
        dict(zip(by_kind.COLUMNS, row, strict=True))
        for row in (("quick", "code", 2, 4, 3.0, 2.0, 4.0), ("quick", "chat", 1, 2, 1.5, 1.5, 1.5))
    ]


def test_what_failed_or_was_not_reported_is_no_length(
    series: plan.Series, cells: pd.DataFrame
) -> None:
    cells.loc[cells["prompt_id"] == "code-2", "status"] = "stopped_early"
    cells.loc[cells["prompt_id"] == "chat-1", "accepted_tokens"] = None
    found = by_kind.acceptance(cells, series).set_index("kind")
    assert found.loc["code", "accept_length"] == 4.0
    assert found["accept_length"].isna().tolist() == [False, True]
    picture = kind_dots.draw(found.reset_index(), series, "pl", published=(2.2, 3.5))
    assert "2,20 do 3,50" in picture
    assert "nan" not in picture


def test_kinds_are_of_arms_with_speculation_alone(
    data: dict[str, Any], found: dict[str, Any], series: plan.Series
) -> None:
    assert series.prompt_kinds == ("code", "chat")
    assert "kinds" in series.pictures
    alone = copy.deepcopy(data)
    del alone["series"]["first"]["arms"]["quick"]
    assert planned(alone, found).one("first").prompt_kinds == ()


def test_kinds_are_in_the_fingerprint_only_where_there_are_any(
    data: dict[str, Any], found: dict[str, Any], series: plan.Series
) -> None:
    del data["series"]["first"]["workload"]["kinds"]
    without = planned(data, found).one("first")
    assert "kinds" not in without.spec["workload"]
    assert without.fingerprint != series.fingerprint
