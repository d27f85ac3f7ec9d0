"""Numbers in the words of a language: the digits are the same in all of them.

How many digits a number is shown with depends on the number and its kind, never on the language, so
that articles in two languages hold the same numbers. Halves are rounded up, on the decimal that
`repr` shows: 0.125 becomes 0.13. What is not known is never left blank and never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

from babel import Locale, dates, lists
from babel.numbers import get_decimal_symbol, get_group_symbol

from twoturn import i18n

LOCALES = {"en": "en_GB"}
"""British English writes the day before the month, as most languages do: numbers keep their order.
Every other language is the locale of its name."""

MINUS = "−"
NARROW_SPACE = "\u202f"  # no-break, between groups of digits
NO_BREAK_SPACE = "\u00a0"
FIRST_GROUPED = {"es": 5, "pl": 5, "pt_PT": 5}
"""From how many digits on groups are set apart, where that is not 4: 1,500, but 1500 and 33 000 in
Polish. CLDR's minimumGroupingDigits and 3; Babel does not carry it."""

PLURALS = ("zero", "one", "two", "few", "many", "other")
"""CLDR's plural categories, in its order; a language has some of them, every one has the last."""

SIGNIFICANT = 3
MAX_DECIMALS = 4
PLAIN_RANGE = (1e-4, 1e9)
"""Outside of it a number is written with an exponent: 1.23e12."""


def finite(value: Any) -> float | None:
    """The value as a finite float, or None: for None, NaN, infinities and pandas' NA."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def rounded(value: float, decimals: int) -> Decimal:
    """Half away from zero on the shortest decimal that means this float; -0 becomes 0."""
    step = Decimal(1).scaleb(-decimals)
    number = Decimal(repr(float(value))).quantize(step, rounding=ROUND_HALF_UP)
    return abs(number) if number == 0 else number


def significant(value: float, digits: int = SIGNIFICANT) -> Decimal:
    """`digits` significant digits, at most MAX_DECIMALS decimals; whole digits are never cut."""
    for decimals in range(MAX_DECIMALS, -1, -1):
        number = rounded(value, decimals)
        before_point = max(number.adjusted() + 1, 1) if abs(number) >= 1 else number.adjusted() + 1
        if before_point + decimals <= digits:
            return number
    return rounded(value, 0)


class Counted(str):
    """A written number that knows which words go with it: formatted as `{n:raz|razy|razy|raza}` it
    is the word for its plural category, the forms in the order of `Formatter.plurals`."""

    place: int

    def __format__(self, forms: str) -> str:
        return forms.split("|")[self.place] if forms else str(self)


class Formatter:
    """One language's way to write numbers. Unknown values become `unknown`.

    ratio: two decimals below 10, then three significant digits; a ratio that would read 1.00
    without being 1 gets a third decimal. seconds and rate (tokens per second): three significant
    digits, at most four decimals, always in the unit itself, never in milliseconds. mean (accept
    length, block size): two decimals.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self.locale = Locale.parse(LOCALES.get(language, language))
        self.unknown = i18n.translator(language).gettext("n/d")
        self.point = str(get_decimal_symbol(self.locale))
        group = str(get_group_symbol(self.locale))
        self.group = NARROW_SPACE if group.isspace() else group

    def ratio(self, value: Any) -> str:
        """2.345 → 2.35, 12.34 → 12.3, 0.0123 → 0.012, 1.003 → 1.003."""
        number = finite(value)
        if number is None or not self._plain(number):
            return self._other(number)
        if abs(rounded(number, 2)) >= 10:
            return self._decimal(significant(number))
        if number and abs(number) < 0.1:
            return self._decimal(significant(number, 2))
        nearly_one = rounded(number, 2) == 1 and number != 1
        return self._decimal(rounded(number, 3 if nearly_one else 2))

    def seconds(self, value: Any) -> str:
        """0.12345 → 0.123, 12.345 → 12.3, 1234.5 → 1,235; the unit stands elsewhere."""
        number = finite(value)
        if number is None or not self._plain(number):
            return self._other(number)
        return self._decimal(significant(number))

    rate = seconds

    def mean(self, value: Any) -> str:
        """3.7647 → 3.76."""
        number = finite(value)
        if number is None or not self._plain(number):
            return self._other(number)
        return self._decimal(rounded(number, 2))

    def percent(self, value: Any) -> str:
        """0.99 → 99%, 0.96875 → 96.9%: one decimal, unless it is 0."""
        share = finite(value)
        number = None if share is None else finite(Decimal(repr(share)) * 100)
        if number is None:
            return self.unknown
        pattern = str(self.locale.percent_formats[None].pattern)
        if not self._plain(number):
            return pattern.replace("#,##0", self._other(number))
        hundredths = rounded(number, 1)
        if hundredths == hundredths.to_integral_value():
            hundredths = hundredths.quantize(Decimal(1))
        return pattern.replace("#,##0", self._decimal(hundredths))

    def integer(self, value: Any) -> str:
        """1500 → 1,500; a fraction is rounded."""
        number = finite(value)
        if number is None or not self._plain(number):
            return self._other(number)
        return self._decimal(rounded(number, 0))

    def short(self, value: Any) -> str:
        """As few digits as the number needs, at most four decimals: for settings and axes."""
        number = finite(value)
        if number is None or not self._plain(number):
            return self._other(number)
        text = format(rounded(number, MAX_DECIMALS), "f").rstrip("0").rstrip(".")
        return self._decimal(Decimal(text))

    def date(self, value: date | None) -> str:
        """29 November 2026; of a date with a time only the date, as it stands."""
        if value is None or value != value:  # NaT differs from itself
            return self.unknown
        text = dates.format_date(value, "long", locale=self.locale)
        return text.replace(" ", NO_BREAK_SPACE, 1)

    def time(self, value: datetime | None) -> str:
        """29 November 2026, 18:32 UTC; an aware time is turned to UTC."""
        if value is None or value != value:
            return self.unknown
        clock = dates.format_time(value, "HH:mm", tzinfo=dates.UTC, locale=self.locale)
        return f"{self.date(value)}, {clock}{NO_BREAK_SPACE}UTC"

    def names(self, values: Iterable[str]) -> str:
        """a, b and c."""
        return str(lists.format_list(list(values), locale=self.locale))

    def numbers(self, values: Iterable[int]) -> str:
        """1, 2 and 5, and 1–6 for an unbroken run of at least three."""
        wanted = sorted(set(values))
        if len(wanted) > 2 and wanted[-1] - wanted[0] == len(wanted) - 1:
            return f"{self.integer(wanted[0])}–{self.integer(wanted[-1])}"
        return self.names(self.integer(value) for value in wanted)

    @property
    def plurals(self) -> list[str]:
        """The plural categories of this language; fractions count too: in Polish they are "other",
        which gettext's plural forms cannot say."""
        return [name for name in PLURALS if name in {*self.locale.plural_form.tags, "other"}]

    def counted(self, text: str) -> Counted:
        """A number as it was written here, with the place of its plural category."""
        found = parse(text, self.language)
        told = self.locale.plural_form(Decimal(found[0])) if found else "other"
        number = Counted(text)
        number.place = self.plurals.index(told)
        return number

    def _plain(self, number: float) -> bool:
        low, high = PLAIN_RANGE
        return number == 0 or low <= abs(number) < high

    def _other(self, number: float | None) -> str:
        if number is None:
            return self.unknown
        mantissa, _, exponent = f"{number:.2e}".partition("e")
        return f"{mantissa.replace('-', MINUS).replace('.', self.point)}e{int(exponent)}"

    def _decimal(self, number: Decimal) -> str:
        whole, _, fraction = format(abs(number), "f").partition(".")
        if len(whole) >= FIRST_GROUPED.get(self.language, 4):
            whole = re.sub(r"(?<=\d)(?=(\d{3})+$)", self.group, whole)
        sign = MINUS if number < 0 else ""
        return sign + whole + (self.point + fraction if fraction else "")


_EXPONENT = r"(?:e-?\d+)?"


@cache
def _pattern(language: str) -> tuple[re.Pattern[str], str, str]:
    """How numbers of a language look, its decimal and its grouping mark."""
    marks = Formatter(language)
    point, group = re.escape(marks.point), re.escape(marks.group)
    number = rf"{MINUS}?\d+(?:{group}\d{{3}})*(?:{point}\d+)?{_EXPONENT}"
    return re.compile(number), marks.point, marks.group


def parse(text: str, language: str) -> list[str]:
    """Every number in a text of a language, in order, in one spelling (1500.25): the way back."""
    pattern, point, group = _pattern(language)
    return [
        match.replace(group, "").replace(point, ".").replace(MINUS, "-")
        for match in pattern.findall(text)
    ]
