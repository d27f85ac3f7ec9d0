"""Adapters: one module per server, found by name."""

from __future__ import annotations

import difflib

from pydantic import ValidationError

from twoturn.config import Arm, Campaign
from twoturn.engines.base import Engine, Place, Telemetry, scale
from twoturn.engines.command import Command
from twoturn.engines.mlx_lm import MlxLm
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.errors import UserError

ADAPTERS: dict[str, type[Engine]] = {adapter.name: adapter for adapter in (MlxVlm, MlxLm, Command)}

__all__ = ["ADAPTERS", "Engine", "Place", "Telemetry", "check", "get", "scale"]


def get(campaign: Campaign, server: str) -> Engine:
    """The adapter of one of the campaign's servers."""
    entry = campaign.servers[server]
    if entry.command is not None:
        return Command(tuple(entry.command))
    return ADAPTERS[entry.adapter_name(server)]()


def check(campaign: Campaign, file: str) -> None:
    """Adapters, modes and settings of every arm are known. Raises UserError."""
    for name in campaign.servers:
        _check_server(campaign, name, file)
    for series_name, series in campaign.series.items():
        for arm_name, arm in series.arms.items():
            _check_arm(campaign, arm, file, f"series.{series_name}.arms.{arm_name}")


def _check_server(campaign: Campaign, name: str, file: str) -> None:
    entry, key = campaign.servers[name], f"servers.{name}"
    adapter = entry.adapter_name(name)
    if entry.attach is not None:
        raise UserError(
            "servers that already run are not measured by this version",
            file=file,
            key=f"{key}.attach",
            cure="let the workflow start it: use install, executable or command",
        )
    if adapter not in ADAPTERS:
        raise UserError(
            f"there is no adapter for {adapter!r}",
            file=file,
            key=key,
            cure=f"known: {', '.join(sorted(ADAPTERS))}; or start it with `command`",
        )
    if (entry.command is None) == (adapter == Command.name):
        raise UserError(
            f"the adapter {Command.name} and the key `command` go together",
            file=file,
            key=f"{key}.adapter",
            cure="leave `adapter` out or name the `command`",
        )
    if entry.executable is not None:
        raise UserError(
            f"{adapter} is started from its own environment",
            file=file,
            key=f"{key}.executable",
            cure="use install: workflow/envs/….lock",
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
