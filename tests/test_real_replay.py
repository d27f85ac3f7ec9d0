"""A recorded conversation with tool calls on a real server, through the whole workflow."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.test_replay import SAMPLE, phrases
from tests.workflow import Clone, measured_for_real, rounds_of

pytestmark = [pytest.mark.slow, pytest.mark.machine]

CAMPAIGN = """
name: real
servers:
  mlx-vlm: {install: workflow/envs/mlx-vlm.lock}
checkpoints:
  demo: {path: checkpoints/demo/target}
series:
  mine:
    workload: {kind: replay, file: mine.jsonl, tools: plain, max_tokens: 8}
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: demo, server: mlx-vlm}
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    folder = tmp_path_factory.mktemp("replay")
    return measured_for_real(folder, CAMPAIGN, files={"mine.jsonl": SAMPLE})


def test_every_turn_is_measured_and_counted(clone: Clone) -> None:
    rows = rounds_of(clone)
    assert {row["status"] for row in rows} == {"ok"}  # an answer in one piece has no decode rate
    assert len(rows) == 2 * 7
    for row in rows:
        assert row["cached_tokens"] == 0 if row["turn"] == 1 else row["cached_tokens"] > 200
    for turn in range(1, 8):  # recorded answers go back: all rounds get the same prompt
        assert len({row["prompt_tokens"] for row in rows if row["turn"] == turn}) == 1


def test_the_text_is_nowhere(clone: Clone) -> None:
    kept = [clone.folder / name for name in ("results", "reports", "logs", ".twoturn/plans")]
    files = [file for at in kept for file in at.rglob("*") if file.is_file()]
    assert len(files) > 20
    everything = b"".join(file.read_bytes() for file in files)
    tables = [pq.read_table(file) for file in files if file.suffix == ".parquet"]
    everything += repr([(t.schema.metadata, t.to_pylist()) for t in tables]).encode()
    assert [phrase for phrase in phrases(SAMPLE) if phrase.encode() in everything] == []
