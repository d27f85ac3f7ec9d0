"""Where a checkpoint's files are on this machine."""

from __future__ import annotations

from pathlib import Path

from twoturn import config
from twoturn.config import Campaign
from twoturn.errors import UserError

MADE = "checkpoints/made"


def made_folder(name: str, root: Path) -> Path:
    """Where a checkpoint that is made here lies."""
    return root / MADE / config.slug(name)


def folder(name: str, campaign: Campaign, file: str, root: Path) -> Path:
    """The folder of a checkpoint's files. Raises UserError where they are not here."""
    entry = campaign.checkpoints[name]
    if entry.repo is not None:
        raise UserError(
            "checkpoints are not fetched from a hub by this version",
            file=file,
            key=f"checkpoints.{name}.repo",
            cure="fetch it yourself and name the folder with `path`",
        )
    place = made_folder(name, root) if entry.make else (root / str(entry.path)).resolve()
    if not (place / "config.json").is_file():
        raise UserError(
            f"the checkpoint {entry.path or name} is missing here",
            file=file,
            key=f"checkpoints.{name}",
            cure="run the workflow, which makes it" if entry.make else "put it there",
        )
    return place
