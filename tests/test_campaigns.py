"""The campaigns of this repository: what the default one covers, and what a bump touches in it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from twoturn import config, plan, recipes

ROOT = Path(__file__).parents[1]
LOCK: dict[str, Any] = {"machine": {}, "servers": {}, "checkpoints": {}}
DEFAULT: dict[str, Any] = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))


def planned(told: dict[str, Any]) -> plan.Plan:
    campaign = config.Campaign.model_validate(told)
    return plan.make(campaign, LOCK, recipes.collect(campaign, "config.yaml", ROOT, LOCK))


def test_the_default_campaign_shows_the_matrix() -> None:
    """Checkpoint × engine × block size × round."""
    series = {one.name: one for one in planned(DEFAULT).series}
    assert list(series) == ["short_prompt", "two_turns", "block_size", "bits"]
    assert {one.rounds for one in series.values()} == {6}
    arms = [arm for one in series.values() for arm in one.arms]
    assert {arm.speculation for arm in arms} == {"none", "mtp", "dflash"}
    blocks = {(arm.speculation, arm.block_size) for arm in series["block_size"].arms}
    assert [kind for kind, _ in sorted(blocks, key=str)] == ["dflash"] * 2 + ["mtp"] * 2 + ["none"]
    assert {(arm.checkpoint, arm.speculation) for arm in series["bits"].arms} == {
        (checkpoint, mode) for checkpoint in ("demo-q8", "demo-q4") for mode in ("none", "mtp")
    }
    assert {name for name, one in series.items() if one.null_arm} >= {"two_turns", "block_size"}


def bump(*keys: str, to: Any) -> dict[str, Any]:
    told = copy.deepcopy(DEFAULT)
    part = told
    for key in keys[:-1]:
        part = part[key]
    assert part[keys[-1]] != to
    part[keys[-1]] = to
    return told


@pytest.mark.parametrize(
    ("told", "touched"),
    [
        (bump("series", "block_size", "arms", "dflash_b6", "block_size", to=5), {"block_size"}),
        (bump("series", "short_prompt", "arms", "mtp", "block_size", to=6), {"short_prompt"}),
        (bump("checkpoints", "demo-q4", "make", "bits", to=6), {"bits"}),
        (bump("checkpoints", "demo-deep", "make", "layers", to=16), {"short_prompt"}),
        (bump("languages", to=["pl"]), set()),
    ],
    ids=["block size", "another block size", "precision", "depth", "languages"],
)
def test_a_bump_touches_its_own_series(told: dict[str, Any], touched: set[str]) -> None:
    before = {one.name: one.fingerprint for one in planned(DEFAULT).series}
    after = {one.name: one.fingerprint for one in planned(told).series}
    assert {name for name in before if before[name] != after[name]} == touched
