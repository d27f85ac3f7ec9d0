"""`twoturn sources`: the quoted documents, their quotes against copies, their guidance for arms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twoturn import sources
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.sources import Advice, Check, Source

FOUND = {True: "found in", False: "NOT in", None: "no copy here:"}
RESPECTED = {True: "followed", False: "not followed", None: "not known"}


def lines(loaded: Loaded | None, copies: Path | None) -> Iterator[str]:
    """For a reader. loaded: the campaign whose arms the guidance is held against; copies: a folder
    with copies of the documents. Raises UserError, at the end, where a quote is not in its copy."""
    checks = [] if copies is None else sources.check(copies)
    for name, source in sources.load().sources.items():
        yield f"{name}: {_told(source)}"
        for quote, one in source.quotes.items():
            seen = "" if one.reported_by is None else f", as {one.reported_by} reports it"
            yield f"  {quote}: {one.words or one.about}{seen}"
        yield from (_outcome(one) for one in checks if one.source == name)
    for conflict in sources.conflicts():
        told = ", ".join(f"{value:g} ({source})" for source, value in conflict.told)
        yield (
            f"conflict: {conflict.metric} of {conflict.model} on {conflict.task} at block size "
            f"{conflict.block_size}: {told}"
        )
    if loaded is not None:
        yield from _guidance(loaded)
    if missing := [one for one in checks if one.found is False]:
        raise UserError(
            f"not in {missing[0].copy}",
            file=f"workflow/{sources.NAME}",
            key=f"sources.{missing[0].source}: {missing[0].what}",
            cure="quote the words as they stand, or name the copy that holds them",
        )


def _told(source: Source) -> str:
    where = (source.locator, source.version, source.date)
    return ", ".join([source.kind, source.title, *(str(part) for part in where if part)])


def _outcome(check: Check) -> str:
    return f"  {check.what}: {FOUND[check.found]} {check.copy}"


def _guidance(loaded: Loaded) -> Iterator[str]:
    facts = Facts(loaded)
    yield f"guidance on the arms of {loaded.file}:"
    told = False
    for series in loaded.plan.series:
        for arm in series.arms:
            for advice in sources.guidance(arm, facts):
                told = True
                yield f"  {series.name}/{arm.name}: {_advice(advice)}"
    if not told:
        yield "  none is about any of them"


def _advice(advice: Advice) -> str:
    limit = sources.load().rules[advice.rule]
    size = limit.exactly or limit.at_most
    block = f"block size {size}" if limit.exactly else f"block size at most {size}"
    about = "" if advice.applies else "if it applies, "
    return f"{about}{block} ({advice.source}, {advice.rule}): {RESPECTED[advice.respected]}"


class Facts:
    """A campaign as the guidance wants it."""

    def __init__(self, loaded: Loaded) -> None:
        self.facts = loaded.plan.facts
        self.weights = loaded.weights
