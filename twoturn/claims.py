"""From verdicts to sentences: the only place where a verb of comparison stands.

A claim is a msgid with named placeholders, the numbers for it, and the contrasts that it rests on.
Numbers stay raw; `sentence_fields` tells a formatter of any language what to put where. `effect`
and every interval in a sentence are "times as fast": more than 1 favours the arm that is named
first, for rates and for times alike. The msgids are found by gettext's extraction through the
marker `N_`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pyarrow as pa

from twoturn.contrasts import SeriesLike, null_arm_state, squares
from twoturn.stats.base import CONFIDENCE
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
        pa.field("reason", pa.string()),
        pa.field("warnings", pa.list_(pa.string()), nullable=False),
        pa.field("arms", pa.list_(pa.string()), nullable=False),
    ],
    metadata={"schema_version": "1"},
)
"""results/claims.parquet.

claim: `series/metric/arm`, `series/trade/arm`, `series/null_arm`, `series/headline`.
section: decision | reading | conversation | chat | stacking.
verdict: that of the contrast; `trade` for a trade; that of its arms for a headline;
    passed | failed | unchecked | absent for a null arm.
ratio, ci_low, ci_high: arm ÷ reference, as in the contrast; measured_value: "times as fast".
effect (≥ 1): how many times as fast the faster of the two is (faster, slower, trade).
second_effect (≥ 1): the same for decoding, in a trade.
missed_low, missed_high: "times as fast" that an unresolved contrast leaves open; for a null arm
    that passed, how far its intervals reach.
reason: the code of a claim without numbers; warnings: the codes of a contrast with numbers.
arms: the arms that a headline names; of a claim about stacking the two with one change each.
"""

Kind = Literal["ratio", "percent", "name", "names", "metric", "reason", "count"]
"""How a formatter treats a value: ratio 1.35 without a sign, percent 0.99 as 99 %, name as it is,
names a tuple joined by the language's "and", metric and reason through METRICS and REASONS."""


def N_(message: str) -> str:
    """Mark a message for extraction; it is translated where it is printed."""
    return message


METRICS = {
    "decode_tok_s": N_("decode speed"),
    "prefill_tok_s": N_("prefill speed"),
    "ttft_s": N_("time to the first token"),
    "turn2_ttft_s": N_("time to the first token of the second turn"),
    "conversation_s": N_("time for the whole conversation"),
    "accept_length": N_("accept length"),
    STACKING: N_("stacking of the decode speed"),
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
    "row_not_ok": N_("a request failed with the status {detail}"),
    "rows_missing": N_("a request that the other cells hold is missing"),
    "no_value": N_("a cell does not report what the metric needs"),
    "bad_value": N_("a value is not a positive number"),
    "prompts_differ": N_("the servers counted prompts of different length"),
    "lengths_differ": N_("the outputs differ in length"),
    "incomplete": N_("not all planned rounds are measured"),
    "too_few_rounds": N_("there are fewer than four rounds"),
    "odd_rounds": N_("the number of rounds is odd"),
    "collinear": N_("the order of the cells does not tell the arms from the drift"),
    "too_few_slots": N_("there are too few cells for so many sessions"),
    "no_noise": N_("the values show no noise at all, so they are not measurements"),
    "not_measured": N_("it is not measured yet"),
}
"""Reason codes of contrasts in words; every text follows "because"."""

WARNINGS = {
    "several_sessions": N_("measured in more than one session"),
    "strong_drift": N_("the speed of the machine drifted strongly during the series"),
    "hl_disagrees": N_("the robust cross-check points the other way"),
    "null_arm_unchecked": N_("the null arm could not be checked"),
}
"""Warning codes of valid contrasts in words."""

VERDICTS = {
    "faster": N_("faster"),
    "slower": N_("slower"),
    "same": N_("same"),
    "unresolved": N_("unresolved"),
    "invalid": N_("invalid"),
    "unpaired": N_("unpaired"),
    "not_measured": N_("not measured"),
}
"""Verdicts as they stand in tables; about the arm, not about the reference."""

MESSAGES: dict[str, dict[str, str]] = {
    "decode_tok_s": {
        "faster": N_(
            "On these prompts {arm} decodes faster than {reference}: {effect} times as fast "
            "({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "On these prompts {arm} decodes slower than {reference}: {reference} is {effect} times "
            "as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "On these prompts {arm} and {reference} decode at the same speed within {margin} "
            "({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} decodes faster or slower than {reference} is not resolved: on these "
            "prompts it may be anything from {low} to {high} times as fast "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    "prefill_tok_s": {
        "faster": N_(
            "{arm} reads these prompts faster than {reference}: {effect} times as fast "
            "({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "{arm} reads these prompts slower than {reference}: {reference} is {effect} times "
            "as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "{arm} and {reference} read these prompts at the same speed within {margin} "
            "({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} reads these prompts faster or slower than {reference} is not resolved: "
            "it may be anything from {low} to {high} times as fast "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    "ttft_s": {
        "faster": N_(
            "On these prompts {arm} gives the first token sooner than {reference}: {effect} times "
            "as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "On these prompts {arm} gives the first token later than {reference}: {reference} is "
            "{effect} times as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "On these prompts {arm} and {reference} give the first token equally soon within "
            "{margin} ({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} gives the first token sooner or later than {reference} is not resolved: "
            "on these prompts it may be anything from {low} to {high} times as fast "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    "turn2_ttft_s": {
        "faster": N_(
            "{arm} gives the first token of the second turn sooner than {reference}: {effect} "
            "times as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "{arm} gives the first token of the second turn later than {reference}: {reference} is "
            "{effect} times as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "{arm} and {reference} give the first token of the second turn equally soon within "
            "{margin} ({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} gives the first token of the second turn sooner or later than "
            "{reference} is not resolved: it may be anything from {low} to {high} times as fast "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    "conversation_s": {
        "faster": N_(
            "{arm} finishes this conversation sooner than {reference}: {effect} times as fast "
            "({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "{arm} finishes this conversation later than {reference}: {reference} is {effect} "
            "times as fast ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "{arm} and {reference} take the same time for this conversation within {margin} "
            "({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} finishes this conversation sooner or later than {reference} is not "
            "resolved: it may be anything from {low} to {high} times as fast "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    "accept_length": {
        "faster": N_(
            "On these prompts {arm} has a greater accept length than {reference}: {effect} times "
            "its tokens per cycle ({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "slower": N_(
            "On these prompts {arm} has a smaller accept length than {reference}: {reference} has "
            "{effect} times its tokens per cycle "
            "({confidence} interval {low} to {high}; rounds: {rounds})."
        ),
        "same": N_(
            "On these prompts {arm} and {reference} have the same accept length within {margin} "
            "({confidence} interval of their ratio {low} to {high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arm} has a greater or smaller accept length than {reference} is not "
            "resolved: on these prompts it may be anything from {low} to {high} times as great "
            "({confidence} interval; rounds: {rounds})."
        ),
    },
    STACKING: {
        "faster": N_(
            "Together {arms} give more than the product of their ratios: on these prompts {arm} "
            "decodes at {share} of what that product says "
            "({confidence} interval {share_low} to {share_high}; rounds: {rounds})."
        ),
        "slower": N_(
            "Together {arms} give less than the product of their ratios: on these prompts {arm} "
            "decodes at {share} of what that product says "
            "({confidence} interval {share_low} to {share_high}; rounds: {rounds})."
        ),
        "same": N_(
            "Together {arms} give as much as the product of their ratios within {margin}: on these "
            "prompts {arm} decodes at {share} of what that product says "
            "({confidence} interval {share_low} to {share_high}; rounds: {rounds})."
        ),
        "unresolved": N_(
            "Whether {arms} together give more or less than the product of their ratios is not "
            "resolved: on these prompts {arm} may decode at anything from {share_low} to "
            "{share_high} of what that product says ({confidence} interval; rounds: {rounds})."
        ),
    },
}

SILENT: dict[str, str] = {
    "invalid": N_("{metric}, {arm} against {reference}: no comparison, because {reason}."),
    "unpaired": N_(
        "{metric}, {arm} against {reference}: no comparison, because the two were not measured in "
        "one series."
    ),
    "not_measured": N_("{metric}, {arm} against {reference}: not measured yet."),
}
"""Verdicts without numbers: one sentence for every metric."""

TRADE: dict[str, str] = {
    "faster": N_(
        "{arm} loses the decoding and wins the conversation: {reference} decodes {second_effect} "
        "times as fast, and {arm} finishes the conversation {effect} times as fast."
    ),
    "slower": N_(
        "{arm} wins the decoding and loses the conversation: it decodes {second_effect} times as "
        "fast as {reference}, and {reference} finishes the conversation {effect} times as fast."
    ),
}
"""Decoding and conversation go opposite ways; the key is the verdict on the conversation."""

NULL_ARM: dict[str, str] = {
    "passed": N_(
        "The null arm {arm}, a second copy of {reference}, was not called different from it on any "
        "metric; its {confidence} intervals reach from {low} to {high} times as fast."
    ),
    "failed": N_(
        "The null arm {arm} is a second copy of {reference} and came out different from it "
        "({metric}): nothing in the series {series} is compared."
    ),
    "unchecked": N_(
        "The null arm {arm} could not be compared with {reference}, so the series {series} has not "
        "shown that equal arms come out equal: no comparison, because {reason}."
    ),
    "absent": N_(
        "The series {series} has no null arm, so it has not shown that equal arms come out equal."
    ),
}

HEADLINES: dict[str, dict[str, str]] = {
    "conversation_s": {
        "faster": N_(
            "For the whole conversation the series {series} speaks for {arms} against {reference}."
        ),
        "slower": N_(
            "Every other arm of the series {series} finishes the conversation later than "
            "{reference}."
        ),
        "same": N_(
            "No choice to make in the series {series}: every arm takes the same time for the "
            "conversation as {reference} within {margin}."
        ),
        "unresolved": N_(
            "No arm of the series {series} was shown to finish the conversation sooner than "
            "{reference}."
        ),
    },
    "decode_tok_s": {
        "faster": N_(
            "For decoding alone the series {series} speaks for {arms} against {reference}; it says "
            "nothing about whole conversations."
        ),
        "slower": N_(
            "Every other arm of the series {series} decodes slower than {reference}; that says "
            "nothing about whole conversations."
        ),
        "same": N_(
            "No choice to make in the series {series}: every arm decodes as fast as {reference} "
            "within {margin}; that says nothing about whole conversations."
        ),
        "unresolved": N_(
            "No arm of the series {series} was shown to decode faster than {reference}; that says "
            "nothing about whole conversations."
        ),
    },
}
"""The series in one sentence, by the metric that decides: conversation time where there is one."""

NO_HEADLINE = N_("The series {series} decides nothing, because {reason}.")

Row = dict[str, Any]


def from_contrasts(
    contrasts: pa.Table,
    series_list: Iterable[SeriesLike],
    *,
    published: Mapping[str, float] | None = None,
    measured_on: Mapping[str, str] | None = None,
) -> pa.Table:
    """The claims (SCHEMA) of all series, in the order of the series and of their contrasts.

    published: claim id → "times as fast" that an earlier article printed. measured_on: series →
    JSON of the versions behind the numbers. Both may be left out. A series of one arm has no
    claims.
    """
    rows = contrasts.to_pylist()
    found: list[Row] = []
    for series in series_list:
        own = [row for row in rows if row["series"] == series.name]
        if not own:
            continue
        readers = [row for row in own if row["arm"] != series.null_arm]
        found += [_single(row, series) for row in readers]
        found += _trades(readers)
        found.append(_null_arm(own, series, null_arm_state(contrasts, series)))
        if readers:
            found.append(_headline(readers, series))
    for claim in found:
        claim["published_value"] = (published or {}).get(claim["claim"])
        claim["measured_on"] = (measured_on or {}).get(claim["series"])
    return pa.Table.from_pylist(found, schema=SCHEMA)


def _claim(claim: str, section: str, verdict: str, msgid: str, rests_on: list[Row]) -> Row:
    """A claim without numbers, about the pair of the first contrast that it rests on."""
    first = rests_on[0]
    return {
        **{name: None for name in SCHEMA.names},
        **{name: first[name] for name in ("series", "metric", "arm", "reference")},
        "claim": f"{first['series']}/{claim}",
        "section": section,
        "verdict": verdict,
        "msgid": msgid,
        "contrasts": [contrast_id(row) for row in rests_on],
        "warnings": [],
        "arms": [],
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
    }


def _fast(row: Mapping[str, Any]) -> tuple[float, float, float]:
    return times_as_fast(row["metric"], row["ratio"], row["ci_low"], row["ci_high"])


def _reason(contrast: Row) -> str:
    return contrast["warnings"][0] if contrast["warnings"] else "not_measured"


def _single(contrast: Row, series: SeriesLike) -> Row:
    """The claim of one contrast."""
    verdict = contrast["verdict"]
    msgid = SILENT.get(verdict) or MESSAGES[contrast["metric"]][verdict]
    section = "conversation" if "conversation_s" in series.metrics else "chat"
    name = f"{contrast['metric']}/{contrast['arm']}"
    claim = {**_claim(name, section, verdict, msgid, [contrast]), **_numbers(contrast)}
    if contrast["metric"] == STACKING:
        single = {square.both: square.single for square in squares(series)}
        claim |= {"section": "stacking", "arms": single.get(contrast["arm"], ())}
    return claim


def _trades(contrasts: list[Row]) -> list[Row]:
    """One claim for each arm whose decoding and conversation are called opposite ways."""
    called = {
        (row["arm"], row["metric"]): row
        for row in contrasts
        if row["verdict"] in (Verdict.FASTER, Verdict.SLOWER)
    }
    found = []
    for (arm, metric), whole in called.items():
        decode = called.get((arm, "decode_tok_s"))
        if metric != "conversation_s" or not decode or decode["verdict"] == whole["verdict"]:
            continue
        claim = _claim(
            f"trade/{arm}", "decision", "trade", TRADE[whole["verdict"]], [whole, decode]
        )
        second = _numbers(decode)["effect"]
        found.append({**claim, **_numbers(whole), "second_effect": second})
    return found


def _null_arm(contrasts: list[Row], series: SeriesLike, state: str) -> Row:
    """What the copy of the reference shows about the whole series."""
    nulls = [row for row in contrasts if row["arm"] == series.null_arm]
    claim = _claim("null_arm", "reading", state, NULL_ARM[state], nulls or contrasts)
    if state == "absent":
        return {**claim, "arm": series.reference, "metric": "", "contrasts": []}
    claim["metric"] = ""
    if state == "passed":
        reach = [_fast(row) for row in nulls]
        claim["missed_low"] = min(low for _, low, _ in reach)
        claim["missed_high"] = max(high for _, _, high in reach)
    else:
        claim["reason"] = _reason(next(row for row in nulls if row["ratio"] is None))
        if state == "failed":
            claim["metric"] = claim["reason"].partition(":")[2]
    return claim


def _headline(contrasts: list[Row], series: SeriesLike) -> Row:
    """The series in one sentence; about conversations only if conversations were timed."""
    metric = next((name for name in HEADLINES if name in series.metrics), None)
    deciding = [row for row in contrasts if row["metric"] == metric] or contrasts
    judged = [row for row in deciding if row["ratio"] is not None]
    if metric is None or not judged:
        claim = _claim("headline", "decision", deciding[0]["verdict"], NO_HEADLINE, deciding)
        return {**claim, "arm": "", "reason": _reason(deciding[0])}
    faster = [row["arm"] for row in judged if row["verdict"] == Verdict.FASTER]
    verdicts = {row["verdict"] for row in deciding}
    verdict = "faster" if faster else verdicts.pop() if len(verdicts) == 1 else "unresolved"
    claim = _claim("headline", "decision", verdict, HEADLINES[metric][verdict], deciding)
    return {**claim, "arm": "", "arms": faster}


# Telling a claim ----------------------------------------------------------------------------------


def placeholders(msgid: str) -> tuple[str, ...]:
    """Names in braces, in order of appearance."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(msgid) if name)


def sentence_fields(row: Mapping[str, Any]) -> dict[str, tuple[Kind, Any]]:
    """What a formatter puts into a claim's msgid: placeholder → (kind, raw value).

    row is one row of SCHEMA. `low` and `high` are in the sense of the sentence: "times as fast" of
    the arm, or, where the reference is said to be `effect` times as fast, of the reference.
    """
    low, high = _told_interval(row)
    fields: dict[str, tuple[Kind, Any]] = {
        "arm": ("name", row["arm"]),
        "reference": ("name", row["reference"]),
        "series": ("name", row["series"]),
        "arms": ("names", tuple(row["arms"])),
        "metric": ("metric", row["metric"]),
        "effect": ("ratio", row["effect"]),
        "share": ("percent", row["ratio"]),
        "share_low": ("percent", row["ci_low"]),
        "share_high": ("percent", row["ci_high"]),
        "second_effect": ("ratio", row["second_effect"]),
        "low": ("ratio", low),
        "high": ("ratio", high),
        "confidence": ("percent", CONFIDENCE),
        "margin": ("percent", MARGIN),
        "rounds": ("count", row["rounds"]),
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
    """Every msgid of this module, once: what a translation has to cover."""
    tables = [METRICS, REASONS, WARNINGS, VERDICTS, SILENT, TRADE, NULL_ARM]
    tables += [*MESSAGES.values(), *HEADLINES.values()]
    found = [msgid for table in tables for msgid in table.values()]
    return tuple(dict.fromkeys([*found, NO_HEADLINE]))
