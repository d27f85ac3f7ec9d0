"""A campaign with everything that planning and measuring it needs, read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twoturn import config, engines, files, lock, plan, reasons, recipes, weights
from twoturn.errors import UserError
from twoturn.plan import Series
from twoturn.weights import Weights


@dataclass(frozen=True)
class Loaded:
    """A campaign file, the machine's lock, the recipes, and the plan that follows from them; and
    what its checkpoints say of their weights, as far as they lie here."""

    file: str
    root: Path
    campaign: config.Campaign
    lock: Mapping[str, Any]
    recipes: Mapping[str, Mapping[str, Any]]
    plan: plan.Plan
    weights: Mapping[str, Weights] = field(default_factory=dict)

    def one(self, series: str) -> Series:
        """A series by its name. Raises UserError."""
        names = [one.name for one in self.plan.series]
        if series not in names:
            cure = f"it has {', '.join(names)}"
            raise UserError(f"no series {series}", file=self.file, cure=cure)
        return self.plan.one(series)


def load(file: str, root: Path) -> Loaded:
    """Read a campaign file and plan it. Writes `locks/local.json` on first use.

    Raises UserError.
    """
    campaign = config.load(file, root)
    engines.check(campaign, file)
    machine = lock.load(campaign, root)
    found = recipes.collect(campaign, file, root, machine)
    planned = plan.make(campaign, machine, found)
    engines.check_versions(campaign, planned, file)
    told = weights.of_campaign(campaign, root)
    return Loaded(file, root, campaign, machine, found, planned, told)


def plan_file(loaded: Loaded) -> Path:
    """The plan as a file that all analysis takes as input, written anew when the plan changes or
    when a planned round is missing.

    Snakemake compares times of files. A changed recipe changes the paths of cells and no file that
    the tables depend on, so without this it would find the old tables newer than all they need.
    """
    file = loaded.root / ".twoturn" / "plans" / f"{config.slug(loaded.plan.name or 'default')}.json"
    told = {
        "file": loaded.file,
        "series": {one.name: [one.fingerprint, one.rounds] for one in loaded.plan.series},
    }
    text = json.dumps(told, indent=1)
    missing = any(reasons.missing_rounds(one, loaded.root) for one in loaded.plan.series)
    if missing or not file.is_file() or file.read_text(encoding="utf-8") != text:
        files.write_text(file, text)
    return file.relative_to(loaded.root)
