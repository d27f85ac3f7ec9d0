"""How far a campaign is, what its cells cost beside the measuring, and about how long is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from twoturn import reasons
from twoturn.campaign import Loaded
from twoturn.plan import Series, round_name

SILENCE_S = 60.0


def aloud(
    log: Callable[[str], None],
    console: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[str], None]:
    """Says every line to the log, and the newest to the console after a minute without one: a long
    round shows where it is, and a short one fills no screen."""
    last = clock()

    def say(line: str) -> None:
        nonlocal last
        log(line)
        if clock() - last >= SILENCE_S:
            last = clock()
            console(line)

    return say


def line(loaded: Loaded, series: Series, number: int, seconds: float) -> str:
    """One line after a round: where we are, the time per cell that is neither server start nor
    request, and the time left at this round's pace per cell."""
    files = list((loaded.root / series.directory / round_name(number)).rglob("*.parquet"))
    count = max(1, len(files))
    idle = (seconds - sum(map(_measuring_s, files))) / count
    left = sum(
        len(one.arms) * len(reasons.missing_rounds(one, loaded.root)) for one in loaded.plan.series
    )
    rest = duration(left * seconds / count)
    return (
        f"{series.name}: round {number} of {series.rounds} measured, {len(files)} cells in "
        f"{duration(seconds)}, {idle:.1f} s per cell beside server start and requests; "
        + (f"about {rest} left" if left else "nothing left to measure")
    )


def _measuring_s(cell: Path) -> float:
    """Seconds of one cell in which its server started or answered, warm-up request included."""
    rows = pq.read_table(cell, columns=["load_s", "e2e_s"]).to_pydict()
    return sum(time or 0.0 for time in (rows["load_s"][0], *rows["e2e_s"]))


def duration(seconds: float) -> str:
    """12 s, 3 min, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
