"""Why a series will be measured, in words, from the specs that lie beside earlier cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twoturn import files, plan, privacy
from twoturn.plan import Series, round_name

SPEC = "spec.json"
TOLD = 4
"""Changes that are named; another campaign's series of the same name differs in most things."""


def is_there(series: Series, number: int, root: Path) -> bool:
    """Whether all cells of a round are there."""
    return all((root / cell).is_file() for cell in series.cells(number))


def missing_rounds(series: Series, root: Path) -> list[int]:
    """Rounds of which at least one cell is not there."""
    return [number for number in series.round_numbers() if not is_there(series, number, root)]


def why(series: Series, root: Path) -> str:
    """One line: which versions changed, or that it is new, or that rounds are missing."""
    folder = root / series.directory
    missing = missing_rounds(series, root)
    if not missing:
        return "all rounds are there"
    if len(missing) < series.rounds:
        return f"{len(missing)} of {series.rounds} rounds are missing"
    spec = json.loads(spec_text(series, root))
    earlier: list[list[str]] = [
        changed
        for file in sorted(folder.parent.glob(f"*/{SPEC}"))
        if file.parent != folder and _measured(file.parent) and (old := _read(file))
        if (changed := plan.changes(old, spec))
    ]
    if not earlier:
        return "not measured yet"
    nearest = min(earlier, key=len)
    more = [f"{len(nearest) - TOLD} more changes"] if len(nearest) > TOLD + 1 else []
    return "; ".join([*nearest[:TOLD], *more] if more else nearest)


def spec_text(series: Series, root: Path) -> str:
    """What the fingerprint covers, as it is written beside the cells."""
    return json.dumps(privacy.redact_all(dict(series.spec), root), indent=1, sort_keys=True)


def write_spec(series: Series, root: Path) -> None:
    """So that a later change can be explained. One that is there and right stays as it is."""
    file, text = root / series.directory / SPEC, spec_text(series, root)
    if not file.is_file() or file.read_bytes() != text.encode():
        files.write_text(file, text)


def _measured(folder: Path) -> bool:
    return any((folder / round_name(1)).glob("*.parquet"))


def _read(file: Path) -> dict[str, Any] | None:
    """An earlier spec, or None where it cannot be read as one."""
    try:
        spec: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(spec, dict) and {"machine", "workload", "arms"} <= set(spec)
    return spec if whole else None
