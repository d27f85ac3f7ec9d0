"""How the arms of a series relate: what two of them differ in, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

ADAPTIVE = "adaptive"
"""The block of an arm whose server chooses it anew from round to round of verification."""


class ArmLike(Protocol):
    """What is needed of an arm of the plan."""

    @property
    def name(self) -> str: ...
    @property
    def checkpoint(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def speculation(self) -> str: ...
    @property
    def block_size(self) -> int | None: ...
    @property
    def adaptive(self) -> bool: ...
    @property
    def draft(self) -> str | None: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...
    @property
    def args(self) -> Sequence[str]: ...
    @property
    def attached(self) -> bool: ...


class Compared(Protocol):
    """The part of a series that says what it compares."""

    @property
    def reference(self) -> str: ...
    @property
    def null_arm(self) -> str | None: ...
    @property
    def arms(self) -> Sequence[ArmLike]: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...


class SeriesLike(Compared, Protocol):
    """What is needed of a series of the plan; `arms` includes the reference and the null arm."""

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def rounds(self) -> int: ...
    def order(self, round_number: int, /) -> tuple[str, ...]: ...


def block(arm: ArmLike) -> int | str | None:
    """The block that was asked for: its size, ADAPTIVE, or None where nothing was asked for."""
    return ADAPTIVE if arm.adaptive else arm.block_size


def engine(arm: ArmLike) -> tuple[Any, ...]:
    """All of an arm but its name and checkpoint, the block first; as it compares."""
    return (block(arm), *_mode(arm), *_switched(arm))


def configuration(arm: ArmLike) -> tuple[Any, ...]:
    """All of an arm but its name: what it is, whatever a series calls it."""
    return (arm.checkpoint, *engine(arm))


def sweeps(series: Compared) -> tuple[tuple[str, ...], ...]:
    """Arms that differ in the block size alone, two or more at a time; never the reference. Where
    the metric that decides is about one length, none is chosen."""
    if "@" in series.metrics[0]:
        return ()
    groups: dict[Any, list[str]] = {}
    for arm in series.arms:
        if block(arm) is not None and arm.name not in (series.reference, series.null_arm):
            groups.setdefault((arm.checkpoint, *engine(arm)[1:]), []).append(arm.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def sweep_names(series: Compared) -> dict[str, tuple[str, ...]]:
    """Sweeps by what their arms have in common: server and mode, and what else tells them apart."""
    arms = {arm.name: arm for arm in series.arms}
    found = sweeps(series)
    firsts = [arms[sweep[0]] for sweep in found]
    names = [[arm.server, arm.speculation] for arm in firsts]
    rest = [(arm.checkpoint, arm.draft or "", *_switched(arm)) for arm in firsts]
    if len(set(map(tuple, names))) < len(names):
        for name, words in zip(names, rest, strict=True):
            name += [word for at, word in enumerate(words) if len({one[at] for one in rest}) > 1]
    return {" + ".join(filter(None, name)): sweep for name, sweep in zip(names, found, strict=True)}


def switches(series: Compared) -> tuple[str, ...]:
    """Arms that differ from the reference in settings or arguments of the server alone."""
    reference = next(arm for arm in series.arms if arm.name == series.reference)

    def same(arm: ArmLike) -> tuple[Any, ...]:
        return (arm.checkpoint, block(arm), *_mode(arm))

    return tuple(
        arm.name
        for arm in series.arms
        if arm.name not in (series.reference, series.null_arm)
        and same(arm) == same(reference)
        and _switched(arm) != _switched(reference)
    )


def _mode(arm: ArmLike) -> tuple[Any, ...]:
    return (arm.server, arm.speculation, arm.draft)


def _switched(arm: ArmLike) -> tuple[str, str]:
    return (repr(sorted(arm.settings.items())), repr(tuple(arm.args)))
