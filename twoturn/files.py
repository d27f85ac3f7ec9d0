"""Files that are there whole or not at all, whatever happens to the process that writes them.

So what lies under its final name may be believed: nobody has to remember who was writing when.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from pathlib import Path

import psutil


@contextlib.contextmanager
def whole(file: Path) -> Iterator[Path]:
    """A passing name beside `file`. What is written there is synced to disk and takes the file's
    place when all went well, and is gone otherwise; so is what writers that died have left."""
    file.parent.mkdir(parents=True, exist_ok=True)
    for left in file.parent.glob(f".{glob.escape(file.name)}.*"):
        if is_left(left.suffix[1:]):
            left.unlink(missing_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield partial
        sync(partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def write_text(file: Path, text: str) -> None:
    """The text as a whole file in UTF-8."""
    with whole(file) as partial:
        partial.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Bring a file or a folder's list of names to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_left(owner: str) -> bool:
    """Whether the process with this number, as it stands in a passing name, is gone."""
    return owner.isdigit() and not psutil.pid_exists(int(owner))
