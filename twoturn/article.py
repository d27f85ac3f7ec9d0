"""The article: one set of data, one template per section, one text per language.

`gather` collects what a campaign has to tell, as raw numbers and names; it reads no file and knows
no language. `render` puts it into words. A section is a template in `workflow/templates/` and one
function here that fills it, both named in SECTIONS; a function that returns None leaves its section
out. Verbs of comparison come from `claims` alone; the templates hold none, and no number either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import jinja2
import numpy as np
import pandas as pd
import pyarrow as pa

from twoturn import claims as claim_texts
from twoturn import config, contrasts, i18n, plan
from twoturn.campaign import Loaded
from twoturn.claims import N_
from twoturn.numbers import NO_BREAK_SPACE, Formatter, finite
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.verdict import MARGIN

Row: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, float | None]

TEMPLATES = i18n.ROOT / "workflow" / "templates"
SHORT_HASH = 12
DEMO = PurePosixPath("checkpoints/demo")
"""Where the embedded demo model lies; its card is the README.md there."""

VERSIONS_TOLD = ("mlx", "mlx-lm", "mlx-vlm", "transformers")
"""Packages of a server's environment that an article names."""


# The data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """Whether the arms wrote the same. `differing`: (arm, requests that differ from the
    reference's, requests compared, first such request as (round, prompt, turn), its first
    differing character or None). `requests`: how many were written by every arm."""

    requests: int
    all_same: bool
    differing: tuple[tuple[str, int, int, tuple[int, str, int], int | None], ...]


@dataclass(frozen=True)
class Accepted:
    """Speculation of one arm in one turn, over all valid requests; None where not reported."""

    arm: plan.Arm
    turn: int
    requests: int
    accept_length: float | None
    accept_rate: float | None
    effective_block_size: float | None


@dataclass(frozen=True)
class SeriesData:
    """All that is known about one series. `values`: arm → median over its rounds, per column."""

    series: plan.Series
    measured_rounds: tuple[int, ...]
    missing_rounds: tuple[int, ...]
    has_control: bool
    sessions: int
    versions: Mapping[str, tuple[str, ...]]
    values: Mapping[str, Values]
    texts: Texts
    accepted: tuple[Accepted, ...]
    contrasts: tuple[Row, ...]
    claims: tuple[Row, ...]
    drift: pd.DataFrame
    unreported_cache: tuple[str, ...]
    figure: str | None


@dataclass(frozen=True)
class Excluded:
    """Requests that enter no contrast, alike in all but their place."""

    series: str
    arm: str
    kind: str
    status: str
    reason: str | None
    rounds: tuple[int, ...]
    requests: int


@dataclass(frozen=True)
class Checkpoint:
    name: str
    recipe: Mapping[str, Any]
    toy: bool


@dataclass(frozen=True)
class Data:
    """What an article tells. `first` and `last` are the starts of the first and last request."""

    campaign: str
    name: str | None
    machine: str
    facts: Mapping[str, Any]
    first: datetime | None
    last: datetime | None
    requests: int
    series: tuple[SeriesData, ...]
    excluded: tuple[Excluded, ...]
    checkpoints: tuple[Checkpoint, ...]


def gather(
    loaded: Loaded,
    cells: pd.DataFrame,
    contrast_table: pa.Table,
    claim_table: pa.Table,
    figures: Mapping[str, str],
) -> Data:
    """What there is to tell about a campaign. Pure.

    cells: the joined table, of any length, chunk times not needed. figures: series → link from the
    article to its picture of the slots, only where there is one.
    """
    names = {series.name for series in loaded.plan.series}
    cells = cells[cells["series"].isin(names)]
    started = pd.to_datetime(cells["started_at"], utc=True, errors="coerce").dropna()
    return Data(
        campaign=Path(loaded.file).name,
        name=loaded.plan.name,
        machine=loaded.plan.machine,
        facts=loaded.plan.facts,
        first=_moment(started.min()) if len(started) else None,
        last=_moment(started.max()) if len(started) else None,
        requests=len(cells),
        series=tuple(
            _series_data(
                series,
                cells[cells["series"] == series.name],
                [row for row in contrast_table.to_pylist() if row["series"] == series.name],
                [row for row in claim_table.to_pylist() if row["series"] == series.name],
                figures.get(series.name),
            )
            for series in loaded.plan.series
        ),
        excluded=tuple(_excluded(cells)),
        checkpoints=tuple(
            Checkpoint(name, recipe, _is_demo(name, loaded.campaign))
            for name, recipe in loaded.recipes["checkpoints"].items()
        ),
    )


def _moment(value: pd.Timestamp) -> datetime:
    moment: datetime = value.to_pydatetime().astimezone(UTC)
    return moment


def _series_data(
    series: plan.Series,
    rows: pd.DataFrame,
    contrast_rows: Sequence[Row],
    claim_rows: Sequence[Row],
    figure: str | None,
) -> SeriesData:
    planned = {arm.name for arm in series.arms}
    numbered = rows[(rows["kind"] == "round") & rows["round"].isin(list(series.round_numbers()))]
    valid = numbered[numbered["status"] == "ok"]
    whole = {
        number
        for number in series.round_numbers()
        if planned <= set(numbered.loc[numbered["round"] == number, "arm"])
    }
    return SeriesData(
        series=series,
        measured_rounds=tuple(sorted(whole)),
        missing_rounds=tuple(number for number in series.round_numbers() if number not in whole),
        has_control=bool((rows["kind"] == "control").any()),
        sessions=int(numbered["session_id"].nunique()),
        versions={
            str(server): tuple(sorted(set(part["server_version"])))
            for server, part in rows.groupby("server")
        },
        values=_values(numbered),
        texts=_texts(valid, series),
        accepted=tuple(_accepted(valid, series)),
        contrasts=tuple(contrast_rows),
        claims=tuple(claim_rows),
        drift=contrasts.drift(rows, series),
        unreported_cache=tuple(
            arm.name
            for arm in series.arms
            if (valid["arm"] == arm.name).any()
            and valid.loc[valid["arm"] == arm.name, "cached_tokens"].isna().all()
        ),
        figure=figure if len(numbered) else None,
    )


def _total(rows: pd.DataFrame, column: str) -> float:
    """Sum of a column, NaN if one of its values is not known."""
    values = pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return float(values.sum())


def _quotient(above: float, below: float, plus: float = 0) -> float | None:
    return finite(plus + above / below) if below else None


def _effective_block(rows: pd.DataFrame) -> float | None:
    """1 + Σ drafted_tokens ÷ Σ verify_cycles."""
    return _quotient(_total(rows, "drafted_tokens"), _total(rows, "verify_cycles"), plus=1)


def _second_turn(column: str) -> Callable[[pd.DataFrame], float | None]:
    def value(rows: pd.DataFrame) -> float | None:
        found = pd.to_numeric(rows.loc[rows["turn"] == 2, column], errors="coerce")
        return None if found.isna().any() or found.empty else finite(found.median())

    return value


VALUES: dict[str, Callable[[pd.DataFrame], float | None]] = {
    **contrasts.SLOT_VALUES,
    "effective_block_size": _effective_block,
    "turn2_cached_tokens": _second_turn("cached_tokens"),
    "turn2_prompt_tokens": _second_turn("prompt_tokens"),
}
"""The value of one slot, per column of the tables of results."""


def _values(rows: pd.DataFrame) -> dict[str, Values]:
    """Arm → column → median over the slots whose requests are all valid and report it."""
    found: dict[str, dict[str, list[float]]] = {}
    for (arm, _, _), slot in rows.groupby(["arm", "round", "session_id"], sort=False):
        if (slot["status"] != "ok").any():
            continue
        columns = found.setdefault(str(arm), {name: [] for name in VALUES})
        for name, value in VALUES.items():
            if (number := finite(value(slot))) is not None:
                columns[name].append(number)
    return {
        arm: {name: float(np.median(values)) if values else None for name, values in all_.items()}
        for arm, all_ in found.items()
    }


def _texts(valid: pd.DataFrame, series: plan.Series) -> Texts:
    """Compares the hashes of the answers, request by request."""
    planned = {arm.name for arm in series.arms}
    complete, all_same = 0, True
    compared: dict[str, int] = {}
    differing: dict[str, list[tuple[tuple[int, str, int], int | None]]] = {}
    for key, request in valid.groupby(["round", "prompt_id", "turn"]):
        where = _place(key)
        by_arm = request.set_index("arm")
        known = by_arm["output_sha256"].dropna()
        complete += planned <= set(known.index)
        all_same = all_same and planned <= set(known.index) and known.nunique() == 1
        if series.reference not in known.index:
            continue
        for arm in known.index.drop(series.reference):
            compared[arm] = compared.get(arm, 0) + 1
            if known[arm] != known[series.reference]:
                place = finite(by_arm.loc[arm, "divergence_index"])
                differing.setdefault(arm, []).append((where, None if place is None else int(place)))
    return Texts(
        requests=int(complete),
        all_same=bool(complete) and all_same,
        differing=tuple(
            (arm.name, len(differing[arm.name]), compared[arm.name], *differing[arm.name][0])
            for arm in series.arms
            if arm.name in differing
        ),
    )


def _place(key: Any) -> tuple[int, str, int]:
    number, prompt, turn = key
    return int(number), str(prompt), int(turn)


def _accepted(valid: pd.DataFrame, series: plan.Series) -> Iterable[Accepted]:
    for arm in series.arms:
        if arm.speculation == "none":
            continue
        mine = valid[valid["arm"] == arm.name]
        for turn in sorted({int(turn) for turn in mine["turn"]}):
            rows = mine[mine["turn"] == turn]
            cycles, accepted = _total(rows, "verify_cycles"), _total(rows, "accepted_tokens")
            yield Accepted(
                arm=arm,
                turn=turn,
                requests=len(rows),
                accept_length=_quotient(accepted, cycles, plus=1),
                accept_rate=_quotient(accepted, _total(rows, "drafted_tokens")),
                effective_block_size=_effective_block(rows),
            )


def _excluded(cells: pd.DataFrame) -> Iterable[Excluded]:
    faulty = cells[cells["status"] != "ok"]
    alike = ["series", "arm", "kind", "status", "reason"]
    for key, rows in faulty.groupby(alike, dropna=False, sort=False):
        series, arm, kind, status, reason = key
        yield Excluded(
            series=str(series),
            arm=str(arm),
            kind=str(kind),
            status=str(status),
            reason=reason if isinstance(reason, str) and reason else None,
            rounds=tuple(sorted({int(number) for number in rows["round"]})),
            requests=len(rows),
        )


def _is_demo(name: str, campaign: config.Campaign) -> bool:
    """Whether a checkpoint is the embedded demo model, or made from it."""
    entry = campaign.checkpoints[name]
    if entry.make is not None:
        return _is_demo(entry.make.from_, campaign)
    return entry.path is not None and PurePosixPath(entry.path).is_relative_to(DEMO)


# Words --------------------------------------------------------------------------------------------

KINDS = {"round": N_("round"), "warmup": N_("warm-up"), "control": N_("control")}
ROLES = {"reference": N_("reference"), "null": N_("null arm")}
NO_SPECULATION = N_("none")
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
        return self.words.gettext(claim_texts.METRICS[name]) if name else ""

    def title(self, metric: str) -> str:
        """The metric with its unit, as a head of a row."""
        text = self.metric(metric)
        unit = "tok/s" if metric.endswith("_tok_s") else "s" if metric.endswith("_s") else ""
        return text[:1].upper() + text[1:] + (f", {unit}" if unit else "")

    def value(self, metric: str, value: float | None) -> str:
        """A value of a metric or column, without its unit."""
        if metric.endswith("_s"):
            return self.number.seconds(value)
        return (self.number.integer if metric.endswith("_tokens") else self.number.mean)(value)

    def verdict(self, verdict: str) -> str:
        return self.words.gettext(claim_texts.VERDICTS[verdict])

    def kind(self, kind: str) -> str:
        return self.words.gettext(KINDS[kind]) if kind in KINDS else code(kind)

    def names(self, names: Iterable[str]) -> str:
        return self.number.names(code(name) for name in names)

    def speculation(self, arm: plan.Arm) -> str:
        none = arm.speculation == "none"
        return self.words.gettext(NO_SPECULATION) if none else code(arm.speculation)

    def tokens(self, count: int) -> str:
        text = self.words.ngettext("%(shown)s token", "%(shown)s tokens", count)
        return (text % {"shown": self.number.integer(count)}).replace(" ", NO_BREAK_SPACE)

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
            "ratio": self.number.ratio,
            "percent": self.number.percent,
            "count": self.number.integer,
            "name": lambda name: code(name) if name else self.number.unknown,
            "names": self.names,
            "metric": self.metric,
            "reason": self.reason,
        }
        return tell[kind](value)


# The sections -------------------------------------------------------------------------------------

Context: TypeAlias = dict[str, Any]
Fill: TypeAlias = Callable[[Data, View], Context | list[Context] | None]


def _decision(data: Data, view: View) -> Context:
    decisions = []
    for one in data.series:
        rows = [row for row in one.claims if row["section"] == "decision"]
        rows.sort(key=lambda row: not row["claim"].endswith("/headline"))
        decisions.append([view.claim(row) for row in rows])
    return {
        "name": code(data.name) if data.name else "",
        "decisions": [some for some in decisions if some],
        "single": [code(one.series.name) for one in data.series if len(one.series.arms) < 2],
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
            [code(one.name), _origin(one.recipe, view), f"`{_pin(one.recipe)}`"]
            for one in data.checkpoints
        ],
        "cpu": data.facts.get("accelerator") == "cpu",
        "toys": view.names(one.name for one in data.checkpoints if one.toy),
        "has_toys": any(one.toy for one in data.checkpoints),
        "card": f"`{DEMO}/README.md`",
    }


def _servers(data: Data, view: View) -> list[list[str]]:
    """One row per server: the version in the plan, those in the cells, packages that matter."""
    rows: dict[str, list[str]] = {}
    for one in data.series:
        for arm in one.series.arms:
            recipe = one.series.spec["arms"][arm.name]["server"]
            packages = recipe.get("packages", {})
            told = [
                f"{name} {packages[name]}"
                for name in VERSIONS_TOLD
                if name in packages and name != arm.server
            ]
            seen = sorted({v for s in data.series for v in s.versions.get(arm.server, ())})
            rows[arm.server] = [
                code(arm.server),
                code(arm.version),
                ", ".join(code(version) for version in seen) or view.number.unknown,
                ", ".join(code(text) for text in told) or view.number.unknown,
            ]
    return list(rows.values())


def _origin(recipe: Mapping[str, Any], view: View) -> str:
    if "repo" in recipe:
        return code(recipe["repo"])
    if "from" in recipe:
        text = view.words.gettext("made from %(source)s, bits per weight: %(bits)s")
        bits = view.number.integer(recipe["bits"])
        return text % {"source": _origin(recipe["from"], view), "bits": bits}
    return view.words.gettext("files on disk")


def _pin(recipe: Mapping[str, Any]) -> str:
    """What pins a checkpoint, shortened: commit or hash of its files."""
    if "from" in recipe:
        return _pin(recipe["from"])
    return str(recipe.get("revision") or recipe.get("files_sha256") or "")[:SHORT_HASH]


def _series_section(one: SeriesData, view: View) -> Context:
    series, workload = one.series, one.series.workload
    conversation = workload.kind == "conversation"
    columns = CONVERSATION if conversation else CHAT
    return {
        "name": code(series.name),
        "conversation": conversation,
        "prompts": workload.prompts,
        "shown_prompts": view.number.integer(workload.prompts),
        "turns": workload.turns,
        "shown_turns": view.number.integer(workload.turns),
        "prompt_tokens": view.tokens(workload.prompt_tokens),
        "turn_tokens": view.tokens(workload.turn_tokens),
        "answer_tokens": view.tokens(workload.max_tokens),
        "temperature": view.number.short(workload.temperature),
        "rounds": view.number.integer(len(one.measured_rounds)),
        "planned": view.number.integer(series.rounds),
        "arms": [_arm_row(arm, series, view) for arm in series.arms],
        "results": _results(one, view, columns),
        "result_head": [
            view.words.gettext("Arm"),
            *(view.words.gettext(text) for text in columns.values()),
        ],
        "sentences": _sentences(one, view),
        "contrasts": _contrast_rows(one, view),
        "confidence": view.number.percent(CONFIDENCE),
        "reference": code(series.reference),
        "alone": len(series.arms) < 2,
        **_texts_told(one, view),
        "unreported": view.names(one.unreported_cache) if one.unreported_cache else "",
    }


CHAT = {
    "decode_tok_s": N_("Decoding, tok/s"),
    "ttft_s": N_("TTFT, s"),
    "accept_length": N_("Accept length"),
    "effective_block_size": N_("Effective block"),
}
CONVERSATION = {
    "conversation_s": N_("Conversation, s"),
    "ttft_s": N_("TTFT of the first turn, s"),
    "turn2_ttft_s": N_("TTFT of the second turn, s"),
    "turn2_prompt_tokens": N_("Prompt of the second turn, tokens"),
    "turn2_cached_tokens": N_("Of these from the cache"),
    "decode_tok_s": N_("Decoding, tok/s"),
    "accept_length": N_("Accept length"),
    "effective_block_size": N_("Effective block"),
}
"""Columns of the tables of results."""

SPECULATIVE = ("accept_length", "effective_block_size")


def _arm_row(arm: plan.Arm, series: plan.Series, view: View) -> list[str]:
    role = "reference" if arm.name == series.reference else "null" if arm.null else None
    settings = [f"{key}: {_setting(value)}" for key, value in sorted(arm.settings.items())]
    return [
        code(arm.name) + (f" ({view.words.gettext(ROLES[role])})" if role else ""),
        code(arm.checkpoint),
        code(arm.server),
        view.speculation(arm),
        view.number.integer(arm.block_size) if arm.block_size is not None else "–",
        code(arm.draft) if arm.draft else "–",
        ", ".join(code(text) for text in [*settings, *arm.args]) or "–",
    ]


def _setting(value: Any) -> str:
    """As it stands in the campaign file."""
    return plan.canonical(value).strip('"')


def _results(one: SeriesData, view: View, columns: Mapping[str, str]) -> list[list[str]]:
    return [
        [
            code(arm.name),
            *(
                "–"
                if arm.speculation == "none" and column in SPECULATIVE
                else view.value(column, one.values[arm.name][column])
                for column in columns
            ),
        ]
        for arm in one.series.arms
        if arm.name in one.values
    ]


def _sentences(one: SeriesData, view: View) -> list[str]:
    """The claims of the series; where all are silent for one reason, that is told once."""
    own = [row for row in one.claims if row["section"] in ("chat", "conversation")]
    if own and all(row["ratio"] is None for row in own):
        told = {view.claim(row) for row in own}
        if len({row["reason"] for row in own}) == 1 and len(told) > 1:
            own = [row for row in one.claims if row["claim"].endswith("/headline")] or own
    return [view.claim(row) for row in own]


def _contrast_rows(one: SeriesData, view: View) -> list[list[str]]:
    if all(row["ratio"] is None for row in one.contrasts):
        return []  # the sentences say why
    return [
        [
            view.title(row["metric"]).partition(",")[0],
            code(row["arm"]),
            *(
                ("–", "–", view.verdict(row["verdict"]), "–")
                if row["ratio"] is None
                else (
                    view.number.ratio(row["ratio"]),
                    f"{view.number.ratio(row['ci_low'])}–{view.number.ratio(row['ci_high'])}",
                    view.verdict(row["verdict"]),
                    view.number.integer(row["rounds"]),
                )
            ),
            view.note(row["warnings"]) or "–",
        ]
        for row in one.contrasts
    ]


def _texts_told(one: SeriesData, view: View) -> Context:
    differing = [
        {
            "arm": code(arm),
            "count": count,
            "shown": view.number.integer(count),
            "compared": view.number.integer(compared),
            "round": view.number.integer(number),
            "prompt": code(prompt),
            "turn": view.number.integer(turn),
            "place": None if place is None else view.number.integer(place + 1),
        }
        for arm, count, compared, (number, prompt, turn), place in one.texts.differing
    ]
    return {
        "same_text": one.texts.all_same,
        "text_requests": one.texts.requests,
        "shown_requests": view.number.integer(one.texts.requests),
        "differing": differing,
    }


def _acceptance(data: Data, view: View) -> Context | None:
    speculative = [
        arm for one in data.series for arm in one.series.arms if arm.speculation != "none"
    ]
    if not speculative:
        return None
    example = next((arm.block_size for arm in speculative if arm.block_size), None)
    return {
        "block": "" if example is None else view.number.integer(example),
        "drafted": "" if example is None else view.tokens(example - 1),
        "rows": [
            [
                code(one.series.name),
                code(row.arm.name),
                view.number.integer(row.turn),
                "–" if row.arm.block_size is None else view.number.integer(row.arm.block_size),
                view.number.mean(row.effective_block_size),
                view.number.mean(row.accept_length),
                view.number.percent(row.accept_rate),
                view.number.integer(row.requests),
            ]
            for one in data.series
            for row in one.accepted
        ],
    }


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
        first, last = (
            (curve["fitted"].iloc[0], curve["fitted"].iloc[-1]) if len(curve) else (None, None)
        )
        last_row: Mapping[Any, Any] = control.iloc[0].to_dict() if len(control) else {}
        rows.append(
            [
                view.title(metric),
                view.value(metric, finite(slots["value"].iloc[0])),
                view.number.ratio(None if first is None else last / first),
                view.value(metric, finite(last_row.get("value"))),
                view.number.ratio(last_row.get("ratio_to_first")),
                view.number.ratio(last_row.get("ratio_to_fitted")),
            ]
        )
    name = one.series.name
    return {
        "series": code(name),
        "plain_series": escape(name),
        "figure": one.figure,
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
                code(row.status),
                code(row.reason) if row.reason else view.number.unknown,
            ]
            for row in data.excluded
        ],
    }


def _not_measured(data: Data, view: View) -> Context:
    series = [one.series for one in data.series]
    blocks = sorted(
        {
            (arm.speculation, arm.block_size)
            for one in series
            for arm in one.arms
            if arm.block_size is not None
        }
    )
    temperatures = sorted({one.workload.temperature for one in series})
    return {
        "unmeasured": view.names(one.series.name for one in data.series if not one.measured_rounds),
        "missing": [
            {
                "series": code(one.series.name),
                "rounds": view.number.numbers(one.missing_rounds),
            }
            for one in data.series
            if one.measured_rounds and one.missing_rounds
        ],
        "without_control": view.names(
            one.series.name for one in data.series if one.measured_rounds and not one.has_control
        ),
        "without_null": view.names(
            one.series.name for one in data.series if one.series.null_arm is None
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
                "count": one.workload.prompts,
                "shown": view.number.integer(one.workload.prompts),
            }
            for one in series
        ],
        "texts": view.names(sorted({one.workload.text for one in series})),
        "blocks": view.number.names(
            f"{view.number.integer(size)} ({code(mode)})" for mode, size in blocks
        ),
        "turns": view.number.names(
            view.number.integer(turns)
            for turns in sorted({one.workload.turns for one in series if one.workload.turns > 1})
        ),
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
            for one in data.series
        ],
        "first": view.number.time(data.first),
        "last": view.number.time(data.last),
        "measured": data.first is not None,
        "machine": code(data.machine),
        "campaign": code(data.campaign),
        "protocol": view.number.integer(plan.PROTOCOL),
        "confidence": view.number.percent(CONFIDENCE),
    }


def _each_series(data: Data, view: View) -> list[Context]:
    return [_series_section(one, view) for one in data.series]


SECTIONS: tuple[tuple[str, Fill], ...] = (
    ("decision", _decision),
    ("reading", _reading),
    ("machine", _machine),
    ("series", _each_series),
    ("acceptance", _acceptance),
    ("drift", _drift),
    ("excluded", _excluded_rows),
    ("not_measured", _not_measured),
    ("appendix", _appendix),
)
"""(template without `.md.j2`, what fills it), in the order of the article."""


def render(language: str, data: Data) -> str:
    """The article as Markdown. Raises UserError where a translation is missing."""
    view = View(language)
    templates = _environment(view)
    parts = [metadata(data)]
    for name, fill in SECTIONS:
        filled = fill(data, view)
        contexts = filled if isinstance(filled, list) else [filled] if filled is not None else []
        template = templates.get_template(f"{name}.md.j2")
        parts += [template.render(context) for context in contexts]
    text = "\n\n".join(part.strip() for part in parts)
    text = re.sub(r"^((?:#|!\[).*)$", r"\n\1\n", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def metadata(data: Data) -> str:
    """The comment that opens every article, the same in all languages."""
    first, last = (
        moment.strftime("%Y-%m-%dT%H:%MZ") if moment else "" for moment in (data.first, data.last)
    )
    facts = {
        "campaign": data.name or data.campaign,
        "fingerprints": ", ".join(
            f"{one.series.name} {one.series.fingerprint}" for one in data.series
        ),
        "measured": f"{first}/{last}" if first else "nothing",
    }
    text = "; ".join(f"{key}: {value}" for key, value in facts.items())
    return "<!-- " + re.sub(r"-(?=-)|(?<=-)-|>", "_", text) + " -->"


def _environment(view: View) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown: names are escaped where they enter
    )
    environment.policies["ext.i18n.trimmed"] = True
    words = view.words
    environment.install_gettext_callables(  # type: ignore[attr-defined]
        words.gettext,
        words.ngettext,
        newstyle=True,
        pgettext=words.pgettext,
        npgettext=words.npgettext,
    )
    environment.globals["table"] = view.table
    return environment
