"""Every number of the rendered articles is found again in the tables, and moves only with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from babel.messages import pofile

from twoturn import article, claims, contrasts, numbers
from twoturn.article.view import View
from twoturn.campaign import Loaded
from twoturn.stats.base import CONFIDENCE

from .test_article import LANGUAGES, demo_cells, loaded, prose
from .test_comparisons import COMPARING

ROOT = Path(__file__).parent.parent
ARM = "mtp"
"""The arm whose cells are changed."""


class Told:
    """A campaign with its tables and both articles, line by line."""

    def __init__(self, campaign: Loaded, cells: pd.DataFrame) -> None:
        self.cells = cells
        self.contrasts: pa.Table = contrasts.from_cells(cells, campaign.plan.series)
        self.claims: pa.Table = claims.from_contrasts(self.contrasts, campaign.plan.series)
        self.data = article.gather(campaign, cells, self.contrasts, self.claims, {})
        self.lines = {one: article.render(one, self.data).split("\n") for one in LANGUAGES}

    def section(self, language: str, series: str) -> list[str]:
        """The lines of a section about one series."""
        lines = self.lines[language]
        (start,) = (
            place
            for place, line in enumerate(lines)
            if line.startswith("## ") and line.endswith(f" `{series}`")
        )
        end = next(place for place in range(start + 1, len(lines)) if lines[place][:3] == "## ")
        return lines[start:end]

    def table(self, language: str, series: str, head: str) -> list[list[str]]:
        """The rows of the table in that section with a column of this name."""
        found: list[list[list[str]]] = [[]]
        for line in self.section(language, series):
            if line.startswith("|"):
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
            elif found[-1]:
                found.append([])
        (rows,) = (rows for rows in found if rows and View(language).words.gettext(head) in rows[0])
        return rows[2:]


@pytest.fixture(scope="module")
def campaign() -> Loaded:
    return loaded()


@pytest.fixture(scope="module")
def told(campaign: Loaded) -> Told:
    return Told(campaign, demo_cells(campaign))


def agrees(shown: str, value: float) -> bool:
    """Whether a number as it is shown is this one, rounded."""
    step = 10.0 ** -len(shown.partition(".")[2])
    return abs(float(shown) - value) <= step / 2 * (1 + 1e-9)


def read(text: str, language: str) -> list[str]:
    return numbers.parse(prose(text), language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("series", ["short_prompt", "two_turns"])
def test_the_table_of_ratios_is_the_table_of_contrasts(
    told: Told, campaign: Loaded, language: str, series: str
) -> None:
    wanted = contrasts.of_series(told.contrasts.to_pylist(), campaign.plan.one(series))
    view = View(language)
    shown = told.table(language, series, "Ratio")
    assert len(shown) == len(wanted)
    for (metric, arm, ratio, interval, verdict, rounds, _), row in zip(shown, wanted, strict=True):
        assert metric == view.title(row["metric"]).partition(",")[0]
        assert (arm, verdict) == (f"`{row['arm']}`", view.verdict(row["verdict"]))
        values = [row[name] for name in ("ratio", "ci_low", "ci_high", "rounds")]
        found = [one for text in (ratio, interval, rounds) for one in read(text, language)]
        assert all(agrees(one, value) for one, value in zip(found, values, strict=True))


def medians(rows: pd.DataFrame) -> dict[str, float]:
    """What the tables of results show of some cells, computed anew: medians over the rounds."""
    rounds = rows.groupby("round")
    sums = rounds[["decode_tokens", "decode_s"]].sum()
    found = {
        "decode_tok_s": (sums["decode_tokens"] / sums["decode_s"]).median(),
        "conversation_s": rounds["e2e_s"].sum().median(),
        "new_tokens": (rows["prompt_tokens"] - rows["cached_tokens"]).median(),
    }
    for name in ("ttft_s", "prompt_tokens", "cached_tokens"):
        found[name] = rounds[name].median().median()
    if rows["verify_cycles"].notna().all():
        counts = rounds[["accepted_tokens", "drafted_tokens", "verify_cycles"]].sum()
        cycles = counts["verify_cycles"]
        found["accept_length"] = (1 + counts["accepted_tokens"] / cycles).median()
        found["effective_block_size"] = (1 + counts["drafted_tokens"] / cycles).median()
    return {name: float(value) for name, value in found.items()}


SPECULATION = ("accept_length", "effective_block_size")
COLUMNS = {
    "short_prompt": ("decode_tok_s", "ttft_s", *SPECULATION),
    "two_turns": ("conversation_s", "decode_tok_s", *SPECULATION),
}
TURNS = ("prompt_tokens", "cached_tokens", "new_tokens", "ttft_s", "decode_tok_s")


def hold(
    language: str, shown: list[str], columns: tuple[str, ...], wanted: dict[str, float]
) -> None:
    for column, text in zip(columns, shown, strict=True):
        assert (text == "–") == (column not in wanted), column
        if column in wanted:
            (number,) = read(text, language)
            assert agrees(number, wanted[column]), column


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("series", COLUMNS)
def test_the_tables_of_results_are_medians_of_the_cells(
    told: Told, campaign: Loaded, language: str, series: str
) -> None:
    rows = told.cells[(told.cells["series"] == series) & (told.cells["kind"] == "round")]
    names = [f"`{one.name}`" for one in campaign.plan.one(series).arms]
    shown = told.table(language, series, "Effective block")
    assert [row[0] for row in shown] == names
    for name, *cells in shown:
        hold(language, cells, COLUMNS[series], medians(rows[rows["arm"] == name.strip("`")]))
    if series == "two_turns":
        shown = told.table(language, series, "Newly processed")
        assert [(name, turn) for name, turn, *_ in shown] == [
            (name, turn) for name in names for turn in ("1", "2")
        ]
        for name, turn, *cells in shown:
            mine = (rows["arm"] == name.strip("`")) & (rows["turn"] == int(turn))
            hold(language, cells, TURNS, medians(rows[mine]))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_claim_is_told_with_the_numbers_of_its_contrasts(told: Told, language: str) -> None:
    text = "\n".join(told.lines[language])
    rows = {claims.contrast_id(row): row for row in told.contrasts.to_pylist()}
    for claim in told.claims.to_pylist():
        sentence = View(language).claim(claim)
        assert sentence in text, claim["claim"]
        known = {CONFIDENCE * 100, 2.0}
        for contrast in (rows[name] for name in claim["contrasts"]):
            ends = (contrast[name] for name in ("ratio", "ci_low", "ci_high"))
            known |= {turned for end in ends if end for turned in (end, 1 / end)}
            known |= {float(contrast["rounds"] or 0)}
        for number in read(sentence, language):
            assert any(agrees(number, value) for value in known), (claim["claim"], number)


# Typed numbers ------------------------------------------------------------------------------------

OPEN, CLOSE = "\u2061", "\u2063"  # invisible, and in no text of ours


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_number_of_the_prose_was_formatted_from_data(
    told: Told, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All numbers are marked where they are formatted; what has no mark was typed by somebody."""

    def marked(write: Callable[..., str]) -> Callable[..., str]:
        return lambda *given: f"{OPEN}{write(*given)}{CLOSE}"

    for name in ("_decimal", "_other", "date", "time"):
        monkeypatch.setattr(numbers.Formatter, name, marked(getattr(numbers.Formatter, name)))
    text = article.render(language, told.data)
    assert text.count(OPEN) > 200
    while OPEN in text:  # a time holds a date
        text = re.sub(rf"{OPEN}[^{OPEN}{CLOSE}]*{CLOSE}", "", text)
    # The machine's name, a document's own words, and the ones of formulas.
    known = (r"X\_1", r"block\_size &lt;= 5", "1 − 1 ÷ ", "1 − ")
    shown = re.sub("|".join(map(re.escape, known)), "", prose(text))
    assert re.findall(r".{,40}\d.{,20}", shown) == []


def test_no_template_and_no_message_holds_a_number() -> None:
    for file in sorted((ROOT / "workflow" / "templates").glob("*.md.j2")):
        tags = re.sub(r"\{%.*?%\}|\{#.*?#\}|\{\{.*?\}\}", "", file.read_text("utf-8"), flags=re.S)
        assert not re.search(r"\d", tags), file.name
    (catalogue,) = (ROOT / "workflow" / "locale").glob("*.pot")
    with catalogue.open("rb") as stream:
        messages = [message.id for message in pofile.read_po(stream) if message.id]
    assert len(messages) > 300
    assert not [one for one in messages if re.search(r"\d", str(one))]


# Changes ------------------------------------------------------------------------------------------


def changed(before: Told, after: Told, language: str) -> Iterator[str]:
    """Lines that are in one article and not in the other, each after its section's heading."""
    for one, other in ((before, after), (after, before)):
        heading, known = "", set(other.lines[language])
        for line in one.lines[language]:
            heading = line if line.startswith("#") else heading
            if line not in known:
                yield f"{heading}: {line}"


def perturbed(campaign: Loaded, column: str, factor: float, **where: Any) -> Told:
    table = demo_cells(campaign)
    rows = (table["series"] == "two_turns") & (table["kind"] == "round")
    for name, value in where.items():
        rows &= table[name] == value
    assert rows.any()
    table.loc[rows, column] *= factor
    return Told(campaign, table)


@pytest.fixture(scope="module")
def one_changed(campaign: Loaded) -> Told:
    return perturbed(campaign, "decode_s", 1.4, arm=ARM, round=3)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_changed_cell_changes_what_rests_on_it_and_nothing_else(
    told: Told, one_changed: Told, language: str
) -> None:
    words = View(language)
    decode = words.title("decode_tok_s").partition(",")[0]
    lines = list(changed(told, one_changed, language))
    assert any("- " in line and f"`{ARM}`" in line for line in lines), "a sentence"
    assert any(f"| {decode} | `{ARM}` |" in line for line in lines), "a row of ratios"
    for line in lines:
        assert "`two_turns`" in line, "a series that did not change"
        of_arm = f"`{ARM}`" in line
        # The curve of the drift is fitted through the cells of all arms.
        of_drift = line.startswith("### ") and f"| {decode}" in line
        assert of_arm or of_drift, line


@pytest.fixture(scope="module")
def flipped(campaign: Loaded) -> Told:
    return perturbed(campaign, "decode_s", 5.0, arm="cache_off")


@pytest.mark.parametrize(
    ("language", "before", "after"),
    [
        (
            "en",
            "`cache_off` decodes faster than `plain`",
            "`cache_off` decodes slower than `plain`",
        ),
        (
            *("pl", "`cache_off` dekoduje szybciej niż `plain`"),
            "`cache_off` dekoduje wolniej niż `plain`",
        ),
    ],
)
def test_a_flipped_effect_flips_the_verb(
    told: Told, flipped: Told, language: str, before: str, after: str
) -> None:
    was, is_now = ("\n".join(one.section(language, "two_turns")) for one in (told, flipped))
    assert (before in was, after in was) == (True, False)
    assert (before in is_now, after in is_now) == (False, True)


@pytest.fixture(scope="module")
def broken(campaign: Loaded) -> Told:
    return perturbed(campaign, "decode_s", 1.5, arm="plain-null")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_broken_null_arm_takes_the_verbs_of_its_series(
    told: Told, broken: Told, language: str
) -> None:
    def comparing(one: Told, series: str) -> list[str]:
        sentences = [line for line in one.section(language, series) if line.startswith("- ")]
        return [line for line in sentences if COMPARING[language].search(line)]

    assert comparing(told, "two_turns")
    assert comparing(broken, "two_turns") == []
    assert comparing(broken, "short_prompt") == comparing(told, "short_prompt") != []
