"""Whether the text that was timed is right. Pure: who asks a cold server is given as a function.

A greedy answer is a matter of checkpoint and messages, so arms of one checkpoint that got the same
messages should have written the same. Where they did not, the request is put once more, off the
clock, to fresh servers whose first request it is: to the arm without speculation, and to the arm
itself.

    warm text = cold text without speculation       identical
    warm text = cold text of the arm itself         diverges: speculation calculates differently
    warm text = neither of them                     wrong_when_warm: what earlier requests left
                                                    behind in the server has changed the answer

Every timed request is a warm one: at least the warm-up came before it. No cold server is needed
where all texts are the same and one of them was written without speculation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from twoturn.messages import Messages
from twoturn.plan import Arm

Verdict: TypeAlias = Literal["identical", "diverges", "wrong_when_warm"]
Cold: TypeAlias = Callable[[Arm, Messages], str | None]


@dataclass(frozen=True)
class Request:
    """What an arm was asked, and everything that it wrote, reasoning included. `gaps`: length of a
    piece of the text and how close its tokens were to others (`TokenChunk.gap_nats`), in order.
    `visible`: the answer alone, where the server tells the reasoning apart."""

    arm: Arm
    messages: Messages
    text: str
    gaps: tuple[tuple[int, float | None], ...] = ()
    visible: str = ""

    def gap_at(self, place: int) -> float | None:
        """The gap where character `place` was written, None where it is not known."""
        end = 0
        for length, gap in self.gaps:
            end += length
            if place < end:
                return gap
        return None


@dataclass(frozen=True)
class Finding:
    """A verdict, None where no cold server answered. `other` is the cold text that the request's
    own differs from: the one without speculation where it is known."""

    verdict: Verdict | None
    other: str | None = None


def examine(requests: Sequence[Request], arms: Sequence[Arm], cold: Cold) -> list[Finding]:
    """One finding per request, in their order.

    arms: those of the series, the reference first. cold: what a fresh server of an arm answers to
    messages that are its first request, None if it does not answer; asked as seldom as possible,
    but perhaps twice for the same.
    """
    groups: dict[tuple[str, Messages], list[Request]] = {}
    for request in requests:
        groups.setdefault(_question(request), []).append(request)
    return [_finding(request, groups[_question(request)], arms, cold) for request in requests]


def _question(request: Request) -> tuple[str, Messages]:
    return request.arm.checkpoint, request.messages


def _finding(
    request: Request, group: Sequence[Request], arms: Sequence[Arm], cold: Cold
) -> Finding:
    known = any(one.arm.speculation == "none" for one in group)
    if known and len({one.text for one in group}) == 1:
        return Finding("identical")
    plain = unspeculated(request.arm, arms)
    truth = cold(plain, request.messages) if plain else None
    if request.text == truth:
        return Finding("identical")
    own = truth if plain == request.arm else cold(request.arm, request.messages)
    if own is None:
        return Finding(None)
    if request.text != own:
        return Finding("wrong_when_warm", own if truth is None else truth)
    return Finding(None) if truth is None else Finding("diverges", truth)


def unspeculated(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """The arm without speculation that tells what is right for `arm`: itself, or one of the series
    on the same checkpoint and server, or itself with its speculation taken away. None for a command
    line: which of its words are speculation is not known."""
    if arm.speculation == "none":
        return arm
    fit = [
        one
        for one in arms
        if (one.checkpoint, one.server, one.speculation) == (arm.checkpoint, arm.server, "none")
    ]
    like = [one for one in fit if (one.settings, one.args) == (arm.settings, arm.args)]
    if found := [*like, *fit][:1]:
        return found[0]
    if arm.adapter == "command":
        return None
    return replace(arm, speculation="none", block_size=None, adaptive=False, draft=None)


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int | None:
    """Index of the first element that differs, None where the two are the same."""
    if one == other:
        return None
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
