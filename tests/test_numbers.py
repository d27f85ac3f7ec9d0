"""Numbers: the same digits in every language, halves up, nothing unknown shown as a number."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twoturn.numbers import NARROW_SPACE, Formatter, parse

EN, PL = Formatter("en"), Formatter("pl")
KINDS = ("ratio", "seconds", "rate", "mean", "percent", "integer", "short")


@pytest.mark.parametrize(
    ("kind", "value", "en", "pl"),
    [
        ("ratio", 2.345, "2.35", "2,35"),  # binary 2.345 lies below the half
        ("ratio", 0.125, "0.13", "0,13"),
        ("ratio", 1.003, "1.003", "1,003"),  # not one, so it does not read 1.00
        ("ratio", 1.0, "1.00", "1,00"),
        ("ratio", 9.996, "10.0", "10,0"),
        ("ratio", 12.34, "12.3", "12,3"),
        ("ratio", 0.0123, "0.012", "0,012"),
        ("ratio", 1e300, "1.00e300", "1,00e300"),
        ("seconds", 0.12345, "0.123", "0,123"),
        ("seconds", 9.996, "10.0", "10,0"),
        ("seconds", 1234.5, "1,235", "1235"),
        ("seconds", 33000.4, "33,000", f"33{NARROW_SPACE}000"),
        ("rate", 281.8, "282", "282"),
        ("mean", 3.765, "3.77", "3,77"),
        ("mean", -2.5, "−2.50", "−2,50"),
        ("percent", 0.99, "99%", "99%"),
        ("percent", 0.96875, "96.9%", "96,9%"),
        ("integer", 1_234_567, "1,234,567", f"1{NARROW_SPACE}234{NARROW_SPACE}567"),
        ("short", 0.6, "0.6", "0,6"),
        ("short", 100.0, "100", "100"),
    ],
)
def test_formats(kind: str, value: float, en: str, pl: str) -> None:
    assert getattr(EN, kind)(value) == en
    assert getattr(PL, kind)(value) == pl


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, pd.NA, pd.NaT])
def test_what_is_not_known_is_said(kind: str, value: Any) -> None:
    assert getattr(EN, kind)(value) == "n/d"
    assert getattr(PL, kind)(value) == "b.d."


@pytest.mark.parametrize("kind", KINDS)
def test_zero_has_no_sign(kind: str) -> None:
    assert "−" not in getattr(EN, kind)(-0.0)
    assert "e" not in getattr(EN, kind)(0)


@given(st.floats(-1e300, 1e300), st.sampled_from(KINDS))
def test_both_languages_show_the_same_number(value: float, kind: str) -> None:
    english, polish = getattr(EN, kind)(value), getattr(PL, kind)(value)
    (number,) = parse(f"a {english}, b", "en")
    assert parse(f"a {polish}, b", "pl") == [number]
    shown = float(number) / (100 if kind == "percent" else 1)
    tolerance = 0.5 if kind == "integer" else 0.005
    assert shown == pytest.approx(value, rel=0.06, abs=tolerance)


@pytest.mark.parametrize(
    ("effect", "written"),
    [
        (1.0, "1,00 raza"),
        (1.57, "1,57 raza"),
        (2.0, "2,00 raza"),
        (99.96, "100 razy"),
        (100.4, "100 razy"),
        (102.0, "102 razy"),
        (1234.5, "1235 razy"),
        (12345.0, f"12{NARROW_SPACE}345 razy"),
    ],
)
def test_a_word_goes_with_the_number_as_it_is_written(effect: float, written: str) -> None:
    shown = PL.counted(PL.ratio(effect))
    assert f"{shown} {shown:raz|razy|razy|raza}" == written


@pytest.mark.parametrize(
    ("count", "word"),
    [(0, "rund"), (1, "runda"), (2, "rundy"), (5, "rund"), (12, "rund"), (22, "rundy")],
)
def test_plural_categories(count: int, word: str) -> None:
    shown = PL.counted(PL.integer(count))
    assert f"{shown:runda|rundy|rund|rundy}" == word
    assert f"{EN.counted(EN.integer(count)):round|rounds}" == ("round" if count == 1 else "rounds")


def test_dates_keep_their_order() -> None:
    moment = datetime(2025, 11, 29, 18, 5, tzinfo=UTC)
    assert EN.date(moment).replace("\u00a0", " ") == "29 November 2025"
    assert PL.date(moment).replace("\u00a0", " ") == "29 listopada 2025"
    assert (
        parse(EN.time(moment), "en") == parse(PL.time(moment), "pl") == ["29", "2025", "18", "05"]
    )
    assert (EN.date(None), PL.time(None)) == ("n/d", "b.d.")


def test_lists() -> None:
    assert EN.names(["a", "b", "c"]) == "a, b and c"
    assert PL.names(["a", "b", "c"]) == "a, b i c"
    assert EN.names([]) == ""
    assert EN.numbers([3, 1, 2]) == "1–3"
    assert PL.numbers([1, 4]) == "1 i 4"
