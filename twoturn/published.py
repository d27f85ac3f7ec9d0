"""An article's figures: `workflow/published.yaml`, read and checked against each other.

The ledger says of every figure what it is, what it was measured on and how often, and where it
stands. What follows from some of them is computed and held against what is printed; both values are
told. Figures of a campaign that answer the same question are found by `counterpart`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from twoturn import ledger, sources
from twoturn.ledger import Strict, Words
from twoturn.matrix import ArmLike
from twoturn.sources import Conditions
from twoturn.weights import Weights

NAME = "published.yaml"
SPECULATION = Literal["none", "mtp", "dflash", "draft", "ngram"]
UNQUANTISED = 16
"""Bits per weight that count for weights that are not quantised, where the nearest are sought."""


class Question(Strict):
    """What in a campaign asks what a figure answers. A ratio is of an arm and its reference."""

    metric: Literal[
        "decode_tok_s",
        "prefill_tok_s",
        "turn2_ttft_s",
        "turn2_cached_tokens",
        "accept_length",
        "stacking:decode_tok_s",
        "drift",
    ]
    of: Literal["ratio", "value"]
    says: Literal["ratio", "gain", "loss"] = "ratio"
    varies: Literal["speculation", "bits", "both", "block_size"] | None = None
    speculation: list[SPECULATION] | None = Field(None, description="of the arm")
    reference: list[SPECULATION] | None = Field(None, description="speculation of the reference")
    block_size: int | None = None
    reference_block_size: int | None = None
    kinds: list[Literal["chat", "conversation", "prefill"]] | None = Field(
        None, description="of workloads"
    )


class Figure(Strict):
    what: Words
    value: float
    unit: Literal["", "tok/s", "times", "share", "fraction", "tokens", "s", "GB", "GB/s", "billion"]
    origin: Literal["measured", "derived", "restated", "reported", "argued", "setting", "machine"]
    about: list[str] = Field(default_factory=list)
    rounds: int | None = Field(None, ge=1)
    runs: int | None = Field(None, ge=1)
    requests: int | None = Field(None, ge=1)
    where: list[str] = Field(min_length=1)
    measured: Conditions = Conditions()
    answers: Question | None = None

    @model_validator(mode="after")
    def _how_often(self) -> Self:
        if sum(one is not None for one in (self.rounds, self.runs, self.requests)) > 1:
            raise ValueError("at most one of rounds, runs, requests")
        return self

    @property
    def ratio(self) -> float:
        """The figure as a ratio, where it answers for one."""
        says = self.answers.says if self.answers else "ratio"
        return {"ratio": self.value, "gain": 1 + self.value, "loss": 1 - self.value}[says]


class Term(Strict):
    """A word that means something else in the article than here."""

    term: Words
    there: Words
    here: Words


Rule = Literal["product", "quotient", "draft_share", "same", "below", "above", "fall_below"]


class Check(Strict):
    """What follows from figures (`of`), against the one that is printed. A share is a gain."""

    what: Words
    how: Rule
    of: list[str]
    printed: str


class Published(Strict):
    """The whole ledger."""

    source: str
    sections: list[str]
    checkpoints: dict[str, int]
    conditions: Conditions
    notes: dict[str, Words]
    words: dict[str, Term]
    figures: dict[str, Figure]
    checks: dict[str, Check]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, figure in self.figures.items():
            for place in figure.where:
                section, _, paragraph = place.partition("/")
                if section not in self.sections or not paragraph.isdigit():
                    raise ValueError(f"figures.{name}.where: no place {place!r}")
            if unknown := set(figure.about) - set(self.checkpoints):
                raise ValueError(f"figures.{name}.about: no checkpoint {min(unknown)!r}")
        for name, check in self.checks.items():
            if len(check.of) != ARITY[check.how]:
                raise ValueError(f"checks.{name}.of: {check.how} is of {ARITY[check.how]} figures")
            if unknown := {*check.of, check.printed} - set(self.figures):
                raise ValueError(f"checks.{name}: no figure {min(unknown)!r}")
        return self

    def conditions_of(self, figure: Figure) -> Conditions:
        """Those of all figures with the figure's own."""
        bits = [self.checkpoints[name] for name in figure.about] or None
        own = figure.measured.model_dump(exclude_unset=True)
        return self.conditions.model_copy(update={"bits": bits, **own})


@cache
def load() -> Published:
    """The ledger of this repository; its source is in the ledger of sources. Raises UserError."""
    found = ledger.load(Published, NAME)
    sources.require([found.source], f"{NAME}: source")
    return found


# The figures against each other -------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """computed: what follows from the figures `of`; printed: what the article prints. agrees: to
    within the rounding of all of them."""

    check: Check
    of: tuple[float, ...]
    computed: float
    printed: float
    agrees: bool


def checked(published: Published | None = None) -> dict[str, Checked]:
    """Every check of the ledger, computed. Pure."""
    told = published or load()
    return {name: _checked(check, told.figures) for name, check in told.checks.items()}


def _checked(check: Check, figures: Mapping[str, Figure]) -> Checked:
    how = check.how
    parts = [figures[name] for name in check.of]
    printed = figures[check.printed]
    gains = how == "product"
    values = [_factor(part) if gains else part.value for part in parts]
    steps = [rounding(part.value) for part in parts]
    corners = [
        FORMULAS[how](*[value + sign * step for value, sign, step in zip(values, signs, steps)])  # noqa: B905
        for signs in _signs(len(values))
    ]
    computed = FORMULAS[how](*values)
    step = rounding(printed.value)
    low, high = min(corners), max(corners)
    agrees = {
        "below": low < printed.value + step,
        "fall_below": low < printed.value + step,
        "above": high > printed.value - step,
    }.get(how, low <= printed.value + step and high >= printed.value - step)
    return Checked(check, tuple(values), computed, printed.value, agrees)


def _factor(figure: Figure) -> float:
    return 1 + figure.value if figure.unit == "share" else figure.value


FORMULAS: dict[str, Callable[..., float]] = {
    "product": lambda first, second: first * second,
    "quotient": lambda above, below: above / below,
    "draft_share": lambda length: 1 - 1 / length,
    "same": lambda value: value,
    "below": lambda value: value,
    "above": lambda value: value,
    "fall_below": lambda first, last: 1 - last / first,
}
ARITY = {"product": 2, "quotient": 2, "fall_below": 2} | dict.fromkeys(
    ("draft_share", "same", "below", "above"), 1
)


def rounding(value: float) -> float:
    """Half a unit of the last digit that a number is written with: 0.005 of 2.21, 0.5 of 12."""
    digits = Decimal(repr(value)).normalize().as_tuple().exponent
    return 0.5 * 10.0 ** min(int(digits), 0)


def _signs(count: int) -> Iterator[tuple[int, ...]]:
    for number in range(2**count):
        yield tuple(1 if number >> place & 1 else -1 for place in range(count))


# The same question in a campaign ------------------------------------------------------------------


class SeriesLike(Protocol):
    """What is needed of a series of the plan."""

    @property
    def name(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def workload(self) -> Any: ...
    @property
    def arms(self) -> Sequence[Any]: ...


def arms(question: Question, series: SeriesLike, weights: Mapping[str, Weights]) -> list[str]:
    """The arms of a series whose figure answers a question, in their order. Pure."""
    asked = question.kinds is None or series.workload.kind in question.kinds
    if not asked or question.metric == "drift":
        return []
    reference = next(arm for arm in series.arms if arm.name == series.reference)
    found = [arm for arm in series.arms if not arm.null]
    if question.of == "ratio":
        found = [
            arm
            for arm in found
            if arm.name != reference.name and _asks(question, arm, reference, weights)
        ]
    return [
        arm.name
        for arm in found
        if question.speculation is None or arm.speculation in question.speculation
    ]


def _asks(
    question: Question, arm: ArmLike, reference: ArmLike, weights: Mapping[str, Weights]
) -> bool:
    """Whether an arm differs from its reference in what the question is about."""
    if question.reference is not None and reference.speculation not in question.reference:
        return False
    sizes = (question.block_size, question.reference_block_size)
    if sizes != (None, None) and (arm.block_size, reference.block_size) != sizes:
        return False
    engine = arm.speculation != reference.speculation
    fewer = _nominal(weights.get(arm.checkpoint)), _nominal(weights.get(reference.checkpoint))
    bits = None not in fewer and fewer[0] < fewer[1]  # type: ignore[operator]
    same = arm.checkpoint == reference.checkpoint
    answers = {
        None: True,
        "speculation": engine and same,
        "bits": bits and not engine,
        "both": bits and engine,
        "block_size": same and not engine and arm.block_size != reference.block_size,
    }
    return answers[question.varies]


def _nominal(weights: Weights | None) -> int | None:
    """Bits per weight of most of a checkpoint's weights; None where they are not known."""
    if weights is None or weights.bits is None:
        return None
    return min(weights.bits, default=UNQUANTISED)


def by_claim(
    all_series: Iterable[SeriesLike],
    weights: Mapping[str, Weights],
    published: Published | None = None,
) -> dict[str, str]:
    """Claim id (`series/metric/arm`) → the figure that answers the same question. Where there are
    several, the one on the checkpoint whose bits are nearest to the arm's. Pure."""
    told = published or load()
    found: dict[str, str] = {}
    for series in all_series:
        bits = {arm.name: _nominal(weights.get(arm.checkpoint)) for arm in series.arms}
        asked: dict[str, list[str]] = {}
        for name, figure in told.figures.items():
            question = figure.answers
            if question is not None and question.of == "ratio":
                for arm in arms(question, series, weights):
                    asked.setdefault(f"{series.name}/{question.metric}/{arm}", []).append(name)
        for claim, names in asked.items():
            own = bits[claim.rpartition("/")[2]]
            found[claim] = min(names, key=lambda name, own=own: _distance(told, name, own))  # type: ignore[misc]
    return found


def _distance(published: Published, name: str, bits: int | None) -> int:
    sizes = [published.checkpoints[one] for one in published.figures[name].about]
    return 0 if bits is None or not sizes else min(abs(bits - one) for one in sizes)


def times_as_fast(
    all_series: Iterable[SeriesLike], weights: Mapping[str, Weights]
) -> dict[str, float]:
    """Claim id → what the article printed, as "times as fast": for `published_value` of claims."""
    figures = load().figures
    return {
        claim: 1 / figures[name].ratio if _is_time(claim) else figures[name].ratio
        for claim, name in by_claim(all_series, weights).items()
    }


def _is_time(claim: str) -> bool:
    metric = claim.split("/")[1]
    return metric.endswith("_s") and not metric.endswith("_tok_s")


def extract(
    fileobj: Any, keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Babel's interface: every msgid of the ledger."""
    told = ledger.parse(Published, fileobj.read().decode("utf-8"), NAME)
    for message in dict.fromkeys(ledger.messages(told)):
        yield 1, None, message, []
