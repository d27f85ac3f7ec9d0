"""A ledger: a YAML file of this repository that is read as a strict model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from twoturn import config
from twoturn.errors import UserError

FOLDER = Path(__file__).resolve().parent.parent / "workflow"


class Strict(BaseModel):
    """An entry: unknown keys are errors, and nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Strict)


class Msgid(str):
    """English, and the key of the translations (workflow/locale)."""


def _words(value: str) -> Msgid:
    text = " ".join(value.split())
    if not text or any(character.isdigit() for character in text):
        raise ValueError("it is translated, so it holds words and no digits")
    return Msgid(text)


Words = Annotated[str, AfterValidator(_words)]


def load(model: type[Model], name: str) -> Model:
    """The ledger `workflow/NAME`. Raises UserError that names file, key and cure."""
    shown = f"{FOLDER.name}/{name}"
    try:
        text = (FOLDER / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot be read ({type(error).__name__})", file=shown, cure="restore it"
        ) from None
    return parse(model, text, shown)


def parse(model: type[Model], text: str, file: str) -> Model:
    """A text as a ledger; `file` only names it in errors. Raises UserError."""
    return config.validated(model, config.read_yaml(text, file), file)


def messages(entry: object) -> Iterator[str]:
    """Every msgid below an entry, in its order."""
    if isinstance(entry, Msgid):
        yield str(entry)
    elif isinstance(entry, BaseModel):
        for name in type(entry).model_fields:
            yield from messages(getattr(entry, name))
    elif isinstance(entry, dict | list):
        for value in entry.values() if isinstance(entry, dict) else entry:
            yield from messages(value)
