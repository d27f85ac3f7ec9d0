"""Prefill by length: which lengths fit, what is sent, compared, drawn and told."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tests.conftest import COMMAND, Tree
from twoturn import (
    article,
    capacity,
    cells,
    claims,
    config,
    contrasts,
    forest,
    lengths,
    measure,
    prefill_curve,
    tokens,
    workloads,
)
from twoturn.article.view import View
from twoturn.engines.llama_cpp import LlamaCpp
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.errors import UserError
from twoturn.session import Session
from twoturn.stats.verdict import larger_is_better

ROOT = Path(__file__).parents[1]
TOKENIZER = tokens.load(ROOT / "checkpoints/demo/target")
TEXT = (ROOT / "texts/python-topics.txt").read_text(encoding="utf-8")


def workload(**more: Any) -> config.Prefill:
    return config.Prefill.model_validate({"kind": "prefill", "lengths": [64, 300], **more})


# What fits ----------------------------------------------------------------------------------------

DENSE = {
    "max_position_embeddings": 4096,
    "num_hidden_layers": 10,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
    "torch_dtype": "float32",
}


def test_the_context_of_a_checkpoint() -> None:
    assert capacity.context(DENSE) == 4096
    assert capacity.context({"text_config": DENSE}) == 4096
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768}
    assert capacity.context({**DENSE, "rope_scaling": yarn}) == 131072
    assert capacity.context({}) is None
    demo = json.loads((ROOT / "checkpoints/demo/target/config.json").read_text())
    assert capacity.context(demo) == 32768


def test_keys_and_values_per_token() -> None:
    assert capacity.cache_bytes(DENSE) == 2 * 10 * 2 * 64 * 4
    linear = {**DENSE, "layer_types": ["linear_attention", "full_attention"] * 5, "head_dim": 32}
    assert capacity.cache_bytes({"text_config": linear}) == 2 * 5 * 2 * 32 * 4
    assert capacity.cache_bytes({**DENSE, "full_attention_interval": 5}) == 2 * 2 * 2 * 64 * 4
    for other in ({"kv_lora_rank": 512}, {"sliding_window": 4096}):
        assert capacity.cache_bytes({**DENSE, **other}) is None
    assert capacity.cache_bytes({}) is None


def test_why_a_length_does_not_fit() -> None:
    assert capacity.why_not(DENSE, 0, 16, 4096) is None
    assert capacity.why_not(DENSE, 0, 16, 4097) == "4097 tokens are more than its context of 4096"
    assert capacity.why_not(DENSE, 20 * 2**30, 16, 64) == (
        "weights and cache of 64 tokens need 20 GB, the machine has 16"
    )
    assert capacity.why_not({}, 0, None, 10**6) is None


def test_what_a_server_keeps_is_of_its_own_type(tmp_path: Path) -> None:
    """llama.cpp keeps f16 beside a config.json that says float32, and loads the GGUF file alone."""
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    (tmp_path / "model.gguf").write_bytes(b"x" * 1000)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(64 * 2**30)  # a hole, no bytes on the disk

    def told(engine: Any, **settings: Any) -> tuple[float | None, int]:
        chosen: Any = SimpleNamespace(settings=settings)
        return engine.kept_bytes(chosen), lengths._size(engine, tmp_path)

    assert told(LlamaCpp()) == (2, 1000)
    assert told(LlamaCpp(), kv_type="q4_0") == (18 / 32, 1000)
    assert told(MlxVlm()) == (None, 64 * 2**30)
    assert told(MlxVlm(), kv_bits=4.0) == (0.5, 64 * 2**30)
    assert capacity.cache_bytes(DENSE, 2) == 2 * 10 * 2 * 64 * 2


# What is sent -------------------------------------------------------------------------------------


def test_a_prompt_per_length_exact_and_told_apart() -> None:
    made = workloads.dialogues(workload(), TEXT, TOKENIZER, "01")
    assert [(one.prompt_id, one.prompt_tokens) for one in made] == [("n64", 64), ("n300", 300)]
    assert workloads.dialogues(workload(lengths=[300]), TEXT, TOKENIZER, "01") == made[1:]
    first, second = (one.turns[0][0] for one in made)
    assert first[:40] != second[:40]  # a nonce of its own, so no length finds another in a cache
    warm_up = workloads.alike(workload(), TEXT, TOKENIZER, "01-warmup")
    assert warm_up.prompt_tokens == 64


def test_lengths_rise() -> None:
    with pytest.raises(ValueError, match="each once"):
        workload(lengths=[300, 64])


# Through a round ----------------------------------------------------------------------------------


@pytest.fixture
def planned(tree: Tree) -> Any:
    """A campaign of two arms, one of which cannot hold 96 tokens."""
    small = tree.root / "models" / "small" / "config.json"
    small.write_text(json.dumps({"max_position_embeddings": 80}))
    command = [*COMMAND, "--tok-s", "2000", "--ttft-ms", "0"]
    tree.write(
        {
            "servers": {"one": {"command": command, "version": "1.0"}},
            "checkpoints": {
                "small": {"path": "models/small"},
                "draft": {"path": "models/draft"},
            },
            "series": {
                "read": {
                    "workload": {
                        **{"kind": "prefill", "text": "texts/words.txt", "max_tokens": 8},
                        "lengths": [32, 64, 96],
                    },
                    "rounds": 2,
                    "reference": "plain",
                    "arms": {
                        name: {
                            **{"checkpoint": checkpoint, "server": "one"},
                            "args": ["--prefill-chars-s", rate],
                        }
                        for name, checkpoint, rate in (
                            ("plain", "draft", "1000"),
                            ("short", "small", "5000"),
                        )
                    },
                }
            },
        }
    )
    return tree.load()


def test_what_is_left_out_is_told_before_it_is_measured(tree: Tree, planned: Any) -> None:
    (series,) = planned.plan.series
    assert lengths.told(planned, series) == [
        "read, short: 96 tokens are left out: 104 tokens are more than its context of 80"
    ]
    small = tree.root / "models" / "small" / "config.json"
    small.write_text(json.dumps({"max_position_embeddings": 20}))
    with pytest.raises(UserError, match=r"series\.read\.workload\.lengths: short can hold no"):
        lengths.told(planned, series)


def first_round(tree: Tree, loaded: Any) -> pd.DataFrame:
    (series,) = loaded.plan.series
    session = Session("s", os.getpid(), 0.0)
    measure.run_round(loaded, series, 1, session, tree.root / "logs", lambda _: None)
    files = [(tree.root / cell, series.fingerprint) for cell in series.cells(1)]
    return cells.join(files).to_pandas()


def test_a_prefill_series_from_the_server_to_the_article(tree: Tree, planned: Any) -> None:
    loaded, rows = planned, first_round(tree, planned)
    (series,) = loaded.plan.series
    here = rows[rows["kind"] == "round"].set_index(["arm", "prompt_id"])
    assert here.loc[("short", "n96"), "status"] == "too_long"
    assert set(here.drop(("short", "n96"))["status"]) == {"ok"}
    assert here["text_gate"].isna().all()  # of prefill no text is timed
    slots = contrasts.slots(rows, series).set_index(["arm", "metric"])
    assert slots.loc[("short", "prefill_tok_s@96"), "reason"] == "too_long:short"
    for length in (32, 64):  # words are tokens there, and the others count characters
        rate = [slots.loc[(arm, f"prefill_tok_s@{length}"), "value"] for arm in ("short", "plain")]
        assert rate[0] / rate[1] > 1.5
    compared = contrasts.from_cells(rows, [series])
    found = {(row["metric"], row["arm"]): row for row in compared.to_pylist()}
    assert list(found) == [(f"prefill_tok_s@{length}", "short") for length in (32, 64, 96)]
    assert found["prefill_tok_s@96", "short"]["warnings"][0] == "too_long:short"
    # Where no arm can be claimed to differ, the null arm has nothing to show.
    null = dataclasses.replace(series, null_arm="short")
    numbers = {"ratio": 1.0, "ci_low": 0.9, "ci_high": 1.25, "verdict": "unresolved"}
    judged = [row | numbers | {"warnings": []} for row in found.values()]
    judged[-1] |= {**dict.fromkeys(("ratio", "ci_low", "ci_high")), "warnings": ["too_long:plain"]}
    assert contrasts.null_arm_state(judged, null) == "passed"
    judged_table = pa.Table.from_pylist(judged, schema=contrasts.SCHEMA)
    about = {row["claim"]: row for row in claims.from_contrasts(judged_table, [null]).to_pylist()}
    shown = [about["read/null_arm"][name] for name in ("verdict", "missed_low", "missed_high")]
    assert shown == ["passed", 0.9, 1.25]
    told = claims.from_contrasts(compared, [series])
    curve = prefill_curve.curve_data(rows, series)
    assert list(curve["length"]) == [32, 64, 96, 32, 64]
    link = "figures/prefill_read.svg"
    data = article.gather(loaded, rows, compared, told, {"read": {"prefill": link}})
    assert set(data.series[0].values) == {"plain", "short"}  # each by the lengths that it was sent
    headline = {"verdict": "faster", "arms": ["short"]}
    decided = [
        {**row, **headline} if row["claim"] == "read/headline" else row for row in told.to_pylist()
    ]
    chosen = replace(data, series=(replace(data.series[0], claims=tuple(decided)),))
    for_prefill = {
        "en": "| reading prompts | `read`: `short` |",
        "pl": "| sam prefill | `read`: `short` |",
    }
    for language, words in (
        ("en", ("| 32 tokens |", "a prompt of 96 tokens, because")),
        ("pl", ("| 32 tokeny |", "promptu o długości 96 tokenów, ponieważ")),
    ):
        text = article.render(language, data).replace("\N{NO-BREAK SPACE}", " ")
        assert all(word in text for word in words)
        assert "104 tokens are more than its context of 80" in text
        assert "](figures/prefill_read.svg)" in text
        assert for_prefill[language] in article.render(language, chosen)
        picture = prefill_curve.draw(curve, series, language)
        assert picture.startswith("<?xml")
        assert prefill_curve.draw(curve, series, language) == picture
    assert prefill_curve.draw(curve[:0], series, "en").startswith("<?xml")
    why_not = "null_arm_differs:prefill_tok_s@64"
    silent = {"verdict": "invalid", "ratio": None, "ci_low": None, "ci_high": None}
    refused = [{**row, **silent, "warnings": [why_not]} for row in compared.to_pylist()]
    ratios = forest.forest_data(pa.Table.from_pylist(refused, contrasts.SCHEMA), series)
    assert View("pl").reason(why_not) in forest.draw(ratios, series, "pl")
    # A length that fails leaves the others.
    broken = (rows["prompt_id"] == "n32") & (rows["arm"] == "plain")
    for table, reason in (
        (rows.assign(status=rows["status"].mask(broken, "http_error")), "row_not_ok:http_error"),
        (rows[~broken], "rows_missing"),
    ):
        why = contrasts.slots(table, series).set_index(["arm", "metric"])["reason"]
        assert why["plain", "prefill_tok_s@32"] == reason
        assert why["plain", "prefill_tok_s@64"] is None


@pytest.mark.parametrize(
    ("language", "words"), [("en", "Prefill speed (4,096"), ("pl", "Prędkość prefillu (4096")]
)
def test_a_heading_holds_the_whole_length(language: str, words: str) -> None:
    heading = View(language).heading("prefill_tok_s@4096").replace("\N{NO-BREAK SPACE}", " ")
    assert re.fullmatch(re.escape(words) + r" \w+\)", heading)


def test_a_rate_at_a_length_is_a_rate() -> None:
    assert larger_is_better("prefill_tok_s@4096")
    assert not larger_is_better("turns_ttft_s")
    headline = claims.claim_kinds.kind_of("prefill_tok_s@4096")
    assert headline == "prefill_tok_s@"
    assert claims.length_of("prefill_tok_s@4096") == 4096
