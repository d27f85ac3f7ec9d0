"""What a figure was measured with, there and here, factor by factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from twoturn import plan
from twoturn.article.data import Data, SeriesData
from twoturn.article.view import View, code
from twoturn.claims import N_
from twoturn.matrix import ADAPTIVE, block
from twoturn.sources import Conditions

Arms: TypeAlias = Iterable[tuple[SeriesData, plan.Arm]]
Values: TypeAlias = frozenset[Any] | None
Here: TypeAlias = Mapping[str, Values]

FACTORS = {
    "hardware": N_("hardware"),
    "model": N_("model"),
    "server": N_("server"),
    "bits": N_("bits per weight"),
    "temperature": N_("temperature of sampling"),
    "thinking": N_("thinking"),
    "prompts": N_("prompts"),
    "prompt_tokens": N_("prompt length"),
    "max_tokens": N_("longest answer"),
    "block_size": N_("block size"),
    "rate": N_("what the rate includes"),
    "concurrency": N_("requests at once"),
}
RATES = {
    "with_prefill": N_("the whole request, prefill included"),
    "decode_only": N_("decoding after the first chunk"),
}
SWITCH = {True: N_("on"), False: N_("off")}
NOT_QUANTISED = N_("not quantised")
DEMO = N_("the demo model, a toy")
UNQUANTISED = 16


def here(data: Data, arms: Arms) -> Here:
    """Factor → the values that occur among some arms, None where one of them is not known.

    `server` is (adapter, version), `model` is (name of the checkpoint, whether it is the demo's).
    Whether a model thinks is left to the model, so it is not known.
    """
    pairs = list(arms)
    loads = [one.series.workload for one, _ in pairs]
    toys = {one.name: one.toy for one in data.checkpoints}
    bits = [_bits(data, arm) for _, arm in pairs]
    found: dict[str, Iterable[Any]] = {
        "hardware": [data.facts.get("chip")],
        "model": [(_model(data, arm), toys.get(arm.checkpoint, False)) for _, arm in pairs],
        "server": [(arm.adapter, arm.version) for _, arm in pairs],
        "bits": [one for some in bits for one in some],
        "thinking": [None],
        "rate": ["decode_only"],
        "concurrency": [1],
        "prompts": [getattr(load, "text", None) for load in loads],
        "block_size": [block(arm) for _, arm in pairs if arm.speculation != "none"],
    }
    for name in ("temperature", "prompt_tokens", "max_tokens"):
        found[name] = [getattr(load, name, None) for load in loads]
    return {name: _known(found[name]) for name in FACTORS}


def _known(values: Iterable[Any]) -> Values:
    found = frozenset(values)
    return None if None in found or not found else found


def _bits(data: Data, arm: plan.Arm) -> list[int | None]:
    """Bits per weight of the target, UNQUANTISED for none at all."""
    weights = data.weights.get(arm.checkpoint)
    if weights is None or weights.bits is None:
        return [None]
    return list(weights.bits) or [UNQUANTISED]


def _model(data: Data, arm: plan.Arm) -> str:
    weights = data.weights.get(arm.checkpoint)
    return (weights.model if weights else None) or arm.checkpoint


def there(told: Conditions) -> Here:
    """The same of a document, in its own words."""
    found: dict[str, Values] = {}
    for name in FACTORS:
        value = getattr(told, name)
        found[name] = None if value is None else frozenset(value if _is_many(value) else [value])
    return found


def _is_many(value: Any) -> bool:
    return isinstance(value, list)


def same(factor: str, theirs: Values, ours: Values) -> bool | None:
    """Whether all that occurs here was measured there too; None where either is not known.

    A model is the same by its name alone, and another only where it is known to be a toy.
    """
    if theirs is None or ours is None:
        return None
    if factor == "model":
        begins = tuple(name.lower() for name in theirs)
        if all(name.lower().startswith(begins) for name, _ in ours):
            return True
        return False if all(toy for _, toy in ours) else None
    if factor == "server":
        known = {name.lower() for name in theirs}
        return all({adapter, f"{adapter} {version}"} & known for adapter, version in ours)
    return ours <= theirs


def differing(told: Conditions, ours: Here) -> list[str]:
    """The factors that are known to differ."""
    theirs = there(told)
    return [name for name in FACTORS if same(name, theirs[name], ours[name]) is False]


def told(factor: str, values: Values, view: View) -> str:
    """The values of a factor for a reader."""
    if values is None:
        return view.number.unknown
    ordered = sorted(values, key=lambda value: (value == ADAPTIVE, value))
    return ", ".join(dict.fromkeys(_one(factor, value, view) for value in ordered))


def _one(factor: str, value: Any, view: View) -> str:
    words = view.words.gettext
    if factor == "model":
        name, toy = (value, False) if isinstance(value, str) else value
        return words(DEMO) if toy else code(name)
    if factor == "server":
        return code(value if isinstance(value, str) else " ".join(value))
    if factor == "bits":
        return words(NOT_QUANTISED) if value >= UNQUANTISED else view.number.integer(value)
    if factor == "thinking":
        return words(SWITCH[value])
    if factor == "rate":
        return words(RATES[value])
    if factor == "block_size":
        return view.blocks([value])
    if factor == "hardware":
        return code(value)
    return code(value) if isinstance(value, str) else view.number.short(value)


def names(factors: Iterable[str], view: View) -> str:
    """Factors as a list in a sentence."""
    return view.number.names(view.words.gettext(FACTORS[name]) for name in factors)
