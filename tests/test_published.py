"""The published figures: the ledger's faults, its checks recomputed, and what answers them here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_article import both, data_of, demo_cells, loaded
from twoturn import article, cells, ledger, published, sources
from twoturn.article import conditions
from twoturn.article.view import View
from twoturn.errors import UserError
from twoturn.matrix import ADAPTIVE
from twoturn.published import Figure, Published, Question
from twoturn.sources import Conditions
from twoturn.weights import Weights

TEXT = (Path(__file__).parents[1] / "workflow" / "published.yaml").read_text(encoding="utf-8")


def changed(*path: str, to: Any) -> str:
    """The ledger with one place changed."""
    data = yaml.safe_load(TEXT)
    here = data
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = to
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False)


def parse(text: str) -> Published:
    return ledger.parse(Published, text, "workflow/published.yaml")


@pytest.mark.parametrize(
    ("path", "to", "line"),
    [
        (("figurs",), {}, "figurs: unknown key; did you mean 'figures'?"),
        (
            ("figures", "drift", "units"),
            "share",
            "figures.drift.units: unknown key; did you mean 'unit'?",
        ),
        (
            ("figures", "drift", "what"),
            "34 percent",
            "figures.drift.what: it is translated, so it holds words and no digits",
        ),
        (("figures", "drift", "where"), ["preface/1"], "figures.drift.where: no place 'preface/1'"),
        (("figures", "drift", "where"), ["reading"], "figures.drift.where: no place 'reading'"),
        (("figures", "drift", "about"), ["q5"], "figures.drift.about: no checkpoint 'q5'"),
        (
            ("figures", "drift", "rounds"),
            4,
            "figures.drift: at most one of rounds, runs, requests",
        ),
        (
            ("checks", "first_share", "printed"),
            "nothing",
            "checks.first_share: no figure 'nothing'",
        ),
        (
            ("checks", "first_share", "of"),
            ["both", "naive"],
            "checks.first_share.of: draft_share is of 1 figures",
        ),
    ],
)
def test_a_fault_of_the_ledger_is_one_line(path: tuple[str, ...], to: Any, line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(changed(*path, to=to))
    assert str(caught.value) == f"workflow/published.yaml: {line}"


def test_its_source_has_to_be_in_the_ledger_of_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sources.load()
    (tmp_path / "published.yaml").write_text(changed("source", to="rumour"), encoding="utf-8")
    monkeypatch.setattr(ledger, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"no source 'rumour' in workflow/sources\.yaml"):
        published.load.__wrapped__()


# The figures against each other -------------------------------------------------------------------


def test_the_figures_follow_from_each_other() -> None:
    """Computed here by hand, apart from the ledger's own formulas."""
    of = {name: figure.value for name, figure in published.load().figures.items()}
    told = {name: (one.computed, one.printed) for name, one in published.checked().items()}
    assert told["naive_product"] == pytest.approx((2.55 * 1.28, 3.26))
    assert told["speculation_first"] == pytest.approx((2.55 * 1.18, 3.01))
    assert told["bits_first"] == pytest.approx((1.28 * 2.35, 3.01))
    assert told["stacked_share"] == pytest.approx((3.01 / 3.26, 0.92))
    assert told["first_share"] == pytest.approx((1 - 1 / 2.21, 0.547))
    assert told["all_share"] == pytest.approx((1 - 1 / 2.62, 0.618))
    assert told["fall_of_rounds"] == pytest.approx(((123 - 104) / 123, 0.34))
    assert of["accept_upstream"] == sources.conflicts()[0].told[0][1]
    assert all(one.agrees for one in published.checked().values())


@pytest.mark.parametrize(
    ("figure", "value", "broken"),
    [
        ("accept_rate_first", 0.545, ["first_share"]),
        ("naive", 3.29, ["naive_product"]),
        ("accept_high", 3.7, ["high_rounded"]),
        ("drift", 0.12, ["loss_below_drift", "fall_of_rounds"]),
        ("speculation_about", 3, ["speculation_rounded"]),
    ],
)
def test_a_figure_that_does_not_follow_is_found(
    figure: str, value: float, broken: list[str]
) -> None:
    told = parse(changed("figures", figure, "value", to=value))
    assert [name for name, one in published.checked(told).items() if not one.agrees] == broken


@pytest.mark.parametrize(
    ("value", "half"), [(2.21, 0.005), (0.547, 0.0005), (12.0, 0.5), (33000, 0.5), (34.2, 0.05)]
)
def test_rounding_is_half_of_the_last_digit(value: float, half: float) -> None:
    assert published.rounding(value) == pytest.approx(half)


@pytest.mark.parametrize(
    ("says", "value", "ratio"), [("ratio", 12, 12), ("gain", 0.18, 1.18), ("loss", 0.17, 0.83)]
)
def test_a_change_becomes_a_ratio(says: Any, value: float, ratio: float) -> None:
    question = Question(metric="decode_tok_s", of="ratio", says=says)
    figure = Figure(
        what="x", value=value, unit="times", origin="measured", where=["x/1"], answers=question
    )
    assert figure.ratio == pytest.approx(ratio)


# The same question in a campaign ------------------------------------------------------------------

BITS = {name: Weights(bits=bits) for name, bits in (("q4", (4,)), ("q6", (6,)), ("q8", (8,)))}

CAMPAIGN = """
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints: {q4: {path: q4}, q6: {path: q6}, q8: {path: q8}, draft: {path: draft}}
series:
  bits:
    workload: {kind: chat}
    reference: q6
    null_arm: true
    arms:
      q6: {checkpoint: q6, server: mlx-vlm}
      q6_mtp: &mtp {checkpoint: q6, server: mlx-vlm, speculation: mtp, draft: draft}
      q4: {checkpoint: q4, server: mlx-vlm}
      q4_mtp: {<<: *mtp, checkpoint: q4}
      q8: {checkpoint: q8, server: mlx-vlm}
  blocks:
    workload: {kind: chat}
    reference: b8
    arms:
      b8: &dflash
        {checkpoint: q8, server: mlx-vlm, speculation: dflash, draft: draft, block_size: 8}
      b16: {<<: *dflash, block_size: 16}
      b5: {<<: *dflash, block_size: 5}
  talk:
    workload: {kind: conversation}
    reference: plain
    arms:
      plain: {checkpoint: q4, server: mlx-vlm}
      dflash: {checkpoint: q4, server: mlx-vlm, speculation: dflash, draft: draft}
      mtp: {checkpoint: q4, server: mlx-vlm, speculation: mtp, draft: draft}
"""


def test_a_claim_answers_the_figure_of_its_question() -> None:
    series = loaded(CAMPAIGN).plan.series
    found = published.by_claim(series, BITS)
    assert {claim: name for claim, name in found.items() if "stacking" not in claim} == {
        "bits/decode_tok_s/q6_mtp": "speculation_q6",
        "bits/decode_tok_s/q4": "bits_without",
        "bits/decode_tok_s/q4_mtp": "both",
        "blocks/decode_tok_s/b16": "block_loss",
        "talk/turn2_ttft_s/dflash": "second_turn",
    }
    assert found["bits/stacking:decode_tok_s/q4_mtp"] == "stacked"
    printed = published.times_as_fast(series, BITS)
    assert printed["talk/turn2_ttft_s/dflash"] == pytest.approx(1 / 12)
    assert printed["blocks/decode_tok_s/b16"] == pytest.approx(0.83)
    assert printed["bits/decode_tok_s/q4"] == pytest.approx(1.28)


def test_the_checkpoint_with_the_nearest_bits_answers() -> None:
    series = loaded(CAMPAIGN.replace("reference: q6", "reference: q4")).plan.series
    assert published.by_claim(series, BITS)["bits/decode_tok_s/q4_mtp"] == "speculation_q4"
    unknown = published.by_claim(series, {})
    assert unknown["bits/decode_tok_s/q4_mtp"] == "speculation_q4"  # the first of the ledger
    assert "bits/decode_tok_s/q6" not in unknown  # whether it has fewer bits is not known


# Conditions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "theirs", "ours", "same"),
    [
        ("hardware", "Apple M4 Max", {"Apple M4 Max"}, True),
        ("hardware", "Apple M4 Max", {"Apple M5"}, False),
        ("hardware", None, {"Apple M5"}, None),
        ("temperature", [0, 1], {0}, True),
        ("temperature", [0], {0, 0.6}, False),
        ("bits", [4, 6], {4, 6}, True),
        ("bits", [4], None, None),
        ("server", "oMLX 0.6.4", {("omlx", "0.6.4")}, True),
        ("server", "oMLX 0.6.4", {("omlx", "0.7.0")}, False),
        ("server", "SGLang", {("sglang", "0.5.23")}, True),
        ("model", "Qwen3.6-35B-A3B", {("Qwen3.6-35B-A3B-4bit", False)}, True),
        ("model", "Qwen3.6-35B-A3B", {("target", True)}, False),
        ("model", "Qwen3.6-35B-A3B", {("something", False)}, None),
    ],
)
def test_when_a_factor_is_the_same(
    factor: str, theirs: Any, ours: set[Any] | None, same: bool | None
) -> None:
    there = conditions.there(Conditions(**{factor: theirs}))[factor]
    here = None if ours is None else frozenset(ours)
    assert conditions.same(factor, there, here) is same


# The article --------------------------------------------------------------------------------------

PUBLISHED = "## Published figures against re-measured ones"
UPSTREAM = "## How this measurement differs from upstream's"
SETTLED = "## The configuration settled on"


def section(text: str, title: str) -> str:
    return text.split(f"\n{title}\n")[1].split("\n## ")[0]


PLAIN = Weights(bits=(), trained_block=8)


@pytest.fixture(scope="module")
def data() -> article.Data:
    campaign = loaded()
    known = replace(campaign, weights=dict.fromkeys(campaign.campaign.checkpoints, PLAIN))
    return data_of(known, demo_cells(known))


@pytest.fixture(scope="module")
def demo(data: article.Data) -> dict[str, str]:
    return both(data)


def test_published_figures_stand_beside_what_answers_them(demo: dict[str, str]) -> None:
    told = section(demo["en"], PUBLISHED)
    assert re.search(r"\| Time of the second turn with DFlash[^|]*\| 12× \| n/d \| \d\.\d\d×", told)
    assert "because these differ throughout: hardware, model and server." in told
    assert "bits per weight and prompt length |" in told
    assert re.search(r"second turn from the cache, with DFlash \| 0 \| n/d \| 1,\d{3} \|", told)
    not_here = told.split("Not measured here: ")[1].split("\n")[0]
    assert "prefill" not in not_here
    assert "accept length" not in not_here
    assert "1 − 1 ÷ 2.21 = 0.5475 | 0.547 | holds to within rounding |" in told
    assert "first run with the first settings (34.2\u00a0s)" in told
    polish = demo["pl"].split("## Liczby opublikowane a zmierzone na nowo")[1]
    assert "1 − 1 ÷ 2,21 = 0,5475 | 0,547 |" in polish
    assert "wszędzie różnią się: sprzęt, model i serwer." in polish


def test_a_check_that_fails_is_told(data: article.Data, monkeypatch: pytest.MonkeyPatch) -> None:
    told = parse(changed("figures", "naive", "value", to=3.4))
    monkeypatch.setattr(published, "load", lambda: told)
    text = section(article.render("en", data), PUBLISHED)
    assert "is not always what others say" in text
    assert "2.55 × 1.28 = 3.264 | 3.4 | does not hold |" in text


def test_upstream_is_beside_the_arms_that_speculate(demo: dict[str, str]) -> None:
    told = section(demo["en"], UPSTREAM)
    assert "| Hardware | ≠ `NVIDIA H200` | ≠ `NVIDIA B200` |" in told
    assert "Against `dflash-card` several factors differ" in told
    assert "nothing here isolates any of them" in told
    assert "5.35 (`published-article`) and 5.09 (`dflash-card`)" in told
    followed = "| `dflash-paper` | `short_prompt/dflash`, `two_turns/dflash` | – | – |"
    assert followed in told
    assert "5,35 (`published-article`) i 5,09 (`dflash-card`)" in demo["pl"]


def test_guidance_follows_the_weights_and_the_machine(data: article.Data) -> None:
    four = Weights(bits=(4,), trained_block=3, model="Qwen3.6-35B-A3B-DFlash")
    mac = replace(data, facts={**data.facts, "accelerator": "metal"})
    text = section(both(replace(mac, weights=dict.fromkeys(data.weights, four)))["en"], UPSTREAM)
    arms = "`short_prompt/dflash`, `two_turns/dflash`"
    assert f"at most 5 | `dflash-readme` | {arms} | – | – |" in text
    assert f"at most that block | `dflash-paper` | – | {arms} | – |" in text
    assert f"| 8 | `dflash-card` | – | {arms} | – |" in text
    assert (
        "Two of them cannot both be followed by `short_prompt/dflash` and `two_turns/dflash`"
        in text
    )
    unknown = section(article.render("en", replace(mac, weights={})), UPSTREAM)
    assert f"at most 5 | `dflash-readme` | – | – | {arms} |" in unknown


def test_without_speculation_there_is_nothing_to_set_beside_it(data: article.Data) -> None:
    plain = [
        replace(
            one,
            series=replace(
                one.series, arms=tuple(arm for arm in one.series.arms if arm.speculation == "none")
            ),
        )
        for one in data.series
    ]
    text = article.render("en", replace(data, series=tuple(plain)))
    assert UPSTREAM not in text
    assert PUBLISHED not in text


def test_without_cells_the_sections_are_not_there() -> None:
    texts = both(data_of(loaded(), cells.JOINED.empty_table().to_pandas()))
    for title in (PUBLISHED, UPSTREAM, SETTLED):
        assert title not in texts["en"]


def test_the_configuration_settled_on_is_that_of_the_decision(data: article.Data) -> None:
    named = both(with_headlines(data, "faster", ["mtp", "cache_off"]))
    told = section(named["en"], SETTLED)
    rows = [
        "decoding alone | `short_prompt`: `mtp` | `demo` | not quantised |",
        "whole conversations | `two_turns`: `mtp` | `demo` | not quantised |",
        "whole conversations | `two_turns`: `cache_off` | `demo` | not quantised |",
    ]
    assert re.findall(r"^\| (?!For|---)", told, re.MULTILINE) == ["| "] * 3
    assert [told.count(row) for row in rows] == [1, 1, 1]
    assert "| none | – | – | – | `prefix_cache: false` |" in told
    assert "A toy stands for no real model" in told
    silent = both(with_headlines(data, "unresolved", []))
    assert "there is no configuration to settle on" in section(silent["en"], SETTLED)


def with_headlines(data: article.Data, verdict: str, arms: list[str]) -> article.Data:
    """The same data with other headlines."""

    def changed_claims(one: Any) -> tuple[dict[str, Any], ...]:
        known = [name for name in arms if name in one.values]
        return tuple(
            {**row, "verdict": verdict, "arms": known}
            if row["claim"].endswith("/headline")
            else row
            for row in one.claims
        )

    return replace(
        data, series=tuple(replace(one, claims=changed_claims(one)) for one in data.series)
    )


@pytest.mark.parametrize(
    ("language", "shown"), [("en", "2, 3, 16, adaptive"), ("pl", "2, 3, 16, adaptacyjny")]
)
def test_block_sizes_beside_an_adaptive_one_are_told(language: str, shown: str) -> None:
    values = frozenset({16, ADAPTIVE, 3, 2})
    assert conditions.told("block_size", values, View(language)) == shown
    assert conditions.same("block_size", frozenset({2, 3, 16}), values) is False
