"""How the measurement differs from upstream's: factors side by side, guidance, what is quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable

from twoturn import claim_kinds, plan, sources
from twoturn.article import conditions
from twoturn.article.data import Data, SeriesData
from twoturn.article.series import Context
from twoturn.article.view import View, code, escape
from twoturn.claims import N_
from twoturn.sources import Advice, Conditions, Rule, Source

TRAINED = N_("at most that block")
AT_MOST = N_("at most %(size)s")
EXACTLY = N_("%(size)s")


def upstream(data: Data, view: View) -> Context | None:
    """Only where an arm speculates."""
    arms = [(one, arm) for one in data.series for arm in one.series.arms if _speculates(arm)]
    if not arms or data.first is None:
        return None
    ours = conditions.here(data, arms)
    ledger = sources.load()
    measured = {name: source.measured for name, source in ledger.sources.items() if source.measured}
    return {
        "mark": DIFFERS,
        "head": [code(name) for name in measured],
        "factors": [
            _factor_row(factor, measured.values(), ours, view) for factor in conditions.FACTORS
        ],
        "differences": [_difference(name, told, ours, view) for name, told in measured.items()],
        "rules": _rules(arms, data, view),
        "cited": _cited(data, view),
        "contradictions": _contradictions(arms, data, view),
        "conflicts": _conflicts(view),
        "sources": [_source(name, source, view) for name, source in ledger.sources.items()],
    }


def _speculates(arm: plan.Arm) -> bool:
    return arm.speculation != "none" and not arm.null


KINDS = {
    "paper": N_("paper"),
    "model card": N_("model card"),
    "readme": N_("README"),
    "package": N_("package"),
    "issue": N_("issue"),
    "article": N_("article"),
}
DIFFERS = "≠"
SHORT_COMMIT = 12
_COMMIT = re.compile("[0-9a-f]{40}")
_DECIMAL = re.compile(r"\d\.\d")


def kind(source: Source, view: View) -> str:
    return view.words.gettext(KINDS[source.kind])


def verbatim(words: str) -> str:
    """Quoted words as they stand; code keeps what reads like a number from being one."""
    return code(words) if _DECIMAL.search(words) else escape(words)


def _factor_row(
    factor: str, measured: Iterable[Conditions], ours: conditions.Here, view: View
) -> list[str]:
    words = view.words.gettext(conditions.FACTORS[factor])
    row = [words[:1].upper() + words[1:]]
    for one in measured:
        theirs = conditions.there(one)[factor]
        text = conditions.told(factor, theirs, view)
        differs = conditions.same(factor, theirs, ours[factor]) is False
        row.append(f"{DIFFERS} {text}" if differs else text)
    return [*row, conditions.told(factor, ours[factor], view)]


def _difference(name: str, told: Conditions, ours: conditions.Here, view: View) -> Context:
    factors = conditions.differing(told, ours)
    return {
        "source": code(name),
        "count": len(factors),
        "factors": conditions.names(factors, view),
    }


# Guidance -----------------------------------------------------------------------------------------


def _rules(arms: list[tuple[SeriesData, plan.Arm]], data: Data, view: View) -> list[list[str]]:
    """One row per rule of the ledger: whom it is about here, and who follows it."""
    found: dict[str, list[tuple[str, Advice]]] = {name: [] for name in sources.load().rules}
    for one, arm in arms:
        for advice in sources.guidance(arm, data):
            found[advice.rule].append((f"{one.series.name}/{arm.name}", advice))
    return [
        [*_rule_told(sources.load().rules[name], view), *_answers(told, view)]
        for name, told in found.items()
    ]


def _rule_told(rule: Rule, view: View) -> list[str]:
    words = view.words.gettext
    size = rule.exactly or rule.at_most
    limit = words(TRAINED) if size == "trained" else words(EXACTLY if rule.exactly else AT_MOST)
    return [
        words(rule.says),
        limit if size == "trained" else limit % {"size": view.number.integer(size)},
        code(rule.source),
    ]


def _answers(told: list[tuple[str, Advice]], view: View) -> list[str]:
    """Arms that follow a rule, arms that do not, and arms of which it is not known."""
    groups: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for arm, advice in told:
        groups[advice.respected if advice.applies else None].append(arm)
    return [", ".join(code(arm) for arm in arms) or "–" for arms in groups.values()]


def _cited(data: Data, view: View) -> list[Context]:
    """Which documents the claims of this article cite, once per metric."""
    kinds = claim_kinds.load().kinds
    metrics = dict.fromkeys(row["metric"] for one in data.series for row in one.claims)
    found = {metric: kinds.get(claim_kinds.kind_of(metric)) for metric in metrics}
    return [
        {"metric": view.metric(metric), "sources": view.names(told.cites)}
        for metric, told in found.items()
        if told is not None and told.cites
    ]


def _contradictions(
    arms: list[tuple[SeriesData, plan.Arm]], data: Data, view: View
) -> list[Context]:
    """Rules that one arm cannot follow both, told once per pair."""
    found: dict[tuple[str, str], list[str]] = {}
    for one, arm in arms:
        advice = sources.guidance(arm, data)
        certain = [one_rule for one_rule in advice if one_rule.applies]
        for pair in sources.contradictions(certain):
            found.setdefault(pair, []).append(f"{one.series.name}/{arm.name}")
    rules = sources.load().rules
    return [
        {
            "arms": view.names(names),
            "first": view.words.gettext(rules[first].says),
            "second": view.words.gettext(rules[second].says),
        }
        for (first, second), names in found.items()
    ]


# What is quoted -----------------------------------------------------------------------------------


def _conflicts(view: View) -> list[Context]:
    return [
        {
            "metric": view.metric(one.metric),
            "model": code(one.model),
            "task": code(one.task or ""),
            "block": view.number.integer(one.block_size),
            "told": view.number.names(
                f"{view.number.mean(value)} ({code(source)})" for source, value in one.told
            ),
        }
        for one in sources.conflicts()
    ]


def _source(name: str, source: Source, view: View) -> Context:
    """One document of the ledger with all that is quoted of it."""
    version = source.version or ""
    version = version[:SHORT_COMMIT] if _COMMIT.fullmatch(version) else version
    place = [code(part) for part in (source.locator, version) if part]
    if source.date is not None:
        place.append(view.number.date(source.date))
    return {
        "name": code(name),
        "kind": kind(source, view),
        "title": code(source.title),
        "place": ", ".join(place),
        "quotes": [
            {
                "words": verbatim(quote.words) if quote.words else "",
                "about": view.words.gettext(quote.about),
                "by": code(quote.reported_by) if quote.reported_by else "",
            }
            for quote in source.quotes.values()
        ],
    }
