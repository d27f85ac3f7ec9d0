"""The sections about the campaign as a whole, and the order of all sections."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twoturn import config, plan, privacy
from twoturn.article import quality
from twoturn.article.blocks import blocks
from twoturn.article.data import DEMO, Data, SeriesData
from twoturn.article.kinds import kinds
from twoturn.article.lengths import left_out
from twoturn.article.published import re_measured
from twoturn.article.series import Context, Fill, acceptance, each_series, stacking
from twoturn.article.settled import settled
from twoturn.article.switches import switches
from twoturn.article.upstream import upstream
from twoturn.article.view import View, code, escape
from twoturn.claims import N_
from twoturn.matrix import block
from twoturn.numbers import finite
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.verdict import MARGIN

SHORT_HASH = 12
LAYERS_TOLD = 3
VERSIONS_TOLD = ("mlx", "mlx-lm", "mlx-vlm", "transformers")
"""Packages of a server's environment that an article names."""


def _decision(data: Data, view: View) -> Context:
    decisions = []
    for one in data.series:
        rows = [row for row in one.claims if row["section"] == "decision"]
        rows.sort(key=lambda row: not row["claim"].endswith("/headline"))
        decisions.append([view.claim(row) for row in rows])
    return {
        "name": code(data.name) if data.name else "",
        "decisions": [some for some in decisions if some],
        "single": [code(one.series.name) for one in data.measured if len(one.series.arms) < 2],
        "scored": bool(data.quality),
        "has_toys": any(one.toy for one in data.checkpoints),
        "chip": escape(data.facts.get("chip") or view.number.unknown),
        "first": view.number.date(data.first),
        "last": view.number.date(data.last),
        "measured": data.first is not None,
        "one_day": data.first is not None
        and data.last is not None
        and data.first.date() == data.last.date(),
        "count": data.requests,
        "requests": view.number.integer(data.requests),
    }


VERDICT_RULES = {
    "faster": N_(
        "the whole interval lies on the arm's side of one, the ratio is beyond the margin, and a "
        "robust cross-check (Hodges–Lehmann) has the same sign"
    ),
    "slower": N_("the same on the side of the reference"),
    "same": N_("the whole interval lies within the margin"),
    "unresolved": N_(
        "none of these: the interval says what could have been missed, and that is a result too"
    ),
    "invalid": N_("a check failed, and nothing is compared; the reason is told"),
    "not_measured": N_("it is in the plan and has no cells yet"),
}


def _reading(data: Data, view: View) -> Context:
    controls = []
    for one in data.series:
        metric = one.series.metrics[0]
        drift = one.drift
        rows = drift[(drift["kind"] == "control") & (drift["metric"] == metric)]
        if rows.empty or finite(rows["ratio_to_fitted"].iloc[0]) is None:
            continue
        control = rows.iloc[0]
        controls.append(
            {
                "series": code(one.series.name),
                "metric": view.metric(metric),
                "to_fitted": view.number.ratio(control["ratio_to_fitted"]),
                "to_first": view.number.ratio(control["ratio_to_first"]),
            }
        )
    return {
        "confidence": view.number.percent(CONFIDENCE),
        "margin": view.number.percent(MARGIN),
        "verdicts": [
            [view.verdict(name), view.words.gettext(rule)] for name, rule in VERDICT_RULES.items()
        ],
        "null_arms": [
            (code(one.series.name), view.claim(row))
            for one in data.series
            for row in one.claims
            if row["section"] == "reading"
        ],
        "controls": controls,
    }


FACTS = {
    "chip": N_("Chip"),
    "memory_gb": N_("Memory, GB"),
    "os": N_("Operating system"),
    "os_build": N_("Build of the system"),
    "arch": N_("Architecture"),
    "accelerator": N_("Accelerator"),
}


def _machine(data: Data, view: View) -> Context:
    sized = any(one.size for one in data.checkpoints)
    facts = [
        [
            view.words.gettext(words),
            view.number.short(value)
            if isinstance(value := data.facts.get(key), int | float)
            else (escape if key in ("chip", "os") else code)(value)
            if value
            else view.number.unknown,
        ]
        for key, words in FACTS.items()
    ]
    return {
        "facts": facts,
        "servers": _servers(data, view),
        "checkpoints": [
            [
                code(one.name),
                _origin(one.recipe, view),
                f"`{_pin(one.recipe)}`",
                *(_size(one.size, view) if sized else ()),
            ]
            for one in data.checkpoints
        ],
        "sized": sized,
        "cpu": data.facts.get("accelerator") == "cpu",
        "toys": view.names(one.name for one in data.checkpoints if one.toy),
        "has_toys": any(one.toy for one in data.checkpoints),
        "card": f"`{DEMO}/README.md`",
    }


def _size(size: Mapping[str, Any] | None, view: View) -> list[str]:
    """Bits per weight, how the weights are stored, group sizes and single layers; from files."""
    if size is None:
        return [view.number.unknown] * 4
    stored = sorted(size["stored"].items(), key=lambda item: -item[1])
    told = [f"{code(name)} {view.number.percent(share)}" for name, share in stored]
    own = [f"{code(layer)}: {code(text)}" for layer, text in size["overrides"].items()]
    more = len(own) - LAYERS_TOLD
    rest = view.words.gettext("and others: %(more)s") % {"more": view.number.integer(more)}
    return [
        view.number.mean(size["bits_per_weight"]),
        ", ".join(told),
        ", ".join(view.number.integer(group) for group in size["group_sizes"]) or "–",
        ", ".join([*own[:LAYERS_TOLD], *([rest] if more > 0 else [])]) or "–",
    ]


def _servers(data: Data, view: View) -> list[list[str]]:
    """One row per server: the version in the plan, those in the cells, packages that matter."""
    rows: dict[str, list[str]] = {}
    for one in data.measured:
        for arm in one.series.arms:
            recipe = one.series.spec["arms"][arm.name]["server"]
            packages = recipe.get("packages", {})
            told = [
                f"{name} {packages[name]}"
                for name in VERSIONS_TOLD
                if name in packages and name != arm.server
            ]
            seen = sorted({v for s in data.measured for v in s.versions.get(arm.server, ())})
            rows[arm.server] = [
                code(arm.server),
                code(arm.version),
                ", ".join(code(version) for version in seen) or view.number.unknown,
                ", ".join(code(text) for text in told) or view.number.unknown,
            ]
    return list(rows.values())


MADE = {
    "bits": N_("bits per weight: %(bits)s"),
    "layers": N_("padded with layers that add nothing to: %(layers)s"),
    "noise": N_("damaged on purpose: noise of %(noise)s times the weights' spread"),
    "copy": N_("a copy of its weights"),
    "gguf": N_("as a GGUF file: %(gguf)s"),
}


def _origin(recipe: Mapping[str, Any], view: View) -> str:
    if "repo" in recipe:
        return code(recipe["repo"])
    if "package" in recipe:
        return code(f"{recipe['package']} {recipe['version']}")
    if "from" not in recipe:
        return view.words.gettext("files on disk")
    steps = []
    while "from" in recipe:
        steps.append(_step(recipe, view))
        recipe = recipe["from"]
    text = view.words.gettext("made from %(source)s, %(steps)s")
    return text % {"source": _origin(recipe, view), "steps": ", ".join(reversed(steps))}


def _step(recipe: Mapping[str, Any], view: View) -> str:
    """What the last making of a recipe did."""
    how = next(name for name in MADE if name in recipe)
    done = recipe[how]
    told = code(done) if isinstance(done, str) else view.number.short(done)
    text = view.words.gettext(MADE["copy" if recipe.get("noise") == 0 else how])
    return text % {how: told}


def _pin(recipe: Mapping[str, Any]) -> str:
    """What pins a checkpoint, shortened: commit or hash of its files."""
    if "from" in recipe:
        return _pin(recipe["from"])
    pins = (recipe.get(name) for name in ("revision", "files_sha256", "sha256"))
    return next((str(pin) for pin in pins if pin), "")[:SHORT_HASH]


def _drift(data: Data, view: View) -> Context | None:
    told = [_drift_of(one, view) for one in data.series]
    parts = [part for part in told if part["rows"] or part["figure"]]
    if not parts:
        return None
    return {
        "parts": parts,
        "figures": any(part["figure"] for part in parts),
        "confidence": view.number.percent(CONFIDENCE),
    }


def _drift_of(one: SeriesData, view: View) -> Context:
    rows = []
    for metric in one.series.metrics:
        mine = one.drift[one.drift["metric"] == metric]
        slots, control, curve = (
            mine[mine["kind"] == kind].sort_values("time_s")
            for kind in ("slot", "control", "curve")
        )
        if slots.empty:
            continue
        end: Mapping[Any, Any] = curve.iloc[-1].to_dict() if len(curve) else {}
        last_row: Mapping[Any, Any] = control.iloc[0].to_dict() if len(control) else {}
        rows.append(
            [
                view.title(metric),
                view.value(metric, finite(slots["value"].iloc[0])),
                view.number.ratio(end.get("ratio_to_first")),
                view.interval(end.get("ratio_low"), end.get("ratio_high")),
                view.value(metric, finite(last_row.get("value"))),
                view.number.ratio(last_row.get("ratio_to_first")),
                view.number.ratio(last_row.get("ratio_to_fitted")),
            ]
        )
    name = one.series.name
    return {
        "series": code(name),
        "plain_series": escape(name),
        "figure": one.pictures.get("slots"),
        "rows": rows,
    }


def _excluded_rows(data: Data, view: View) -> Context:
    count = sum(row.requests for row in data.excluded)
    return {
        "measured": data.requests > 0,
        "count": count,
        "shown": view.number.integer(count),
        "all_count": data.requests,
        "all": view.number.integer(data.requests),
        "rows": [
            [
                code(row.series),
                code(row.arm),
                view.kind(row.kind),
                view.number.numbers(row.rounds),
                view.number.integer(row.requests),
                view.status(row.status),
                code(row.reason) if row.reason else view.number.unknown,
            ]
            for row in data.excluded
        ],
    }


def _not_measured(data: Data, view: View) -> Context:
    series = [one.series for one in data.series]
    asked: dict[str, list[int | str]] = {}
    for arm in (arm for one in series for arm in one.arms):
        if (size := block(arm)) is not None and size not in asked.setdefault(arm.speculation, []):
            asked[arm.speculation].append(size)
    recorded = [one.series for one in data.series if isinstance(one.workload, config.Replay)]
    cut = [
        (one.series, workload)
        for one in data.series
        if not isinstance(workload := one.workload, config.Replay)
    ]
    temperatures = sorted({one.workload.temperature for one in series})
    return {
        "scored": bool(data.quality),
        "unmeasured": view.names(
            one.series.name for one in data.measured if not one.measured_rounds
        ),
        "missing": [
            {
                "series": code(one.series.name),
                "rounds": view.number.numbers(one.missing_rounds),
            }
            for one in data.measured
            if one.measured_rounds and one.missing_rounds
        ],
        "without_control": view.names(
            one.series.name for one in data.measured if one.measured_rounds and not one.has_control
        ),
        "without_null": view.names(
            one.series.name for one in data.measured if one.series.null_arm is None
        ),
        "without_curve": view.names(
            one.series.name
            for one in data.series
            if one.measured_rounds and not (one.drift["kind"] == "curve").any()
        ),
        "chip": escape(data.facts.get("chip") or view.number.unknown),
        "temperatures": view.number.names(view.number.short(value) for value in temperatures),
        "prompts": [
            {
                "series": code(one.name),
                "count": workload.dialogues,
                "shown": view.number.integer(workload.dialogues),
            }
            for one, workload in cut
        ],
        "left_out": left_out(data, view),
        "replayed": [code(one.name) for one in recorded],
        "recorded": bool(recorded),
        "texts": view.names(
            sorted({privacy.redact(workload.text, Path.cwd()) for _, workload in cut})
        ),
        "blocks": "; ".join(
            f"{view.blocks(sizes)} ({code(mode)})" for mode, sizes in sorted(asked.items())
        ),
        "turns": view.number.names(
            view.number.integer(turns)
            for turns in sorted({workload.turns for _, workload in cut if workload.turns > 1})
        ),
        "edited": any(getattr(workload, "history", "exact") != "exact" for _, workload in cut),
        "sessions": [
            {
                "series": code(one.series.name),
                "count": one.sessions,
                "shown": view.number.integer(one.sessions),
            }
            for one in data.series
            if one.sessions
        ],
    }


def _appendix(data: Data, view: View) -> Context:
    return {
        "series": [
            [
                code(one.series.name),
                f"`{one.series.fingerprint}`",
                view.number.integer(len(one.measured_rounds)),
                view.number.integer(one.series.workload.seed),
            ]
            for one in data.measured
        ],
        "first": view.number.time(data.first),
        "last": view.number.time(data.last),
        "measured": data.first is not None,
        "machine": code(data.machine),
        "campaign": code(data.campaign),
        "protocol": view.number.integer(plan.PROTOCOL),
        "confidence": view.number.percent(CONFIDENCE),
    }


SECTIONS: tuple[tuple[str, Fill], ...] = (
    ("decision", _decision),
    ("reading", _reading),
    ("machine", _machine),
    ("series", each_series),
    ("quality", quality.section),
    ("stacking", stacking),
    ("acceptance", acceptance),
    ("kinds", kinds),
    ("blocks", blocks),
    ("switches", switches),
    ("upstream", upstream),
    ("drift", _drift),
    ("settled", settled),
    ("not_measured", _not_measured),
    ("published", re_measured),
    ("excluded", _excluded_rows),
    ("appendix", _appendix),
)
"""(template without `.md.j2`, what fills it), in the order of the article."""
