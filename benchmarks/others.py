"""What the other methods promise: prompts as the sample, the best of six arms, rounds that suffice.

These run the project's own functions, series by series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from twoturn import plan
from twoturn.stats import best_of, hodges_lehmann, pair_fit, planning, prompts
from twoturn.stats.base import CONFIDENCE, Estimate, Slot
from twoturn.stats.verdict import Verdict, judge

from . import vectorised
from .series import DRIFT, Setting, many

HEAD = ("method", "simulated", "asked for, %", "found, %")
PROMPTS, ROUNDS_OF_PROMPTS = 8, 4
BETWEEN, WITHIN = 0.12, 0.03
NOISE = 0.04
RATE = "decode_tok_s"


@dataclass(frozen=True)
class Row:
    """`least` or `most` is the limit, in percent; a row without either shows what goes wrong."""

    method: str
    what: str
    found: float
    runs: int
    least: float | None = None
    most: float | None = None

    def kept(self, sigmas: float) -> bool:
        """Whether the limit is kept, or missed by so many standard errors at most."""
        limit = self.least if self.least is not None else self.most
        if limit is None:
            return True
        slack = sigmas * 100 * math.sqrt(limit / 100 * (1 - limit / 100) / self.runs)
        return self.found >= limit - slack if self.most is None else self.found <= limit + slack

    def told(self) -> list[str]:
        limits = {"≥": self.least, "≤": self.most}
        limit = next((f"{sign} {one:g}" for sign, one in limits.items() if one is not None), "–")
        return [self.method, self.what, limit, f"{self.found:.1f}"]


def rows(runs: int, rng: np.random.Generator) -> list[Row]:
    return [*over_prompts(runs, rng), *best_of_six(runs, rng), *enough_rounds(runs, rng)]


def over_prompts(runs: int, rng: np.random.Generator) -> list[Row]:
    """8 prompts × 4 rounds; the speed-up differs by 12 % between prompts, 3 % between rounds."""
    covered = {"one value per prompt": 0, "prompt × round as independent": 0}
    n = PROMPTS * ROUNDS_OF_PROMPTS
    for _ in range(runs):
        own = rng.normal(0, BETWEEN, (PROMPTS, 1))
        logs = own + rng.normal(0, WITHIN, (PROMPTS, ROUNDS_OF_PROMPTS))
        result = prompts.estimate((f"p{p}", float(log)) for (p, _), log in np.ndenumerate(logs))
        assert isinstance(result, Estimate)
        covered["one value per prompt"] += result.low <= 0 <= result.high
        half = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * logs.std(ddof=1) / math.sqrt(n)
        covered["prompt × round as independent"] += abs(logs.mean()) <= half
    what = "coverage for other prompts"
    first, second = (100 * found / runs for found in covered.values())
    return [
        Row("one value per prompt", what, first, runs, least=98.0),
        Row("prompt × round as independent", what, second, runs),
    ]


def six_equal(rng: np.random.Generator, rounds: int) -> list[Slot]:
    """Six arms and a reference, all equally fast, under a steady drift."""
    arms = ["reference", *(f"block-{n}" for n in range(6))]
    seed = int(rng.integers(2**31))
    ran = [(arm, n) for n in range(1, rounds + 1) for arm in plan.order(arms, seed, n)]
    logs = DRIFT * np.linspace(0, 1, len(ran)) + rng.normal(0, NOISE, len(ran))
    return [
        Slot(arm, number, "s0", 60.0 * place, math.exp(log))
        for place, ((arm, number), log) in enumerate(zip(ran, logs, strict=True))
    ]


def best_of_six(runs: int, rng: np.random.Generator, rounds: int = 6) -> list[Row]:
    """How often the best of six equal arms is called faster."""
    wins = {"other": 0, "same": 0}
    arms = [f"block-{n}" for n in range(6)]
    for _ in range(runs):
        slots = six_equal(rng, rounds)
        choice = best_of.choose(slots, arms=arms, reference="reference")
        assert isinstance(choice, best_of.Choice)
        wins["other"] += judge(RATE, choice.estimate, choice.check) == Verdict.FASTER
        every = (pair_fit.estimate(slots, arm=arm, reference="reference") for arm in arms)
        best = max(
            zip(arms, every, strict=True),
            key=lambda one: one[1].log_ratio if isinstance(one[1], Estimate) else -math.inf,
        )
        check = hodges_lehmann.estimate(slots, arm=best[0], reference="reference")
        assert isinstance(best[1], Estimate)
        assert isinstance(check, Estimate)
        wins["same"] += judge(RATE, best[1], check) == Verdict.FASTER
    what = "best of six equal arms called faster"
    return [
        Row("chosen on one block, reported on two", what, 100 * wins["other"] / runs, runs, most=2),
        Row("chosen and reported on six rounds", what, 100 * wins["same"] / runs, runs),
    ]


def enough_rounds(runs: int, rng: np.random.Generator) -> list[Row]:
    """Power at the number of rounds that `planning` asks for, and at two fewer."""
    found = []
    for effect, noise in ((0.05, 0.03), (0.10, 0.04), (0.03, 0.02)):
        needed = planning.rounds_needed(noise, effect)
        assert isinstance(needed, int)
        for rounds in (needed, needed - 2):
            setting = Setting(rounds, 2, (noise, noise), "linear")
            ratio, half, check = (
                np.concatenate(part)
                for part in zip(
                    *(
                        (
                            *vectorised.fit(vectorised.columns(one), logs),
                            vectorised.check(one, logs),
                        )
                        for one, logs in many(setting, 10, -(-runs // 2), rng)
                    ),
                    strict=True,
                )
            )
            true = math.log1p(effect)
            share = 100 * float((vectorised.called(ratio + true, half, check + true) == 1).mean())
            limits = {"least": 80.0} if rounds == needed else {"most": 80.0}
            what = f"+{100 * effect:.0f} % at {100 * noise:.0f} % noise found"
            found.append(Row(f"{rounds} rounds", what, share, len(ratio), **limits))
    return found
