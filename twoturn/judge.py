"""The gate for measurements made elsewhere: what their design carries, and the verdict if one may
be had.

Only runs that are known to be interleaved reach the pair fit and a verb of comparison. For others
the verdict is `unpaired`, and a ratio stands there with the words that it carries no claim.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from twoturn import claims, contrasts
from twoturn.article.view import View
from twoturn.claims import N_
from twoturn.config import null_name
from twoturn.errors import UserError
from twoturn.judging import design, llama_bench, own_cells, rows, tables
from twoturn.judging.design import Design
from twoturn.judging.study import Arm, Series, Study
from twoturn.judging.tables import Wanted
from twoturn.stats import hodges_lehmann
from twoturn.stats.base import MIN_ROUNDS, Refusal, Slot
from twoturn.stats.verdict import Verdict

Estimator = Literal["pair-fit", "hodges-lehmann", "paired-median"]

ORDERS: dict[design.Order, str] = {
    "unknown": N_(
        "{arms} against {reference}: the order of the runs is not known, so a drift of the machine "
        "cannot be told from a difference. If the rows stand in the order of measuring, say "
        "{option}."
    ),
    "blocked": N_(
        "{arms} against {reference}: one was measured as a whole before the other. At least half "
        "of any steady drift of the machine counts as a difference."
    ),
    "irregular": N_(
        "{arms} against {reference}: the runs do not come in rounds that hold both, so nothing "
        "pairs them."
    ),
    "alternating": N_(
        "{arms} against {reference}: the order was the same in all rounds (A B A B). A steady "
        "drift D shifts the plain ratio by D ÷ {parts} on a logarithmic scale. The pair fit takes "
        "a smooth drift out, but not what one arm leaves behind for the next."
    ),
    "mirrored": N_(
        "{arms} against {reference}: every two rounds are an order and its mirror (A B B A), so a "
        "steady drift cancels."
    ),
    "shuffled": N_(
        "{arms} against {reference}: the order changed from round to round and was not mirrored, "
        "so a drift does not cancel in the plain ratio. The pair fit takes a smooth one out."
    ),
}
ROUNDS = N_(
    "Rounds: {rounds}. With no assumption about the noise an interval over them has a confidence "
    "of {reach} at most. A verdict takes an even number, at least {least}."
)
NO_ROUNDS = N_("Rounds: none. Runs of each: {runs}.")
REPETITIONS = N_(
    "A value holds up to {repetitions} repetitions in a row. They are one blocked run, not rounds."
)
PROMPTS = N_(
    "Prompts in each run: {prompts}, averaged on a logarithmic scale. What is said holds for these "
    "prompts."
)
CONTROL = {
    True: N_("The reference was measured once more as a control; that run enters no ratio."),
    False: N_("There is no control: nothing shows how far the reference came from where it began."),
}
VERSIONS = {
    True: N_("Versions are recorded."),
    False: N_("Versions are not recorded: nobody can tell later what was measured."),
}
ALSO = N_("The arms also differ in {fields}: nothing here tells what a difference comes from.")

UNPAIRED = N_(
    "{metric}, {arm} against {reference}: no comparison, because the order of the runs does not "
    "tell a difference from a drift of the machine."
)
VERDICT = N_("Verdict: {verdict}. {sentence}")
SHIFT = N_("The drift fitted here multiplies the plain ratio by {factor}.")
PLAIN = {
    "paired-median": N_(
        "Description, no claim: {metric}, median of {arm} ÷ {reference} (rounds: {rounds}) is "
        "{ratio}. It knows no drift."
    ),
    "ratio-of-medians": N_(
        "Description, no claim: {metric}, median of {arm} ÷ median of {reference} is {ratio}. It "
        "knows no drift."
    ),
    "hodges-lehmann": N_(
        "Description, no claim: {metric}, Hodges–Lehmann estimate of {arm} ÷ {reference} (rounds: "
        "{rounds}) is {ratio} ({confidence} interval {low} to {high}). It knows no drift."
    ),
}
HEADING = N_("What these runs can carry")

DESCRIBED = frozenset({"too_few_rounds", "odd_rounds"})
"""Reasons for `invalid` that leave sound values behind, to be described."""


@dataclass(frozen=True)
class Plain:
    """A ratio arm ÷ reference that carries no claim. The interval is Hodges–Lehmann's own."""

    estimator: str
    ratio: float
    rounds: int
    low: float | None = None
    high: float | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Result:
    """One arm on one metric. `contrast`: a row of contrasts.SCHEMA, None where another estimator
    than the pair fit was asked for, which has no verdict."""

    metric: str
    arm: str
    design: Design
    contrast: dict[str, Any] | None
    plain: Plain | None


@dataclass(frozen=True)
class Judgement:
    """All results of a study, and its claims: rows of claims.SCHEMA."""

    study: Study
    reference: str
    null_arm: str | None
    results: tuple[Result, ...]
    claims: tuple[dict[str, Any], ...]


# Reading ------------------------------------------------------------------------------------------


def read(files: Sequence[Path], wanted: Wanted, reference: str | None = None) -> list[Study]:
    """The studies in files of one format. Raises UserError."""
    formats = {file.suffix for file in files}
    for file in files:
        if file.suffix not in (*rows.SUFFIXES, *llama_bench.SUFFIXES):
            raise UserError(
                "unknown format",
                file=file,
                cure="give a .csv, .tsv or .parquet table of runs, or a .json or .jsonl of "
                "llama-bench; rename the file if it is one of them",
            )
    if formats <= set(llama_bench.SUFFIXES):
        return [_llama_bench(files, wanted)]
    if not formats <= set(rows.SUFFIXES):
        raise UserError(
            "files of two formats",
            file=", ".join(map(str, files)),
            cure="bring them into one table",
        )
    own = [file for file in files if file.suffix == rows.PARQUET]
    if own and own_cells.is_one(rows.columns(own[0])):
        if len(files) > 1:
            raise UserError(
                "a table of cells is judged alone", file=own[0], cure="give one file at a time"
            )
        return own_cells.read(own[0], metric=wanted.metric, reference=reference, where=wanted.where)
    return [tables.read(files, wanted)]


def _llama_bench(files: Sequence[Path], wanted: Wanted) -> Study:
    columns = dict(wanted.columns)
    field = columns.pop("arm", None)
    if columns or wanted.pairs:
        raise UserError(
            "llama-bench names its own fields",
            file=files[0],
            cure="of --columns only arm=FIELD means something here",
        )
    return llama_bench.read(files, metric=wanted.metric, arm_field=field, where=wanted.where)


# Judging ------------------------------------------------------------------------------------------


def judge(
    study: Study,
    *,
    arms: Sequence[str] = (),
    reference: str | None = None,
    null_arm: str | None = None,
    estimator: Estimator = "pair-fit",
) -> Judgement:
    """Every wanted arm against the reference on every metric; without `arms` every other arm.

    A null arm that is called different makes the whole study invalid, as in a series of one's own.
    Raises UserError for an arm that is not there and where no reference is known.
    """
    own = _reference(study, reference)
    null = _null_arm(study, own, null_arm)
    for arm in arms:
        if arm not in study.arms or arm == own:
            raise _no_arm(study, "--arm", arm)
    chosen = [arm for arm in study.arms if arm != own and (not arms or arm in (*arms, null))]
    results = [
        _result(study, metric, arm, own, estimator) for metric in study.metrics for arm in chosen
    ]
    results = _null_checked(results, null)
    table = pa.Table.from_pylist(
        [one.contrast for one in results if one.contrast is not None], schema=contrasts.SCHEMA
    )
    series = Series(
        name=study.name,
        metrics=study.metrics,
        reference=own,
        arms=tuple(Arm(arm) for arm in (own, *chosen)),
        null_arm=null,
        fingerprint=study.fingerprint,
    )
    told = claims.from_contrasts(table, [series]).to_pylist()
    return Judgement(
        study,
        own,
        null,
        tuple(results),
        tuple(_with_reason(claim) for claim in told if not claim["claim"].endswith("/headline")),
    )


def _with_reason(claim: dict[str, Any]) -> dict[str, Any]:
    """Runs of one file are unpaired by their order, and not because they are of two series."""
    if claim["verdict"] != Verdict.UNPAIRED:
        return claim
    return {**claim, "msgid": UNPAIRED}


def _reference(study: Study, wanted: str | None) -> str:
    found = wanted or study.reference
    if found is None:
        raise UserError(
            f"nothing says what the arms are compared with; they are {', '.join(study.arms)}",
            file=study.file,
            cure=f"say --reference {study.arms[0]}",
        )
    if found not in study.arms:
        raise _no_arm(study, "--reference", found)
    return found


def _null_arm(study: Study, reference: str, wanted: str | None) -> str | None:
    found = wanted or study.null_arm or null_name(reference)
    if found in study.arms and found != reference:
        return found
    if wanted:
        raise _no_arm(study, "--null-arm", wanted)
    return None


def _no_arm(study: Study, option: str, arm: str) -> UserError:
    return UserError(
        f"no arm {arm!r} to compare",
        file=study.file,
        key=option,
        cure=f"the arms are {', '.join(study.arms)}",
    )


def _result(study: Study, metric: str, arm: str, reference: str, estimator: Estimator) -> Result:
    slots = study.slots[metric]
    seen = design.of(slots, arm, reference, ordered=study.ordered, numbered=study.numbered)
    if estimator != "pair-fit":
        return Result(
            metric, arm, seen, None, _plain(study, slots, arm, reference, seen, estimator)
        )
    head = {
        "series": study.name,
        "metric": metric,
        "arm": arm,
        "reference": reference,
        "fingerprint": study.fingerprint,
    }
    if study.contrasts is not None:
        known = [row for row in study.contrasts if (row["metric"], row["arm"]) == (metric, arm)]
        return Result(metric, arm, seen, known[0], None)
    if not {arm, reference} <= {slot.arm for slot in slots}:
        contrast = contrasts.without_numbers(head, Verdict.NOT_MEASURED, ())
    elif not seen.interleaved:
        contrast = contrasts.without_numbers(head, Verdict.UNPAIRED, ("collinear",))
    else:
        contrast = contrasts.compared(head, slots)
    verdict, codes = contrast["verdict"], contrast["warnings"]
    described = verdict == Verdict.UNPAIRED or (
        verdict == Verdict.INVALID and DESCRIBED.issuperset(codes)
    )
    plain = _plain(study, slots, arm, reference, seen, None) if described else None
    return Result(metric, arm, seen, contrast, plain)


def _plain(
    study: Study,
    slots: Sequence[Slot],
    arm: str,
    reference: str,
    seen: Design,
    estimator: Estimator | None,
) -> Plain:
    """A ratio without a claim. Without an estimator that of the pairs, or of the medians."""
    if not seen.rounds:
        if estimator is None:
            return Plain("ratio-of-medians", design.ratio_of_medians(slots, arm, reference), 0)
        raise UserError(
            f"{estimator} needs rounds that hold {arm!r} and {reference!r}",
            file=study.file,
            cure="give a column of rounds, or leave --estimator out",
        )
    if estimator != "hodges-lehmann":
        ratio = design.paired_median(slots, arm, reference)
        return Plain("paired-median", ratio, seen.rounds)
    found = hodges_lehmann.estimate(slots, arm=arm, reference=reference)
    if isinstance(found, Refusal):
        raise UserError(
            f"no Hodges–Lehmann estimate: {claims.REASONS[found.reason]}",
            file=study.file,
            key=arm,
            cure="measure more rounds, or use --estimator paired-median",
        )
    low, high = math.exp(found.low), math.exp(found.high)
    return Plain(estimator, math.exp(found.log_ratio), seen.rounds, low, high, found.confidence)


def _null_checked(results: Sequence[Result], null: str | None) -> list[Result]:
    """The results, all invalid if the null arm is called faster or slower on one metric."""
    for result in results:
        row = result.contrast
        if result.arm != null or row is None:
            continue
        if row["verdict"] in (Verdict.FASTER, Verdict.SLOWER):
            code = f"null_arm_differs:{result.metric}"
            return [_invalid(one, code) for one in results]
    return list(results)


def _invalid(result: Result, code: str) -> Result:
    row = contrasts.without_numbers(result.contrast or {}, Verdict.INVALID, (code,))
    return Result(result.metric, result.arm, result.design, row, None)


# Telling ------------------------------------------------------------------------------------------


def lines(judgement: Judgement, language: str) -> Iterator[str]:
    """The judgement for a reader, line by line."""
    view = View(language)
    study = judgement.study
    yield f"{view.words.gettext(HEADING)}: {study.file}" + (
        "" if study.name in study.file else f" ({study.name})"
    )
    for sentence in _carried(judgement, view):
        yield f"- {sentence}"
    yield ""
    yield from _verdicts(judgement, view)


def _filled(view: View, msgid: str, **fields: str) -> str:
    return view.words.gettext(msgid).format(**fields)


def _carried(judgement: Judgement, view: View) -> Iterator[str]:
    """What the design of the runs can carry and cannot."""
    study, number, reference = judgement.study, view.number, view.names([judgement.reference])
    arms: dict[Design, list[str]] = {}
    for result in judgement.results:
        measured = result.design.runs > 0
        if measured and result.arm not in arms.setdefault(result.design, []):
            arms[result.design].append(result.arm)
    for seen, names in arms.items():
        yield _filled(
            view,
            ORDERS[seen.order],
            arms=view.names(names),
            reference=reference,
            parts=number.integer(seen.drift_parts),
            option="--in-order",
        )
        if seen.rounds:
            yield _filled(
                view,
                ROUNDS,
                rounds=number.integer(seen.rounds),
                reach=number.percent(seen.reach),
                least=number.integer(MIN_ROUNDS),
            )
        else:
            yield _filled(view, NO_ROUNDS, runs=number.integer(seen.runs))
    recorded = study.recorded
    if recorded.repetitions > 1:
        yield _filled(view, REPETITIONS, repetitions=number.integer(recorded.repetitions))
    if study.prompts > 1 and study.contrasts is None:
        yield _filled(view, PROMPTS, prompts=number.integer(study.prompts))
    if recorded.also:
        yield _filled(view, ALSO, fields=view.names(recorded.also))
    yield from (
        view.claim(claim) for claim in judgement.claims if claim["claim"].endswith("/null_arm")
    )
    yield view.words.gettext(CONTROL[recorded.control])
    yield view.words.gettext(VERSIONS[recorded.versions])


def _verdicts(judgement: Judgement, view: View) -> Iterator[str]:
    rows_told = {
        (claim["metric"], claim["arm"]): claim
        for claim in judgement.claims
        if claim["claim"].endswith(f"/{claim['metric']}/{claim['arm']}")
    }
    for result in judgement.results:
        claim = rows_told.get((result.metric, result.arm))
        if claim is not None:
            verdict = view.verdict(claim["verdict"])
            yield _filled(view, VERDICT, verdict=verdict, sentence=view.claim(claim))
            if claim["warnings"]:
                yield f"  {view.note(claim['warnings'])}"
            if (shift := _shift(result)) is not None:
                yield "  " + _filled(view, SHIFT, factor=view.number.ratio(shift))
        if result.plain is not None:
            yield _described(result, judgement.reference, view)
    for claim in judgement.claims:
        if "/trade/" in claim["claim"]:
            yield view.claim(claim)


def _shift(result: Result) -> float | None:
    """Of the plain ratio of A B A B, by the fitted drift; None where there is no such thing."""
    drift = (result.contrast or {}).get("drift_ratio")
    if drift is None or result.design.order != "alternating":
        return None
    return design.alternating_shift(result.design, math.log(drift))


def _described(result: Result, reference: str, view: View) -> str:
    plain, number = result.plain, view.number
    assert plain is not None
    metric = view.metric(result.metric)
    told = {
        "metric": metric,
        "arm": view.names([result.arm]),
        "reference": view.names([reference]),
        "ratio": _exactly(plain.ratio, view),
        "rounds": number.integer(plain.rounds),
        "confidence": number.percent(plain.confidence),
        "low": _exactly(plain.low, view),
        "high": _exactly(plain.high, view),
    }
    return _filled(view, PLAIN[plain.estimator], **told)


def _exactly(ratio: float | None, view: View) -> str:
    """Three decimals: to be compared with a printed figure of two."""
    return view.number.unknown if ratio is None else view.number.short(round(ratio, 3))


def as_json(judgements: Sequence[Judgement], language: str) -> str:
    """The same for a program. Numbers of a claim stand in `contrast`, all others in `plain`."""
    told = [
        {
            "file": one.study.file,
            "series": one.study.name,
            "reference": one.reference,
            "null_arm": one.null_arm,
            "recorded": asdict(one.study.recorded),
            "prompts": one.study.prompts,
            "results": [
                {
                    "metric": result.metric,
                    "arm": result.arm,
                    "verdict": (result.contrast or {}).get("verdict"),
                    "design": {**asdict(result.design), "reach": _reach(result.design)},
                    "contrast": result.contrast,
                    "plain": None if result.plain is None else asdict(result.plain),
                }
                for result in one.results
            ],
            "sentences": [line for line in lines(one, language) if line],
        }
        for one in judgements
    ]
    return json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False)


def _reach(seen: Design) -> float | None:
    return seen.reach if seen.rounds else None
