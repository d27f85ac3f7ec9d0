"""No comparison exists outside the claims: every sentence that compares is one, or a definition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from twoturn import article, claim_kinds, i18n, ledger, published, sources
from twoturn.article import upstream
from twoturn.article.view import View, escape
from twoturn.stats.verdict import Verdict

from .test_article import data_of, demo_cells, loaded, square_cells, square_of

COMPARING = {
    "en": re.compile(
        r"\b(fast\w*|slow\w*|quick\w*|soon\w*|later|latest|earlier|earliest|better|best|worse|"
        r"worst|wins?|loses?|beats?|outperform\w*|superior|inferior|greater|smaller|higher|lower|"
        r"larger|more|less|fewer|gains?|speed-?ups?|speaks? for|ahead|behind)\b",
        re.IGNORECASE,
    ),
    "pl": re.compile(
        r"\b(szyb\w*|najszyb\w*|wolniej\w*|najwoln\w*|wcześn\w*|późn\w*|lepi\w*|lepsz\w*|najlep\w*|"
        r"gorz\w*|gorsz\w*|najgor\w*|wygr\w*|przegr\w*|bije|pokonuje|przewyższ\w*|większ\w*|"
        r"mniejsz\w*|(?<!mniej )więcej|mniej(?! więcej)|wyższ\w*|niższ\w*|zysk\w*|przyspiesz\w*|"
        r"krótsz\w*|dłuższ\w*|\d\sraz[ya]|wskazuje|przemawia)\b",
        re.IGNORECASE,
    ),
}

DEFINITIONS = {
    "Every contrast gets one verdict, in the reader's sense: more tokens per second, or less "
    "time.": "the sense of all verdicts",
    "Każdy kontrast dostaje jeden werdykt, z punktu widzenia czytelnika: więcej tokenów na sekundę "
    "albo mniej czasu.": "the sense of all verdicts",
    "For a time, a ratio below one is less time.": "how to read a ratio",
    "Dla czasu stosunek poniżej jedynki to mniej czasu.": "how to read a ratio",
    "![Ratios of the series two\\_turns with their intervals, as times as fast as the reference": (
        "what an axis shows"
    ),
    "The **control** is the reference measured once more after the last round.": "again",
    "How much of that product is reached has a fit of its own: per round the logarithm of the "
    "combined arm, less those of the two single arms, plus that of the reference; the mean over "
    "the rounds is freed from the drift, and its interval holds at 99%.": "minus",
}
"""Sentences that hold a comparing word and compare no arms, and what they say instead."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of an article without its comment; a cell of a table is one too."""
    for line in re.sub(r"<!--.*?-->|\]\([^)]*\)", "", text).splitlines():
        parts = line.split(" | ") if line.startswith("|") else re.split(r"(?<=[.!?])\s", line)
        yield from filter(None, (part.strip("| ") for part in parts))


def left_over(language: str, text: str, claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """Comparing sentences of an article that are no claim, no verdict and no definition."""
    view = View(language)
    for claim in sorted(map(view.claim, claims), key=len, reverse=True):
        text = text.replace(claim, "")
    for words in of_others(language):
        text = text.replace(words, "")
    allowed = {*DEFINITIONS, *map(view.verdict, Verdict)}
    return [
        sentence
        for sentence in sentences(text)
        if COMPARING[language].search(re.sub(r"`[^`]*`", " ", sentence)) and sentence not in allowed
    ]


def of_others(language: str) -> list[str]:
    """What others wrote and published: their ledgers' words, as articles hold them."""
    ledgers = (*ledger.messages(sources.load()), *ledger.messages(published.load()))
    quotes = [
        quote.words for one in sources.load().sources.values() for quote in one.quotes.values()
    ]
    words = [i18n.translator(language).gettext(one) for one in ledgers]
    found = [*filter(None, words), *(upstream.verbatim(one) for one in quotes if one)]
    found += [one[0].upper() + one[1:] for one in found]
    return sorted({*map(escape, found), *found}, key=len, reverse=True)


def claims_of(data: article.Data) -> list[Mapping[str, Any]]:
    return [row for one in data.series for row in one.claims]


@pytest.fixture(scope="module")
def campaigns() -> list[article.Data]:
    """One with every section but stacking, and one with a square of arms."""
    demo, square = loaded(), square_of()
    picture = {"two_turns": "figures/slots_two_turns_en.svg"}
    return [data_of(demo, demo_cells(demo), **picture), data_of(square, square_cells(square))]


@pytest.mark.parametrize("language", COMPARING)
def test_every_comparing_sentence_is_a_claim(campaigns: list[article.Data], language: str) -> None:
    for data in campaigns:
        assert left_over(language, article.render(language, data), claims_of(data)) == []


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "So `mtp` is the quicker one."),
        ("en", "On these prompts `mtp` decodes faster than `plain`."),
        ("pl", "Wariant `mtp` jest więc lepszy."),
        ("pl", "Na tych promptach wariant `mtp` dekoduje szybciej niż `plain`."),
    ],
)
def test_a_sentence_that_no_verdict_made_is_found(
    campaigns: list[article.Data], language: str, sentence: str
) -> None:
    text = article.render(language, campaigns[0]).replace("\n- ", f"\n{sentence}\n\n- ", 1)
    assert left_over(language, text, claims_of(campaigns[0])) == [sentence]


@pytest.mark.parametrize("language", COMPARING)
def test_the_words_of_the_claims_are_on_the_list(language: str) -> None:
    words = i18n.translator(language)
    for kind in claim_kinds.load().kinds.values():
        for verdict in {"faster", "slower"} & set(kind.sentences):
            told = words.gettext(kind.sentences[verdict])
            assert COMPARING[language].search(told), told
