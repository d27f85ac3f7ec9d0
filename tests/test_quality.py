"""Scores of cells become verdicts about arms, and a worse arm is recommended nowhere."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from twoturn import article, cells, claims, contrasts, quality, quality_figure
from twoturn.article.view import View
from twoturn.campaign import Loaded
from twoturn.forced import SCHEMA as FORCED
from twoturn.plan import Series

from .test_article import loaded

TEXT = """
servers:
  llama-cpp: {install: workflow/envs/llama-cpp.lock}
checkpoints:
  f16: {path: models/a}
  q4: {path: models/b}
  q3: {path: models/c}
series:
  speed:
    workload: {kind: chat, prompts: 1, prompt_tokens: 32, max_tokens: 8}
    reference: plain
    arms:
      plain: {checkpoint: f16, server: llama-cpp}
      small: {checkpoint: q4, server: llama-cpp}
      smallest: {checkpoint: q3, server: llama-cpp}
  answers:
    workload: {kind: quality, max_tokens: 8}
    reference: first
    null_arm: true
    arms:
      first: {checkpoint: f16, server: llama-cpp}
      second: {checkpoint: q4, server: llama-cpp}
      third: {checkpoint: q3, server: llama-cpp}
"""
TASKS = [f"{kind}/{level}/t{n}" for kind in ("edit", "code") for level in (1, 2) for n in range(16)]
OWN = [n % 2 == 0 for n in range(64)]


def row(series: Series, arm: str, task: str, passed: bool | None, **more: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(cells.JOINED.names),
        **{"series": series.name, "arm": arm, "fingerprint": series.fingerprint, "round": 1},
        **{"turn": 1, "prompt_id": task, "kind": "round", "status": "ok", "session_id": "s"},
        **{"started_at": pd.Timestamp("2026-01-01", tz="UTC"), "output_sha256": str(passed)},
        **{"passed": passed, **more},
    }


def scored(series: Series, **arms: list[bool]) -> pd.DataFrame:
    """Cells of one round; `again` is the control."""
    rows = []
    for name, passed in arms.items():
        more = {"kind": "control"} if name == "again" else {}
        arm = {"again": "first", "null": "first-null"}.get(name, name)
        rows += [row(series, arm, t, p, **more) for t, p in zip(TASKS, passed, strict=True)]
    return pd.DataFrame(rows)


def lost(share: float) -> list[bool]:
    """The reference's scores without some of the passed tasks."""
    passed = [n for n, one in enumerate(OWN) if one]
    gone = set(passed[: round(share * 64)])
    return [one and n not in gone for n, one in enumerate(OWN)]


def table(campaign: Loaded, **arms: list[bool]) -> list[dict[str, Any]]:
    every = {"first": OWN, "second": OWN, "third": lost(0.3), "null": OWN, "again": OWN, **arms}
    frame = scored(campaign.plan.one("answers"), **every)
    return quality.from_cells(frame, campaign.plan.series).to_pylist()


def test_an_arm_that_fails_more_is_worse_and_a_copy_is_the_same() -> None:
    rows = {one["arm"]: one for one in table(loaded(TEXT))}
    assert {arm: one["verdict"] for arm, one in rows.items()} == {
        **{"first": "same", "second": "same", "third": "worse", "first-null": "same"}
    }
    assert (rows["third"]["passed"], rows["third"]["only_reference"]) == (13, 19)
    assert rows["third"]["difference"] == pytest.approx(-19 / 64)
    assert (rows["second"]["texts"], rows["second"]["same_texts"]) == (64, 64)
    assert rows["third"]["same_texts"] == 45


def test_how_close_the_reference_was_where_texts_part() -> None:
    campaign = loaded(TEXT)
    series = campaign.plan.one("answers")
    frame = scored(series, first=OWN, second=OWN, third=lost(0.3), again=OWN)
    apart = frame["arm"] == "third"
    # Of 19 texts that differ the gap is known of 18: half below 0.1 nat, half far above.
    gaps = [None, *[0.01] * 9, *[2.0] * 9]
    differ = apart & (frame["passed"] != frame["prompt_id"].map(dict(zip(TASKS, OWN, strict=True))))
    frame.loc[differ, "divergence_index"] = 4
    frame["divergence_gap_nats"] = pd.Series(gaps, index=frame.index[differ], dtype=float)
    rows = {one["arm"]: one for one in quality.from_cells(frame, campaign.plan.series).to_pylist()}
    names = ("texts", "same_texts", "gaps", "near_ties", "first_gap_nats")
    assert [rows["third"][name] for name in names] == [64, 45, 18, 9, pytest.approx(1.005)]
    assert [rows["second"][name] for name in names] == [64, 64, 0, None, None]


@pytest.mark.parametrize("copied", ["again", "null"])
def test_a_reference_that_differs_from_itself_makes_nothing_sure(copied: str) -> None:
    for one in table(loaded(TEXT), **{copied: lost(0.3)}):
        assert (one["verdict"], one["warnings"]) == ("invalid", ["null_arm_differs:quality"])
        assert one["difference"] is None


def test_a_task_passes_if_it_passes_in_every_round() -> None:
    campaign = loaded(
        TEXT.replace(
            "kind: quality, max_tokens: 8}", "kind: quality, max_tokens: 8}\n    rounds: 2"
        )
    )
    series = campaign.plan.one("answers")
    once = scored(series, first=OWN, second=OWN)
    again = scored(series, first=OWN, second=lost(0.3)).assign(round=2)
    (found,) = [
        one
        for one in quality.from_cells(pd.concat([once, again]), campaign.plan.series).to_pylist()
        if one["arm"] == "second"
    ]
    assert (found["passed"], found["verdict"]) == (13, "worse")


def test_the_control_is_held_against_one_round_and_not_against_all() -> None:
    """Answers that flip between rounds are noise and no sign that the control passes more."""
    campaign = loaded(
        TEXT.replace("quality, max_tokens: 8}", "quality, max_tokens: 8}\n    rounds: 4")
    )
    series = campaign.plan.one("answers")
    flips = [[one and n % 8 != 2 * k for n, one in enumerate(OWN)] for k in range(4)]
    rounds = [scored(series, first=some).assign(round=k) for k, some in enumerate(flips, start=1)]
    control = scored(series, again=flips[0]).assign(round=4)
    table = quality.from_cells(pd.concat([*rounds, control]), campaign.plan.series).to_pylist()
    assert (table[0]["arm"], table[0]["verdict"], table[0]["only_arm"]) == ("first", "same", 0)


def test_an_arm_whose_server_did_not_start_is_not_told_as_not_measured_yet() -> None:
    campaign = loaded(TEXT)
    series = campaign.plan.one("answers")
    frame = scored(series, first=OWN, third=OWN)
    failed = row(series, "second", cells.NO_PROMPT, None, status="start_failed")
    frame = pd.concat([frame, pd.DataFrame([failed])])
    rows = {one["arm"]: one for one in quality.from_cells(frame, campaign.plan.series).to_pylist()}
    assert (rows["second"]["verdict"], rows["second"]["warnings"]) == (
        "invalid",
        ["row_not_ok:start_failed"],
    )
    assert rows["first-null"]["verdict"] == "not_measured"


def test_a_failed_request_is_no_failed_task() -> None:
    campaign = loaded(TEXT)
    series = campaign.plan.one("answers")
    frame = scored(series, first=OWN, second=OWN)
    broken = row(series, "second", TASKS[0], None, status="connection_lost")
    frame = pd.concat(
        [
            frame[~((frame["arm"] == "second") & (frame["prompt_id"] == TASKS[0]))],
            pd.DataFrame([broken]),
        ]
    )
    rows = {one["arm"]: one for one in quality.from_cells(frame, campaign.plan.series).to_pylist()}
    assert rows["second"]["warnings"] == ["row_not_ok:connection_lost"]
    assert rows["third"]["verdict"] == "not_measured"


# --- with speed -----------------------------------------------------------------------------------


def speeds(campaign: Loaded, **verdicts: str) -> pa.Table:
    """Contrasts of the timed series: (decoding) faster arms are 1.5 times as fast."""
    series = campaign.plan.one("speed")
    rows = []
    for metric in series.metrics:
        for arm, verdict in verdicts.items():
            head = {"series": "speed", "metric": metric, "arm": arm, "reference": "plain"}
            ratio = {"faster": 1.5, "slower": 0.7}.get(verdict, 1.0)
            rows.append(
                {
                    **dict.fromkeys(contrasts.SCHEMA.names),
                    **head,
                    **{"ratio": ratio, "ci_low": ratio - 0.01, "ci_high": ratio + 0.01},
                    **{"confidence": 0.99, "p_value": 0.0, "df": 8, "rounds": 6, "hl_ratio": ratio},
                    **{"verdict": verdict, "warnings": [], "fingerprint": series.fingerprint},
                }
            )
    return pa.Table.from_pylist(rows, contrasts.SCHEMA)


def told(campaign: Loaded, contrast_table: pa.Table) -> dict[str, dict[str, Any]]:
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    found = claims.from_contrasts(contrast_table, campaign.plan.series, scores=scores)
    return {one["claim"]: one for one in found.to_pylist()}


def test_arms_are_found_again_by_what_they_are() -> None:
    campaign = loaded(TEXT)
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    found = quality.links(campaign.plan.series, scores)
    assert [(one.arm, one.quality["arm"], one.same_reference) for one in found] == [
        ("small", "second", True),
        ("smallest", "third", True),
    ]
    assert quality.worse(campaign.plan.series, scores) == {"speed": {"smallest"}}


def test_other_settings_are_another_arm() -> None:
    smallest = "smallest: {checkpoint: q3, server: llama-cpp"
    changed = TEXT.replace(smallest, f"{smallest}, settings: {{threads: 1}}")
    campaign = loaded(changed)
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    assert quality.worse(campaign.plan.series, scores) == {}


def test_a_faster_arm_that_answers_worse_is_not_recommended() -> None:
    campaign = loaded(TEXT)
    claim = told(campaign, speeds(campaign, small="faster", smallest="faster"))
    assert claim["speed/headline"]["arms"] == ["small"]
    assert claim["speed/withheld/smallest"]["section"] == "decision"
    view = View("en")
    assert view.claim(claim["speed/withheld/smallest"]) == (
        "`smallest` is not recommended, however fast: it answers worse than the reference of the "
        "tasks."
    )


def test_where_only_worse_arms_are_faster_nothing_is_recommended() -> None:
    campaign = loaded(TEXT)
    claim = told(campaign, speeds(campaign, small="slower", smallest="faster"))
    assert claim["speed/headline"]["verdict"] == "worse"
    assert View("en").claim(claim["speed/headline"]) == (
        "The series `speed` recommends nothing in place of `plain`: what was shown to be faster "
        "(`smallest`) answers worse."
    )


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_article_tells_it(language: str) -> None:
    campaign = loaded(TEXT)
    contrast_table = speeds(campaign, small="faster", smallest="faster")
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    every = {"first": OWN, "second": OWN, "third": lost(0.3), "null": OWN, "again": OWN}
    claim_table = claims.from_contrasts(contrast_table, campaign.plan.series, scores=scores)
    forced = {
        **{"checkpoint": "q3", "against": "f16", "bits_per_weight": 4.0, "perplexity": 12.5},
        **{"kl_divergence": 0.31, "same_top": 0.8, "tokens": 768, "reason": None},
    }
    missing = {**dict.fromkeys(forced), "checkpoint": "q4", "reason": "no_safetensors"}
    size = {"bits_per_weight": 4.5, "stored": {"4": 1.0}, "group_sizes": [64], "overrides": {}}
    given = article.Scored(scores, (forced, missing), {"q4": size}, "figures/quality_en.svg")
    data = article.gather(
        campaign,
        scored(campaign.plan.one("answers"), **every),
        contrast_table,
        claim_table,
        {},
        given,
    )
    text = article.render(language, data)
    words = {
        "en": ("## Output quality", "answers worse than `first`", "4.50", "−29.7", "mlx_lm reads"),
        "pl": (
            "## Jakość odpowiedzi",
            "odpowiada gorzej niż `first`",
            "4,50",
            "−29,7",
            "czyta mlx_lm",
        ),
    }
    for word in words[language]:
        assert word in text
    assert "(figures/quality_en.svg)" in text
    assert "judged by nobody" not in text
    title = {"en": "## The configuration settled on\n", "pl": "## Wybrana konfiguracja\n"}
    settled = text.partition(title[language])[2].partition("\n## ")[0]
    assert "`speed`: `small`" in settled
    assert "`smallest`" not in settled
    assert [one.series.name for one in data.series] == ["speed"]
    too = {
        "en": "An arm whose speed was measured too",
        "pl": "Jeśli mierzono też prędkość wariantu",
    }
    assert too[language] in text


@pytest.mark.parametrize("language", ["en", "pl"])
def test_where_no_checkpoint_could_be_read_nothing_is_told_of_divergence(language: str) -> None:
    campaign = loaded(TEXT)
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    unread = {**dict.fromkeys(FORCED.names), "checkpoint": "q4", "reason": "cannot_load"}
    frame = scored(campaign.plan.one("answers"), first=OWN, second=OWN)
    empty = contrasts.SCHEMA.empty_table()
    given = article.Scored(scores, (unread,))
    data = article.gather(campaign, frame, empty, claims.SCHEMA.empty_table(), {}, given)
    text = article.render(language, data)
    title = {
        "en": "### The same text, token by token\n",
        "pl": "### Ten sam tekst, token po tokenie\n",
    }
    told = text.partition(title[language])[2].partition("\n## ")[0]
    assert told.strip().startswith("- `q4` ")


def told_alone(text: str, language: str, **arms: list[bool]) -> str:
    """The article about a campaign whose timed series has no cells, or is not there."""
    campaign = loaded(text)
    frame = scored(campaign.plan.one("answers"), **arms).assign(server="other", server_version="9")
    scores = quality.from_cells(frame, campaign.plan.series)
    empty = contrasts.SCHEMA.empty_table()
    claim_table = claims.from_contrasts(empty, campaign.plan.series, scores=scores)
    data = article.gather(campaign, frame, empty, claim_table, {}, article.Scored(scores))
    return article.render(language, data)


SPEED = TEXT[TEXT.index("  speed:") : TEXT.index("  answers:")]
OTHER = "  llama-cpp: {install: workflow/envs/llama-cpp.lock}\n"
MIXED = TEXT.replace(OTHER, OTHER + OTHER.replace("llama-cpp:", "other:"))
MIXED = MIXED.replace(
    "third: {checkpoint: q3, server: llama-cpp}", "third: {checkpoint: q3, server: other}"
)


@pytest.mark.parametrize("language", ["en", "pl"])
def test_an_article_about_quality_alone_tells_of_no_speed(language: str) -> None:
    text = told_alone(
        MIXED.replace(SPEED, ""), language, first=OWN, second=OWN, third=OWN, null=OWN, again=OWN
    )
    assert "fingerprints: answers " in text
    gone = {
        "en": (
            *("nothing to decide", "another temperature", "asks once", "no control of"),
            *("whose speed was measured", "Rounds that"),
        ),
        "pl": ("czego rozstrzygać", "temperaturze niż", "pyta raz", "mierzono też prędkość"),
    }
    assert [words for words in gone[language] if words in text] == []
    decision = text.split("\n## ")[1]
    assert {"en": "No two arms were timed", "pl": "żadnych dwóch wariantów"}[language] in decision


def test_a_series_of_tasks_is_told_like_every_other() -> None:
    text = told_alone(MIXED, "en", first=OWN, second=OWN)
    fingerprint = loaded(MIXED).plan.one("answers").fingerprint
    assert f"answers {fingerprint}" in text.splitlines()[0]
    assert f"| `answers` | `{fingerprint}` | 0 | 7 |" in text
    assert re.search(r"^\| `other` \| `[^`]+` \| `9` \|", text, re.MULTILINE)
    assert re.search("Not one whole round is there of .*`answers`", text)
    twice = MIXED.replace("    reference: first", "    rounds: 2\n    reference: first")
    whole = told_alone(twice, "en", first=OWN, second=OWN, third=OWN, null=OWN)
    assert "Rounds that the series `answers` still lacks: 2." in whole
    assert "There is no control of `answers`." in whole


@pytest.mark.parametrize("language", ["en", "pl"])
def test_the_picture_shows_both_intervals(language: str) -> None:
    campaign = loaded(TEXT)
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    data = quality_figure.data(
        speeds(campaign, small="faster", smallest="faster"), scores, campaign.plan.series
    )
    assert list(data["arm"]) == ["small", "smallest"]
    assert data["points"].tolist() == pytest.approx([0, -29.6875])
    drawn = quality_figure.draw(data, language)
    assert "smallest" in drawn
    assert drawn == quality_figure.draw(copy.deepcopy(data), language)


def test_an_adaptive_block_is_another_configuration() -> None:
    campaign = loaded(TEXT)
    series = campaign.plan.series
    changed = [
        replace(
            one,
            arms=tuple(
                replace(arm, speculation="dflash", adaptive=one.metrics != ())
                if arm.name == "smallest"
                else arm
                for arm in one.arms
            ),
        )
        for one in series
    ]
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    assert "smallest" in {one.arm for one in quality.links(series, scores)}
    assert "smallest" not in {one.arm for one in quality.links(changed, scores)}


def test_a_picture_of_nothing() -> None:
    campaign = loaded(TEXT)
    empty = quality.SCHEMA.empty_table()
    data = quality_figure.data(contrasts.SCHEMA.empty_table(), empty, campaign.plan.series)
    assert "no arm has both yet" in quality_figure.draw(data, "en")


def test_another_reference_has_no_place_in_the_picture() -> None:
    campaign = loaded(TEXT.replace("reference: plain", "reference: small"))
    scores = pa.Table.from_pylist(table(campaign), quality.SCHEMA)
    found = quality.links(campaign.plan.series, scores)
    assert [(one.arm, one.same_reference) for one in found] == [("smallest", False)]
    assert replace(found[0], same_reference=True) != found[0]
