"""Adapters: one module per server, found by name."""

from __future__ import annotations

import difflib
import re

from pydantic import ValidationError

from twoturn.config import Arm, Campaign
from twoturn.engines.attached import Attached
from twoturn.engines.base import (
    Engine,
    LogsLate,
    Place,
    ReadsOtherFiles,
    Refuses,
    Telemetry,
    contradiction,
    scale,
)
from twoturn.engines.command import Command
from twoturn.engines.dflash_mlx import DflashMlx
from twoturn.engines.llama_cpp import LlamaCpp
from twoturn.engines.mlx_dspark import MlxDspark
from twoturn.engines.mlx_lm import MlxLm
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.engines.omlx import Omlx
from twoturn.engines.sglang import SgLang
from twoturn.engines.vllm import Vllm
from twoturn.errors import UserError
from twoturn.matrix import ADAPTIVE
from twoturn.plan import Arm as PlannedArm
from twoturn.plan import Plan, Series

ADAPTERS: dict[str, type[Engine]] = {
    adapter.name: adapter
    for adapter in (
        *(MlxVlm, MlxLm, LlamaCpp, Omlx, DflashMlx, MlxDspark, Vllm, SgLang),
        *(Command, Attached),
    )
}

__all__ = [
    "ADAPTERS",
    "Engine",
    "LogsLate",
    "Place",
    "ReadsOtherFiles",
    "Refuses",
    "Telemetry",
    "check",
    "check_versions",
    "contradiction",
    "get",
    "scale",
]


def get(campaign: Campaign, server: str) -> Engine:
    """The adapter of one of the campaign's servers."""
    entry = campaign.servers[server]
    if entry.command is not None:
        return Command(tuple(entry.command))
    if entry.attach is not None:
        reader = entry.adapter_name(server)
        known = Command() if reader == Attached.name else ADAPTERS[reader]()
        return Attached(entry.attach, entry.api_key_env, known)
    return ADAPTERS[entry.adapter_name(server)]()


def check(campaign: Campaign, file: str) -> None:
    """Adapters, modes and settings of every arm are known. Raises UserError."""
    for name in campaign.servers:
        _check_server(campaign, name, file)
    for series_name, series in campaign.series.items():
        for arm_name, arm in series.arms.items():
            _check_arm(campaign, arm, file, f"series.{series_name}.arms.{arm_name}")


def check_versions(campaign: Campaign, plan: Plan, file: str) -> None:
    """Every arm's server is new enough for what is asked of it. Raises UserError.

    A version that cannot be read as numbers is not judged: the running server is read back anyway.
    """
    for series in plan.series:
        for arm in series.arms:
            here = _numbers(arm.version)
            for key, first in get(campaign, arm.server).since.items():
                if (asked := _asked(key, series, arm)) and here and here < _numbers(first):
                    raise UserError(
                        f"{arm.server} {arm.version} does not have this: it is there from {first} "
                        "on",
                        file=file,
                        key=asked,
                        cure="leave it out or install a newer one",
                    )


def _asked(key: str, series: Series, arm: PlannedArm) -> str | None:
    """Where the campaign asks for what `Engine.since` calls `key`, or None."""
    where = f"series.{series.name}.arms.{arm.name}"
    if arm.settings.get(key) not in (None, False):
        return f"{where}.settings.{key}"
    if key == f"{arm.speculation}.block_size" and arm.block_size is not None:
        return f"{where}.block_size"
    if key == f"{arm.speculation}.temperature" and series.workload.temperature > 0:
        return f"series.{series.name}.workload.temperature"
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The first dotted numbers in a version: "omlx 0.6.3rc3" is 0, 6, 3. () where there are none,
    as in a build number; later lines tell of compilers."""
    found = re.search(r"\d+(?:\.\d+)+", version.partition("\n")[0])
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _check_server(campaign: Campaign, name: str, file: str) -> None:
    entry, key = campaign.servers[name], f"servers.{name}"
    adapter = entry.adapter_name(name)
    if adapter not in ADAPTERS:
        raise UserError(
            f"there is no adapter for {adapter!r}",
            file=file,
            key=key,
            cure=f"known: {', '.join(sorted(ADAPTERS))}; or start it with `command`",
        )
    wanted = Command.name if entry.command is not None else adapter
    origin = {Command.name: "command", Attached.name: "attach"}.get(wanted)
    if origin is not None and (adapter != wanted or getattr(entry, origin) is None):
        raise UserError(
            f"the adapter {wanted} and the key `{origin}` go together",
            file=file,
            key=f"{key}.adapter",
            cure=f"leave `adapter` out or name the `{origin}`",
        )
    origins = (*ADAPTERS[adapter].origins, "attach")  # any adapter reads what others have started
    keys = ("install", "executable", "command", "attach")
    came = next(one for one in keys if getattr(entry, one))
    if came not in origins:
        cures = {
            "install": "let the workflow make its environment: install: workflow/envs/….lock",
            "executable": f"name the program that is on this machine: executable: {adapter}",
        }
        raise UserError(
            f"{adapter} is not started by {came!r}",
            file=file,
            key=f"{key}.{came}",
            cure=cures[origins[0]],
        )


def _check_arm(campaign: Campaign, arm: Arm, file: str, where: str) -> None:
    engine = get(campaign, arm.server)
    if arm.speculation not in engine.modes:
        raise UserError(
            f"{arm.server} does not know {arm.speculation!r}",
            file=file,
            key=f"{where}.speculation",
            cure=f"it knows {', '.join(engine.modes)}",
        )
    _check_head(engine, arm, file, where)
    _check_adaptive(engine, arm, file, where)
    if arm.args and campaign.servers[arm.server].attach is not None:
        raise UserError(
            f"{arm.server} already runs, so it takes no arguments",
            file=file,
            key=f"{where}.args",
            cure="start it with them yourself and remove them here",
        )
    try:
        engine.Settings.model_validate(arm.settings)
    except ValidationError as error:
        fault = error.errors()[0]
        setting = str(fault["loc"][0])
        key, known = f"{where}.settings.{setting}", sorted(engine.Settings.model_fields)
        if fault["type"] == "extra_forbidden":
            near = difflib.get_close_matches(setting, known, 1)
            cure = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            what = f"{arm.server} has no setting {setting!r}"
            raise UserError(what, file=file, key=key, cure=cure) from None
        what = fault["msg"][:1].lower() + fault["msg"][1:]
        raise UserError(what, file=file, key=key) from None


def _check_adaptive(engine: Engine, arm: Arm, file: str, where: str) -> None:
    """A block that the server shall choose itself, in a mode in which it can."""
    if arm.block_size != ADAPTIVE:
        return
    if arm.speculation not in engine.adaptive:
        raise UserError(
            f"{arm.server} does not adapt the block of {arm.speculation}",
            file=file,
            key=f"{where}.block_size",
            cure="name a size, or leave it out for the server's own",
        )
    for key, value in engine.adaptive[arm.speculation].items():
        if arm.settings.get(key, value) != value:
            raise UserError(
                f"an adaptive block is {key}: {value}",
                file=file,
                key=f"{where}.settings.{key}",
                cure="leave it out, or name the size of the block",
            )


def _check_head(engine: Engine, arm: Arm, file: str, where: str) -> None:
    """The head of mode mtp is where the server looks for it."""
    if arm.speculation != "mtp":
        return
    if arm.draft is None and engine.mtp_head == "draft":
        raise UserError("speculation mtp needs `draft`, a checkpoint's name", file=file, key=where)
    if arm.draft is not None and engine.mtp_head == "target":
        raise UserError(
            f"{arm.server} takes the MTP head that lies in the target's own checkpoint",
            file=file,
            key=f"{where}.draft",
            cure="leave `draft` out",
        )
