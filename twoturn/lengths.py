"""Which lengths of a prefill series an arm can be asked for, and rows for the others."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twoturn import capacity, checkpoints, config, engines, weights, workloads
from twoturn.bench import Round
from twoturn.campaign import Loaded
from twoturn.cells import TOO_LONG
from twoturn.errors import UserError
from twoturn.plan import Arm, Series


def why_not(loaded: Loaded, workload: config.Prefill, arm: Arm) -> dict[int, str]:
    """Length → why the arm's checkpoint or this machine cannot hold it; {} for other servers'
    checkpoints of which nothing is known here."""
    folder = checkpoints.folder(arm.checkpoint, loaded.campaign, loaded.file, loaded.root)
    if (told := weights.read_config(folder)) is None:
        return {}
    engine = engines.get(loaded.campaign, arm.server)
    size, each = _size(engine, folder), engine.kept_bytes(arm)
    memory = loaded.plan.facts.get("memory_gb")
    found = {
        length: capacity.why_not(told, size, memory, length + workload.max_tokens, each)
        for length in workload.lengths
    }
    return {length: why for length, why in found.items() if why is not None}


def _size(engine: engines.Engine, folder: Path) -> int:
    """Bytes of the weights that the server loads; 0 where they are not known here."""
    if isinstance(engine, engines.ReadsOtherFiles):
        with suppress(UserError):
            return engine.weights(folder).stat().st_size
        return 0
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def told(loaded: Loaded, series: Series) -> list[str]:
    """What will not be measured, a line each. Raises UserError where nothing would be left."""
    workload = series.workload
    if not isinstance(workload, config.Prefill):
        return []
    lines = []
    for arm in series.arms:
        out = why_not(loaded, workload, arm)
        if len(out) == len(workload.lengths):
            raise UserError(
                f"{arm.name} can hold no length: {out[workload.lengths[0]]}",
                file=loaded.file,
                key=f"series.{series.name}.workload.lengths",
                cure="add a shorter one",
            )
        lines += [
            f"{series.name}, {arm.name}: {length} tokens are left out: {why}"
            for length, why in out.items()
        ]
    return lines


def possible(this: Round, arm: Arm) -> tuple[config.Workload, list[dict[str, Any]]]:
    """The workload with the lengths that the arm can hold, and a row for each of the others."""
    workload = this.series.workload
    if not isinstance(workload, config.Prefill):
        return workload, []
    out = why_not(this.loaded, workload, arm)
    rows = [
        {
            "turn": 1,
            "prompt_id": workloads.at_length(length),
            "status": TOO_LONG,
            "reason": why,
            "started_at": datetime.now(UTC),
            "start_monotonic_s": time.monotonic(),
            "wall_minus_monotonic_s": 0.0,
        }
        for length, why in out.items()
    ]
    left = [length for length in workload.lengths if length not in out]
    return workload.model_copy(update={"lengths": left}), rows
