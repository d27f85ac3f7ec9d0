"""Servers that answer quickly and whose figures are not what they seem: rounds in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import COMMAND, Tree
from twoturn import cells, measure, sending
from twoturn.session import Session

Rows = list[dict[str, Any]]
DRAFTED = {"speculation": "draft", "draft": "draft", "block_size": 4}


def round_of(tree: Tree, number: int = 1, **arms: dict[str, Any]) -> dict[str, Rows]:
    """Arm → all rows of one round with scripted servers, the warm-up request's too."""
    tree.write(
        {
            "servers": {"one": {"command": [*COMMAND, "--tok-s", "300"], "version": "1.0"}},
            "checkpoints": {name: {"path": f"models/{name}"} for name in ("small", "draft")},
            "series": {
                "talk": {
                    "workload": {
                        **{"kind": "chat", "text": "texts/words.txt", "prompts": 2},
                        **{"prompt_tokens": 64, "max_tokens": 24},
                    },
                    "rounds": 4,
                    "reference": next(iter(arms)),
                    "arms": {
                        name: {"checkpoint": "small", "server": "one", **arm}
                        for name, arm in arms.items()
                    },
                }
            },
        }
    )
    loaded = tree.load()
    series = loaded.plan.one("talk")
    session = Session("s", os.getpid(), 0.0)
    measure.run_round(loaded, series, number, session, tree.root / "logs", lambda _: None)
    folder = tree.root / series.directory / f"{number:02}"
    return {arm: cells.read(folder / f"{arm}.parquet")[0].to_pylist() for arm in arms}


def drafted(*args: str) -> dict[str, Any]:
    return {**DRAFTED, "args": ["--draft", *args]}


def told(rows: Rows) -> list[str | tuple[str, str]]:
    return ["ok" if row["status"] == "ok" else (row["status"], row["reason"]) for row in rows]


def test_cumulative_counters_are_not_believed(tree: Tree) -> None:
    """Cumulative counters, read as one request's: its times stay, its figures go, in words."""
    (first, *later) = round_of(tree, life=drafted("--lifetime"))["life"]
    assert first["accept_length"] == pytest.approx(2.0, abs=0.1)
    for row in later:
        assert row["status"] == "ok"
        assert row["ttft_s"] > 0
        assert str(row["reason"]).startswith("the server's figures of speculation cannot be: ")
        assert row["accept_length"] is row["verify_cycles"] is row["accepted_tokens"] is None


def test_silent_fallback_to_plain_decoding_is_found_in_each_request(tree: Tree) -> None:
    """Silent fallback after the first request, sticky until the server's end; the next cell has a
    server of its own."""
    one, other = drafted("--draft-requests", "2"), drafted("--draft-requests", "3")
    found = round_of(tree, one=one, other=other)  # the first request of all proves it ready
    inactive = ("spec_inactive", "no sign that speculation ran")
    assert told(found["one"]) == ["ok", inactive, inactive]
    assert told(found["other"]) == ["ok", "ok", inactive]


def test_warm_cache_in_a_cold_arm_is_no_cold_row(tree: Tree, tmp_path: Path) -> None:
    """Warm cache in a cold arm: one on a disk outlives the server, and rounds are cold all the same
    because each begins with a nonce of its own. The very same prompts are found warm and refused.
    """
    arm = {"args": ["--prompt-cache", "--cache-file", str(tmp_path / "ssd.json")]}
    assert told(round_of(tree, 1, disk=arm)["disk"]) == ["ok"] * 3
    assert told(round_of(tree, 2, disk=arm)["disk"]) == ["ok"] * 3
    for file in (tree.root / "results").rglob("*.parquet"):
        file.unlink()
    _, *again = round_of(tree, 1, disk=arm)["disk"]
    for row in again:
        assert row["status"] == "not_cold"
        assert row["cached_tokens"] > sending.COLD_TOKENS


def test_block_size_of_a_draft_is_recorded_beside_the_one_asked_for(tree: Tree) -> None:
    """Block size lost in config: a draft may keep the one it was trained for in `dflash_config`."""
    told = '{"dflash_config": {"block_size": 8}}'
    (tree.root / "models/draft/config.json").write_text(told)
    rows = round_of(tree, plain={}, small={**drafted(), "speculation": "dflash"})
    assert {row["block_size"] for row in rows["small"]} == {4}
    for arm, trained in (("plain", None), ("small", 8)):
        (file,) = (tree.root / "results").rglob(f"01/{arm}.parquet")
        assert cells.read(file)[1]["trained_block"] == trained
