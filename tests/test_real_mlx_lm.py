"""A real mlx-lm server, without and with its classic draft, through the whole workflow."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.workflow import Clone, shared_environments
from twoturn import campaign

pytestmark = pytest.mark.slow

CAMPAIGN = """
name: real
servers:
  mlx-lm: {install: workflow/envs/mlx-lm.lock}
checkpoints:
  llama: {path: checkpoints/demo/llama}
  llama-draft: {path: checkpoints/demo/llama-draft}
series:
  classic:
    workload: {kind: chat, prompts: 2, prompt_tokens: 64, max_tokens: 48, seed: 7}
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: llama, server: mlx-lm}
      draft:
        {checkpoint: llama, server: mlx-lm, speculation: draft, block_size: 5, draft: llama-draft}
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    clone = Clone(tmp_path_factory.mktemp("real") / "clone")
    (clone.folder / "campaign.yaml").write_text(CAMPAIGN)
    shared_environments(clone, "campaign.yaml")
    done = clone.snakemake("--configfile", "campaign.yaml", "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    return clone


@pytest.fixture(scope="module")
def rows(clone: Clone) -> list[dict[str, Any]]:
    table = pq.read_table(clone.folder / "results/real/cells.parquet").to_pylist()
    return [row for row in table if row["kind"] == "round"]


def test_every_row_is_a_valid_measurement(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 2 * 2 * 2
    assert {(row["status"], row["reason"]) for row in rows} == {("ok", None)}
    assert {row["prompt_tokens"] for row in rows} == {64}
    assert {row["completion_tokens"] for row in rows} == {48}


def test_accept_figures_come_from_the_engines_own_marks(
    clone: Clone, rows: list[dict[str, Any]]
) -> None:
    """Every request that the server counted is in the cells, with the server's own numbers."""
    series = campaign.load("campaign.yaml", clone.folder).plan.one("classic")
    told = []
    for number in (1, 2):
        folder = clone.folder / "logs/measure/classic" / series.fingerprint / f"{number:02d}"
        log = (folder / "round-draft.server.log").read_text()
        told += [json.loads(line) for line in re.findall(r"^TWOTURN (.*)$", log, re.MULTILINE)][-2:]
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


def test_a_difference_of_text_is_recorded(rows: list[dict[str, Any]]) -> None:
    """With a draft this server's text may differ after an earlier request: not to be hidden."""
    plain = {(r["prompt_id"], r["round"]): r for r in rows if r["arm"] == "plain"}
    for row in rows:
        same = row["output_sha256"] == plain[row["prompt_id"], row["round"]]["output_sha256"]
        assert same == (row["divergence_index"] is None)


def test_no_process_is_left(clone: Clone) -> None:
    assert not list((clone.folder / ".twoturn/cells").iterdir())
    assert Path("/tmp/twoturn-run.lock").exists()
