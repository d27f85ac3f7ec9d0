"""Documents that are quoted: `workflow/sources.yaml`, read and checked.

The ledger holds what each document says in its own words, where and since when, what was seen of it
and what is only known from another; the figures it gives, with the conditions they were measured
in; and the rules that follow for an arm of a campaign. What a document says is never this project's
own claim.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from twoturn import ledger
from twoturn.errors import UserError
from twoturn.ledger import Strict, Words
from twoturn.weights import Weights

NAME = "sources.yaml"


class Conditions(Strict):
    """What a figure was measured with; what is left out was not told or not seen."""

    hardware: str | None = None
    model: str | None = None
    server: str | None = None
    bits: list[int] | None = Field(
        default=None, description="per weight; 16 and more are not quantised"
    )
    temperature: list[float] | None = None
    thinking: bool | None = None
    prompts: list[str] | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    block_size: list[int] | None = Field(default=None, description="the anchor included")
    rate: Literal["with_prefill", "decode_only"] | None = None
    concurrency: list[int] | None = None


class Quote(Strict):
    """Words of a document, or what another document reports of them."""

    words: str | None = Field(None, description="exactly as they stand, in their language")
    about: Words
    place: str | None = None
    copy_: str | None = Field(None, alias="copy", description="file that the words were seen in")
    reported_by: str | None = Field(
        None, description="source that tells it, where the document itself was not seen"
    )

    @model_validator(mode="after")
    def _seen_or_told(self) -> Self:
        if self.copy_ is None and self.reported_by is None:
            raise ValueError("copy or reported_by: it was seen, or another tells it")
        if self.copy_ is not None and self.words is None:
            raise ValueError("what was seen is quoted: it needs `words`")
        return self


class Value(Strict):
    """A figure that a document gives. `line`: as it stands in `copy`."""

    metric: Literal["accept_length", "decode_tok_s"]
    model: str
    block_size: int
    task: str | None = None
    value: float
    copy_: str | None = Field(None, alias="copy")
    line: str | None = None
    about: str | None = Field(None, description="source whose figure it says it is")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.copy_ is None) != (self.line is None):
            raise ValueError("copy and line go together")
        return self


class Source(Strict):
    kind: Literal["paper", "model card", "readme", "package", "issue", "article"]
    title: str
    locator: str | None = None
    version: str | None = None
    date: dt.date | None = None
    measured: Conditions | None = None
    quotes: dict[str, Quote] = Field(default_factory=dict)
    values: list[Value] = Field(default_factory=list)


class When(Strict):
    """What a rule is about; all that is given has to hold."""

    speculation: list[str] | None = None
    runtime: str | None = None
    accelerator: str | None = None
    quantised: bool | None = Field(None, description="the target or the draft")
    draft: str | None = Field(None, description="the draft by the name of its repository or folder")


class Rule(Strict):
    """Guidance as a limit on an arm's block size. `rests_on`: SOURCE/QUOTE, the first is cited."""

    says: Words
    rests_on: list[str] = Field(min_length=1)
    when: When
    at_most: int | Literal["trained"] | None = None
    exactly: int | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.at_most is None) == (self.exactly is None):
            raise ValueError("exactly one of at_most, exactly")
        return self

    @property
    def source(self) -> str:
        return self.rests_on[0].partition("/")[0]


class Sources(Strict):
    """The whole ledger. `runtimes`: what adapters compute with."""

    runtimes: dict[str, list[str]]
    sources: dict[str, Source]
    rules: dict[str, Rule]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        quotes = {f"{name}/{quote}" for name, one in self.sources.items() for quote in one.quotes}
        for name, rule in self.rules.items():
            for quote in rule.rests_on:
                if quote not in quotes:
                    raise ValueError(f"rules.{name}.rests_on: there is no quote {quote!r}")
            if rule.when.runtime not in (None, *self.runtimes):
                raise ValueError(f"rules.{name}.when.runtime: no runtime {rule.when.runtime!r}")
        told = [
            (f"{name}.quotes.{key}.reported_by", quote.reported_by)
            for name, one in self.sources.items()
            for key, quote in one.quotes.items()
        ]
        told += [
            (f"{name}.values", value.about)
            for name, one in self.sources.items()
            for value in one.values
        ]
        for key, source in told:
            if source not in (None, *self.sources):
                raise ValueError(f"sources.{key}: there is no source {source!r}")
        return self


@cache
def load() -> Sources:
    """The ledger of this repository. Raises UserError."""
    return ledger.load(Sources, NAME)


def require(names: Iterable[str], key: str) -> None:
    """That the ledger has these sources. Raises UserError that names `key`, without a file."""
    known = load().sources
    for name in names:
        if name not in known:
            raise UserError(
                f"no source {name!r} in workflow/{NAME}", key=key, cure=f"known: {', '.join(known)}"
            )


# Guidance for an arm ------------------------------------------------------------------------------


class ArmLike(Protocol):
    """What is needed of an arm of the plan."""

    @property
    def checkpoint(self) -> str: ...
    @property
    def draft(self) -> str | None: ...
    @property
    def adapter(self) -> str: ...
    @property
    def speculation(self) -> str: ...
    @property
    def block_size(self) -> Any: ...


class CampaignLike(Protocol):
    """What is needed of a campaign: the machine's facts, and checkpoint → weights."""

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def weights(self) -> Mapping[str, Weights]: ...


@dataclass(frozen=True)
class Advice:
    """One rule for one arm. applies, respected: None where it cannot be known from what is here,
    such as the bits of a checkpoint that lies on another machine."""

    source: str
    rule: str
    applies: bool | None
    respected: bool | None


def guidance(arm: ArmLike, campaign: CampaignLike) -> tuple[Advice, ...]:
    """The rules that apply, or may apply, to an arm, in the order of the ledger. Rules that are not
    about it are left out. Pure."""
    found = (
        Advice(rule.source, name, _applies(rule.when, arm, campaign), _holds(rule, arm, campaign))
        for name, rule in load().rules.items()
    )
    return tuple(one for one in found if one.applies is not False)


def contradictions(advice: Iterable[Advice]) -> list[tuple[str, str]]:
    """Pairs of rules for one arm that no block size can follow both."""
    rules = load().rules
    named = [one.rule for one in advice]
    return [
        (first, second)
        for first, second in combinations(named, 2)
        if _apart(rules[first], rules[second]) or _apart(rules[second], rules[first])
    ]


def _apart(first: Rule, second: Rule) -> bool:
    if first.exactly is None:
        return False
    if second.exactly is not None:
        return first.exactly != second.exactly
    return isinstance(second.at_most, int) and first.exactly > second.at_most


def _applies(when: When, arm: ArmLike, campaign: CampaignLike) -> bool | None:
    """Whether all conditions hold; None where one is not known and none fails."""
    draft = _weights(arm.draft, campaign)
    answers: list[bool | None] = []
    if when.speculation is not None:
        answers.append(arm.speculation in when.speculation)
    if when.runtime is not None:
        answers.append(_runs_on(when.runtime, arm.adapter))
    for wanted, found in (
        (when.accelerator, campaign.facts.get("accelerator")),
        (when.quantised, _quantised(arm, campaign)),
        (when.draft, draft and draft.model),
    ):
        if wanted is not None:
            answers.append(None if found is None else wanted == found)
    return False if False in answers else None if None in answers else True


def _runs_on(runtime: str, adapter: str) -> bool | None:
    """None for an adapter that the ledger places nowhere, such as `command`."""
    found = [name for name, adapters in load().runtimes.items() if adapter in adapters]
    return runtime in found if found else None


def _weights(name: str | None, campaign: CampaignLike) -> Weights | None:
    return None if name is None else campaign.weights.get(name, Weights())


def _quantised(arm: ArmLike, campaign: CampaignLike) -> bool | None:
    told = [
        one.quantised
        for one in (_weights(arm.checkpoint, campaign), _weights(arm.draft, campaign))
        if one is not None
    ]
    return True if True in told else None if None in told else False


def _holds(rule: Rule, arm: ArmLike, campaign: CampaignLike) -> bool | None:
    if not isinstance(arm.block_size, int):
        return None  # the server's own choice, or one that changes
    if rule.exactly is not None:
        return arm.block_size == rule.exactly
    draft = _weights(arm.draft, campaign)
    limit = rule.at_most if rule.at_most != "trained" else draft and draft.trained_block
    return arm.block_size <= limit if isinstance(limit, int) else None


# What documents disagree about --------------------------------------------------------------------


@dataclass(frozen=True)
class Conflict:
    """One figure that documents give differently: (source that gives it, value)."""

    metric: str
    model: str
    task: str | None
    block_size: int
    told: tuple[tuple[str, float], ...]


def conflicts(sources: Sources | None = None) -> list[Conflict]:
    """Figures of one thing with more than one value, in the order of the ledger."""
    given: dict[tuple[str, str, str | None, int], list[tuple[str, float]]] = {}
    for name, source in (sources or load()).sources.items():
        for one in source.values:
            key = (one.metric, one.model, one.task, one.block_size)
            given.setdefault(key, []).append((name, one.value))
    return [
        Conflict(*key, told=tuple(told))
        for key, told in given.items()
        if len({value for _, value in told}) > 1
    ]


# Quotes against copies ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """One quote against the copy it was seen in. found: None where the folder has no such file."""

    source: str
    what: str
    copy: str
    found: bool | None


def check(folder: Path, sources: Sources | None = None) -> list[Check]:
    """Every quoted word and every line of a table against its copy, a file of that name anywhere
    below the folder. Line breaks and runs of spaces do not count. Raises UserError."""
    if not folder.is_dir():
        raise UserError("no such folder", file=str(folder), cure="name one that holds the copies")
    found = []
    for name, source in (sources or load()).sources.items():
        wanted = [(key, one.copy_, one.words) for key, one in source.quotes.items()]
        wanted += [(str(one.line), one.copy_, one.line) for one in source.values]
        for what, copy, text in wanted:
            if copy is not None and text is not None:
                found.append(Check(name, what, copy, _occurs(text, folder, copy)))
    return found


def _occurs(text: str, folder: Path, copy: str) -> bool | None:
    files = sorted(path for path in folder.rglob(copy) if path.is_file())
    if not files:
        return None
    wanted = _flat(text)
    return any(wanted in _flat(file.read_text("utf-8", errors="replace")) for file in files)


def _flat(text: str) -> str:
    return " ".join(text.split())


def extract(
    fileobj: Any, keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, None, str, list[str]]]:
    """Babel's interface: every msgid of the ledger."""
    told = ledger.parse(Sources, fileobj.read().decode("utf-8"), NAME)
    for message in dict.fromkeys(ledger.messages(told)):
        yield 1, None, message, []
