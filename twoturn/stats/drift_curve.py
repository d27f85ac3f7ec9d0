"""How the reference would have run over the whole series: a picture of the drift, not a correction.

Log value on one intercept per arm + time + time² + sessions over the slots of all arms. Noise is
taken as equal in all of them, which is good enough for a curve and would not be for a contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .base import CONFIDENCE, Refusal, Slot, fault_of
from .ols import Array, Fit, TimeBasis, least_squares


@dataclass(frozen=True)
class Curve:
    """The fitted drift; call it with a time to get the reference there."""

    fit: Fit
    basis: TimeBasis
    others: int

    def at(
        self, time_s: float, session: str, confidence: float = CONFIDENCE
    ) -> tuple[float, float, float]:
        """Fitted value of the reference and its interval, in the metric's unit.

        A session that the fit does not know is read as the last one.
        """
        known = session if session in self.basis.sessions else self.basis.sessions[-1]
        row: Array = np.concatenate(
            [np.zeros(self.others), self.basis.columns([time_s], [known])[0]]
        )
        fitted, low, high = np.exp(self.fit.interval(row, confidence))
        return float(fitted), float(low), float(high)


def curve(slots: Sequence[Slot], *, reference: str) -> Curve | Refusal:
    """Fit the drift of a series; reasons as in `fault_of` and `least_squares`, or `incomplete`."""
    ordered = sorted(slots, key=lambda slot: (slot.time_s, slot.round, slot.arm))
    if (reason := fault_of(ordered)) is not None:
        return Refusal(reason)
    if not any(slot.arm == reference for slot in ordered):
        return Refusal("incomplete")
    basis = TimeBasis.of(ordered)
    others = sorted({slot.arm for slot in ordered} - {reference})
    own = np.array([[float(slot.arm == other) for other in others] for slot in ordered])
    time = basis.columns([slot.time_s for slot in ordered], [slot.session for slot in ordered])
    fit = least_squares(
        np.column_stack([own.reshape(len(ordered), len(others)), time]),
        np.log(np.array([slot.value for slot in ordered])),
    )
    return fit if isinstance(fit, Refusal) else Curve(fit, basis, len(others))
