"""Simulated series: the project's own order, drift in many shapes, noise, broken sessions.

Only the slots of two arms are drawn, because a contrast reads no others; further arms take their
places in the rounds all the same. All slots last alike, and time is counted in slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twoturn import plan
from twoturn.stats.base import Slot

Array = NDArray[np.float64]

DRIFT = math.log(1 - 0.34)
SHAPES = ("linear", "saturating", "warmed", "late", "step", "walk")
SESSIONS = ("one", "resumed", "anew")
ARM, REFERENCE = "arm", "reference"
LEVELS_OFF = 0.2  # time constant of `saturating`, in lengths of the series
JUMP = 0.2  # standard deviation, in logs, of the level of a resumed session
GAP = 0.5  # between two sessions, in lengths of the series


@dataclass(frozen=True)
class Setting:
    """`noise`: standard deviation in logs of a slot of the arm and of one of the reference."""

    rounds: int
    arms: int
    noise: tuple[float, float]
    shape: str
    sessions: str = "one"


@dataclass(frozen=True)
class Layout:
    """The slots of the pair in order of time; `place` counts the slots of all arms (size)."""

    is_arm: Array
    rounds: NDArray[np.int64]
    time: Array
    session: NDArray[np.int64]
    place: NDArray[np.int64]
    size: int
    second_session: int  # its first place

    def slots(self, logs: Array) -> list[Slot]:
        """What the estimators take, for one run; logs (2n,)."""
        return [
            Slot(ARM if arm else REFERENCE, int(number), f"s{session}", float(time), math.exp(log))
            for arm, number, session, time, log in zip(
                self.is_arm, self.rounds, self.session, self.time, logs, strict=True
            )
        ]


def interleaved(setting: Setting, rng: np.random.Generator) -> Layout:
    """The order of `twoturn.plan`, from a random seed; a resumed series breaks before any round."""
    names = [ARM, REFERENCE, *(f"other-{number}" for number in range(setting.arms - 2))]
    seed = int(rng.integers(2**31))
    numbers = range(1, setting.rounds + 1)
    sequence = [(name, number) for number in numbers for name in plan.order(names, seed, number)]
    cut = setting.rounds if setting.sessions == "one" else int(rng.integers(1, setting.rounds))
    return layout(sequence, cut)


def layout(sequence: Sequence[tuple[str, int]], cut: int) -> Layout:
    """From (arm, round) in order of time; rounds after `cut` belong to a second session."""
    place = np.array([n for n, (arm, _) in enumerate(sequence) if arm in (ARM, REFERENCE)])
    arms = np.array([sequence[n][0] == ARM for n in place], dtype=np.float64)
    rounds = np.array([sequence[n][1] for n in place])
    session = (rounds > cut).astype(np.int64)
    time = place + session * GAP * len(sequence)
    second = sum(number <= cut for _, number in sequence)
    return Layout(arms, rounds, time, session, place, len(sequence), second)


def draw(setting: Setting, plan_: Layout, runs: int, rng: np.random.Generator) -> Array:
    """(runs, 2n): log values of the pair where both arms are equally fast."""
    parts = [plan_.size]
    if setting.sessions == "anew":
        parts = [plan_.second_session, plan_.size - plan_.second_session]
    drift = np.hstack([_drift(setting, size, runs, rng) for size in parts])[:, plan_.place]
    level = plan_.session * rng.normal(0, JUMP, (runs, 1))
    scale = np.where(plan_.is_arm == 1, *setting.noise)
    return drift + level + rng.normal(0, 1, (runs, len(scale))) * scale


def _drift(setting: Setting, size: int, runs: int, rng: np.random.Generator) -> Array:
    """(runs, size): 34 % over all slots, or over them and a discarded round before (`warmed`)."""
    u = np.linspace(0, 1, size)
    match setting.shape:
        case "linear":
            shape = u
        case "saturating":
            shape = _saturating(u)
        case "warmed":
            before = setting.arms / (setting.arms + size)
            shape = _saturating(before + (1 - before) * u)
        case "late":
            shape = u**3
        case "step":
            shape = (u > rng.uniform(size=(runs, 1))).astype(np.float64)
        case "walk":
            shape = rng.normal(size=(runs, size)).cumsum(axis=1) / math.sqrt(size)
    return DRIFT * np.broadcast_to(shape, (runs, size))


def _saturating(u: Array) -> Array:
    return (1 - np.exp(-u / LEVELS_OFF)) / (1 - math.exp(-1 / LEVELS_OFF))


def many(
    setting: Setting, orders: int, runs: int, rng: np.random.Generator
) -> Iterator[tuple[Layout, Array]]:
    """`orders` seeds of the order, with `runs` series each."""
    for _ in range(orders):
        one = interleaved(setting, rng)
        yield one, draw(setting, one, runs, rng)
