"""A real mlx-vlm server in all its modes, through the whole workflow, on the embedded model."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.workflow import REPOSITORY, Clone, measured_for_real, rounds_of
from twoturn import campaign, config, engines, servers, tokens, workloads
from twoturn.messages import as_sent

pytestmark = [pytest.mark.slow, pytest.mark.machine]

CAMPAIGN = """
name: real
servers:
  mlx-vlm: {install: workflow/envs/mlx-vlm.lock}
checkpoints:
  demo: {path: checkpoints/demo/target}
  demo-mtp: {path: checkpoints/demo/mtp}
  demo-dflash: {path: checkpoints/demo/dflash}
series:
  modes:
    workload: &talk
      {kind: conversation, prompt_tokens: 600, turns: 2, turn_tokens: 48, max_tokens: 48, seed: 7}
    rounds: 2
    reference: plain
    arms:
      plain: &plain {checkpoint: demo, server: mlx-vlm}
      mtp:
        {checkpoint: demo, server: mlx-vlm, speculation: mtp, block_size: 3, draft: demo-mtp}
      dflash: &dflash
        {checkpoint: demo, server: mlx-vlm, speculation: dflash, block_size: 4, draft: demo-dflash}
      cache_off: {checkpoint: demo, server: mlx-vlm, settings: {prefix_cache: false}}
  altered:
    workload: {<<: *talk, history: altered}
    rounds: 2
    reference: plain
    arms: {plain: *plain, dflash: *dflash}
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return measured_for_real(tmp_path_factory.mktemp("real"), CAMPAIGN)


@pytest.fixture(scope="module")
def rows(clone: Clone) -> list[dict[str, Any]]:
    return [row for row in rounds_of(clone) if row["series"] == "modes"]


@pytest.fixture(scope="module")
def altered(clone: Clone) -> list[dict[str, Any]]:
    return [row for row in rounds_of(clone) if row["series"] == "altered"]


def test_every_row_is_a_valid_measurement(rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 4 * 2 * 2
    assert {(row["status"], row["reason"]) for row in rows} == {("ok", None)}
    assert {row["server_version"] for row in rows} == {"0.7.10"}
    assert all(row["first_chunk_source"] == "tokenizer" for row in rows)
    assert all(row["prompt_tokens"] == 600 for row in rows if row["turn"] == 1)


def test_the_prefix_cache_works_where_it_is_on(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["turn"] == 1 or row["arm"] == "cache_off":
            assert row["cached_tokens"] == 0
        else:
            assert row["cached_tokens"] >= 599


def test_an_altered_answer_leaves_the_first_prompt_in_the_cache(
    altered: list[dict[str, Any]],
) -> None:
    assert len(altered) == 2 * 2 * 2
    assert {(row["status"], row["reason"]) for row in altered} == {("ok", None)}
    for row in altered:
        if row["turn"] == 2:
            assert row["cached_tokens"] >= 599
            assert row["prefix_share"] == 1


def test_every_decoy_stays_cold(clone: Clone) -> None:
    table = pq.read_table(clone.folder / "results/real/cells.parquet").to_pylist()
    decoys = [row for row in table if row["kind"] == "decoy"]
    assert len(decoys) == (4 + 2) * 2
    assert {(row["status"], row["prompt_id"]) for row in decoys} == {("ok", "p1-decoy")}
    assert {row["cached_tokens"] for row in decoys} == {0}
    for language, told in (("en", "every one was reported cold"), ("pl", "ani razu nic nie")):
        text = (clone.folder / f"reports/real/article_{language}.md").read_text()
        assert text.count(told) == 2


def test_greedy_text_is_the_same_in_all_arms(rows: list[dict[str, Any]]) -> None:
    for number in (1, 2):
        for turn in (1, 2):
            here = [row for row in rows if (row["round"], row["turn"]) == (number, turn)]
            assert len({row["output_sha256"] for row in here}) == 1
            assert {row["divergence_index"] for row in here} == {None}
            assert {row["text_gate"] for row in here} == {"identical"}


def test_our_clock_agrees_with_the_servers(rows: list[dict[str, Any]]) -> None:
    """Compared, never published as ours: the server leaves out its own queue and the network."""
    for row in rows:
        assert row["ttft_s"] >= row["server_ttft_s"] * 0.9
        assert row["decode_tok_s"] == pytest.approx(row["server_decode_tok_s"], rel=0.25)


@pytest.mark.parametrize("name", ["modes", "altered"])
def test_the_servers_own_figures_agree_with_the_cells(
    clone: Clone, name: str, tmp_path: Path
) -> None:
    """The same requests by a client of the standard library to fresh servers: equal counts."""
    loaded = campaign.load("campaign.yaml", clone.folder)
    series = loaded.plan.one(name)
    rows = [row for row in rounds_of(clone) if row["series"] == name]
    text = (clone.folder / series.workload.text).read_text(encoding="utf-8")
    tokenizer = tokens.load(clone.folder / "checkpoints/demo/target")
    for arm in series.arms:
        engine = engines.get(loaded.campaign, arm.server)
        folder = tmp_path / arm.slug
        (folder / "home").mkdir(parents=True)
        models = {"demo": "checkpoints/demo/target", arm.draft: f"checkpoints/demo/{arm.slug}"}
        python = next((REPOSITORY / ".twoturn/envs").glob("mlx-vlm-*/bin/python"))
        port = servers.free_port()
        place = engines.Place(
            REPOSITORY,
            folder,
            port,
            python,
            python.parent.parent / "tmp",
            {name: str(REPOSITORY / path) for name, path in models.items() if name},
        )
        launch = engine.launch(arm, place)
        seen = {row["turn"]: row for row in rows if (row["arm"], row["round"]) == (arm.name, 1)}
        with servers.run(launch, port, folder / "log") as running:
            send_warm_up(running, series.workload, text, tokenizer)
            (dialogue,) = workloads.dialogues(series.workload, text, tokenizer, "01-round")
            messages = []
            for turn, said in enumerate(dialogue.turns, start=1):
                messages += as_sent(said)
                answer = ask(running, messages, series.workload.max_tokens)
                timings, row = answer["timings"], seen[turn]
                assert timings["draft_rounds"] == row["verify_cycles"]
                assert timings["draft_n"] == row["drafted_tokens"]
                assert timings["draft_n_accepted"] == row["accepted_tokens"]
                assert timings["cache_n"] == row["cached_tokens"]
                assert answer["usage"]["completion_tokens"] == row["completion_tokens"]
                assert timings["draft_kind"] == (arm.speculation if arm.draft else None)
                back = answer["text"] if name == "modes" else answer["text"].split(maxsplit=1)[1]
                messages.append({"role": "assistant", "content": back})


def send_warm_up(
    running: servers.Running, workload: config.Workload, text: str, tokenizer: Any
) -> None:
    dialogue = workloads.alike(workload, text, tokenizer, "01-round-warmup")
    ask(running, as_sent(dialogue.turns[0]), 32)


def ask(running: servers.Running, messages: list[Any], max_tokens: int) -> dict[str, Any]:
    """The last usage and timings of a streamed answer, and its text."""
    body = {
        "model": running.model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{running.base_url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    found: dict[str, Any] = {"text": ""}
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer.read().split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            found |= {key: chunk[key] for key in ("usage", "timings") if chunk.get(key)}
            for choice in chunk["choices"]:
                found["text"] += choice["delta"]["content"] or ""
    return found
