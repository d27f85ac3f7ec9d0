"""The catalogues: in step with the sources, complete, with the same placeholders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from babel.messages import pofile
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg

from twoturn import claims, i18n
from twoturn.numbers import Formatter

ROOT = i18n.ROOT
PLACEHOLDER = re.compile(r"%\((\w+)\)s|\{(\w+)(?::[^{}]*)?\}")
FORMS = {1: "token", 2: "tokeny", 5: "tokenów", 12: "tokenów", 22: "tokeny", 0: "tokenów"}


def catalogue(file: Path) -> Any:
    with file.open("rb") as stream:
        return pofile.read_po(stream)


def placeholders(text: str) -> set[str]:
    return {one or other for one, other in PLACEHOLDER.findall(text)}


POT = catalogue(i18n.LOCALE / "twoturn.pot")
POLISH = catalogue(i18n.catalogue_file("pl"))


def test_the_template_catalogue_is_in_step_with_the_sources() -> None:
    with (i18n.LOCALE / "babel.cfg").open() as file:
        methods, options = parse_mapping_cfg(file)
    found = {
        (message, context)
        for folder in ("twoturn", "workflow")
        for _, _, message, _, context in extract_from_dir(
            ROOT / folder,
            [(pattern.removeprefix(f"{folder}/"), method) for pattern, method in methods],
            {pattern.removeprefix(f"{folder}/"): some for pattern, some in options.items()},
        )
    }
    known = {(message.id, message.context) for message in POT if message.id}
    assert found == known, "run the pybabel line of workflow/locale/babel.cfg"


def test_every_message_is_translated_and_none_is_left_over() -> None:
    wanted = {(message.id, message.context) for message in POT if message.id}
    have = {
        (message.id, message.context)
        for message in POLISH
        if message.id
        and not message.fuzzy
        and all(message.string if isinstance(message.string, tuple) else [message.string])
    }
    assert have == wanted
    assert set(claims.messages()) <= {message for message, _ in have}
    assert POLISH.num_plurals == 3


@pytest.mark.parametrize("message", [m for m in POLISH if m.id], ids=lambda m: str(m.id)[:40])
def test_a_translation_has_the_placeholders_of_its_message(message: Any) -> None:
    ids = message.id if isinstance(message.id, tuple) else (message.id,)
    texts = message.string if isinstance(message.string, tuple) else (message.string,)
    wanted = placeholders(ids[-1])
    assert all(placeholders(text) == wanted for text in (*ids, *texts))
    assert not any(re.search(r"\d", text) for text in (*ids, *texts)), "numbers come from data"


@pytest.mark.parametrize("message", [m for m in POLISH if m.id], ids=lambda m: str(m.id)[:40])
def test_words_that_go_with_a_number_have_all_its_forms(message: Any) -> None:
    texts = message.string if isinstance(message.string, tuple) else (message.string,)
    for text in texts:
        for forms in re.findall(r"\{\w+:([^{}]*)\}", text):
            assert len(forms.split("|")) == len(Formatter("pl").plurals)
        assert not re.search(r"\} ra(z|zy|za)\b", text), "one form for every number"


@pytest.mark.parametrize(("n", "form"), FORMS.items())
def test_polish_plural_forms(n: int, form: str) -> None:
    text = i18n.translator("pl").ngettext("%(shown)s token", "%(shown)s tokens", n)
    assert text % {"shown": n} == f"{n} {form}"


def test_a_missing_translation_names_its_message() -> None:
    words = i18n.translator("pl")
    for call in (
        lambda: words.gettext("a new sentence"),
        lambda: words.ngettext("a new sentence", "new sentences", 2),
        lambda: words.pgettext("menu", "a new sentence"),
        lambda: words.npgettext("menu", "a new sentence", "new sentences", 2),
    ):
        with pytest.raises(i18n.MissingTranslation, match="'a new sentence'"):
            call()
    assert i18n.translator("en").gettext("a new sentence") == "a new sentence"


def test_fuzzy_and_empty_translations_are_missing(tmp_path: Path) -> None:
    file = tmp_path / "x.po"
    file.write_text('#, fuzzy\nmsgid "one"\nmsgstr "jeden"\n\nmsgid "two"\nmsgstr ""\n')
    words = i18n.Translator("pl", i18n.compiled("pl", file))
    for message in ("one", "two"):
        with pytest.raises(i18n.MissingTranslation):
            words.gettext(message)
