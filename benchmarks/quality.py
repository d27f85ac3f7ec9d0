"""How often the verdicts about quality are wrong, and what they find: simulated tasks.

    python -m benchmarks.quality
    python -m benchmarks.quality --runs 2000     quick

Each task is passed by the reference with a probability of its own; on a share of the tasks the two
arms part, and where nothing differs each side of the parting is as likely as the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from twoturn import tasks
from twoturn.stats import paired
from twoturn.stats.paired import Counts, Quality

RUNS = 20_000
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
DISCORDANT = (0.02, 0.1, 0.2, 0.4)
DIFFERENCES = (-0.1, -0.15, -0.2, -0.3, -0.4)
FILE = Path(__file__).resolve().parents[1] / "tasks/tasks.yaml"


@dataclass(frozen=True)
class Rates:
    """Of many series: how often each verdict was given, and the true difference was covered."""

    better: float
    worse: float
    same: float
    covered: float


@cache
def _judged(counts: Counts) -> tuple[Quality, float, float]:
    result = paired.compare(counts)
    return result.verdict, result.low, result.high


def simulate(
    count: int, share: float, discordant: float, difference: float, runs: int, seed: int
) -> Rates:
    """Series of `count` tasks. share: of tasks that the reference passes, in the mean; discordant:
    of tasks on which the arms part; difference: of the shares, arm less reference."""
    random = np.random.default_rng(seed)
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    both = share - down
    chances = [both, up, down, 1 - both - up - down]
    drawn = random.multinomial(count, chances, runs)
    found = [_judged(Counts(*map(int, row))) for row in drawn]
    verdicts = [verdict for verdict, _, _ in found]
    return Rates(
        better=verdicts.count(Quality.BETTER) / runs,
        worse=verdicts.count(Quality.WORSE) / runs,
        same=verdicts.count(Quality.SAME) / runs,
        covered=sum(low <= difference <= high for _, low, high in found) / runs,
    )


def possible(share: float, discordant: float, difference: float = 0.0) -> bool:
    """Whether there are such tasks at all."""
    up, down = (discordant + difference) / 2, (discordant - difference) / 2
    return min(up, down, share - down, 1 - share - up) >= 0


def tables(count: int, runs: int) -> Iterator[str]:
    yield f"{count} tasks, {runs} series per row"
    yield ""
    yield "Nothing differs | passed | part | called better or worse | same | covered"
    for share in SHARES:
        for discordant in DISCORDANT:
            if possible(share, discordant):
                rates = simulate(count, share, discordant, 0.0, runs, seed=1)
                false = rates.better + rates.worse
                told = (
                    f"{100 * false:.2f} % | {100 * rates.same:.0f} % | {100 * rates.covered:.1f} %"
                )
                yield f"| {share:.1f} | {discordant:.2f} | {told}"
    yield ""
    yield "Worse by | part | called worse | called better | by the formula"
    for difference in DIFFERENCES:
        for discordant in sorted({-difference, 0.2, 0.4}):
            if discordant >= -difference and possible(0.6, discordant, difference):
                rates = simulate(count, 0.6, discordant, difference, runs, seed=2)
                power = paired.power_at(count, difference, discordant)
                told = (
                    f"{100 * rates.worse:.0f} % | {100 * rates.better:.2f} % | {100 * power:.0f} %"
                )
                yield f"| {-difference:.2f} | {discordant:.2f} | {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--tasks", type=int, help="instead of the shipped number")
    wanted = parser.parse_args()
    shipped = len(tasks.parse(FILE.read_text(encoding="utf-8"), FILE.name))
    for line in tables(wanted.tasks or shipped, wanted.runs):
        print(line)


if __name__ == "__main__":
    main()
