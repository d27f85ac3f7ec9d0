"""Digests of files and folders: content alone, so that touching or moving a file changes none."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twoturn import files

_CACHE = ".twoturn/hashes.json"


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Hashes:
    """Digests of large files, remembered by size and modification time under `.twoturn/`."""

    def __init__(self, root: Path) -> None:
        self.file = root / _CACHE
        try:
            known = json.loads(self.file.read_text())
        except (OSError, ValueError):
            known = None
        self.known: dict[str, list[Any]] = known if isinstance(known, dict) else {}
        self.fresh = False

    def of(self, path: Path) -> str:
        stat = path.stat()
        key, stamp = str(path.resolve()), [stat.st_size, stat.st_mtime_ns]
        if (entry := self.known.get(key)) and entry[:2] == stamp:
            return str(entry[2])
        digest = sha256_file(path)
        self.known[key], self.fresh = [*stamp, digest], True
        return digest

    def save(self) -> None:
        if not self.fresh:
            return
        with contextlib.suppress(OSError):  # only a memory: without it the files are hashed again
            files.write_text(self.file, json.dumps(self.known))


def folder_digest(folder: Path, digest: Callable[[Path], str] = sha256_file) -> str:
    """sha256 over the sorted (name, sha256) pairs of a folder's files, hidden ones left out."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.suffix != ".md"
    )
    lines = "".join(f"{path.relative_to(folder).as_posix()} {digest(path)}\n" for path in found)
    return hashlib.sha256(lines.encode()).hexdigest()
