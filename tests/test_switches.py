"""Sections of the article on switches of servers and on kinds of prompts."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from twoturn import article, by_kind, matrix

from .test_article import both, data_of, demo_cells, loaded
from .test_claims import sweep_of
from .test_contrasts import Arm, Series


@pytest.fixture(scope="module")
def data() -> article.Data:
    campaign = loaded()
    return data_of(campaign, demo_cells(campaign))


def test_a_switch_is_told_with_what_the_restored_first_settings_show(data: article.Data) -> None:
    texts = both(data)
    for language, title, default, restored in (
        ("en", "Switches of the servers", "the adapter's default", "the first settings, restored"),
        ("pl", "Przełączniki serwerów", "domyślnie", "pierwsze ustawienia, przywrócone"),
    ):
        section = texts[language].partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert f"| `cache_off` | `prefix_cache: {default} → false` |" in section
        assert restored in section
        assert "short_prompt" not in section  # its arms differ in speculation


def test_switches_are_arms_that_differ_in_settings_or_arguments_alone() -> None:
    arms = (
        Arm("plain", settings={"a": 1}),
        Arm("other", settings={"a": 2}),
        Arm("words", settings={"a": 1}, args=("--x",)),
        Arm("both", settings={"a": 2}, speculation="mtp"),
        Arm("elsewhere", settings={"a": 2}, server="two"),
    )
    assert matrix.switches(Series(arms)) == ("other", "words")
    assert matrix.switches(sweep_of()) == ()


def test_kinds_of_prompts_stand_beside_what_was_published(data: article.Data) -> None:
    told = pd.DataFrame(
        [("mtp", "code", 2, 8, 3.25, 3.0, 3.5), ("mtp", "chat", 2, 8, None, None, None)],
        columns=by_kind.COLUMNS,
    )
    first, *rest = data.series
    series = (replace(first, by_kind=told, pictures={"kinds": "figures/x.svg"}), *rest)
    texts = both(replace(data, series=series))
    assert "gives 2.20 to 3.50" in texts["en"]
    assert "| `mtp` | `code` | 3.25 | 3.00–3.50 | 8 |" in texts["en"]
    assert "| `mtp` | `chat` | b.d. | b.d. | 8 |" in texts["pl"]
    assert "](figures/x.svg)" in texts["pl"]
    assert "2 prompty każdego rodzaju" in texts["pl"]
