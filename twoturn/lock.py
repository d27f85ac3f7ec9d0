"""The lock of one machine: `locks/<machine>.json`, facts and versions that results depend on.

`locks/local.json` is this machine's, written on first use and ignored by git. Named locks are
committed, so that results of another machine can be told here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twoturn import files, machine
from twoturn.config import Campaign
from twoturn.errors import UserError
from twoturn.hashes import Hashes, folder_digest
from twoturn.plan import MACHINE_FACTS

SCHEMA = 1
_VERSION = re.compile(r"^\W*v?\d+(\.\d+)+|\bversion\b", re.IGNORECASE)


def path(name: str) -> str:
    return f"locks/{name}.json"


def observe(campaign: Campaign, root: Path) -> dict[str, Any]:
    """The lock as this machine would have it now."""
    servers: dict[str, str | None] = {}  # None: declared by the campaign and not here
    for name, entry in campaign.servers.items():
        if entry.executable is not None:
            servers[name] = probe(entry.executable)
    hashes = Hashes(root)
    outside = {
        name: folder_digest(Path(entry.path), hashes.of)
        for name, entry in campaign.checkpoints.items()
        if entry.path is not None and Path(entry.path).is_absolute() and Path(entry.path).is_dir()
    }
    hashes.save()
    return {
        "schema": SCHEMA,
        "machine": machine.facts(),
        "servers": servers,
        "checkpoints": outside,
    }


def probe(executable: str) -> str | None:
    """What a server found on the machine says of its version, in its own words, or None.

    The first line that reads like a version: some programs tell first what they load.
    """
    if (program := shutil.which(executable)) is None:
        return None
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).strip().splitlines()]
    return next((line for line in lines if _VERSION.search(line)), lines[0] if lines else None)


def read(name: str, root: Path) -> dict[str, Any]:
    """A lock from disk. Raises UserError."""
    file = root / path(name)
    try:
        lock = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(
            "there is no such lock", file=path(name), cure=f"`make lock MACHINE={name}` on it"
        ) from None
    except ValueError:
        raise UserError("not valid JSON", file=path(name), cure="`make lock`") from None
    if (
        not isinstance(lock, dict)
        or lock.get("schema") != SCHEMA
        or not isinstance(lock.get("machine"), dict)
    ):
        raise UserError(f"not a lock of schema {SCHEMA}", file=path(name), cure="`make lock`")
    return lock


def write(name: str, lock: dict[str, Any], root: Path) -> Path:
    """Write a lock whole or not at all, without servers that are not here; an unchanged one keeps
    its time."""
    here = {server: version for server, version in lock["servers"].items() if version}
    lock = {**lock, "servers": here}
    file = root / path(name)
    text = json.dumps(lock, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        files.write_text(file, text)
    return file


def load(campaign: Campaign, root: Path) -> dict[str, Any]:
    """The campaign's lock. The local one is completed with what it does not know yet, and written
    anew where it cannot be read: it holds nothing but facts of this machine."""
    if campaign.machine != "local":
        return read(campaign.machine, root)
    try:
        lock = read("local", root)
    except UserError:
        write("local", observe(campaign, root), root)
        lock = read("local", root)
    missing = {
        name
        for name, entry in campaign.servers.items()
        if entry.executable and name not in lock.get("servers", {})
    }
    if missing:
        seen = observe(campaign, root)
        found = {name: seen["servers"][name] for name in missing if seen["servers"].get(name)}
        if found:
            lock["servers"] = {**lock.get("servers", {}), **found}
            write("local", lock, root)
    return lock


def differences(lock: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """How the machine that is here differs from a lock, in words."""
    facts = [
        f"{key}: lock {lock['machine'].get(key)}, here {seen['machine'].get(key)}"
        for key in MACHINE_FACTS
        if lock["machine"].get(key) != seen["machine"].get(key)
    ]
    servers = [
        f"{name}: lock {lock['servers'][name]}, here {version or 'not found'}"
        for name, version in seen["servers"].items()
        if name in lock.get("servers", {}) and lock["servers"][name] != version
    ]
    return facts + servers


def unknown(lock: Mapping[str, Any]) -> list[str]:
    """What a lock does not know yet: it was written from what was published, not on the machine."""
    return [
        name
        for part in ("machine", "servers", "checkpoints")
        for name, value in lock.get(part, {}).items()
        if value is None and (part != "machine" or name in MACHINE_FACTS)
    ]


def other_system(lock: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether a lock is of another kind of machine, where no new lock can help."""
    return bool(lock["machine"].get("accelerator") != seen["machine"].get("accelerator"))


def described(lock: Mapping[str, Any]) -> str:
    """A machine in words: "Apple M4 Max with 128 GB (metal)"."""
    facts = lock["machine"]
    return f"{facts.get('chip')} with {facts.get('memory_gb')} GB ({facts.get('accelerator')})"
