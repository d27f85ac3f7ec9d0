"""From verdicts to claims: which sentence of `claims.yaml` may be said, and with which numbers.

A claim is a msgid with named placeholders, the numbers for it, and the contrasts that it rests on.
Numbers stay raw; `sentence_fields` tells a formatter of any language what to put where. `effect`
and every interval in a sentence are "times as fast": more than 1 favours the arm that is named
first, for rates and for times alike. Words without a comparison stand here, found by gettext's
extraction through the marker `N_`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from datetime import date
from typing import Any, Literal

import pyarrow as pa

from twoturn import claim_kinds, config, quality
from twoturn.claim_kinds import kind_of, placeholders
from twoturn.contrasts import BESIDE_BEST, BEST_BLOCK, PROMPTS, claimable, null_arm_state, squares
from twoturn.contrasts import of_series as contrasts_of
from twoturn.matrix import SeriesLike, block, sweeps
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.paired import MARGIN as QUALITY_MARGIN
from twoturn.stats.verdict import MARGIN, STACKING, Verdict, times_as_fast

SCHEMA = pa.schema(
    [
        pa.field("claim", pa.string(), nullable=False),
        pa.field("section", pa.string(), nullable=False),
        pa.field("series", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("reference", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("ratio", pa.float64()),
        pa.field("ci_low", pa.float64()),
        pa.field("ci_high", pa.float64()),
        pa.field("contrasts", pa.list_(pa.string()), nullable=False),
        pa.field("published_value", pa.float64()),
        pa.field("measured_value", pa.float64()),
        pa.field("measured_on", pa.string()),
        pa.field("msgid", pa.string(), nullable=False),
        pa.field("effect", pa.float64()),
        pa.field("second_effect", pa.float64()),
        pa.field("missed_low", pa.float64()),
        pa.field("missed_high", pa.float64()),
        pa.field("rounds", pa.int64()),
        pa.field("prompts", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("tasks", "passed", "passed_reference")),
        *(pa.field(name, pa.float64()) for name in ("points", "points_low", "points_high")),
        pa.field("reason", pa.string()),
        pa.field("warnings", pa.list_(pa.string()), nullable=False),
        pa.field("arms", pa.list_(pa.string()), nullable=False),
        pa.field("blocks", pa.list_(pa.string()), nullable=False),
    ],
    metadata={"schema_version": "1"},
)
"""results/claims.parquet.

claim: `series/metric/arm`, `series/trade/arm`, `series/withheld/arm`, `series/null_arm`,
    `series/headline`, and `series/earlier/metric/arm` of a measurement with other versions than
    today's.
section: decision | reading | conversation | chat | stacking | blocks | quality.
verdict: that of the contrast; better | worse | same | unresolved of quality; `trade` for a trade;
    worse for an arm that is withheld; for a headline faster if an arm is, worse if no such arm may
    be named, else what all its contrasts share, or unresolved, and without numbers what the first
    of them is; passed | failed | unchecked | absent for a null arm; of the other block sizes beside
    the chosen one apart, or alike where one of them cannot be called slower.
ratio, ci_low, ci_high: arm ÷ reference, as in the contrast; measured_value: "times as fast".
effect (≥ 1): how many times as fast the faster of the two is (faster, slower, trade).
second_effect (≥ 1): the same for decoding, in a trade.
missed_low, missed_high: "times as fast" that an unresolved contrast leaves open; for a null arm
    that passed, how far its intervals reach.
reason: the code of a claim without numbers; warnings: the codes of a contrast with numbers.
arms: the arms that a headline names; of a claim about stacking the two with one change each; of
    one about block sizes those it was chosen from; of those beside the chosen one the arms that
    cannot be called slower, or, where there are none, all of them.
blocks: the blocks of the arms that may be as good as the chosen one, its own among them.
tasks, passed, passed_reference: of a claim about quality, how many tasks there are and how many the
    arm and the reference pass; points, points_low, points_high: the difference of the shares that
    pass, in percentage points, with its interval.
prompts: how many a claim about prompts like these rests on.
measured_on: JSON of what an earlier measurement was made with: date, versions, fingerprint.
"""

Kind = Literal[
    "ratio",
    "percent",
    "points",
    "name",
    "names",
    "metric",
    "reason",
    "count",
    "tokens",
    "date",
    "blocks",
]
"""How a formatter treats a value: ratio 1.35 without a sign, percent 0.99 as 99 %, points
percentage points with one decimal, name as it is, tokens with that word, names a tuple joined by
the language's "and", metric and reason through METRICS and REASONS, date a `datetime.date`, blocks
a tuple of sizes and `matrix.ADAPTIVE`, as texts."""


def N_(message: str) -> str:
    """Mark a message for extraction; it is translated where it is printed."""
    return message


METRICS = {
    "decode_tok_s": N_("decode speed"),
    "prefill_tok_s": N_("prefill speed"),
    "ttft_s": N_("time to the first token"),
    "turn2_ttft_s": N_("time to the first token of the second turn"),
    "conversation_s": N_("time for the whole conversation"),
    "turns_ttft_s": N_("time to the first tokens of all turns together"),
    "accept_length": N_("accept length"),
    quality.METRIC: N_("quality of the answers"),
    STACKING: N_("stacking of the decode speed"),
    f"{BEST_BLOCK}:decode_tok_s": N_("decode speed of the chosen block size"),
    f"{BEST_BLOCK}:conversation_s": N_(
        "time for the whole conversation with the chosen block size"
    ),
    f"{PROMPTS}:decode_tok_s": N_("decode speed for prompts like these"),
    f"{PROMPTS}:ttft_s": N_("time to the first token for prompts like these"),
    f"{PROMPTS}:turn2_ttft_s": N_(
        "time to the first token of the second turn for prompts like these"
    ),
    f"{PROMPTS}:turns_ttft_s": N_(
        "time to the first tokens of all turns together for prompts like these"
    ),
    f"{PROMPTS}:conversation_s": N_("time for the whole conversation with prompts like these"),
}

REASONS = {
    "other_fingerprint": N_("its cells were measured with other versions or settings"),
    "unknown_arm": N_("it holds cells of an arm that is not in the plan"),
    "duplicate_rows": N_("a request appears twice in its cells"),
    "no_time": N_("the start time of a request is not known"),
    "clock_backwards": N_("the machine's clock was set back during the measurement"),
    "order_broken": N_("the cells were not measured in the planned order"),
    "slots_overlap": N_("two cells were measured at the same time"),
    "versions_differ": N_("one arm was measured with two versions of its server"),
    "null_arm_differs": N_(
        "the null arm, a second copy of the reference, came out different on: {detail}"
    ),
    "censored": N_("{detail} did not finish within the time limit of the client"),
    "wrong_when_warm": N_(
        "{detail} wrote, once its server was warm, another text than a fresh server writes"
    ),
    "too_long": N_("{detail} cannot hold a prompt of this length"),
    "row_not_ok": N_("a request failed with the status {detail}"),
    "rows_missing": N_("a request that the other cells hold is missing"),
    "no_value": N_("a cell does not report what the metric needs"),
    "bad_value": N_("a value is not a positive number"),
    "prompts_differ": N_("the servers counted prompts of different length"),
    "lengths_differ": N_("the outputs differ in length"),
    "cold_not_provable": N_(
        "a server that was already running may have known a prompt: a cold cache cannot be proved"
    ),
    "template_breaks_prefix": N_(
        "the chat template of {detail} changes what came before, so that the second turn does not "
        "begin with the first, whatever the engine can do"
    ),
    "incomplete": N_("not all planned rounds are measured"),
    "too_few_rounds": N_("there are fewer than four rounds"),
    "too_few_to_choose": N_(
        "some rounds choose and at least four others tell, and there are not so many"
    ),
    "odd_rounds": N_("the number of rounds is odd"),
    "collinear": N_("the order of the cells does not tell the arms from the drift"),
    "too_few_slots": N_("there are too few cells for so many sessions"),
    "tasks_differ": N_("not every task has a score of both"),
    "too_few_tasks": N_("there are too few tasks"),
    "no_safetensors": N_("its weights are in no format that mlx_lm reads"),
    "cannot_load": N_("mlx_lm cannot load it"),
    "other_tokens": N_("its tokenizer is another"),
    "too_large": N_("unpacked, its weights do not fit into this machine's memory"),
    "not_finite": N_("it gives probabilities that are no numbers"),
    "no_noise": N_("the values show no noise at all, so they are not measurements"),
    "not_measured": N_("it is not measured yet"),
}
"""Reason codes of contrasts in words; every text follows "because"."""

WARNINGS = {
    "several_sessions": N_("measured in more than one session"),
    "strong_drift": N_("the speed of the machine drifted strongly during the series"),
    "hl_disagrees": N_("the robust cross-check points the other way"),
    "cache_counter_suspect": N_("a count of cached tokens does not agree with the clock"),
    "null_arm_unchecked": N_("the null arm could not be checked"),
}
"""Warning codes of valid contrasts in words."""

ADAPTIVE_BLOCK = N_("adaptive")

HEADLINES = ("conversation_s", "decode_tok_s")
"""Metrics that decide a series, the first of them that it has; else its longest prompt does that
is compared."""

Row = dict[str, Any]


def from_contrasts(
    contrasts: pa.Table,
    series_list: Iterable[SeriesLike],
    *,
    published: Mapping[str, float] | None = None,
    measured_on: Mapping[str, str] | None = None,
    scores: pa.Table | None = None,
) -> pa.Table:
    """The claims (SCHEMA) of all series, in the order of the series and of their contrasts.

    published: claim id → "times as fast" that an earlier article printed. measured_on: fingerprint
    → JSON of what was measured with it, see SCHEMA. Contrasts of another fingerprint than the
    series' are told as earlier ones where it says when that was; they enter nothing else. scores: a
    table of `quality.SCHEMA`; no headline recommends a faster arm whose answers are worse. A series
    of one arm has no claims. Raises UserError if `claims.yaml` is not whole.
    """
    rows, on, planned = contrasts.to_pylist(), measured_on or {}, list(series_list)
    scored = quality.SCHEMA.empty_table() if scores is None else scores
    worse = quality.worse(planned, scored)
    found: list[Row] = []
    for series in planned:
        own = contrasts_of(rows, series)
        claims = _series_claims(own, series, worse.get(series.name, frozenset()))
        claims += [_score(row, series) for row in contrasts_of(scored.to_pylist(), series)]
        found += [{**claim, "measured_on": on.get(series.fingerprint)} for claim in claims]
        earlier = [row for row in rows if _is_earlier(row, series) and row["fingerprint"] in on]
        found += [
            {**_earlier(row, series), "measured_on": on[row["fingerprint"]]} for row in earlier
        ]
    for claim in found:
        claim["published_value"] = (published or {}).get(claim["claim"])
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _series_claims(own: list[Row], series: SeriesLike, worse: Set[str]) -> list[Row]:
    """What today's contrasts of one series say; `worse`: arms whose answers are."""
    if not own:
        return []
    beside = [row for row in own if kind_of(row["metric"]) == BESIDE_BEST]
    readers = [row for row in own if row["arm"] != series.null_arm and row not in beside]
    found = [claim for row in readers for claim in _with_others(row, beside, series)]
    found += [trade for arm in series.arms if (trade := _trade(readers, series, arm.name))]
    found.append(_null_arm(own, series, null_arm_state(own, series)))
    if readers:
        found.append(_headline(readers, series, worse))
        found += [_withheld(readers, series, arm) for arm in _faster(readers, series) & worse]
    return found


def _score(row: Row, series: SeriesLike) -> Row:
    """The claim of one row of `quality.SCHEMA`; of the reference against itself too."""
    head = {**row, "metric": quality.METRIC}
    points = {"points": "difference", "points_low": "ci_low", "points_high": "ci_high"}
    return {
        **_claim("quality", row["verdict"], f"{quality.METRIC}/{row['arm']}", [head], series),
        **{name: row[name] for name in ("tasks", "passed", "passed_reference")},
        **{name: None if row[of] is None else 100 * row[of] for name, of in points.items()},
        "reason": row["warnings"][0] if row["warnings"] else None,
    }


def _faster(contrasts: list[Row], series: SeriesLike) -> Set[str]:
    """Arms that win on the metric that decides a series."""
    metric = _deciding(contrasts, series)
    return {
        row["arm"]
        for row in contrasts
        if row["metric"] == metric and row["verdict"] == Verdict.FASTER
    }


def _deciding(contrasts: list[Row], series: SeriesLike) -> str | None:
    """The metric that decides a series; of prefill that of the longest prompt that is compared."""
    if found := next((name for name in HEADLINES if name in series.metrics), None):
        return found
    told = [row["metric"] for row in contrasts if row["ratio"] is not None]
    return next((name for name in reversed(series.metrics) if name in told), None)


def _withheld(contrasts: list[Row], series: SeriesLike, arm: str) -> Row:
    """That a faster arm is not recommended, because its answers are worse."""
    pair = claim_kinds.load().kinds["withheld"].contrasts(contrasts, arm=arm)
    return _claim("withheld", "worse", f"withheld/{arm}", pair, series)


def _claim(kind: str, verdict: str, claim: str, rests_on: list[Row], series: SeriesLike) -> Row:
    """A claim without numbers, about the pair of the first contrast that it rests on."""
    first, told = rests_on[0], claim_kinds.load().kinds[kind]
    workload = "conversation" if "conversation_s" in series.metrics else "chat"
    return {
        **{name: None for name in SCHEMA.names},
        **{name: first[name] for name in ("series", "metric", "arm", "reference")},
        "claim": f"{first['series']}/{claim}",
        "section": workload if told.section == "workload" else told.section,
        "verdict": verdict,
        "msgid": told.sentences[verdict],
        "contrasts": [contrast_id(row) for row in rests_on],
        "warnings": [],
        "arms": [],
        "blocks": [],
    }


def contrast_id(contrast: Mapping[str, Any]) -> str:
    """`series/metric/arm/reference`."""
    return "/".join(contrast[part] for part in ("series", "metric", "arm", "reference"))


def _numbers(contrast: Row) -> Row:
    """What a claim takes over from one contrast, and how it is told."""
    verdict = contrast["verdict"]
    same = {name: contrast[name] for name in ("ratio", "ci_low", "ci_high", "rounds")}
    if contrast["ratio"] is None:
        return {**same, "reason": _reason(contrast)}
    ratio, low, high = _fast(contrast)
    return {
        **same,
        "measured_value": ratio,
        "warnings": contrast["warnings"],
        "effect": max(ratio, 1 / ratio) if verdict in ("faster", "slower") else None,
        "missed_low": low if verdict == "unresolved" else None,
        "missed_high": high if verdict == "unresolved" else None,
        "prompts": contrast["df"] + 1 if kind_of(contrast["metric"]) == PROMPTS else None,
    }


def _fast(row: Mapping[str, Any]) -> tuple[float, float, float]:
    return times_as_fast(measure_of(row["metric"]), row["ratio"], row["ci_low"], row["ci_high"])


def measure_of(metric: str) -> str:
    """What a metric is about: the time to the first token of `prompts:ttft_s`."""
    return metric.rpartition(":")[2]


def length_of(metric: str) -> int | None:
    """Tokens of the prompt that a metric is about: 4096 of `prefill_tok_s@4096`."""
    _, _, length = metric.partition("@")
    return int(length) if length else None


def _reason(contrast: Row) -> str:
    return contrast["warnings"][0] if contrast["warnings"] else "not_measured"


def _single(contrast: Row, series: SeriesLike) -> Row:
    """The claim of one contrast."""
    kind = kind_of(contrast["metric"])
    name = f"{contrast['metric']}/{contrast['arm']}"
    among: dict[str, tuple[str, ...]] = {}
    if contrast["metric"] == STACKING:
        among = {square.both: square.single for square in squares(series)}
    elif kind == BEST_BLOCK:
        among = {arm: sweep for sweep in sweeps(series) for arm in sweep}
    return {
        **_claim(kind, contrast["verdict"], name, [contrast], series),
        **_numbers(contrast),
        "arms": among.get(contrast["arm"], ()),
    }


def _with_others(contrast: Row, beside: list[Row], series: SeriesLike) -> list[Row]:
    """The claim of one contrast; of a chosen block size also what the others are beside it."""
    claim = _single(contrast, series)
    if kind_of(contrast["metric"]) != BEST_BLOCK:
        return [claim]
    others = [
        row for row in beside if row["reference"] == contrast["arm"] and row["ratio"] is not None
    ]
    if not others:
        return [claim]
    alike = [row["arm"] for row in others if row["verdict"] != Verdict.SLOWER]
    verdict = "alike" if alike else "apart"
    name = f"{others[0]['metric']}/{contrast['arm']}"
    blocks = {arm.name: str(block(arm)) for arm in series.arms}
    told = {
        "arm": contrast["arm"],
        "arms": alike or [row["arm"] for row in others],
        "blocks": [blocks[arm] for arm in claim["arms"] if arm in (contrast["arm"], *alike)],
        "rounds": others[0]["rounds"],
    }
    return [claim, {**_claim("beside_best", verdict, name, others, series), **told}]


def _is_earlier(row: Row, series: SeriesLike) -> bool:
    """Whether a contrast is told as an earlier one: of an arm with the reference, and measured."""
    return (
        row["series"] == series.name
        and row["fingerprint"] != series.fingerprint
        and row["metric"] == measure_of(row["metric"])
        and row["arm"] != config.null_name(row["reference"])
        and row["verdict"] in claim_kinds.WANTED["earlier"]
    )


def _earlier(contrast: Row, series: SeriesLike) -> Row:
    """The claim of a contrast that was measured with other versions than today's."""
    name = f"earlier/{contrast['metric']}/{contrast['arm']}"
    claim = _claim("earlier", contrast["verdict"], name, [contrast], series)
    return {**claim, **_numbers(contrast)}


def _trade(contrasts: list[Row], series: SeriesLike, arm: str) -> Row | None:
    """The claim of an arm whose conversation and decoding are called opposite ways."""
    pair = claim_kinds.load().kinds["trade"].contrasts(contrasts, arm=arm)
    called = [row["verdict"] for row in pair]
    if sorted(called) != [Verdict.FASTER, Verdict.SLOWER]:
        return None
    whole, decode = pair
    claim = _claim("trade", called[0], f"trade/{arm}", pair, series)
    second = _numbers(decode)["effect"]
    return {**claim, **_numbers(whole), "verdict": "trade", "second_effect": second}


def _null_arm(contrasts: list[Row], series: SeriesLike, state: str) -> Row:
    """What the copy of the reference shows about the whole series."""
    kind = claim_kinds.load().kinds["null_arm"]
    nulls = claimable(kind.contrasts(contrasts, null_arm=series.null_arm or ""))
    claim = _claim("null_arm", state, "null_arm", nulls or contrasts, series)
    claim["metric"] = ""
    if state == "absent":
        return {**claim, "arm": series.reference, "contrasts": []}
    if state == "passed":
        reach = [_fast(row) for row in nulls]
        claim["missed_low"] = min(low for _, low, _ in reach)
        claim["missed_high"] = max(high for _, _, high in reach)
    else:
        claim["reason"] = _reason(next(row for row in nulls if row["ratio"] is None))
        if state == "failed":
            claim["metric"] = claim["reason"].partition(":")[2]
    return claim


def _headline(contrasts: list[Row], series: SeriesLike, worse: Set[str]) -> Row:
    """The series in one sentence; about conversations only if conversations were timed. Arms whose
    answers are `worse` are never recommended."""
    metric = _deciding(contrasts, series)
    kind = f"headline:{kind_of(metric or series.metrics[0])}"
    if kind not in claim_kinds.WANTED:
        kind = f"headline:{HEADLINES[-1]}"
    deciding = claim_kinds.load().kinds[kind].contrasts(contrasts)
    if metric is not None and "@" in metric:
        deciding = [row for row in deciding if row["metric"] == metric]
    judged = [row for row in deciding if row["ratio"] is not None and row["metric"] == metric]
    if not judged:
        silent = deciding or contrasts
        claim = _claim(kind, "silent", "headline", silent, series)
        verdict, reason = silent[0]["verdict"], _reason(silent[0])
        return {**claim, "verdict": verdict, "arm": "", "reason": reason}
    faster = [row["arm"] for row in judged if row["verdict"] == Verdict.FASTER]
    verdicts = {row["verdict"] for row in deciding}
    kept = [arm for arm in faster if arm not in worse]
    if faster and not kept:
        claim = _claim(kind, "worse", "headline", deciding, series)
        return {**claim, "arm": "", "arms": faster}
    verdict = "faster" if faster else verdicts.pop() if len(verdicts) == 1 else "unresolved"
    claim = _claim(kind, verdict, "headline", deciding, series)
    return {**claim, "arm": "", "arms": kept}


# Telling a claim ----------------------------------------------------------------------------------


def verdict_words(verdict: str) -> str:
    """The msgid of a verdict as it stands in tables."""
    return claim_kinds.load().verdicts[verdict]


def sentence_fields(row: Mapping[str, Any]) -> dict[str, tuple[Kind, Any]]:
    """What a formatter puts into a claim's msgid: placeholder → (kind, raw value).

    row is one row of SCHEMA. `low` and `high` are in the sense of the sentence: "times as fast" of
    the arm, or, where the reference is said to be `effect` times as fast, of the reference.
    """
    low, high = _told_interval(row)
    margin = QUALITY_MARGIN if row["metric"] == quality.METRIC else MARGIN
    on = json.loads(row["measured_on"] or "{}")
    fields: dict[str, tuple[Kind, Any]] = {
        "arm": ("name", row["arm"]),
        "reference": ("name", row["reference"]),
        "series": ("name", row["series"]),
        "arms": ("names", tuple(row["arms"])),
        "blocks": ("blocks", tuple(row["blocks"])),
        "metric": ("metric", row["metric"]),
        "measure": ("metric", measure_of(row["metric"])),
        "length": ("tokens", length_of(row["metric"])),
        "effect": ("ratio", row["effect"]),
        "share": ("percent", row["ratio"]),
        "share_low": ("percent", row["ci_low"]),
        "share_high": ("percent", row["ci_high"]),
        "second_effect": ("ratio", row["second_effect"]),
        "low": ("ratio", low),
        "high": ("ratio", high),
        "confidence": ("percent", CONFIDENCE),
        "margin": ("percent", margin),
        "tasks": ("count", row["tasks"]),
        "passed": ("count", row["passed"]),
        "passed_reference": ("count", row["passed_reference"]),
        "points": ("points", row["points"]),
        "points_low": ("points", row["points_low"]),
        "points_high": ("points", row["points_high"]),
        "rounds": ("count", row["rounds"]),
        "prompts": ("count", row["prompts"]),
        "date": ("date", on.get("date") and date.fromisoformat(on["date"])),
        "versions": ("names", tuple(on.get("versions", ()))),
        "fingerprint": ("name", on.get("fingerprint")),
        "reason": ("reason", row["reason"]),
    }
    return {name: fields[name] for name in placeholders(row["msgid"])}


def _told_interval(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    if row["missed_low"] is not None:
        return row["missed_low"], row["missed_high"]
    if row["ratio"] is None:
        return None, None
    _, low, high = _fast(row)
    return (1 / high, 1 / low) if row["verdict"] == Verdict.SLOWER else (low, high)


def reason_fields(code: str) -> tuple[str, dict[str, tuple[Kind, Any]]]:
    """The msgid of a reason code such as `row_not_ok:stopped_early`, and its placeholders."""
    name, _, detail = code.partition(":")
    kind: Kind = "metric" if name == "null_arm_differs" else "name"
    msgid = REASONS[name]
    return msgid, {field: (kind, detail) for field in placeholders(msgid)}


def messages() -> tuple[str, ...]:
    """Every msgid of this module and of `claims.yaml`, once: what a translation has to cover."""
    words = [msgid for table in (METRICS, REASONS, WARNINGS) for msgid in table.values()]
    return tuple(dict.fromkeys([*words, *claim_kinds.load().messages()]))
