"""Running a model's code where it can do no harm: `jail.py` in a process of its own.

The process has an empty folder, no environment, isolated mode (`-I -S`), a session of its own that
is killed as a whole at the deadline, and, on Linux where the kernel permits it, no network at all
(`unshare --net`). What else holds it, and where, `jail.py` tells.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

JAIL = Path(__file__).with_name("jail.py")
CPU_SECONDS, SECONDS = 5, 30.0
"""For one task, the start of Python included. The time of the clock is the longer one: on a busy
machine a good program waits."""

TOLD = 160  # characters of a reason


@dataclass(frozen=True)
class Outcome:
    """`reason`: why it did not pass, None where it did."""

    passed: bool
    reason: str | None = None


def run(program: str, cpu_seconds: int = CPU_SECONDS, seconds: float = SECONDS) -> Outcome:
    """Run a program; it passes if it comes to its last line. Never raises for what it does."""
    # Leaving early with code 0 is not enough: the last line tells a word that is new every time.
    word = os.urandom(8).hex()
    program += f"\n\nprint('{word}', file=__import__('sys').__stdout__, flush=True)\n"
    with tempfile.TemporaryDirectory(prefix="twoturn-task-") as place:
        here = Path(place) / "work"
        here.mkdir()
        (here / "task.py").write_text(program, encoding="utf-8", errors="replace")
        told, said = Path(place) / "told", Path(place) / "said"
        # Files and not pipes: who waits for a pipe to close waits for all descendants.
        with told.open("wb") as output, said.open("wb") as errors:
            isolated = (sys.executable, "-I", "-S", str(JAIL), str(cpu_seconds), "task.py")
            process = subprocess.Popen(
                [*_without_network(), *isolated],
                cwd=here,
                env={"HOME": str(here), "TMPDIR": str(here), "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        whole = word in _end(told)
        last = _end(said).strip().splitlines()[-1:]
    if code is None or code == -signal.SIGXCPU:
        return Outcome(False, "not done in the time allowed")
    if code == 0:
        return Outcome(True) if whole else Outcome(False, "it ended before its tests")
    if code == -signal.SIGXFSZ:
        return Outcome(False, "it wrote too much")
    return Outcome(False, _in_short(last[0] if last else f"it ended with code {code}"))


def _end(file: Path) -> str:
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 4000))
        return stream.read().decode("utf-8", "replace")


def _in_short(line: str) -> str:
    """The last line of a traceback without the names of this machine's modules."""
    return line.removeprefix("__main__.")[:TOLD]


@cache
def _without_network() -> tuple[str, ...]:
    """What is put before a command so that it has no network, () where that is not permitted."""
    program = shutil.which("unshare") if sys.platform == "linux" else None
    for options in (("--net",), ("--user", "--map-current-user", "--net")):
        command = (program or "", *options, "--")
        if program and not subprocess.run([*command, "true"], capture_output=True).returncode:
            return command
    return ()


def enforced() -> dict[str, object]:
    """What holds a program on this machine, for the metadata of a cell."""
    return {
        "network": "no interface" if _without_network() else "refused by Python",
        "memory": "limited" if sys.platform == "linux" else "not limited",
        "cpu_seconds": CPU_SECONDS,
        "seconds": SECONDS,
    }
