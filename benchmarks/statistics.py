"""What the statistics promise, and whether they keep it: `python benchmarks/statistics.py`.

Simulates series under a drift of 34 % in the project's own order, judges each with the project's
estimator and gate, and counts: false `faster` and `slower` between equal arms, coverage of the 99 %
interval, verdicts in the wrong direction, and how often true ratios of 1.05, 1.10 and 1.20 are
found. Ends with an error if a limit is broken. `--write` puts the tables into docs/statistics.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # not this folder: this file would hide the library's `statistics`

from benchmarks import others, rivals, vectorised  # noqa: E402
from benchmarks.series import SESSIONS, SHAPES, Array, Layout, Setting, draw, many  # noqa: E402

PAGE = ROOT / "docs" / "statistics.md"
ROUNDS = (4, 6, 8, 12)
ARMS = (2, 4, 6)
UNEQUAL = "8 : 1.5"
NOISES = {str(n): (n / 100, n / 100) for n in (1, 3, 4, 5)} | {UNEQUAL: (0.08, 0.015)}
RATIOS = (1.05, 1.10, 1.20)
ORDERS, RUNS, SEED = 32, 600, 1

# Limits in percent: equal noise, unequal noise.
FALSE = {False: 2.0, True: 3.0}
COVERAGE = {False: 98.0, True: 97.0}
WRONG = 0.5
# At six rounds, 4 % noise, one session.
FOUND = {1.20: 95.0, 1.10: 70.0}
SMOOTH = {1.20: ("linear", "saturating", "warmed", "late"), 1.10: ("linear", "warmed", "late")}


@dataclass(frozen=True)
class Rates:
    """Shares in percent; `found` is in the order of RATIOS. NaN where the estimator refuses."""

    false: float
    coverage: float
    wrong: float
    found: tuple[float, ...]
    runs: int


def rates(results: Iterable[tuple[Array, Array, Array | None]]) -> Rates:
    """From log ratios, half widths and cross-checks of equal arms, batch by batch.

    A true ratio adds its logarithm to both estimates and changes nothing else, so the same runs
    serve for all ratios. Without a cross-check the interval alone decides (a rival without a gate).
    """
    ratio, half, check = (
        np.concatenate([np.asarray(one) for one in part])
        for part in zip(*((r, h, r if c is None else c) for r, h, c in results), strict=True)
    )
    if np.isnan(ratio).all():
        return Rates(math.nan, math.nan, math.nan, (math.nan,) * len(RATIOS), len(ratio))

    def share(true: float, *verdicts: int) -> float:
        found = vectorised.called(ratio + math.log(true), half, check + math.log(true))
        return 100 * float(np.isin(found, verdicts).mean())

    return Rates(
        share(1.0, 1, -1),
        100 * float((np.abs(ratio) <= half).mean()),
        max(share(true, -1) for true in RATIOS),
        tuple(share(true, 1) for true in RATIOS),
        len(ratio),
    )


def generator(setting: Setting) -> np.random.Generator:
    """One stream of numbers per setting, the same whichever other settings are run."""
    return np.random.default_rng([SEED, zlib.crc32(repr(setting).encode())])


def ours(one: Layout, logs: Array) -> tuple[Array, Array, Array]:
    return *vectorised.fit(vectorised.columns(one), logs), vectorised.check(one, logs)


def simulate(setting: Setting, orders: int, runs: int) -> Rates:
    return rates(ours(*series) for series in many(setting, orders, runs, generator(setting)))


def all_settings() -> list[tuple[str, Setting]]:
    """(name of the noise, setting), every combination."""
    return [
        (noise, Setting(rounds, arms, NOISES[noise], shape, sessions))
        for rounds, sessions, noise, shape, arms in product(ROUNDS, SESSIONS, NOISES, SHAPES, ARMS)
    ]


# Limits -------------------------------------------------------------------------------------------


def slack(limit: float, runs: int, sigmas: float) -> float:
    """So many standard errors of a share that lies at the limit, in percent."""
    return sigmas * 100 * math.sqrt(limit / 100 * (1 - limit / 100) / runs)


def broken(noise: str, setting: Setting, one: Rates, sigmas: float = 0.0) -> list[str]:
    """The limits that a setting breaks, in words; power is not looked at here."""
    if math.isnan(one.false):
        return []
    unequal = noise == UNEQUAL
    limits = [
        ("false claims", one.false - FALSE[unequal], FALSE[unequal]),
        ("coverage", COVERAGE[unequal] - one.coverage, COVERAGE[unequal]),
        ("wrong direction", one.wrong - WRONG, WRONG),
    ]
    return [
        f"{name}, limit {limit} %: {setting}: {one}"
        for name, excess, limit in limits
        if excess > slack(limit, one.runs, sigmas)
    ]


def weak(found: dict[str, tuple[float, ...]], runs: int, sigmas: float = 0.0) -> list[str]:
    """The limits of power that are broken; found: shape → mean shares over the numbers of arms."""
    return [
        f"a true ratio of {ratio} under {shape} drift is found in {power:.1f} % only"
        for ratio, limit in FOUND.items()
        for shape in SMOOTH[ratio]
        if (power := found[shape][RATIOS.index(ratio)]) < limit - slack(limit, runs, sigmas)
    ]


# Tables -------------------------------------------------------------------------------------------

Results = dict[tuple[int, str, str, str], list[Rates]]
"""(rounds, sessions, noise, shape) → one per number of arms."""

REFUSED = "–"


def worst(some: Sequence[Rates]) -> str:
    if math.isnan(some[0].false):
        return REFUSED
    false, coverage = max(one.false for one in some), min(one.coverage for one in some)
    return f"{false:.1f} / {coverage:.1f} / {max(one.wrong for one in some):.1f}"


def mean_power(some: Sequence[Rates]) -> tuple[float, ...]:
    return tuple(
        float(np.mean(shares)) for shares in zip(*(one.found for one in some), strict=True)
    )


def power(some: Sequence[Rates]) -> str:
    if math.isnan(some[0].false):
        return REFUSED
    return " / ".join(f"{share:.0f}" for share in mean_power(some))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main_table(results: Results, cell: str) -> str:
    """cell: `errors` or `power`."""
    tell = {"errors": worst, "power": power}[cell]
    keys = dict.fromkeys(key[:3] for key in results)
    return table(
        ["rounds", "sessions", "noise, %", *SHAPES],
        (
            [str(rounds), sessions, noise]
            + [tell(results[rounds, sessions, noise, shape]) for shape in SHAPES]
            for rounds, sessions, noise in keys
        ),
    )


def rivals_table(orders: int, runs: int) -> str:
    """Six rounds of two arms, one session: ours, what was tried, what others do."""
    rows = []
    for name, noise in product(["this project", *rivals.TRIED, *rivals.RIVALS], ("4", UNEQUAL)):
        row = [name, noise]
        for shape in SHAPES:
            one = rival(name, Setting(6, 2, NOISES[noise], shape), orders, runs)
            row.append(f"{one.false:.1f} / {one.found[1]:.0f} / {one.found[2]:.0f}")
        rows.append(row)
    return table(["estimate", "noise, %", *SHAPES], rows)


def rival(name: str, setting: Setting, orders: int, runs: int) -> Rates:
    rng = generator(setting)
    if name in rivals.RIVALS:
        order, method = rivals.RIVALS[name]
        one = order(setting.rounds)
        return rates([(*method(one, draw(setting, one, orders * runs, rng)), None)])
    if name in rivals.TRIED:
        tried = rivals.TRIED[name]
        batches = many(setting, orders, runs, rng)
        return rates((*tried(*one), vectorised.check(*one)) for one in batches)
    return simulate(setting, orders, runs)


def write(tables: dict[str, str], page: Path) -> None:
    """Replace what stands between the markers of each table."""
    text = page.read_text(encoding="utf-8")
    for name, content in tables.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"{page}: the markers of {name!r} are missing")
        before, _, rest = text.partition(begin)
        text = before + begin + content + end + rest.partition(end)[2]
    page.write_text(text, encoding="utf-8")


def read(page: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table between its markers."""
    part = page.partition(f"<!-- {name}: begin -->\n")[2].partition("<!-- ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()]
    return lines[0], lines[2:]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="series per order and setting")
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders per setting")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the runs, with slack")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    options = parser.parse_args()
    if options.runs < 1 or options.orders < 1:
        parser.error("--runs and --orders are at least 1")
    if options.quick and options.write:
        parser.error("--write wants the whole run, without --quick")
    orders, runs, sigmas = options.orders, options.runs, 0.0
    if options.quick:
        orders, runs, sigmas = max(1, orders // 4), max(1, runs // 5), 4.0
    results: Results = {}
    faults: list[str] = []
    for noise, setting in all_settings():
        one = simulate(setting, orders, runs)
        faults += broken(noise, setting, one, sigmas)
        key = (setting.rounds, setting.sessions, noise, setting.shape)
        results.setdefault(key, []).append(one)
    found = {shape: mean_power(results[6, "one", "4", shape]) for shape in SHAPES}
    faults += weak(found, len(ARMS) * orders * runs, sigmas)
    rows = others.rows(max(10, runs * orders // 10), np.random.default_rng(SEED))
    faults += [f"{row.what}: {row.found:.1f} %" for row in rows if not row.kept(sigmas)]
    tables = {
        "errors": main_table(results, "errors"),
        "power": main_table(results, "power"),
        "rivals": rivals_table(orders, max(1, runs // 4)),
        "others": table(others.HEAD, [row.told() for row in rows]),
    }
    for name, text in tables.items():
        print(f"{name}\n{text}")
    error = slack(FALSE[False], orders * runs, 1.0)
    print(f"{orders * runs} series per setting; standard error at a share of 2 %: {error:.2f} %")
    if options.write:
        write(tables, PAGE)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
