"""The article: two languages, one set of numbers, and no hole in the text of any campaign."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from twoturn import article, cells, claims, config, contrasts, i18n, metrics, numbers, plan
from twoturn.article import sections
from twoturn.article import series as series_sections
from twoturn.article.view import STATUSES, View, code
from twoturn.campaign import Loaded
from twoturn.stats.verdict import Verdict

DEMO_CELLS = Path(__file__).parent / "fixtures" / "cells_demo.parquet"

DEMO = """
machine: local
servers:
  mlx-vlm: {install: workflow/envs/mlx-vlm.lock}
checkpoints:
  demo: {path: checkpoints/demo/target}
  demo-mtp: {path: checkpoints/demo/mtp}
  demo-dflash: {path: checkpoints/demo/dflash}
series:
  short_prompt:
    workload: {kind: chat, prompts: 3, prompt_tokens: 56, max_tokens: 64, seed: 7}
    reference: plain
    null_arm: true
    arms:
      plain: &plain {checkpoint: demo, server: mlx-vlm}
      mtp: &mtp
        {checkpoint: demo, server: mlx-vlm, speculation: mtp, block_size: 3, draft: demo-mtp}
      dflash: &dflash
        {checkpoint: demo, server: mlx-vlm, speculation: dflash, block_size: 4, draft: demo-dflash}
  two_turns:
    workload: {kind: conversation, prompt_tokens: 1500, turns: 2, turn_tokens: 48, max_tokens: 64}
    reference: plain
    null_arm: true
    arms:
      plain: *plain
      mtp: *mtp
      dflash: *dflash
      cache_off: {checkpoint: demo, server: mlx-vlm, settings: {prefix_cache: false}}
"""

COMPARING = {
    "en": re.compile(
        r"\b(faster|fastest|slower|slowest|quick\w*|better|best|worse|worst|sooner|later|"
        r"wins?|loses?|beats?|outperform\w*|superior|inferior)\b",
        re.IGNORECASE,
    ),
    "pl": re.compile(
        r"\b(szybciej|szybsz\w*|najszyb\w*|wolniej\w*|lepsz\w*|lepiej|najlep\w*|gorsz\w*|gorzej|"
        r"wcześniej|później|wygrywa\w*|przegrywa\w*|bije|pokonuje)\b",
        re.IGNORECASE,
    ),
}
LANGUAGES = ("en", "pl")


def loaded(text: str = DEMO, **facts: Any) -> Loaded:
    campaign = config.parse(text, "campaign.yaml")
    lock = {
        "machine": {
            **{"chip": "Some <chip> | X_1", "memory_gb": 24, "os": "An OS", "os_build": "1_2"},
            **{"arch": "arm64", "accelerator": "cpu"},
            **facts,
        }
    }
    recipes = {
        "texts": {series.workload.text: "0" * 64 for series in campaign.series.values()},
        "servers": {
            name: {"adapter": name, "version": "0.7.10", "packages": {"mlx": "0.32.4"}}
            for name in campaign.servers
        },
        "checkpoints": {name: {"files_sha256": "a" * 64} for name in campaign.checkpoints},
    }
    return Loaded(
        "campaign.yaml",
        Path("/nowhere"),
        campaign,
        lock,
        recipes,
        plan.make(campaign, lock, recipes),
    )


def demo_cells(campaign: Loaded) -> pd.DataFrame:
    """Cells of a finished demo campaign, as if measured for this plan."""
    table = pd.read_parquet(DEMO_CELLS).reindex(columns=cells.JOINED.names)
    fingerprints = {series.name: series.fingerprint for series in campaign.plan.series}
    return table.assign(fingerprint=table["series"].map(fingerprints).fillna("other"))


def data_of(campaign: Loaded, table: pd.DataFrame, **pictures: str) -> article.Data:
    found = contrasts.from_cells(table, campaign.plan.series)
    told = claims.from_contrasts(found, campaign.plan.series)
    return article.gather(
        campaign,
        table,
        found,
        told,
        {"two_turns": {"forest": "figures/forest_two_turns_en.svg", **pictures}},
    )


def both(data: article.Data) -> dict[str, str]:
    """The articles, each checked for holes, and for the same numbers in the same order."""
    texts = {language: article.render(language, data) for language in LANGUAGES}
    for language, text in texts.items():
        check(text, language, data)
    assert numbers.parse(prose(texts["en"]), "en") == numbers.parse(prose(texts["pl"]), "pl")
    return texts


def prose(text: str) -> str:
    """Without the comment, code and links: names hold digits of their own."""
    return re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", " ", text)


def check(text: str, language: str, data: article.Data) -> None:
    assert text.startswith("<!-- campaign: ")
    shown = prose(text)
    assert not re.search(r"\b(None|nan|NaN|inf|NaT|NA|Undefined)\b|%\(|\{|\}", shown)
    assert "\n\n\n" not in text
    blocks = [block for block in text.strip().split("\n\n") if block]
    for block, following in zip(blocks, [*blocks[1:], "# end"], strict=True):
        if block.startswith("#"):
            assert "\n" not in block
            level = len(block) - len(block.lstrip("#"))
            deeper = following.startswith("#" * (level + 1))
            assert not following.startswith("#") or deeper, f"orphan heading {block}"
        if block.startswith("|"):
            rows = block.split("\n")
            assert len(rows) > 2, f"empty table {block}"
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1, block
    assert not COMPARING[language].search(without_claims(text, language, data))


def without_claims(text: str, language: str, data: article.Data) -> str:
    """What is left of an article when the sentences of claims and the verdicts are taken out."""
    view = View(language)
    for series in data.series:
        for row in series.claims:
            text = text.replace(view.claim(row), "")
    for verdict in Verdict:
        text = re.sub(rf"\| {view.verdict(verdict)} (?=\|)", "| ", text)
    return prose(text)


@pytest.fixture(scope="module")
def campaign() -> Loaded:
    return loaded()


@pytest.fixture(scope="module")
def demo(campaign: Loaded) -> dict[str, str]:
    pictures = {kind: f"figures/{kind}_two_turns_en.svg" for kind in ("slots", "turns")}
    return both(data_of(campaign, demo_cells(campaign), **pictures))


def test_the_demo_tells_the_trade_and_what_it_is_worth(demo: dict[str, str]) -> None:
    assert "`cache_off` wins the decoding and loses the conversation" in demo["en"]
    assert "wygrywa dekodowanie, a przegrywa rozmowę" in demo["pl"]
    assert "must not be carried over to a Mac's GPU" in demo["en"]
    assert "It is a toy" in demo["en"]
    assert "All arms gave the same text in every request; 18 requests" in demo["en"]
    assert "1,500 tokens" in demo["en"].replace("\u00a0", " ")
    assert "](figures/slots_two_turns_en.svg)" in demo["en"]
    assert "| `cache_off` | 2.56 |" in demo["en"]
    assert "| `cache_off` | 2,56 |" in demo["pl"]
    assert "Nothing is excluded: all 224 requests are valid." in demo["en"]


def test_the_comment_tells_campaign_fingerprints_and_dates(
    campaign: Loaded, demo: dict[str, str]
) -> None:
    first = {text.split("\n")[0] for text in demo.values()}
    (line,) = first
    assert all(series.fingerprint in line for series in campaign.plan.series)
    assert "measured: 2026-11-29T18:32Z/2026-11-29T18:37Z" in line


def test_an_article_of_the_same_data_is_the_same(campaign: Loaded) -> None:
    data = data_of(campaign, demo_cells(campaign))
    assert article.render("pl", data) == article.render("pl", data)


def test_names_are_escaped(demo: dict[str, str]) -> None:
    assert "Some &lt;chip&gt; \\| X\\_1" in demo["en"]
    assert code("a`b|c") == "a\\`b\\|c"
    assert code("a|b") == "a\\|b"
    assert code("plain_x") == "`plain_x`"


def test_nothing_is_measured_yet(campaign: Loaded) -> None:
    empty = cells.JOINED.empty_table().to_pandas()
    texts = both(data_of(campaign, empty))
    assert "Nothing of this campaign is measured yet." in texts["en"]
    assert "Not one whole round is there of `short_prompt` and `two_turns`." in texts["en"]
    assert "Nothing is excluded: there are no rows yet." in texts["en"]


def test_an_edited_history_is_not_told_as_not_measured() -> None:
    words = {"en": "or with an edited history", "pl": "ani z edytowaną historią"}
    for history, told in (("exact", True), ("altered", False)):
        changed = loaded(DEMO.replace("turns: 2,", f"turns: 2, history: {history},"))
        texts = both(data_of(changed, demo_cells(changed)))
        assert {words[language] in texts[language] for language in LANGUAGES} == {told}


def test_no_tables_of_contrasts_and_claims(campaign: Loaded) -> None:
    data = article.gather(
        campaign,
        demo_cells(campaign),
        contrasts.SCHEMA.empty_table(),
        claims.SCHEMA.empty_table(),
        {},
    )
    both(data)


def test_one_series_of_two_is_measured(campaign: Loaded) -> None:
    table = demo_cells(campaign)
    texts = both(data_of(campaign, table[table["series"] == "two_turns"]))
    assert "Not one whole round is there of `short_prompt`." in texts["en"]
    assert (
        "The series `short_prompt` decides nothing, because it is not measured yet." in texts["en"]
    )


def test_an_earlier_measurement_is_told_and_shown_nowhere(campaign: Loaded) -> None:
    series = campaign.plan.one("two_turns")
    now = demo_cells(campaign)
    now = now[now["series"] == "short_prompt"]
    old = replace(series, spec={**series.spec, "protocol": 0})
    then = demo_cells(campaign).assign(fingerprint=old.fingerprint)
    found = pa.concat_tables(
        [contrasts.from_cells(now, campaign.plan.series), contrasts.from_cells(then, [old])]
    )
    on = json.dumps({"date": "2026-10-01", "versions": ["mlx-vlm 0.7.9"], "fingerprint": "abc"})
    told = claims.from_contrasts(found, campaign.plan.series, measured_on={old.fingerprint: on})
    texts = both(
        article.gather(campaign, now, found, told, {"two_turns": {"forest": "figures/x.svg"}})
    )
    assert texts["en"].count("Measured on 1\u00a0October 2026 with `mlx-vlm 0.7.9`") == 9
    assert texts["pl"].count("Zmierzono 1\u00a0października 2026 z `mlx-vlm 0.7.9`") == 9
    assert "decides nothing, because it is not measured yet." in texts["en"]
    assert "figures/x.svg" not in texts["en"]
    assert "| `cache_off` | 2.56 |" not in texts["en"]


def test_rounds_and_the_control_are_missing(campaign: Loaded) -> None:
    table = demo_cells(campaign)
    texts = both(data_of(campaign, table[table["round"] <= 3]))
    assert "Rounds that the series `two_turns` still lacks: 4–6." in texts["en"]
    assert "There is no control of `short_prompt` and `two_turns`." in texts["en"]
    assert "not all planned rounds are measured" in texts["en"]


def test_an_invalid_series_says_why_once(campaign: Loaded) -> None:
    table = demo_cells(campaign)
    chat = (table["series"] == "short_prompt") & (table["round"] == 2)
    table.loc[chat, "started_at"] = table.loc[chat, "started_at"] + pd.Timedelta(hours=1)
    table.loc[chat, "start_monotonic_s"] += 3600
    texts = both(data_of(campaign, table))
    reason = "because the cells were not measured in the planned order."
    assert texts["en"].count(f"The series `short_prompt` decides nothing, {reason}") == 2
    assert texts["en"].count(reason) == 3  # decision, null arm, its own section


def test_failed_rows_are_shown_with_their_reason(campaign: Loaded) -> None:
    table = demo_cells(campaign)
    failed = table.index[(table["arm"] == "mtp") & (table["kind"] == "round")][:1]
    table.loc[failed, "status"] = "stopped_early"
    table.loc[failed, "reason"] = "12 of 64 tokens | then <stop>"
    texts = both(data_of(campaign, table))
    assert "Of 224 requests 1 is excluded" in texts["en"]
    assert (
        "| round | 1 | 1 | `stopped_early`: the answer is shorter than asked for "
        "| 12 of 64 tokens \\| then &lt;stop&gt; |" in texts["en"]
    )
    assert "a request failed with the status `stopped_early`" in texts["en"]


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, 0.0])
def test_values_that_are_no_numbers_leave_no_trace(campaign: Loaded, value: Any) -> None:
    table = demo_cells(campaign)
    columns = table.select_dtypes("float").columns.difference(["start_monotonic_s"])
    table.loc[table["arm"] == "mtp", columns] = np.nan if value is None else value
    texts = both(data_of(campaign, table))
    assert "n/d: not known or not reported." in texts["en"]
    assert "b.d.: brak danych" in texts["pl"]


def test_a_draft_that_does_not_fit_its_target_is_called_suspect(
    campaign: Loaded, demo: dict[str, str]
) -> None:
    """Draft-target mismatch: nothing is accepted, and the table says whose fault that may be."""
    table = demo_cells(campaign)
    table.loc[table["arm"] == "mtp", "accepted_tokens"] = 0.05 * table["verify_cycles"]
    texts = both(data_of(campaign, table))
    for language, shown, said in (
        ("en", "1.05", "`draft_suspect`: an accept length under 1.2 means"),
        ("pl", "1,05", "`draft_suspect`: accept length poniżej 1,2 oznacza"),
    ):
        assert f"| {shown} `draft_suspect` |" in texts[language]
        assert said in texts[language]
        assert "draft_suspect" not in demo[language]


def test_unknown_texts_and_machine(campaign: Loaded) -> None:
    unknown = loaded(chip=None, memory_gb=None, os=None, os_build=None)
    table = demo_cells(unknown)
    table["output_sha256"] = None
    texts = both(data_of(unknown, table))
    assert "Whether the arms gave the same text is not known" in texts["en"]
    assert "All arms gave the same text" not in texts["en"]


def test_another_text_is_told_with_its_first_place(campaign: Loaded) -> None:
    """Output differs: told, with its place, and never called lossless."""
    table = demo_cells(campaign)
    other = (table["arm"] == "dflash") & (table["kind"] == "round") & (table["round"] > 2)
    other &= (table["series"] == "two_turns") & (table["turn"] == 2)
    table.loc[other, "output_sha256"] = "f" * 64
    table.loc[other, "divergence_index"] = 41.0
    texts = both(data_of(campaign, table))
    assert (
        "- `dflash` differs from `plain` in 4 requests of 12, first in round 3, prompt `p1`, "
        "turn 2, from character 42 on." in texts["en"]
    )
    assert "w 4 żądaniach z 12" in texts["pl"]
    assert texts["en"].count("All arms gave the same text") == 1
    assert "lossless" not in texts["en"]


def test_wrong_texts_and_diverging_ones_are_told_apart(campaign: Loaded) -> None:
    table = demo_cells(campaign)
    talk = (table["series"] == "two_turns") & (table["kind"] == "round")
    table["text_gate"] = np.where(talk, "identical", None)
    wrong = talk & (table["arm"] == "mtp") & (table["turn"] == 2) & (table["round"] > 1)
    table.loc[wrong, ["text_gate", "status"]] = "wrong_when_warm"
    table.loc[wrong, "divergence_token"] = 12
    diverging = talk & (table["arm"] == "dflash") & (table["turn"] == 1) & (table["round"] == 3)
    table.loc[diverging, "text_gate"] = "diverges"
    table.loc[diverging, "divergence_token"] = 7
    texts = both(data_of(campaign, table))
    assert (
        "The text of `mtp` is wrong once its server is warm: in 5 requests of 12, in the first of "
        "them from token 12 on, it is not what a fresh server writes" in texts["en"]
    )
    assert (
        "The text of `dflash` diverges from that of a fresh server without speculation in 1 "
        "request of 12, from token 7 on" in texts["en"]
    )
    assert "`mtp` against `plain`: no comparison, because `mtp` wrote, once" in texts["en"]
    assert "ponieważ wariant `mtp` na rozgrzanym serwerze dał inny tekst" in texts["pl"]
    assert not re.search(r"`mtp` (decodes|finishes)", texts["en"].split("## The series")[2])
    assert "is not known: not every request has a text" not in texts["en"]


def test_sampled_texts_are_not_compared() -> None:
    sampled = loaded(DEMO.replace("turns: 2,", "turns: 2, temperature: 0.7,"))
    texts = both(data_of(sampled, demo_cells(sampled)))
    assert "Answers are sampled, so no texts are compared." in texts["en"]


def test_one_arm_and_no_null_arm_compare_nothing() -> None:
    alone = loaded(
        """
name: alone--x
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints: {demo: {path: elsewhere}}
series:
  short_prompt:
    workload: {kind: chat, prompts: 3, prompt_tokens: 56, max_tokens: 64}
    reference: plain
    arms: {plain: {checkpoint: demo, server: mlx-vlm}}
""",
        accelerator="metal",
    )
    table = demo_cells(alone)
    texts = both(data_of(alone, table[(table["arm"] == "plain")]))
    assert "has one arm: it tells figures and compares nothing." in texts["en"]
    assert "carried over" not in texts["en"]
    assert "toy" not in texts["en"]
    assert "accept length" not in prose(texts["en"].lower())[:800]
    assert texts["en"].startswith("<!-- campaign: alone__x;")


SQUARE = """
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints:
  demo: {path: checkpoints/demo/target}
  demo-8: {make: {from: demo, bits: 8}}
  demo-deep: {make: {from: demo, layers: 16}}
  demo-gguf: {make: {from: demo, gguf: q8_0}}
  demo-damaged: {make: {from: demo, noise: 0.25}}
  demo-again: {make: {from: demo, noise: 0}}
  demo-copy: {make: {from: demo-again, gguf: f16}}
  demo-mtp: {path: checkpoints/demo/mtp}
series:
  two_turns:
    workload: {kind: conversation, prompt_tokens: 1500, turns: 2, turn_tokens: 48, max_tokens: 64}
    reference: plain
    arms:
      plain: {checkpoint: demo, server: mlx-vlm}
      mtp: &mtp
        {checkpoint: demo, server: mlx-vlm, speculation: mtp, block_size: 3, draft: demo-mtp}
      dflash: {checkpoint: demo-8, server: mlx-vlm}
      cache_off: {<<: *mtp, checkpoint: demo-8}
"""


def square_of(**facts: Any) -> Loaded:
    """The demo read as a square: dflash stands for the other checkpoint, cache_off for both."""
    square = loaded(SQUARE, **facts)
    source = square.recipes["checkpoints"]["demo"]
    square.recipes["checkpoints"]["demo-8"] = {"from": source, "bits": 8, "group_size": 64}
    square.recipes["checkpoints"]["demo-deep"] = {"from": source, "layers": 16}
    square.recipes["checkpoints"]["demo-gguf"] = {"from": source, "gguf": "q8_0"}
    square.recipes["checkpoints"]["demo-damaged"] = {"from": source, "noise": 0.25}
    copy = {"from": source, "noise": 0.0}
    square.recipes["checkpoints"]["demo-copy"] = {"from": copy, "gguf": "f16"}
    return square


def square_cells(square: Loaded) -> pd.DataFrame:
    table = demo_cells(square)
    table = table[
        (table["series"] == "two_turns") & (table["arm"] != config.null_name("plain"))
    ].copy()
    series = square.plan.one("two_turns")
    rng = np.random.default_rng(3)
    rows = table["kind"] == "round"
    places = {
        (number, arm): (number - 1) * 4 + place
        for number in series.round_numbers()
        for place, arm in enumerate(series.order(number))
    }
    where = [places[key] for key in zip(table["round"], table["arm"], strict=True)]
    start = pd.Timestamp("2026-11-29T18:00Z") + pd.to_timedelta(np.array(where) * 100, unit="s")
    table.loc[rows, "started_at"] = start[rows.to_numpy()]
    table.loc[rows, "start_monotonic_s"] = np.array(where, dtype=float)[rows.to_numpy()] * 100
    table["session_id"] = "one"
    speed = {"plain": 1.0, "mtp": 1.5, "dflash": 0.7, "cache_off": 1.5 * 0.7 * 0.8}
    noise = np.exp(rng.normal(0, 0.01, len(table)))
    table["decode_s"] = table["decode_tokens"] / (100 * table["arm"].map(speed) * noise)
    return table


def test_precision_and_speculation_together() -> None:
    square = square_of()
    texts = both(data_of(square, square_cells(square)))
    assert "## Precision and speculation together" in texts["en"]
    assert "Together `dflash` and `mtp` give less than the product of their ratios" in texts["en"]
    assert "Razem `dflash` i `mtp` dają mniej niż iloczyn ich stosunków" in texts["pl"]
    assert "must not be read as a Mac's" in texts["en"]
    assert "nie wolno przenosić na Maca" in texts["pl"]
    assert re.search(r"\| Both, of that product \| (7\d|8\d)(\.\d)?% \| \d+", texts["en"])
    assert "stacking" not in texts["en"].partition("## Precision")[0].lower()
    assert "padded with layers that add nothing to: 16" in texts["en"]
    assert "made from files on disk, as a GGUF file: `q8_0`" in texts["en"]
    assert "jako plik GGUF: `q8_0`" in texts["pl"]
    assert "damaged on purpose: noise of 0.25 times the weights' spread" in texts["en"]
    assert "uszkodzony celowo: szum 0,25 rozrzutu wag" in texts["pl"]
    steps = "made from files on disk, a copy of its weights, as a GGUF file: `f16`"
    assert texts["en"].count("a copy of its weights") == texts["en"].count(steps) == 1
    metal = square_of(accelerator="metal")
    table = square_cells(metal)
    assert "scalar loops" not in both(data_of(metal, table))["en"]


def test_a_square_that_says_nothing() -> None:
    square = square_of()
    table = square_cells(square)
    empty = both(data_of(square, table[table["arm"] == "none of them"]))
    assert "Stacking of the decode speed, `cache_off` against `plain`: not measured" in empty["en"]
    table.loc[table["arm"] == "mtp", "status"] = "stopped_early"
    silent = both(data_of(square, table))
    assert "Both, of that product | n/d | n/d |" in silent["en"]
    assert "`cache_off` against `plain`: no comparison, because a request failed" in silent["en"]


def test_without_a_square_the_section_is_not_there(demo: dict[str, str]) -> None:
    assert "Precision and speculation" not in demo["en"]
    assert "](figures/forest_two_turns_en.svg)" in demo["en"]
    assert demo["en"].count("figures/forest_") == 1


def test_every_status_of_a_request_has_words() -> None:
    assert set(metrics.STATUSES) - {"ok"} <= set(STATUSES)
    assert View("en").status("new_fault") == "`new_fault`"
    assert View("pl").status("slept") == "`slept`: maszyna zasnęła w trakcie żądania"


def test_templates_hold_no_comparison_and_no_number() -> None:
    for file in article.TEMPLATES.glob("*.md.j2"):
        text = file.read_text(encoding="utf-8")
        assert not COMPARING["en"].search(text), file.name
        said = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|^#+", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\d", said), file.name
    mine = {
        **sections.VERDICT_RULES,
        **sections.FACTS,
        **series_sections.CHAT,
        **series_sections.CONVERSATION,
        **STATUSES,
    }
    for language in LANGUAGES:
        words = i18n.translator(language)
        assert not any(COMPARING[language].search(words.gettext(text)) for text in mine.values())


def test_every_template_is_a_section() -> None:
    files = [file.name.removesuffix(".md.j2") for file in article.TEMPLATES.glob("*.md.j2")]
    names = {name for name in files if not name.startswith("series_")}  # those are parts of one
    assert names == {name for name, _ in sections.SECTIONS}
