"""How far a campaign is, and about how long it will still take."""

from __future__ import annotations

from twoturn import reasons
from twoturn.campaign import Loaded
from twoturn.plan import Series, round_name


def line(loaded: Loaded, series: Series, number: int, seconds: float) -> str:
    """One line after a round: where we are, and the time left at this round's pace per cell."""
    folder = loaded.root / series.directory / round_name(number)
    measured = sum(1 for _ in folder.rglob("*.parquet"))
    left = sum(
        len(one.arms) * len(reasons.missing_rounds(one, loaded.root)) for one in loaded.plan.series
    )
    rest = duration(left * seconds / max(1, measured))
    return (
        f"{series.name}: round {number} of {series.rounds} measured, {measured} cells in "
        f"{duration(seconds)}; " + (f"about {rest} left" if left else "nothing left to measure")
    )


def duration(seconds: float) -> str:
    """12 s, 3 min, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
