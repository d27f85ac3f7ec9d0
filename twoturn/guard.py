"""A small parent for one server: the server never outlives the process that asked for it.

Run as `python -I guard.py LOG -- COMMAND…`. It starts the command in a process group of its own,
says `{"pid": …}` on stdout, and stops the whole group when its stdin closes, which also happens
when its own parent is killed outright. When the server ends by itself it says `{"exit": …}`.
Only the standard library is used, because this runs in isolated mode and has to start at once.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 10.0  # between the polite signal and the last one
POLL_S = 0.05


def _die_with_parent() -> None:
    """On Linux the kernel kills the server with its guard; macOS has no such call."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _adopt_orphans() -> None:
    """On Linux processes that leave the server's group become children of this guard."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _kill_orphans() -> None:
    """Kill what was adopted, and what those leave behind, until nothing is left."""
    listing = f"/proc/self/task/{os.getpid()}/children"
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        try:
            with open(listing) as file:
                children = [int(word) for word in file.read().split()]
        except OSError:  # macOS, or a kernel that does not tell
            return
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    _signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    _signal_group(process.pid, signal.SIGKILL)  # whatever the server itself had started
    process.wait()
    _kill_orphans()


def _say(**message: int) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def main(log_file: str, command: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    with open(log_file, "ab", buffering=0) as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_restore_and_bind,
            )
        except OSError as error:
            log.write(f"{command[0]}: {error.strerror}\n".encode())
            sys.exit(127)
    _say(pid=process.pid)
    while process.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    _stop(process)
    _say(exit=process.returncode)


def _restore_and_bind() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _die_with_parent()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:])
