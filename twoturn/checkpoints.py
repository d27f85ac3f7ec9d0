"""Where a checkpoint's files are, and whether they are the ones that the recipe means."""

from __future__ import annotations

from pathlib import Path

from twoturn.config import Campaign
from twoturn.errors import UserError


def folder(name: str, campaign: Campaign, file: str, root: Path) -> Path:
    """The folder of a checkpoint's files. Raises UserError where they are not here."""
    entry = campaign.checkpoints[name]
    if entry.path is None:
        raise UserError(
            "this version measures checkpoints that lie in a folder only",
            file=file,
            key=f"checkpoints.{name}",
            cure="fetch or convert it yourself and name the folder with `path`",
        )
    place = (root / entry.path).resolve()
    if not (place / "config.json").is_file():
        raise UserError(
            f"the checkpoint {entry.path} is missing here",
            file=file,
            key=f"checkpoints.{name}.path",
            cure="put it there or name where it is",
        )
    return place
