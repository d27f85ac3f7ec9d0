"""The section about switches of a server: arms that differ from the reference in settings alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from twoturn import matrix, plan, privacy
from twoturn.article.data import Data, Row, SeriesData
from twoturn.article.series import Context, setting
from twoturn.article.view import View, code
from twoturn.claims import N_

DEFAULT = N_("the adapter's default")
RESTORED = N_("nothing: the first settings, restored")


def switches(data: Data, view: View) -> Context | None:
    """None where no arm differs from its reference in settings or arguments alone."""
    parts = [_part(one, view) for one in data.series if matrix.switches(one.series)]
    return {"parts": parts} if parts else None


def _part(one: SeriesData, view: View) -> Context:
    series = one.series
    reference = series.arm(series.reference)
    rows = [
        [code(name), _switched(series.arm(name), reference, view), *_verdicts(name, one, view)]
        for name in matrix.switches(series)
    ]
    if series.null_arm is not None:
        restored = view.words.gettext(RESTORED)
        rows.append([code(series.null_arm), restored, *_verdicts(series.null_arm, one, view)])
    return {
        "series": code(series.name),
        "reference": code(series.reference),
        "null_arm": code(series.null_arm) if series.null_arm else "",
        "metrics": [view.heading(metric) for metric in series.metrics],
        "rows": rows,
        "restored": [
            view.claim(row)
            for row in one.claims
            if row["section"] == "reading" and series.null_arm is not None
        ],
    }


def _switched(arm: plan.Arm, reference: plan.Arm, view: View) -> str:
    """What differs, old → new. A campaign may name paths of its machine; they are not told."""
    told = [privacy.redact(text, Path.cwd()) for text in _differences(arm, reference, view)]
    return ", ".join(code(text) for text in told)


def _differences(arm: plan.Arm, reference: plan.Arm, view: View) -> Iterator[str]:
    default = view.words.gettext(DEFAULT)
    for key in sorted({*arm.settings, *reference.settings}):
        before, after = (
            setting(one.settings[key]) if key in one.settings else default
            for one in (reference, arm)
        )
        if before != after:
            yield f"{key}: {before} → {after}"
    if arm.args != reference.args:
        yield " → ".join(" ".join(one.args) or default for one in (reference, arm))


def _verdicts(arm: str, one: SeriesData, view: View) -> list[str]:
    found: dict[str, Row] = {row["metric"]: row for row in one.contrasts if row["arm"] == arm}
    return [
        view.verdict(found[metric]["verdict"] if metric in found else "not_measured")
        for metric in one.series.metrics
    ]
