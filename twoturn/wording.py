"""Words with numbers in them that figures and articles share."""

from __future__ import annotations

from twoturn import claims
from twoturn.i18n import Translator
from twoturn.numbers import NO_BREAK_SPACE, Formatter


def metric_words(metric: str, words: Translator, number: Formatter) -> str:
    """A metric, and the length of the prompt where it is about one."""
    name, _, _ = metric.partition("@")
    text = words.gettext(claims.METRICS[name])
    length = claims.length_of(metric)
    return text if length is None else f"{text} ({token_words(length, words, number)})"


def token_words(count: int, words: Translator, number: Formatter) -> str:
    text = words.ngettext("%(shown)s token", "%(shown)s tokens", count)
    return (text % {"shown": number.integer(count)}).replace(" ", NO_BREAK_SPACE)
