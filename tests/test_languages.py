"""A further language is one catalogue and one word in the campaign: shown with made-up ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from babel.messages import pofile

from twoturn import article, cells, config, figures, i18n, numbers
from twoturn.errors import UserError

from .test_article import DEMO, data_of, demo_cells, loaded, prose

ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")
FIXED = re.compile(r"(%\(\w+\)s|\{\w+\}|%%)")

Maker = Callable[[str], Path]


def accented(text: str) -> str:
    parts = FIXED.split(text)
    return "".join(part if FIXED.fullmatch(part) else part.translate(ACCENTS) for part in parts)


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maker]:
    """Makes the catalogue of a language from the template, every vowel with an accent."""
    folder = tmp_path / "workflow" / "locale"
    shutil.copytree(i18n.LOCALE, folder)
    monkeypatch.setattr(i18n, "LOCALE", folder)

    def make(language: str) -> Path:
        with (folder / "twoturn.pot").open("rb") as file:
            made = pofile.read_po(file, locale=language)
        for message in made:
            if isinstance(message.id, tuple):
                forms = [message.id[0], *[message.id[1]] * (made.num_plurals - 1)]
                message.string = tuple(accented(form) for form in forms)
            elif message.id:
                message.string = accented(message.id)
        target = i18n.catalogue_file(language)
        target.parent.mkdir(parents=True)
        with target.open("wb") as file:
            pofile.write_po(file, made)
        return target

    yield make
    for cache in (i18n.translator, numbers._pattern):
        cache.cache_clear()


@pytest.fixture(scope="module")
def data() -> article.Data:
    campaign = loaded()
    return data_of(campaign, demo_cells(campaign))


@pytest.mark.parametrize(
    ("language", "shown"),
    [("sl", "1.500"), ("fr", "1\u202f500"), ("pt_BR", "1.500"), ("es", "1500")],
)
def test_a_catalogue_and_a_word_are_enough(
    catalogue: Maker, data: article.Data, language: str, shown: str
) -> None:
    text = DEMO.replace("machine: local", f"languages: [en, {language}]")
    with pytest.raises(UserError, match=rf"no catalogue of '{language}'; known: en, pl;"):
        config.parse(text, "c.yaml")
    catalogue(language)
    assert config.parse(text, "c.yaml").languages == ["en", language]
    english, other = (article.render(one, data) for one in ("en", language))
    assert shown in other
    assert "# Whích cónfígúrátíón tó rún" in other
    assert re.findall(r"^#+ .*[aeiou].*$", re.sub(r"`.*?`", "", other), re.MULTILINE) == []
    assert numbers.parse(prose(other), language) == numbers.parse(prose(english), "en")


def test_pictures_speak_it_too(catalogue: Maker) -> None:
    catalogue("sl")
    series = loaded().plan.one("two_turns")
    empty = cells.JOINED.empty_table().to_pandas()
    svg = figures.slots(empty, series, "sl")
    assert "tímé síncé" in svg


def test_a_folder_that_is_no_language_is_refused(catalogue: Maker) -> None:
    (i18n.LOCALE / "klingon" / "LC_MESSAGES").mkdir(parents=True)
    shutil.copy(i18n.LOCALE / "twoturn.pot", i18n.catalogue_file("klingon"))
    with pytest.raises(UserError, match="numbers and dates of 'klingon' are not known"):
        config.parse(DEMO.replace("machine: local", "languages: [klingon]"), "c.yaml")


def test_the_language_of_a_file(catalogue: Maker) -> None:
    catalogue("pt_BR")
    assert i18n.of_file("slots_two_turns_pt_BR") == "pt_BR"
    assert i18n.of_file("slots_en_pl") == "pl"
    with pytest.raises(UserError, match="does not end with a language"):
        i18n.of_file("slots_two_turns_xx")
