"""A campaign with everything that planning and measuring it needs, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twoturn import config, engines, lock, plan, recipes


@dataclass(frozen=True)
class Loaded:
    """A campaign file, the machine's lock, the recipes, and the plan that follows from them."""

    file: str
    root: Path
    campaign: config.Campaign
    lock: Mapping[str, Any]
    recipes: Mapping[str, Mapping[str, Any]]
    plan: plan.Plan


def load(file: str, root: Path) -> Loaded:
    """Read a campaign file and plan it. Writes `locks/local.json` on first use.

    Raises UserError.
    """
    campaign = config.load(file, root)
    engines.check(campaign, file)
    machine = lock.load(campaign, root)
    found = recipes.collect(campaign, file, root, machine)
    return Loaded(file, root, campaign, machine, found, plan.make(campaign, machine, found))
