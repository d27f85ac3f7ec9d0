"""A real mlx-lm server, without and with its classic draft, through the whole workflow.

Version 0.32.2 stores a prompt cache that lacks a position whenever the last token of an answer was
not a drafted one, so with a draft a warm answer may be wrong while `cached_tokens` looks perfect.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.workflow import Clone, measured_for_real, rounds_of
from twoturn import campaign

pytestmark = [pytest.mark.slow, pytest.mark.machine]

CAMPAIGN = """
name: real
servers:
  mlx-lm: {install: workflow/envs/mlx-lm.lock}
checkpoints:
  llama: {path: checkpoints/demo/llama}
  llama-draft: {path: checkpoints/demo/llama-draft}
series:
  classic:
    workload:
      kind: conversation
      prompts: 2
      prompt_tokens: 256
      turns: 2
      turn_tokens: 32
      max_tokens: 48
      seed: 7
      decoy: false
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: llama, server: mlx-lm}
      draft:
        {checkpoint: llama, server: mlx-lm, speculation: draft, block_size: 5, draft: llama-draft}
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return measured_for_real(tmp_path_factory.mktemp("real"), CAMPAIGN)


@pytest.fixture(scope="module")
def rows(clone: Clone) -> list[dict[str, Any]]:
    return rounds_of(clone)


def test_without_a_draft_every_row_is_a_valid_measurement(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 2 * 2 * 2 * 2
    plain = [row for row in rows if row["arm"] == "plain"]
    assert {(row["status"], row["reason"]) for row in plain} == {("ok", None)}
    assert {row["text_gate"] for row in plain} == {"identical"}
    assert {row["prompt_tokens"] for row in rows if row["turn"] == 1} == {256}
    assert {row["completion_tokens"] for row in rows} == {48}


def test_the_fault_of_the_draft_is_caught(rows: list[dict[str, Any]]) -> None:
    """Fresh servers write the same with the draft and without, warm ones do not."""
    drafted = [row for row in rows if row["arm"] == "draft"]
    wrong = [row for row in drafted if row["text_gate"] == "wrong_when_warm"]
    assert wrong
    assert all(row["cached_tokens"] >= 256 for row in drafted if row["turn"] == 2)
    for row in drafted:
        assert row["text_gate"] in ("identical", "wrong_when_warm")
        assert row["status"] == ("wrong_when_warm" if row in wrong else "ok")
        assert (row["divergence_token"] is not None) == (row in wrong)


def test_a_claim_on_its_speed_is_refused(clone: Clone) -> None:
    told = pq.read_table(clone.folder / "results/real/claims.parquet").to_pylist()
    speed = [row for row in told if row["arm"] == "draft" and row["section"] == "conversation"]
    assert {row["metric"] for row in speed} == {"conversation_s", "turn2_ttft_s", "decode_tok_s"}
    assert {(row["verdict"], row["ratio"]) for row in speed} == {("invalid", None)}
    assert {row["reason"] for row in speed} == {"wrong_when_warm:draft"}
    english, polish = (
        (clone.folder / f"reports/real/article_{language}.md").read_text()
        for language in ("en", "pl")
    )
    assert "because `draft` wrote, once its server was warm, another text" in english
    assert "wariant `draft` na rozgrzanym serwerze dał inny tekst" in polish
    assert "The text of `draft` is wrong once its server is warm" in english


def test_accept_figures_come_from_the_engines_own_marks(
    clone: Clone, rows: list[dict[str, Any]]
) -> None:
    """Every request that the server counted is in the cells, with the server's own numbers."""
    series = campaign.load("campaign.yaml", clone.folder).plan.one("classic")
    told = []
    for number in (1, 2):
        folder = clone.folder / "logs/measure/classic" / series.fingerprint / f"{number:02d}"
        log = (folder / "round-draft.server.log").read_text()
        told += [json.loads(line) for line in re.findall(r"^TWOTURN (.*)$", log, re.MULTILINE)][-4:]
    drafted = [row for row in rows if row["arm"] == "draft"]
    for said, row in zip(told, sorted(drafted, key=lambda row: row["started_at"]), strict=True):
        assert said["tokens"] == row["completion_tokens"]
        assert row["accepted_tokens"] == said["from_draft"] > 0
        assert row["verify_cycles"] == said["tokens"] - said["from_draft"]
        assert 1 < row["accept_length"] <= 5
        assert row["drafted_tokens"] is None  # the last block is shorter, and nobody says how much


def test_without_a_draft_nothing_is_claimed(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["arm"] == "plain":
            assert row["verify_cycles"] is row["accept_length"] is None
            assert row["tokens_per_step"] == 1.0


def test_no_process_is_left(clone: Clone) -> None:
    assert not list((clone.folder / ".twoturn/cells").iterdir())
    assert Path("/tmp/twoturn-run.lock").exists()
