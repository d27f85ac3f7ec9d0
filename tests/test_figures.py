"""The pictures of slots and ratios: stable bytes, both papers, both languages, any campaign."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pandas as pd
import pytest

from twoturn import cells, contrasts, figures, forest, turns
from twoturn.article.view import View

from .test_article import demo_cells, loaded

CAMPAIGN = loaded()
TWO_TURNS = CAMPAIGN.plan.one("two_turns")


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    return figures.slot_data(demo_cells(CAMPAIGN), TWO_TURNS)


def test_the_data_beside_the_picture(data: pd.DataFrame) -> None:
    assert list(data.columns) == figures.COLUMNS
    assert set(data["kind"]) == {"slot", "control", "curve"}
    slots = data[data["kind"] == "slot"]
    assert len(slots) == 2 * 6 * len(TWO_TURNS.arms)
    assert data["value"].notna().all()
    assert (data["kind"] == "control").sum() == 2


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_same_data_gives_the_same_bytes(data: pd.DataFrame, language: str) -> None:
    once = figures.draw(data, TWO_TURNS, language)
    assert figures.draw(data, TWO_TURNS, language) == once
    assert figures.slots(demo_cells(CAMPAIGN), TWO_TURNS, language) == once


def test_title_description_and_labels(data: pd.DataFrame) -> None:
    english, polish = (figures.draw(data, TWO_TURNS, language) for language in ("en", "pl"))
    root = ElementTree.fromstring(polish)
    told = {element.tag.rpartition("}")[2]: element.text for element in root[:2]}
    assert told["title"] == "Komórki serii two_turns w czasie"
    assert told["desc"]
    assert root.attrib["role"] == "img"
    for arm in TWO_TURNS.arms:
        assert f">{arm.name}" in english
    assert ">przebieg kontrolny<" in polish
    assert ">2,8<" in polish
    assert ">2.8<" in english
    assert "date" not in english.lower()


def test_it_reads_on_light_and_on_dark_paper(data: pd.DataFrame) -> None:
    colours = set(re.findall(r"#[0-9a-f]{6}", figures.draw(data, TWO_TURNS, "en").lower()))
    known = {colour.lower() for colour in (*figures.COLOURS, figures.GREY)}
    assert colours <= known | {"#ffffff"}
    for colour in known:
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        light = sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (light + 0.05) > 2, "on white"
        assert (light + 0.05) / 0.055 > 3, "on near black"


def test_the_paper_shows_through(data: pd.DataFrame) -> None:
    svg = figures.draw(data, TWO_TURNS, "en")
    for style in re.findall(r'style="([^"]*#ffffff[^"]*)"', svg):
        assert "opacity: 0" in style


@pytest.mark.parametrize("language", ["en", "pl"])
@pytest.mark.parametrize("series", ["short_prompt", "two_turns"])
def test_nothing_measured(series: str, language: str) -> None:
    empty = cells.JOINED.empty_table().to_pandas()
    one = CAMPAIGN.plan.one(series)
    svg = figures.slots(empty, one, language)
    ElementTree.fromstring(svg)
    assert ("no valid cell yet" if language == "en" else "ważnej komórki") in svg


def test_an_invalid_series_has_slots_and_no_curve() -> None:
    table = demo_cells(CAMPAIGN)
    mine = (table["series"] == "two_turns") & (table["round"] == 2)
    table.loc[mine, "started_at"] = table.loc[mine, "started_at"] + pd.Timedelta(hours=1)
    data = figures.slot_data(table, TWO_TURNS)
    assert set(data["kind"]) == {"slot"}
    assert "minutes" in figures.draw(data, TWO_TURNS, "en")


def test_values_that_are_no_numbers_are_left_out() -> None:
    table = demo_cells(CAMPAIGN)
    table.loc[table["arm"] == "mtp", "decode_s"] = float("inf")
    data = figures.slot_data(table, TWO_TURNS)
    rates = data[(data["metric"] == "decode_tok_s") & (data["kind"] == "slot")]
    assert "mtp" not in set(rates["arm"])
    ElementTree.fromstring(figures.draw(data, TWO_TURNS, "pl"))


# Ratios -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ratios() -> pd.DataFrame:
    return forest.forest_data(contrasts.from_cells(demo_cells(CAMPAIGN), [TWO_TURNS]), TWO_TURNS)


def test_the_ratios_beside_the_picture(ratios: pd.DataFrame) -> None:
    assert list(ratios.columns) == forest.COLUMNS
    assert len(ratios) == len(TWO_TURNS.metrics) * (len(TWO_TURNS.arms) - 1)
    rates = ratios["metric"] == "decode_tok_s"
    assert (ratios.loc[rates, "times_as_fast"] == ratios.loc[rates, "ratio"]).all()
    times = ratios[~rates]
    assert (times["times_as_fast"] * times["ratio"]).to_numpy() == pytest.approx(1)
    assert (ratios["fast_low"] <= ratios["times_as_fast"]).all()
    assert (ratios["times_as_fast"] <= ratios["fast_high"]).all()


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_same_ratios_give_the_same_bytes(ratios: pd.DataFrame, language: str) -> None:
    svg = forest.draw(ratios, TWO_TURNS, language)
    assert forest.draw(ratios, TWO_TURNS, language) == svg
    root = ElementTree.fromstring(svg)
    told = {element.tag.rpartition("}")[2]: element.text for element in root[:2]}
    assert told["title"]
    assert told["desc"]
    assert root.attrib["role"] == "img"
    for arm in TWO_TURNS.arms:
        assert arm.name == TWO_TURNS.reference or f">{arm.name}" in svg
    colours = set(re.findall(r"#[0-9a-f]{6}", svg.lower()))
    assert colours <= {colour.lower() for colour in (*figures.COLOURS, figures.GREY)} | {"#ffffff"}
    for style in re.findall(r'style="([^"]*#ffffff[^"]*)"', svg):
        assert "opacity: 0" in style


def test_verdicts_have_shapes_and_both_languages_their_words(ratios: pd.DataFrame) -> None:
    english, polish = (forest.draw(ratios, TWO_TURNS, language) for language in ("en", "pl"))
    assert ">margin of 2%<" in english
    assert "margines 2%" in polish
    assert ">Decode speed<" in english
    assert len({look["marker"] for look in forest.LOOKS.values()}) == len(forest.LOOKS)
    for verdict in set(ratios["verdict"]):
        assert f">{verdict}<" in english


@pytest.mark.parametrize(("language", "word"), [("en", "invalid"), ("pl", "nieważne")])
def test_what_is_invalid_stands_as_a_word(language: str, word: str) -> None:
    table = demo_cells(CAMPAIGN)
    table.loc[table["arm"] == "mtp", "status"] = "stopped_early"
    data = forest.forest_data(contrasts.from_cells(table, [TWO_TURNS]), TWO_TURNS)
    svg = forest.draw(data, TWO_TURNS, language)
    assert svg.count(f">{word}: ") == len(TWO_TURNS.metrics)
    assert data.loc[data["arm"] == "mtp", "warnings"].str.startswith("row_not_ok:").all()


@pytest.mark.parametrize("language", ["en", "pl"])
def test_a_null_arm_that_differs_takes_all_marks_and_says_why(language: str) -> None:
    table = demo_cells(CAMPAIGN)
    null = (table["series"] == "two_turns") & (table["arm"] == TWO_TURNS.null_arm)
    table.loc[null, "decode_s"] *= 1.3
    found = contrasts.from_cells(table, CAMPAIGN.plan.series)
    svg = forest.draw(forest.forest_data(found, TWO_TURNS), TWO_TURNS, language)
    word = {"en": "invalid", "pl": "nieważne"}[language]
    assert svg.count(f">{word}<") == len(TWO_TURNS.metrics) * (len(TWO_TURNS.arms) - 1)
    reason = View(language).reason("null_arm_differs:decode_tok_s")
    assert svg.count(f">{word}: {reason}<") == 1
    colours = {str(look["color"]).lower() for look in forest.LOOKS.values()} - {figures.GREY}
    assert not colours & set(re.findall(r"#[0-9a-f]{6}", svg.lower()))
    other = CAMPAIGN.plan.one("short_prompt")
    assert word not in forest.draw(forest.forest_data(found, other), other, language)


def test_warnings_of_a_ratio_are_no_reason_for_silence(ratios: pd.DataFrame) -> None:
    warned = ratios.assign(warnings="strong_drift several_sessions")
    assert forest.draw(warned, TWO_TURNS, "en") == forest.draw(ratios, TWO_TURNS, "en")


@pytest.mark.parametrize("language", ["en", "pl"])
def test_no_contrasts_and_contrasts_without_numbers(language: str) -> None:
    word = {"en": ">no contrast yet<", "pl": ">nie ma jeszcze kontrastu<"}[language]
    nothing = forest.forest_data(contrasts.SCHEMA.empty_table(), TWO_TURNS)
    assert word in forest.draw(nothing, TWO_TURNS, language)
    empty = cells.JOINED.empty_table().to_pandas()
    data = forest.forest_data(contrasts.from_cells(empty, [TWO_TURNS]), TWO_TURNS)
    ElementTree.fromstring(forest.draw(data, TWO_TURNS, language))


@pytest.mark.parametrize("ratio", [1e-300, 1e-4, 0.999, 3.0, 40.0, 1e300])
def test_absurd_ratios_stay_on_the_picture(ratios: pd.DataFrame, ratio: float) -> None:
    data = ratios.assign(times_as_fast=ratio, fast_low=ratio / 2, fast_high=ratio * 2)
    svg = forest.draw(data, TWO_TURNS, "en")
    ElementTree.fromstring(svg)
    assert ">1<" in svg
    assert "nan" not in svg.lower()


# The second turn ----------------------------------------------------------------------------------


def test_the_turns_beside_the_picture() -> None:
    data = turns.turn_data(demo_cells(CAMPAIGN), TWO_TURNS)
    assert list(data.columns) == turns.COLUMNS
    assert len(data) == len(TWO_TURNS.arms) * 6 * 2
    assert list(dict.fromkeys(data["arm"])) == [arm.name for arm in TWO_TURNS.arms]
    second = data[data["turn"] == 2]
    assert (second["cached_tokens"] + second["new_tokens"] == second["prompt_tokens"]).all()
    assert (second.loc[second["arm"] == "cache_off", "cached_tokens"] == 0).all()
    assert (second.loc[second["arm"] == "plain", "cached_tokens"] > 1000).all()


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_turns_are_drawn(language: str) -> None:
    data = turns.turn_data(demo_cells(CAMPAIGN), TWO_TURNS)
    svg = turns.draw(data, TWO_TURNS, language)
    assert turns.draw(data, TWO_TURNS, language) == svg
    told = {e.tag.rpartition("}")[2]: e.text for e in ElementTree.fromstring(svg)[:2]}
    assert "two_turns" in (told["title"] or "")
    assert told["desc"]
    for arm in TWO_TURNS.arms:
        assert f">{arm.name}" in svg
    assert ("cache not reported" in svg, "brak danych o cache" in svg) == (False, False)
    colours = set(re.findall(r"#[0-9a-f]{6}", svg.lower()))
    assert colours <= {colour.lower() for colour in (*figures.COLOURS, figures.GREY)} | {"#ffffff"}


def test_what_a_server_does_not_report_of_its_cache_is_no_miss() -> None:
    table = demo_cells(CAMPAIGN)
    table.loc[table["arm"] == "mtp", "cached_tokens"] = None
    data = turns.turn_data(table, TWO_TURNS)
    assert data.loc[data["arm"] == "mtp", "new_tokens"].isna().all()
    svg = turns.draw(data, TWO_TURNS, "en")
    assert ">cache not reported<" in svg
    assert ">from the cache<" in svg


def test_cells_that_are_not_whole_are_not_drawn() -> None:
    table = demo_cells(CAMPAIGN)
    failed = (table["arm"] == "mtp") & (table["turn"] == 2) & (table["round"] == 1)
    table.loc[failed, "status"] = "stopped_early"
    data = turns.turn_data(table, TWO_TURNS)
    assert set(data.loc[data["arm"] == "mtp", "round"]) == {2, 3, 4, 5, 6}
    nothing = turns.turn_data(cells.JOINED.empty_table().to_pandas(), TWO_TURNS)
    assert nothing.empty
    assert ">no valid cell yet<" in turns.draw(nothing, TWO_TURNS, "en")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [float("inf"), float("nan"), None])
def test_turns_without_numbers(value: float | None) -> None:
    columns = ["ttft_s", "prompt_tokens"]
    table = demo_cells(CAMPAIGN).astype(dict.fromkeys(columns, float))
    table.loc[table["arm"] == "mtp", columns] = value
    ElementTree.fromstring(turns.draw(turns.turn_data(table, TWO_TURNS), TWO_TURNS, "pl"))
