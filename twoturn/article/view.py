"""Everything about an article that depends on its language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from twoturn import claims as claim_texts
from twoturn import i18n, plan
from twoturn.claims import N_
from twoturn.matrix import ADAPTIVE
from twoturn.numbers import Formatter, rounded
from twoturn.wording import metric_words, token_words

KINDS = {
    "round": N_("round"),
    "warmup": N_("warm-up"),
    "control": N_("control"),
    "decoy": N_("decoy"),
}
ROLES = {"reference": N_("reference"), "null": N_("null arm")}
NO_SPECULATION = N_("none")
STATUSES = {
    "unauthorized": N_("the server refused the key"),
    "not_ready": N_("the server was still loading"),
    "http_error": N_("the server answered with an HTTP status that is an error"),
    "server_error": N_("the server reported an error inside its answer"),
    "client_timeout": N_("no token, or no end, within the time allowed: the true time is longer"),
    "connection_lost": N_("the connection was refused or broke off"),
    "empty_stream": N_("the answer held no token"),
    "truncated_stream": N_("the stream ended without its end marks"),
    "wrong_model": N_("another model answered than the one asked for"),
    "missing_usage": N_("the server did not say how many tokens it wrote"),
    "prompt_truncated": N_("the server read a prompt of another length than the one sent"),
    "repeated_token": N_("most of the answer is one token over and over"),
    "stopped_early": N_("the answer is shorter than asked for"),
    "overlong": N_("the answer is longer than allowed"),
    "too_long": N_("a prompt of this length does not fit, and was not sent"),
    "not_cold": N_("part of a new prompt came from a cache"),
    "wrong_when_warm": N_("a warm server wrote another text than a fresh one: a wrong text"),
    "slept": N_("the machine slept during the request"),
    "spec_inactive": N_("speculation was asked for and did not run"),
    "spec_unexpected": N_("speculation ran though it was not asked for"),
    "wrong_settings": N_("the server ran with other settings than those asked for"),
    "start_failed": N_("the server did not start"),
    "start_timeout": N_("the server was not ready in the time allowed"),
}
"""Statuses of excluded rows in words; one that is not here stands as its code."""

UNKNOWN_NOTE = N_("%(mark)s: not known or not reported.")

_CODE = re.compile(r"[^\s`|](?:[^\n\r\t`|]*[^\s`|])?")
_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line, in tables too."""
    line = " ".join(str(text).split()).replace("&", "&amp;")
    return _SPECIAL.sub(r"\\\1", line).replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """A name or a recorded text, set as code where that needs no escape."""
    return f"`{text}`" if _CODE.fullmatch(str(text)) else escape(text)


class View:
    """Everything that depends on the language: numbers, names, tables, sentences of claims."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.number = Formatter(language)
        self.words = i18n.translator(language)

    def claim(self, row: Mapping[str, Any]) -> str:
        """The sentence of a claim."""
        text = self._filled(row["msgid"], claim_texts.sentence_fields(row))
        return text[:1].upper() + text[1:]

    def reason(self, reason_code: str) -> str:
        """A reason code in words that follow "because"."""
        return self._filled(*claim_texts.reason_fields(reason_code))

    def note(self, codes: Iterable[str]) -> str:
        """Warning and reason codes of a contrast in words."""
        found = [
            self.words.gettext(claim_texts.WARNINGS[one])
            if one in claim_texts.WARNINGS
            else self.reason(one)
            for one in codes
        ]
        return "; ".join(found)

    def metric(self, name: str) -> str:
        return metric_words(name, self.words, self.number) if name else ""

    def heading(self, metric: str) -> str:
        """The metric as it begins a line or a column."""
        text = self.metric(metric)
        return text[:1].upper() + text[1:]

    def title(self, metric: str) -> str:
        """The metric with its unit, as a head of a row."""
        plain = metric.partition("@")[0]
        unit = "tok/s" if plain.endswith("_tok_s") else "s" if plain.endswith("_s") else ""
        return self.heading(metric) + (f", {unit}" if unit else "")

    def value(self, metric: str, value: float | None) -> str:
        """A value of a metric or column, without its unit."""
        if metric.endswith("_s"):
            return self.number.seconds(value)
        return (self.number.integer if metric.endswith("_tokens") else self.number.mean)(value)

    def verdict(self, verdict: str) -> str:
        return self.words.gettext(claim_texts.verdict_words(verdict))

    def kind(self, kind: str) -> str:
        return self.words.gettext(KINDS[kind]) if kind in KINDS else code(kind)

    def status(self, status: str) -> str:
        """The code of a status and what it means."""
        if status not in STATUSES:
            return code(status)
        return f"{code(status)}: {self.words.gettext(STATUSES[status])}"

    def interval(self, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return self.number.unknown
        return f"{self.number.ratio(low)}–{self.number.ratio(high)}"

    def points(self, value: float | None) -> str:
        """Percentage points, with their sign and one decimal."""
        if value is None:
            return self.number.unknown
        text = self.number.short(float(rounded(value, 1)))
        return f"+{text}" if value > 0 and text != "0" else text

    def names(self, names: Iterable[str]) -> str:
        return self.number.names(code(name) for name in names)

    def blocks(self, blocks: Iterable[int | str | None]) -> str:
        """Blocks as they were asked for: 4–6 and adaptive."""
        told = [str(one) for one in blocks]
        sizes = sorted(int(one) for one in told if one.isdigit())
        run = self.number.numbers(sizes) if len(sizes) > 2 else ""
        parts = [run] if "–" in run else [self.number.integer(size) for size in sizes]
        if ADAPTIVE in told:
            parts.append(self.words.gettext(claim_texts.ADAPTIVE_BLOCK))
        return self.number.names(parts) if parts else "–"

    def speculation(self, arm: plan.Arm) -> str:
        none = arm.speculation == "none"
        return self.words.gettext(NO_SPECULATION) if none else code(arm.speculation)

    def tokens(self, count: int) -> str:
        return token_words(count, self.words, self.number)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """A Markdown table, with a footnote where it holds something unknown; "" without rows."""
        if not rows:
            return ""
        lines = [head, ["---"] * len(head), *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        if any(self.number.unknown == cell for row in rows for cell in row):
            note = self.words.gettext(UNKNOWN_NOTE) % {"mark": self.number.unknown}
            text += f"\n\n*{note}*"
        return text

    def _filled(self, msgid: str, fields: Mapping[str, tuple[str, Any]]) -> str:
        told = {name: self._field(kind, value) for name, (kind, value) in fields.items()}
        return self.words.gettext(msgid).format(**told)

    def _field(self, kind: str, value: Any) -> str:
        tell: dict[str, Callable[[Any], str]] = {
            "ratio": lambda ratio: self.number.counted(self.number.ratio(ratio)),
            "percent": self.number.percent,
            "count": lambda count: self.number.counted(self.number.integer(count)),
            "tokens": self.tokens,
            "points": self.points,
            "name": lambda name: code(name) if name else self.number.unknown,
            "names": self.names,
            "metric": self.metric,
            "reason": self.reason,
            "date": self.number.date,
            "blocks": self.blocks,
        }
        return tell[kind](value)
