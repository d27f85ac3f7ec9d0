"""Where a checkpoint's files are on this machine."""

from __future__ import annotations

from pathlib import Path

from twoturn import config
from twoturn.config import Campaign
from twoturn.errors import UserError

MADE = "checkpoints/made"
GGUF = "model.gguf"


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


def gguf_file(place: Path) -> Path:
    """The GGUF file of a checkpoint's folder: `model.gguf`, or the only one there. Raises UserError
    without file and key."""
    found = sorted(place.glob("*.gguf"))
    named = [file for file in found if file.name == GGUF]
    if len(found) == 1 or named:
        return (named or found)[0]
    if found:
        raise UserError(
            f"{len(found)} GGUF files lie in {place.name} and none is called {GGUF}",
            cure=f"call the one that is meant {GGUF}, or give each its own folder",
        )
    raise UserError(
        f"{place.name} holds no GGUF file",
        cure=f"put one beside its config.json, or make one: {{make: {{from: {place.name}, "
        "gguf: f16}}",
    )
