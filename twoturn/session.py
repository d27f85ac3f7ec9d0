"""One measurement at a time on the whole machine, and the name of the sitting it belongs to.

The lock is a file lock that the operating system gives back when its holder dies, however it dies,
so no run ever needs a manual unlock. It is held from the start of a workflow run to its end.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psutil

from twoturn.errors import UserError

# One place for all users and clones of a machine; TMPDIR differs between them.
RUN_LOCK = Path("/tmp/twoturn-run.lock")
ROUND_LOCK = Path("/tmp/twoturn-round.lock")
VARIABLE = "TWOTURN_SESSION"
CLOCK_STEP_S = 60.0
ROUNDING_S = 2.0  # of a start time: the boot time is told in whole seconds


@dataclass(frozen=True)
class Session:
    """One sitting of measuring, and the process that holds the machine for it."""

    id: str
    pid: int
    started: float

    def encode(self) -> str:
        return f"{self.id}:{self.pid}:{self.started}"

    @property
    def alive(self) -> bool:
        try:
            return abs(started(self.pid) - self.started) < ROUNDING_S
        except psutil.Error:
            return False


def started(pid: int) -> float:
    """When a process was started, in seconds that do not move when the wall clock is set: Linux
    counts from the boot, and its boot time moves with the clock. Raises psutil.Error."""
    moves_with_the_clock = psutil.boot_time() if sys.platform == "linux" else 0.0
    return psutil.Process(pid).create_time() - moves_with_the_clock


def current() -> Session | None:
    """The session that this process was started in, or None."""
    if not (text := os.environ.get(VARIABLE)):
        return None
    name, pid, started = text.split(":")
    return Session(name, int(pid), float(started))


def begin() -> tuple[Session, IO[str]]:
    """Take the machine for a new session. Keep the file open: closing it gives the machine back.

    Raises UserError if another run holds it.
    """
    handle = _take(RUN_LOCK)
    session = Session(uuid.uuid4().hex[:12], os.getpid(), started(os.getpid()))
    _describe(handle)
    os.environ[VARIABLE] = session.encode()
    return session, handle


def hold_round(wait_s: float = 30.0) -> IO[str]:
    """The second line: no two rounds at once, even when a killed run has left one that is still
    stopping. Raises UserError after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            handle = _take(ROUND_LOCK)
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            _describe(handle)
            return handle


def watch(session: Session, stop: Callable[[], None], every_s: float = 0.5) -> None:
    """Call `stop` from a thread as soon as the holder of the session is gone."""

    def look() -> None:
        while session.alive:
            time.sleep(every_s)
        stop()

    threading.Thread(target=look, name="session-watch", daemon=True).start()


def _take(file: Path) -> IO[str]:
    try:
        descriptor = os.open(file, os.O_RDWR)  # without O_CREAT first: /tmp may forbid it
    except FileNotFoundError:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask: other users of the machine share it
    except PermissionError:
        raise UserError(
            "this user may not open the machine's lock", file=file, cure="let its owner remove it"
        ) from None
    handle = os.fdopen(descriptor, "r+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = _holder(handle)
        handle.close()
        raise UserError(
            f"another measurement is running on this machine ({holder})",
            cure="wait until it ends or stop it; two at once would measure each other",
        ) from None
    return handle


def holder() -> str | None:
    """Who measures on this machine now, or None; takes nothing, so it disturbs nobody."""
    try:
        said = json.loads(RUN_LOCK.read_text(encoding="utf-8"))
        since = datetime.fromisoformat(said["since"]).timestamp()
        running = psutil.Process(int(said["pid"])).create_time() < since + CLOCK_STEP_S
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return f"pid {said['pid']}, since {said['since']}" if running else None


def _describe(handle: IO[str]) -> None:
    handle.seek(0)
    handle.truncate()
    json.dump({"pid": os.getpid(), "since": datetime.now(UTC).isoformat("T", "seconds")}, handle)
    handle.flush()


def _holder(handle: IO[str]) -> str:
    try:
        said: dict[str, Any] = json.load(handle)
    except ValueError:
        return "holder unknown"
    return f"pid {said.get('pid')}, since {said.get('since')}"
