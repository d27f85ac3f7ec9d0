"""The guard by itself: one server, stopped with its children when stdin closes."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import SCRIPTED
from twoturn import guard, servers

LONG = "import time; time.sleep(600)"
# A helper, as some servers start workers: it tells its pid and cannot be asked to stop.
HELPER = f"""
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
{LONG}
"""
FAMILY = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {HELPER!r}])
time.sleep(600)
"""


@contextlib.contextmanager
def guarded(log: Path, *argv: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with subprocess.Popen(
        [sys.executable, "-I", str(servers.GUARD), str(log), "--", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process, said(process)["pid"]
        finally:
            if process.stdin and not process.stdin.closed:
                process.stdin.close()


def said(process: subprocess.Popen[bytes]) -> dict[str, int]:
    assert process.stdout is not None
    message: dict[str, int] = json.loads(process.stdout.readline())
    return message


def close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def ended(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def first_line(log: Path) -> str:
    while not (log.is_file() and "\n" in log.read_text()):
        time.sleep(0.02)
    return log.read_text().splitlines()[0]


@pytest.mark.parametrize("code", [0, 3])
def test_the_end_of_a_server_is_told(tmp_path: Path, code: int) -> None:
    script = f"import sys; print('out'); print('err', file=sys.stderr); sys.exit({code})"
    with guarded(tmp_path / "log", sys.executable, "-c", script) as (process, _):
        assert said(process) == {"exit": code}
    assert sorted((tmp_path / "log").read_text().split()) == ["err", "out"]


def test_closing_stdin_stops_the_server_and_what_it_started(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", sys.executable, "-c", FAMILY) as (process, pid):
        helper = int(first_line(tmp_path / "log"))
        assert psutil.pid_exists(pid)
        assert psutil.pid_exists(helper)
        close(process)
        assert said(process) == {"exit": -signal.SIGTERM}
    assert ended(pid)
    assert ended(helper)


def test_bytes_on_stdin_do_not_stop_it(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", sys.executable, "-c", LONG) as (process, pid):
        assert process.stdin is not None
        process.stdin.write(b"hello")
        process.stdin.flush()
        time.sleep(4 * guard.POLL_S)
        assert not ended(pid, within_s=0.1)
        close(process)
        assert said(process) == {"exit": -signal.SIGTERM}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_polite_signals_to_the_guard_are_the_parents_business(tmp_path: Path, number: int) -> None:
    with guarded(tmp_path / "log", sys.executable, "-c", LONG) as (process, pid):
        process.send_signal(number)
        time.sleep(4 * guard.POLL_S)
        assert process.poll() is None
        assert not ended(pid, within_s=0.1)


def test_the_server_takes_signals_again(tmp_path: Path) -> None:
    """What the guard ignores, its server must not inherit: it could never be asked to stop."""
    with guarded(tmp_path / "log", sys.executable, "-c", LONG) as (process, pid):
        psutil.Process(pid).send_signal(signal.SIGTERM)
        assert said(process) == {"exit": -signal.SIGTERM}


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel does this")
def test_a_killed_guard_takes_its_server_along(tmp_path: Path) -> None:
    with guarded(tmp_path / "log", sys.executable, "-c", LONG) as (process, pid):
        process.kill()
        assert ended(pid)


def test_a_log_is_continued(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    with guarded(tmp_path / "log", sys.executable, "-c", "print('after')") as (process, _):
        said(process)
    assert (tmp_path / "log").read_text() == "before\nafter\n"


@pytest.mark.slow
def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    port = servers.free_port()
    argv = [str(SCRIPTED), "--port", str(port), "--model", "m", "--ignore-sigterm"]
    with guarded(tmp_path / "log", sys.executable, *argv) as (process, pid):
        first_line(tmp_path / "log")
        close(process)
        assert not ended(pid, within_s=1.0)  # it was asked first
        assert said(process) == {"exit": -signal.SIGKILL}
    assert ended(pid)
