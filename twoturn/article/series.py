"""The sections about single series: what was measured, compared, stacked and accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from twoturn import config, contrasts, plan, prefix, privacy
from twoturn.article.data import SUSPECT_ACCEPT_LENGTH, Data, Gated, Row, SeriesData
from twoturn.article.lengths import lengths
from twoturn.article.recording import recording
from twoturn.article.view import ROLES, View, code, escape
from twoturn.claim_kinds import kind_of
from twoturn.claims import N_
from twoturn.contrasts import BESIDE_BEST, BEST_BLOCK
from twoturn.matrix import block
from twoturn.stats.base import CONFIDENCE
from twoturn.stats.stacking import Square
from twoturn.stats.verdict import STACKED, STACKING, Verdict

Context: TypeAlias = dict[str, Any]
Fill: TypeAlias = Callable[[Data, View], Context | list[Context] | None]


def each_series(data: Data, view: View) -> list[Context]:
    return [_one(one, view) for one in data.series]


def _one(one: SeriesData, view: View) -> Context:
    series, workload = one.series, one.workload
    return {
        "name": code(series.name),
        "answer_tokens": view.tokens(workload.max_tokens),
        "temperature": view.number.short(workload.temperature),
        "rounds": view.number.integer(len(one.measured_rounds)),
        "planned": view.number.integer(series.rounds),
        "arms": [arm_row(arm, series, view) for arm in series.arms],
        "conversation": None,
        "recorded": isinstance(workload, config.Replay),
        "intro": None,
        "details": None,
        "sentences": _sentences(one, view),
        "contrasts": _contrast_rows(one, view),
        "confidence": view.number.percent(CONFIDENCE),
        "reference": code(series.reference),
        "alone": len(series.arms) < 2,
        "sampled": workload.temperature > 0,
        "gated": [_gate_told(gated, view) for gated in one.gated],
        "refused": any(gated.wrong for gated in one.gated),
        **_texts_told(one, view),
        **_turns_told(one, view),
        "unreported": view.names(one.unreported_cache) if one.unreported_cache else "",
        "forest": one.pictures.get("forest"),
        "turns_picture": one.pictures.get("turns"),
        "plain_name": escape(series.name),
        **_of_kind(one, view),
    }


def _of_kind(one: SeriesData, view: View) -> Context:
    """What the kind of workload adds: its shape, and the table of results."""
    workload = one.workload
    if isinstance(workload, config.Prefill):
        return lengths(one, workload, view)
    if isinstance(workload, config.Replay):
        return {**recording(one, workload, view), **_table(one, view, REPLAY)}
    conversation = workload if isinstance(workload, config.Conversation) else None
    return {
        "conversation": conversation,
        "prompts": workload.dialogues,
        "shown_prompts": view.number.integer(workload.dialogues),
        "turns": workload.turns,
        "shown_turns": view.number.integer(workload.turns),
        "prompt_tokens": view.tokens(workload.prompt_tokens),
        "turn_tokens": view.tokens(conversation.turn_tokens) if conversation else None,
        "details": "series_turns.md.j2" if conversation and one.values else None,
        **_table(one, view, CONVERSATION if conversation else CHAT),
    }


def _table(one: SeriesData, view: View, columns: Mapping[str, str]) -> Context:
    head = [view.words.gettext(text) for text in (N_("Arm"), *columns.values())]
    return {"results": _results(one, view, columns), "result_head": head}


CHAT = {
    "decode_tok_s": N_("Decoding, tok/s"),
    "ttft_s": N_("TTFT, s"),
    "accept_length": N_("Accept length"),
    "effective_block_size": N_("Effective block"),
}
CONVERSATION = {
    "conversation_s": N_("Conversation, s"),
    "decode_tok_s": N_("Decoding, tok/s"),
    "accept_length": N_("Accept length"),
    "effective_block_size": N_("Effective block"),
}
REPLAY = {
    "conversation_s": N_("Conversation, s"),
    "turns_ttft_s": N_("TTFT of all turns together, s"),
    "accept_length": N_("Accept length"),
}
"""Columns of the tables of results."""

SUSPECT = code("draft_suspect")
TURNS = {
    "prompt_tokens": N_("Prompt, tokens"),
    "cached_tokens": N_("From the cache"),
    "new_tokens": N_("Newly processed"),
    "ttft_s": N_("TTFT, s"),
    "decode_tok_s": N_("Decoding, tok/s"),
}
"""Columns of the table turn by turn."""

SPECULATIVE = ("accept_length", "effective_block_size")


def arm_row(arm: plan.Arm, series: plan.Series, view: View) -> list[str]:
    role = "reference" if arm.name == series.reference else "null" if arm.null else None
    settings = [f"{key}: {setting(value)}" for key, value in sorted(arm.settings.items())]
    # A campaign may name paths of its machine; the article is for everybody.
    told = [code(privacy.redact(text, Path.cwd())) for text in [*settings, *arm.args]]
    return [
        code(arm.name) + (f" ({view.words.gettext(ROLES[role])})" if role else ""),
        code(arm.checkpoint),
        code(arm.server),
        view.speculation(arm),
        view.blocks([block(arm)]),
        code(arm.draft) if arm.draft else "–",
        ", ".join(told) or "–",
    ]


def setting(value: Any) -> str:
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
    elsewhere = (BEST_BLOCK, BESIDE_BEST, kind_of(STACKING))  # sections of their own
    single = [row for row in one.contrasts if kind_of(row["metric"]) not in elsewhere]
    if all(row["verdict"] == Verdict.NOT_MEASURED for row in single):
        return []  # the sentences say so
    return [
        [
            view.heading(row["metric"]),
            code(row["arm"]),
            *(
                ("–", "–", view.verdict(row["verdict"]), "–")
                if row["ratio"] is None
                else (
                    view.number.ratio(row["ratio"]),
                    view.interval(row["ci_low"], row["ci_high"]),
                    view.verdict(row["verdict"]),
                    view.number.integer(row["rounds"]),
                )
            ),
            view.note(row["warnings"]) or "–",
        ]
        for row in single
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


def _turns_told(one: SeriesData, view: View) -> Context:
    """Turn by turn, and how far the figures of the cache can be believed."""
    told, number = one.turns, view.number
    cold = [(arm, sent) for arm, sent, stayed in told.decoys if stayed == sent]
    return {
        "turn_head": [
            view.words.gettext(text) for text in (N_("Arm"), N_("Turn"), *TURNS.values())
        ],
        "turn_rows": [
            [
                code(row.arm),
                number.integer(row.turn),
                *(view.value(name, getattr(row, name)) for name in TURNS),
            ]
            for row in told.turns
        ],
        "decoys": sum(sent for _, sent in cold),
        "shown_decoys": number.integer(sum(sent for _, sent in cold)),
        "cold_arms": view.names(arm for arm, _ in cold),
        "suspects": [
            {
                "arm": code(row.arm),
                "finding": row.finding,
                "cached": number.integer(row.cached_tokens),
                "ttft": number.seconds(row.ttft_s),
                "cold": number.seconds(row.cold_s),
            }
            for row in told.suspects
        ],
        "blocks": [(code(arm), view.tokens(block)) for arm, block in told.blocks],
        "broken": [
            {"checkpoint": code(name), "share": number.percent(share)}
            for name, share in told.broken
        ],
        "kept": number.percent(prefix.KEPT),
    }


def _gate_told(gated: Gated, view: View) -> Context:
    return {
        "arm": code(gated.arm),
        "requests": view.number.integer(gated.requests),
        "wrong": gated.wrong,
        "shown_wrong": view.number.integer(gated.wrong),
        "wrong_from": view.number.integer(gated.wrong_from),
        "diverging": gated.diverging,
        "shown_diverging": view.number.integer(gated.diverging),
        "diverging_from": view.number.integer(gated.diverging_from),
    }


def stacking(data: Data, view: View) -> Context | None:
    """Precision and speculation together, where a series holds the four arms for it."""
    parts = [
        _square(one, square, view)
        for one in data.series
        for square in contrasts.squares(one.series)
    ]
    if not parts:
        return None
    return {
        "parts": parts,
        "confidence": view.number.percent(CONFIDENCE),
        "cpu": data.facts.get("accelerator") == "cpu",
    }


def _square(one: SeriesData, square: Square, view: View) -> Context:
    """One square: its sentence, and a table unless nothing of it is known."""
    found: dict[tuple[str, str], Row] = {(row["metric"], row["arm"]): row for row in one.contrasts}
    first, second, both = (found.get((STACKED, arm), {}) for arm in (*square.single, square.both))
    whole = found.get((STACKING, square.both), {})
    ratios = [row["ratio"] for row in (first, second) if row.get("ratio") is not None]
    product = ratios[0] * ratios[1] if len(ratios) == 2 else None
    words = view.words.gettext
    rows = [
        [
            f"{words(text)}: {code(arm)}",
            view.number.ratio(row.get("ratio")),
            view.interval(row.get("ci_low"), row.get("ci_high")),
        ]
        for text, arm, row in (
            (N_("Another checkpoint"), square.single[0], first),
            (N_("Another engine"), square.single[1], second),
            (N_("Both"), square.both, both),
        )
    ]
    low, high = (view.number.percent(whole.get(name)) for name in ("ci_low", "ci_high"))
    unknown = whole.get("ratio") is None
    rows += [
        [words(N_("Product of the two single ratios")), view.number.ratio(product), "–"],
        [
            words(N_("Both, of that product")),
            view.number.percent(whole.get("ratio")),
            view.number.unknown if unknown else f"{low}–{high}",
        ],
    ]
    return {
        "series": code(one.series.name),
        "reference": code(square.reference),
        "rows": rows if any(row.get("ratio") for row in (first, second, both)) else [],
        "sentences": [
            view.claim(row)
            for row in one.claims
            if row["section"] == "stacking" and row["arm"] == square.both
        ],
    }


def acceptance(data: Data, view: View) -> Context | None:
    speculative = [
        arm for one in data.series for arm in one.series.arms if arm.speculation != "none"
    ]
    if not speculative:
        return None
    example = next((arm.block_size for arm in speculative if arm.block_size), None)
    return {
        "block": "" if example is None else view.number.integer(example),
        "drafted": "" if example is None else view.tokens(example - 1),
        "suspect": SUSPECT if any(row.suspect for s in data.series for row in s.accepted) else "",
        "suspect_below": view.number.short(SUSPECT_ACCEPT_LENGTH),
        "rows": [
            [
                code(one.series.name),
                code(row.arm.name),
                view.number.integer(row.turn),
                view.blocks([block(row.arm)]),
                view.number.mean(row.effective_block_size),
                view.number.mean(row.accept_length) + (f" {SUSPECT}" if row.suspect else ""),
                view.number.percent(row.accept_rate),
                view.number.integer(row.requests),
            ]
            for one in data.series
            for row in one.accepted
        ],
    }
