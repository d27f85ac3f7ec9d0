"""Block sizes: one row per size of a sweep, and the picture of it."""

from __future__ import annotations

import math
from dataclasses import replace
from xml.etree import ElementTree

import pandas as pd
import pytest

from twoturn import block_curve, blocks, contrasts, i18n

from .test_claims import SPEEDS, sweep_of
from .test_contrasts import Series, cells_of

WIDER = {2: (10, 10, 8), 4: (10, 28, 18), 8: (10, 50, 26)}
"""Block size → verify cycles, drafted and accepted tokens of a request."""


def measured(series: Series, **speeds: float) -> pd.DataFrame:
    """Cells in which a wider block accepts more and is not the quickest."""
    cells = cells_of(series, decode=SPEEDS | speeds)
    for size, counts in WIDER.items():
        names = ["verify_cycles", "drafted_tokens", "accepted_tokens"]
        cells.loc[cells["arm"] == f"b{size}", names] = counts
    return cells


def curve(series: Series, cells: pd.DataFrame) -> pd.DataFrame:
    return blocks.curve(cells, contrasts.from_cells(cells, [series]).to_pylist(), series)


def test_the_quickest_block_is_not_the_one_that_accepts_most() -> None:
    series = sweep_of()
    found = curve(series, measured(series))
    assert list(found.columns) == blocks.COLUMNS
    assert list(found["block"]) == ["2", "4", "8"]
    assert list(found["effective_block"]) == [2.0, 3.8, 6.0]
    assert list(found["accept_length"]) == [1.8, 2.8, 3.6]
    assert list(found["chosen"]) == [False, True, False]
    assert found["times_as_fast"].idxmax() == 1
    assert found.loc[1, "told_rounds"] == 4
    assert (found["fast_low"] < found["times_as_fast"]).all()


def test_what_no_server_reported_is_not_known_and_not_one() -> None:
    series = sweep_of()
    cells = measured(series).astype({"drafted_tokens": object, "accepted_tokens": object})
    cells.loc[cells["arm"] == "b4", ["drafted_tokens", "accepted_tokens"]] = None
    found = curve(series, cells)
    assert found["effective_block"].isna().tolist() == [False, True, False]
    assert found["accept_length"].isna().tolist() == [False, True, False]


def test_a_series_without_a_sweep_has_no_rows() -> None:
    series = replace(sweep_of(), arms=sweep_of().arms[:2])
    assert curve(series, measured(series)).empty


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_picture_is_whole_and_the_same_again(language: str) -> None:
    series = sweep_of()
    arms = tuple(replace(arm, adaptive=arm.name == "own_choice") for arm in series.arms)
    series = replace(series, arms=arms)
    data = curve(series, measured(series))
    picture = block_curve.draw(data, series, language)
    assert picture == block_curve.draw(data, series, language)
    words = "".join(ElementTree.fromstring(picture).itertext())
    adaptive = i18n.translator(language).gettext("adaptive")
    assert all(word in words for word in ("one + mtp", "2", "4", "8", adaptive))
    assert "nan" not in picture


def test_a_sweep_of_which_nothing_is_measured_is_drawn_too() -> None:
    series = sweep_of()
    data = curve(series, measured(series).head(0))
    assert data["verdict"].tolist() == ["not_measured"] * 3
    assert all(math.isnan(value) for value in data["ratio"])
    assert "nan" not in block_curve.draw(data, series, "en")
