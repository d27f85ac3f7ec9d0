"""Nothing in results, reports or logs tells whose machine it was."""

from __future__ import annotations

import getpass
import re
import socket
from pathlib import Path
from typing import Any

GENERIC = {"root", "user", "admin", "runner", "ubuntu", "debian", "localhost"}  # name nobody


def redact(text: str, root: Path, secrets: tuple[str, ...] = ()) -> str:
    """The text without the project's place, the home path, user name, host name and keys."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "<key>")
    text = without_places(text, root)
    text = re.sub(r"/(Users|home)/[^/\s\"']+", "~", text)
    for word, shown in ((_user(), "<user>"), (socket.gethostname(), "<host>")):
        if len(word) > 3 and word not in GENERIC:
            text = re.sub(rf"\b{re.escape(word)}\b", shown, text)
    return text


def without_places(text: str, root: Path) -> str:
    """The text with the project's folder as `.` and the home path as `~`."""
    for path, shown in ((str(root.resolve()), "."), (str(root), "."), (str(Path.home()), "~")):
        if len(path) > 1:
            text = re.sub(rf"{re.escape(path)}(?![\w.-])", shown, text)
    return text


def redact_all(value: Any, root: Path, secrets: tuple[str, ...] = ()) -> Any:
    """The same for every text inside lists and mappings."""
    if isinstance(value, str):
        return redact(value, root, secrets)
    if isinstance(value, dict):
        return {key: redact_all(item, root, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item, root, secrets) for item in value]
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
