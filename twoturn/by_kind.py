"""How much is accepted of a draft, by kind of prompt, for table and picture alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from twoturn import plan, published
from twoturn.contrasts import SLOT_VALUES
from twoturn.numbers import finite
from twoturn.texts import prompt_kind

COLUMNS = ["arm", "kind", "prompts", "requests", "accept_length", "least", "most"]
"""accept_length: over all valid requests of the rounds; least and most: of the single prompts."""


def acceptance(cells: pd.DataFrame, series: plan.Series) -> pd.DataFrame:
    """A row per arm with speculation and kind of prompt (COLUMNS), of the series' own cells.

    What no server reported is NaN; a kind without a valid request has no row.
    """
    valid = cells[(cells["kind"] == "round") & (cells["status"] == "ok")]
    valid = valid.assign(of=valid["prompt_id"].map(prompt_kind))
    found: list[dict[str, Any]] = []
    for arm in series.arms:
        for kind in series.prompt_kinds:
            rows = valid[(valid["arm"] == arm.name) & (valid["of"] == kind)]
            if arm.speculation == "none" or rows.empty:
                continue
            each = [_length(part) for _, part in rows.groupby("prompt_id")]
            found.append(
                {
                    "arm": arm.name,
                    "kind": kind,
                    "prompts": len(each),
                    "requests": len(rows),
                    "accept_length": _length(rows),
                    "least": float(np.min(each)),
                    "most": float(np.max(each)),
                }
            )
    return pd.DataFrame(found, columns=COLUMNS)


def published_range() -> tuple[float, float]:
    """The accept lengths that the published article gives, from the least to the most."""
    figures = published.load().figures
    return figures["accept_low"].value, figures["accept_high"].value


def _length(rows: pd.DataFrame) -> float:
    length = finite(SLOT_VALUES["accept_length"](rows))
    return np.nan if length is None else length
