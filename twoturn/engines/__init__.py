"""Adapters: one module per server, found by name."""

from __future__ import annotations

import difflib

from twoturn.config import Campaign
from twoturn.engines.base import Engine, Place, Telemetry, scale, settings
from twoturn.engines.command import Command
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.errors import UserError

ADAPTERS = {MlxVlm.name: MlxVlm, Command.name: Command}

__all__ = ["ADAPTERS", "Engine", "Place", "Telemetry", "check", "get", "scale", "settings"]


def get(campaign: Campaign, server: str) -> Engine:
    """The adapter of one of the campaign's servers."""
    entry = campaign.servers[server]
    if entry.command is not None:
        return Command(tuple(entry.command))
    return ADAPTERS[entry.adapter_name(server)]()


def check(campaign: Campaign, file: str) -> None:
    """Adapters, modes and settings of every arm are known. Raises UserError."""
    for name, entry in campaign.servers.items():
        if entry.attach is not None:
            raise UserError(
                "servers that already run are not measured by this version",
                file=file,
                key=f"servers.{name}.attach",
                cure="let the workflow start it: use install, executable or command",
            )
        if entry.adapter_name(name) not in ADAPTERS:
            raise UserError(
                f"there is no adapter for {entry.adapter_name(name)!r}",
                file=file,
                key=f"servers.{name}",
                cure=f"known: {', '.join(sorted(ADAPTERS))}; or start it with `command`",
            )
    for series_name, series in campaign.series.items():
        for arm_name, arm in series.arms.items():
            engine = get(campaign, arm.server)
            where = f"series.{series_name}.arms.{arm_name}"
            if arm.speculation not in engine.modes:
                raise UserError(
                    f"{arm.server} does not know {arm.speculation!r}",
                    file=file,
                    key=f"{where}.speculation",
                    cure=f"it knows {', '.join(engine.modes)}",
                )
            for key in arm.settings:
                if key not in engine.defaults:
                    near = difflib.get_close_matches(key, engine.defaults, 1)
                    known = ", ".join(sorted(engine.defaults))
                    raise UserError(
                        f"{arm.server} has no setting {key!r}",
                        file=file,
                        key=f"{where}.settings.{key}",
                        cure=f"did you mean {near[0]!r}?" if near else f"it has {known}",
                    )
