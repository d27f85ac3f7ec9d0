"""Claims: every verb of comparison rests on a verdict, and every sentence can be filled in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from babel.messages import extract

from twoturn import claim_kinds, claims, config, contrasts, forest, matrix, numbers
from twoturn.article.view import View
from twoturn.errors import UserError
from twoturn.stats.verdict import Verdict

from .test_contrasts import NULL, Arm, Series, cells_of, series_of


def told(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["claim"]: row for row in table.to_pylist()}


def contrast(series: Series, metric: str, arm: str, verdict: str, **numbers: Any) -> dict[str, Any]:
    valid = {
        "ratio": 1.0,
        "ci_low": 0.99,
        "ci_high": 1.01,
        "confidence": 0.99,
        "rounds": 6,
        "df": 8,
    }
    silent = verdict in ("invalid", "unpaired", "not_measured")
    return {
        "series": series.name,
        "metric": metric,
        "arm": arm,
        "reference": series.reference,
        "verdict": verdict,
        "fingerprint": series.fingerprint,
        "warnings": [],
        **({} if silent else valid),
        **numbers,
    }


def claims_of(series: Series, *rows: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    table = pa.Table.from_pylist(list(rows), schema=contrasts.SCHEMA)
    return told(claims.from_contrasts(table, [series], **more))


def sentence(row: dict[str, Any]) -> str:
    """As an English formatter might do it."""

    def text(kind: str, value: Any) -> str:
        assert value is not None, row["msgid"]
        if kind == "ratio":
            return f"{value:.2f}"
        if kind == "percent":
            return f"{value:.0%}"
        if kind == "names":
            return " and ".join(value)
        if kind == "metric":
            return claims.METRICS[value]
        if kind == "reason":
            msgid, fields = claims.reason_fields(value)
            return msgid.format(**{name: text(*field) for name, field in fields.items()})
        return str(value)

    fields = claims.sentence_fields(row)
    return str(row["msgid"]).format(**{name: text(*field) for name, field in fields.items()})


def test_the_whole_way_from_cells_to_the_trade() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 1.4}, ttft={"mtp": 3.0}, drift=-0.3)
    table = claims.from_contrasts(contrasts.from_cells(cells, [series]), [series])
    assert table.schema.equals(claims.SCHEMA, check_metadata=True)
    found = told(table)
    assert list(found) == [
        "two_turns/conversation_s/mtp",
        "two_turns/turn2_ttft_s/mtp",
        "two_turns/decode_tok_s/mtp",
        "two_turns/trade/mtp",
        "two_turns/null_arm",
        "two_turns/headline",
    ]
    assert found["two_turns/null_arm"]["verdict"] == "passed"
    trade = found["two_turns/trade/mtp"]
    assert trade["verdict"] == "trade"
    assert trade["contrasts"] == [
        "two_turns/conversation_s/mtp/plain",
        "two_turns/decode_tok_s/mtp/plain",
    ]
    assert sentence(trade).startswith("mtp wins the decoding and loses the conversation")
    assert trade["second_effect"] == pytest.approx(1.4, abs=0.1)
    assert found["two_turns/headline"]["verdict"] == "slower"
    assert all(sentence(row) for row in found.values())


def test_a_time_that_is_shorter_is_told_as_times_as_fast() -> None:
    series = series_of("mtp")
    row = contrast(series, "turn2_ttft_s", "mtp", "faster", ratio=0.5, ci_low=0.4, ci_high=0.625)
    claim = claims_of(series, row)["two_turns/turn2_ttft_s/mtp"]
    assert claim["effect"] == pytest.approx(2.0)
    assert sentence(claim) == (
        "mtp gives the first token of the second turn sooner than plain: 2.00 times as fast "
        "(99% interval 1.60 to 2.50; rounds: 6)."
    )


def test_a_slower_arm_is_told_from_the_reference() -> None:
    series = series_of("mtp")
    row = contrast(series, "decode_tok_s", "mtp", "slower", ratio=0.5, ci_low=0.4, ci_high=0.625)
    assert sentence(claims_of(series, row)["two_turns/decode_tok_s/mtp"]) == (
        "On these prompts mtp decodes slower than plain: plain is 2.00 times as fast "
        "(99% interval 1.60 to 2.50; rounds: 6)."
    )


def test_unresolved_says_what_could_have_been_missed() -> None:
    series = series_of("mtp")
    row = contrast(
        series, "conversation_s", "mtp", "unresolved", ratio=0.9, ci_low=0.8, ci_high=1.25
    )
    claim = claims_of(series, row)["two_turns/conversation_s/mtp"]
    assert (claim["missed_low"], claim["missed_high"]) == pytest.approx((0.8, 1.25))
    assert "anything from 0.80 to 1.25 times as fast" in sentence(claim)
    assert claim["effect"] is None


@pytest.mark.parametrize("metric", [name for name in claims.METRICS if name != "quality"])
@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_metric_and_verdict_has_a_sentence(metric: str, verdict: Verdict) -> None:
    series = series_of("mtp")
    row = contrast(series, metric, "mtp", verdict, warnings=["row_not_ok:empty"])
    claim = claims_of(series, row)[f"two_turns/{metric}/mtp"]
    text = sentence(claim)
    assert text.endswith(".")
    assert "{" not in text
    if verdict not in ("faster", "slower"):
        assert claim["effect"] is None
    if verdict in ("invalid", "unpaired", "not_measured", "same"):
        assert not {"faster", "slower", "sooner", "later"} & set(text.split())


@pytest.mark.parametrize(
    ("found", "verdict", "arms"),
    [
        ({"mtp": "faster", "dflash": "slower"}, "faster", ["mtp"]),
        ({"mtp": "faster", "dflash": "faster"}, "faster", ["mtp", "dflash"]),
        ({"mtp": "slower", "dflash": "slower"}, "slower", []),
        ({"mtp": "slower", "dflash": "same"}, "unresolved", []),
        ({"mtp": "slower", "dflash": "invalid"}, "unresolved", []),
        ({"mtp": "same", "dflash": "same"}, "same", []),
    ],
)
def test_headline(found: dict[str, str], verdict: str, arms: list[str]) -> None:
    series = series_of("mtp", "dflash")
    rows = [contrast(series, "conversation_s", arm, called) for arm, called in found.items()]
    rows += [contrast(series, "decode_tok_s", arm, "faster", ratio=2.0) for arm in found]
    claim = claims_of(series, *rows)["two_turns/headline"]
    assert (claim["verdict"], claim["arms"]) == (verdict, arms)
    assert claim["contrasts"] == [f"two_turns/conversation_s/{arm}/plain" for arm in found]
    assert "conversation" in sentence(claim)


def test_without_conversation_time_the_headline_speaks_of_decoding_alone() -> None:
    series = series_of("mtp", metrics=("decode_tok_s", "ttft_s"))
    row = contrast(series, "decode_tok_s", "mtp", "faster", ratio=2.0)
    found = claims_of(series, row)
    assert sentence(found["two_turns/headline"]).startswith("For decoding alone")
    assert found["two_turns/decode_tok_s/mtp"]["section"] == "chat"
    assert found["two_turns/null_arm"]["verdict"] == "absent"


def test_a_failed_null_arm_silences_the_series() -> None:
    series = series_of("mtp", null=True)
    cells = cells_of(series, decode={"mtp": 2.0, NULL: 1.3})
    found = told(claims.from_contrasts(contrasts.from_cells(cells, [series]), [series]))
    assert found["two_turns/null_arm"]["verdict"] == "failed"
    assert "came out different" in sentence(found["two_turns/null_arm"])
    assert sentence(found["two_turns/headline"]).startswith(
        "The series two_turns decides nothing, because the null arm"
    )
    assert all(row["effect"] is None for row in found.values())


def test_the_slow_arm_is_named_when_it_did_not_finish() -> None:
    """Client timeout: a censored time is told and not dropped."""
    series = series_of("mtp")
    row = contrast(series, "conversation_s", "mtp", "invalid", warnings=["censored:mtp"])
    text = sentence(claims_of(series, row)["two_turns/conversation_s/mtp"])
    assert "mtp did not finish within the time limit" in text


def test_warnings_and_published_figures_are_carried_along() -> None:
    series = series_of("mtp")
    row = contrast(series, "decode_tok_s", "mtp", "faster", ratio=1.2, warnings=["strong_drift"])
    name = "two_turns/decode_tok_s/mtp"
    claim = claims_of(series, row, published={name: 1.9}, measured_on={series.fingerprint: "{}"})[
        name
    ]
    assert (claim["published_value"], claim["measured_value"]) == (1.9, 1.2)
    assert (claim["measured_on"], claim["warnings"]) == ("{}", ["strong_drift"])


def test_every_placeholder_can_be_filled() -> None:
    every = " ".join(f"{{{name}}}" for name in claim_kinds.FIELDS)
    row = {**dict.fromkeys(claims.SCHEMA.names), "metric": "", "msgid": every}
    row |= {"arms": [], "blocks": []}
    assert set(claims.sentence_fields(row)) == set(claim_kinds.FIELDS)


@pytest.mark.parametrize("code", claims.REASONS)
def test_every_reason_has_words(code: str) -> None:
    msgid, fields = claims.reason_fields(f"{code}:decode_tok_s")
    assert set(fields) == set(claims.placeholders(msgid))
    if code == "null_arm_differs":
        assert fields["detail"] == ("metric", "decode_tok_s")


# From bad input to its sentence -------------------------------------------------------------------


def _here(cells: pd.DataFrame, column: str, value: Any, number: int = 3) -> pd.DataFrame:
    """One request of `mtp` with another value."""
    spoiled = cells.astype({column: object})
    mine = (cells["arm"] == "mtp") & (cells["round"] == number) & (cells["kind"] == "round")
    spoiled.loc[cells.index[mine][0], column] = value
    return spoiled


def _times(cells: pd.DataFrame, value: Any) -> pd.DataFrame:
    for column in ("decode_s", "ttft_s", "e2e_s"):
        for number in range(1, 7):
            cells = _here(cells, column, value, number)
    second = (cells["arm"] == "mtp") & (cells["turn"] == 2)
    return cells.assign(ttft_s=cells["ttft_s"].where(~second, value))


def _back(cells: pd.DataFrame) -> pd.DataFrame:
    late = cells["round"] >= 3
    early = cells["started_at"] - pd.Timedelta(hours=1)
    return cells.assign(started_at=cells["started_at"].where(~late, early))


BAD: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "NaN": (lambda cells: _times(cells, math.nan), "no_value"),
    "null": (lambda cells: _times(cells, None), "no_value"),
    "inf": (lambda cells: _times(cells, math.inf), "bad_value"),
    "zero": (lambda cells: _times(cells, 0.0), "bad_value"),
    "negative": (lambda cells: _times(cells, -1.0), "bad_value"),
    "one arm": (lambda cells: cells[cells["arm"] == "plain"], "not_measured"),
    "no cells": (lambda cells: cells.head(0), "not_measured"),
    "one round": (lambda cells: cells[cells["round"] == 1], "incomplete"),
    "a missing pair": (
        lambda cells: cells[(cells["arm"] != "mtp") | (cells["round"] != 4)],
        "incomplete",
    ),
    "two fingerprints": (
        lambda cells: cells.assign(
            fingerprint=cells["fingerprint"].where(cells["round"] < 4, "ba9876543210")
        ),
        "other_fingerprint",
    ),
    "a cell twice": (lambda cells: pd.concat([cells, cells.head(4)]), "duplicate_rows"),
    "a clock set back": (_back, "clock_backwards"),
    "all values equal": (
        lambda cells: cells.assign(decode_s=2.0, ttft_s=1.0, e2e_s=3.0),
        "no_noise",
    ),
    "a failed prompt": (
        lambda cells: _here(cells, "status", "stopped_early"),
        "row_not_ok:stopped_early",
    ),
    "a censored time": (lambda cells: _here(cells, "status", "client_timeout"), "censored:mtp"),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("language", ["en", "pl"])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_a_sentence_with_its_reason_and_no_number(
    name: str, language: str
) -> None:
    spoil, reason = BAD[name]
    series = series_of("mtp")
    table = contrasts.from_cells(spoil(cells_of(series, decode={"mtp": 1.5})), [series])
    found = claims.from_contrasts(table, [series]).to_pylist()
    assert [row["claim"].rpartition("/")[2] for row in found[-2:]] == ["null_arm", "headline"]
    view = View(language)
    for row in (*found[:-2], found[-1]):
        assert row["verdict"] == ("not_measured" if reason == "not_measured" else "invalid")
        assert row["reason"] == reason
        assert all(row[number] is None for number in ("ratio", "ci_low", "effect", "rounds"))
        text = view.claim(row)
        assert numbers.parse(re.sub("`[^`]*`", "", text), language) == []
        if reason != "not_measured":
            assert view.reason(reason) in text


def test_a_series_of_one_arm_claims_nothing() -> None:
    alone = series_of()
    table = contrasts.from_cells(cells_of(alone), [alone])
    assert claims.from_contrasts(table, [alone]).num_rows == 0


# Block sizes, prompts like these, earlier measurements --------------------------------------------


def sweep_of(*, rounds: int = 6) -> Series:
    """Three block sizes of one draft, and two arms that are no part of the sweep."""
    mtp = Arm("b2", speculation="mtp", block_size=2, draft="head")
    arms = (
        Arm("plain"),
        *(replace(mtp, name=f"b{size}", block_size=size) for size in (2, 4, 8)),
        replace(mtp, name="own_choice", block_size=None),
        replace(mtp, name="other", block_size=4, draft="another"),
    )
    return Series(arms, rounds=rounds, metrics=("decode_tok_s", "ttft_s"))


SPEEDS = {"b2": 1.1, "b4": 1.4, "b8": 0.8, "other": 3.0, "own_choice": 2.0}


def best_of(series: Series, cells: pd.DataFrame) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contrast and the claim about the best block size."""
    table = contrasts.from_cells(cells, [series])
    (row,) = (one for one in table.to_pylist() if one["metric"].startswith("best_block:"))
    found = told(claims.from_contrasts(table, [series]))
    return row, found[f"two_turns/{row['metric']}/{row['arm']}"]


def test_the_best_block_is_chosen_on_some_rounds_and_told_from_others() -> None:
    """Block-sweep shape: chosen by speed on other rounds, however accept length rises."""
    series = sweep_of()
    assert matrix.sweeps(series) == (("b2", "b4", "b8"),)
    cells = cells_of(series, decode=SPEEDS, drift=-0.3)
    cells["accept_length"] = cells["arm"].map({"b2": 1.8, "b4": 2.9, "b8": 4.2})
    row, claim = best_of(series, cells)
    assert (row["metric"], row["arm"], row["verdict"]) == (
        "best_block:decode_tok_s",
        "b4",
        "faster",
    )
    assert row["rounds"] == 4
    assert row["ci_low"] < 1.4 < row["ci_high"]
    assert claim["arms"] == ["b2", "b4", "b8"]
    assert sentence(claim).startswith(
        "decode speed: of b2 and b4 and b8, which differ in block size alone, b4 was chosen on one "
        "part of the rounds; on the others it is faster than plain, 1.4"
    )
    assert claim["section"] == "blocks"


def beside(series: Series, cells: pd.DataFrame) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contrasts with the chosen block size, and what is claimed of them."""
    table = contrasts.from_cells(cells, [series])
    rows = [one for one in table.to_pylist() if one["metric"].startswith("beside_best:")]
    (claim,) = (
        one
        for one in claims.from_contrasts(table, [series]).to_pylist()
        if "/beside_best:" in one["claim"]
    )
    return rows, claim


def test_block_sizes_that_cannot_be_told_apart_are_named() -> None:
    series = sweep_of()
    rows, claim = beside(series, cells_of(series, decode=SPEEDS | {"b8": 1.39}, drift=-0.3))
    assert [(row["arm"], row["reference"], row["rounds"]) for row in rows] == [
        (arm, "b4", 4) for arm in ("b2", "b8")
    ]
    assert rows[0]["verdict"] == "slower"
    assert (claim["verdict"], claim["arms"], claim["blocks"]) == ("alike", ["b8"], ["4", "8"])
    assert View("en").claim(claim) == (
        "Decode speed: the blocks 4 and 8 are not told apart; on the rounds that did not choose, "
        "`b8` cannot be called slower than `b4`."
    )


def test_a_block_size_that_is_ahead_of_all_others_stands_alone() -> None:
    series = sweep_of()
    _, claim = beside(series, cells_of(series, decode=SPEEDS | {"b2": 0.9}, drift=-0.3))
    assert (claim["verdict"], claim["arms"], claim["blocks"]) == ("apart", ["b2", "b8"], ["4"])
    assert View("pl").claim(claim).startswith("Prędkość dekodowania: w rundach")


def test_an_adaptive_block_is_one_of_the_sweep() -> None:
    series = sweep_of()
    arms = tuple(replace(arm, adaptive=arm.name == "own_choice") for arm in series.arms)
    series = replace(series, arms=arms)
    assert matrix.sweeps(series) == (("b2", "b4", "b8", "own_choice"),)
    assert list(matrix.sweep_names(series)) == ["one + mtp"]
    _, claim = beside(series, cells_of(series, decode=SPEEDS | {"own_choice": 1.4}))
    assert claim["blocks"] == ["4", "adaptive"]
    assert View("en").blocks(["4", "5", "6", "adaptive"]) == "4–6 and adaptive"
    assert View("pl").blocks([4, None, "adaptive"]) == "4 i adaptacyjny"


def test_the_best_of_bad_blocks_is_slower_and_a_time_is_turned() -> None:
    series = replace(sweep_of(), metrics=("conversation_s", "turn2_ttft_s", "decode_tok_s"))
    cells = cells_of(series, decode=dict.fromkeys(SPEEDS, 0.5) | {"b2": 0.7})
    row, claim = best_of(series, cells)
    assert (row["metric"], row["arm"], row["verdict"]) == (
        "best_block:conversation_s",
        "b2",
        "slower",
    )
    assert row["ratio"] > 1
    assert claim["measured_value"] == pytest.approx(1 / row["ratio"])
    assert "plain, which is 1." in sentence(claim)


def test_a_block_cannot_be_chosen_from_four_rounds_or_with_one_missing() -> None:
    series = sweep_of(rounds=4)
    row, claim = best_of(series, cells_of(series, decode=SPEEDS))
    assert (row["verdict"], row["warnings"]) == ("invalid", ["too_few_to_choose"])
    assert "chosen block size, b2 against plain: no comparison, because some" in sentence(claim)
    series = sweep_of()
    cells = cells_of(series, decode=SPEEDS)
    row, _ = best_of(series, cells[cells["arm"] != "b8"])
    assert row["verdict"] == "not_measured"
    row, _ = best_of(series, cells.assign(status=cells["status"].where(cells["arm"] != "b8", "x")))
    assert (row["verdict"], row["warnings"]) == ("invalid", ["row_not_ok:x"])


def prompts_of(
    series: Series, count: int, *, spread: float = 0.02, speed: float = 1.3
) -> pd.DataFrame:
    """Cells of `count` prompts whose speed-up differs by `spread` from prompt to prompt."""
    base = cells_of(series)
    rng = np.random.default_rng(1)
    parts = []
    for prompt in range(count):
        part = base[base["prompt_id"] == "a"].assign(prompt_id=f"p{prompt}")
        luck = np.exp(rng.normal(0, 0.01, len(part)))
        mine = speed * math.exp(rng.normal(0, spread))
        factor = luck * np.where(part["arm"] == "mtp", mine, 1.0)
        parts.append(part.assign(decode_s=part["decode_s"] / factor))
    return pd.concat(parts, ignore_index=True)


def test_prompts_like_these_need_six_of_them() -> None:
    series = series_of("mtp", null=True, metrics=("decode_tok_s",))
    for count, wanted in ((5, 0), (8, 1)):
        table = contrasts.from_cells(prompts_of(series, count), [series]).to_pylist()
        found = [row for row in table if row["metric"] == "prompts:decode_tok_s"]
        assert len(found) == wanted
    (row,) = found
    assert (row["arm"], row["verdict"], row["df"], row["rounds"]) == ("mtp", "faster", 7, 6)
    own = table[0]
    assert row["ci_low"] <= own["ci_low"] < own["ci_high"] <= row["ci_high"]  # never the narrower
    table = contrasts.from_cells(prompts_of(series, 8), [series])
    claim = told(claims.from_contrasts(table, [series]))["two_turns/prompts:decode_tok_s/mtp"]
    text = sentence(claim)
    assert text.startswith("decode speed, for prompts like these: mtp is faster than plain, 1.2")
    assert text.endswith("prompts: 8).")


def test_rounds_say_nothing_about_other_prompts() -> None:
    """Prompts that differ: on these it is faster, for others like them it is not known."""
    series = series_of("mtp", metrics=("decode_tok_s",))
    table = contrasts.from_cells(prompts_of(series, 6, spread=0.3, speed=1.1), [series]).to_pylist()
    own, other = table
    assert (own["metric"], other["metric"]) == ("decode_tok_s", "prompts:decode_tok_s")
    assert other["ci_low"] < own["ci_low"]
    assert own["ci_high"] < other["ci_high"]
    assert other["verdict"] == "unresolved"


OLD = '{"date": "2026-11-28", "fingerprint": "ba9876543210", "versions": ["mlx-vlm 0.7.9"]}'


def test_an_earlier_measurement_is_told_as_one_and_decides_nothing() -> None:
    null = config.null_name("plain")
    series = Series((Arm("plain"), Arm("mtp"), Arm(null)), null_arm=null)
    old = replace(series, fingerprint="ba9876543210")
    cells = cells_of(old, decode={"mtp": 1.4}, ttft={"mtp": 3.0})
    today = contrasts.from_cells(cells.head(0), [series])
    table = pa.concat_tables([today, contrasts.from_cells(cells, [old])])
    found = told(claims.from_contrasts(table, [series], measured_on={"ba9876543210": OLD}))
    earlier = {name: row for name, row in found.items() if "/earlier/" in name}
    assert {row["arm"] for row in earlier.values()} == {"mtp"}
    claim = found["two_turns/earlier/decode_tok_s/mtp"]
    view = View("en")
    assert view.claim(claim).startswith(
        "Measured on 28\u00a0November 2026 with `mlx-vlm 0.7.9` (fingerprint `ba9876543210`), not "
        "since: decode speed, `mtp` was faster than `plain`, 1."
    )
    assert "pomiaru od tej pory nie powtórzono" in View("pl").claim(claim)
    assert found["two_turns/decode_tok_s/mtp"]["verdict"] == "not_measured"
    headline = found["two_turns/headline"]
    assert (headline["verdict"], headline["reason"]) == ("not_measured", "not_measured")
    assert headline["contrasts"] == ["two_turns/conversation_s/mtp/plain"]
    assert "two_turns/trade/mtp" not in found
    assert not any("/earlier/" in name for name in told(claims.from_contrasts(table, [series])))


def test_earlier_contrasts_change_nothing_of_today() -> None:
    series = series_of("mtp", null=True)
    old = replace(series, fingerprint="ba9876543210")
    cells = cells_of(series, decode={"mtp": 1.4})
    today = contrasts.from_cells(cells, [series])
    broken = cells_of(old, decode={"mtp": 0.5, NULL: 0.7})
    both = pa.concat_tables([contrasts.from_cells(broken, [old]), today])
    assert claims.from_contrasts(both, [series]).equals(claims.from_contrasts(today, [series]))
    assert contrasts.null_arm_state(both.to_pylist(), series) == "passed"
    assert forest.forest_data(both, series).equals(forest.forest_data(today, series))


# The file of claims -------------------------------------------------------------------------------

WHOLE = claim_kinds.FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("kinds:\n", "sorts:\n", "unknown key"),
        ("  trade:", "  trades:", "claims.yaml: kinds.trades: unknown key; known: decode_tok_s"),
        ("      failed: >-", "      broken: >-", "kinds.null_arm.sentences.broken: unknown key"),
        ("  unpaired: unpaired\n", "", "claims.yaml: verdicts.unpaired: it is missing"),
        ("{arm} wins the decoding", "{name} wins", "trade.sentences.slower: no placeholder {name}"),
        ("{arm} wins the decoding", "{arm wins", "trade.sentences.slower: braces do not match"),
        ("{arm} wins the decoding", "{} wins", "trade.sentences.slower: no placeholder {}"),
        ("{arm} wins the decoding", "{arm} wins 2 times", "a digit stands in it; numbers come"),
        ("section: reading", "section: readin", "null_arm.section: no section 'readin'; use one"),
        ('"*/{null_arm}"', '"*/{nullarm}"', "null_arm.rests_on: not a list of METRIC/ARM"),
        ('["stacking/{arm}"]', "stacking", "kinds.stacking.rests_on: not a list of METRIC/ARM"),
        ("{arm} wins the decoding", "{arm:d} wins", "slower: a placeholder is its name alone"),
        ("  same: same\n", "  same: same\n  same: faster\n", "the key 'same' stands twice"),
        ("  same: same\n", "  same: 2026-13-01\n", "not valid YAML: month must be"),
        ("  same: same\n", "  same: [same]\n", "verdicts.same: not a sentence"),
        ("kinds:\n", "kinds: 3\nx:\n", "unknown key"),
        ("kinds:\n", "kinds: {\n", "claims.yaml: line"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(old: str, new: str, line: str) -> None:
    assert old in WHOLE
    with pytest.raises(UserError) as caught:
        claim_kinds.parse(WHOLE.replace(old, new, 1), "workflow/claims.yaml")
    assert line in str(caught.value)
    assert str(caught.value).startswith("workflow/claims.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "3", "[]", "a: &a [*a]"])
def test_no_file_of_claims_at_all(text: str) -> None:
    with pytest.raises(UserError):
        claim_kinds.parse(text, "claims.yaml")


def test_a_missing_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_kinds, "FILE", tmp_path / "workflow" / "claims.yaml")
    with pytest.raises(UserError, match=r"workflow/claims.yaml: cannot be read"):
        claim_kinds.load.__wrapped__()


def test_a_claim_rests_on_what_the_file_says() -> None:
    series = series_of("mtp", "dflash", null=True)
    table = contrasts.from_cells(cells_of(series), [series])
    found = told(claims.from_contrasts(table, [series]))
    for name, kind, arm in (
        ("decode_tok_s/mtp", "decode_tok_s", "mtp"),
        ("headline", "headline:conversation_s", "mtp"),
        ("null_arm", "null_arm", NULL),
    ):
        rows = [row for row in table.to_pylist() if kind == "null_arm" or row["arm"] != NULL]
        wanted = claim_kinds.load().kinds[kind].contrasts(rows, arm=arm, null_arm=NULL)
        assert found[f"two_turns/{name}"]["contrasts"] == [
            claims.contrast_id(row) for row in wanted
        ]
        assert wanted


def test_translators_tools_see_every_message_of_the_file() -> None:
    with claim_kinds.FILE.open("rb") as file:
        seen = {
            message for _, message, _, _ in extract.extract("twoturn.claim_kinds:extract", file)
        }
    assert seen == set(claim_kinds.load().messages())
    assert len(seen) > 60
