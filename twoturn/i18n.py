"""Translations: English msgids in the code and templates, catalogues in `workflow/locale/`.

A language is one with a catalogue there whose numbers and dates Babel can write. A catalogue
is compiled in memory from its .po file, so no binary file has to be kept in step. A msgid without a
translation is an error, not an English sentence in a Polish article.
"""

from __future__ import annotations

import gettext
import io
from functools import cache
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.messages import mofile, pofile

from twoturn.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "workflow" / "locale"
DOMAIN = "twoturn"
SOURCE_LANGUAGE = "en"


class MissingTranslation(UserError):
    """A msgid that a catalogue does not translate, or only as fuzzy."""


def catalogue_file(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def languages() -> list[str]:
    """The source language and those with a catalogue, the longest names first."""
    found = {file.parent.parent.name for file in LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po")}
    return sorted(found | {SOURCE_LANGUAGE}, key=lambda name: (-len(name), name))


def check(language: str) -> None:
    """Raises ValueError, with the cure, for what no article can be written in."""
    if language not in languages():
        known = ", ".join(sorted(languages()))
        raise ValueError(
            f"there is no catalogue of {language!r}; known: {known}; "
            "docs/languages.md says how to add one"
        )
    try:
        Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        raise ValueError(
            f"the numbers and dates of {language!r} are not known; name its catalogue's folder as "
            "`pybabel init -l` does, such as pt_BR"
        ) from None


def of_file(stem: str) -> str:
    """The language that a file's name ends with: `pl` of `slots_two_turns_pl`."""
    found = next((one for one in languages() if stem.endswith(f"_{one}")), None)
    if found is None:
        raise UserError("its name does not end with a language", file=stem)
    return found


class Translator:
    """gettext's four functions. Raises MissingTranslation, which names the msgid."""

    def __init__(self, language: str, translations: gettext.NullTranslations) -> None:
        self.language = language
        self._translations = translations

    def gettext(self, message: str) -> str:
        return self._found(self._translations.gettext(message), message)

    def ngettext(self, singular: str, plural: str, n: int) -> str:
        return self._found(self._translations.ngettext(singular, plural, n), singular)

    def pgettext(self, context: str, message: str) -> str:
        return self._found(self._translations.pgettext(context, message), message)

    def npgettext(self, context: str, singular: str, plural: str, n: int) -> str:
        return self._found(self._translations.npgettext(context, singular, plural, n), singular)

    def _found(self, text: str, message: str) -> str:
        if not text:
            raise missing(self.language, message)
        return text


class _Strict(gettext.NullTranslations):
    """The end of the line: who asks here has found no translation."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.language = language

    def gettext(self, message: str) -> str:
        raise missing(self.language, message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        raise missing(self.language, msgid1)

    def pgettext(self, context: str, message: str) -> str:
        raise missing(self.language, message)

    def npgettext(self, context: str, msgid1: str, msgid2: str, n: int) -> str:
        raise missing(self.language, msgid1)


def missing(language: str, message: str) -> MissingTranslation:
    return MissingTranslation(
        f"no translation of {message!r}",
        file=catalogue_file(language).relative_to(LOCALE.parents[1]),
        cure="translate it there",
    )


@cache
def translator(language: str) -> Translator:
    """The translator of a language. Raises UserError if there is no readable catalogue."""
    if language == SOURCE_LANGUAGE:
        return Translator(language, gettext.NullTranslations())
    return Translator(language, compiled(language, catalogue_file(language)))


def compiled(language: str, file: Path) -> gettext.GNUTranslations:
    """A .po file as strict translations."""
    try:
        with file.open("rb") as stream:
            catalogue = pofile.read_po(stream, locale=language)
    except (OSError, ValueError, pofile.PoFileError) as error:
        raise UserError(
            f"no readable catalogue of {language!r} ({type(error).__name__})",
            file=file.name,
            cure="restore workflow/locale",
        ) from None
    binary = io.BytesIO()
    mofile.write_mo(binary, catalogue)
    binary.seek(0)
    translations = gettext.GNUTranslations(binary)
    translations.add_fallback(_Strict(language))
    return translations
