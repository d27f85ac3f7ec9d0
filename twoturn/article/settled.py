"""The configuration settled on: the arms that the decision speaks for, with their settings."""

from __future__ import annotations

from twoturn.article import conditions
from twoturn.article.data import Data, Row, SeriesData
from twoturn.article.series import Context, arm_row
from twoturn.article.view import View, code, escape
from twoturn.claim_kinds import kind_of
from twoturn.claims import N_
from twoturn.stats.verdict import Verdict

FOR = {
    "conversation_s": N_("whole conversations"),
    "decode_tok_s": N_("decoding alone"),
    "prefill_tok_s@": N_("reading prompts"),
}
"""What a series decides about, by the kind of metric that its headline rests on."""


def settled(data: Data, view: View) -> Context | None:
    """From the headlines of the series alone; nothing where nothing is measured."""
    if data.first is None:
        return None
    chosen = [
        (one, name, row["metric"])
        for one in data.series
        for row in one.claims
        if _speaks(row)
        for name in row["arms"]
    ]
    return {
        "chip": escape(data.facts.get("chip") or view.number.unknown),
        "date": view.number.date(data.last),
        "has_toys": any(one.toy for one in data.checkpoints),
        "rows": [_row(*arm, data, view) for arm in chosen],
    }


def _speaks(row: Row) -> bool:
    return bool(row["claim"].endswith("/headline") and row["verdict"] == Verdict.FASTER)


def _row(one: SeriesData, name: str, metric: str, data: Data, view: View) -> list[str]:
    arm = one.series.arm(name)
    seen = ", ".join(code(version) for version in one.versions.get(arm.server, ()))
    values = one.values.get(name, {})
    _, checkpoint, server, speculation, block, draft, settings = arm_row(arm, one.series, view)
    return [
        view.words.gettext(FOR[kind_of(metric)]),
        f"{code(one.series.name)}: {code(name)}",
        checkpoint,
        conditions.told("bits", conditions.here(data, [(one, arm)])["bits"], view),
        f"{server} {seen}".strip(),
        speculation,
        block,
        "–" if arm.speculation == "none" else view.number.mean(values.get("effective_block_size")),
        draft,
        settings,
    ]
