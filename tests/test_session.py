"""One measurement at a time on the machine; the lock goes back when its holder dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from twoturn import session
from twoturn.errors import UserError
from twoturn.session import Session

ROOT = Path(__file__).parents[1]
HOLDER = """
import sys
from pathlib import Path
from twoturn import session
session.RUN_LOCK, session.ROUND_LOCK = Path(sys.argv[1]), Path(sys.argv[2])
held = session.begin(), session.hold_round()
print(held[0][0].encode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real measurement on this machine is neither seen nor disturbed."""
    monkeypatch.setattr(session, "RUN_LOCK", tmp_path / "run.lock")
    monkeypatch.setattr(session, "ROUND_LOCK", tmp_path / "round.lock")
    monkeypatch.setenv(session.VARIABLE, "")


@contextlib.contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], Session]]:
    """Another process that holds the machine and a round."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(session.RUN_LOCK), str(session.ROUND_LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            assert process.stdout is not None
            name, pid, started = process.stdout.readline().strip().split(":")
            yield process, Session(name, int(pid), float(started))
        finally:
            process.kill()


def test_begin_takes_the_machine_and_tells_children() -> None:
    mine, handle = session.begin()
    with handle:
        assert session.current() == mine
        assert mine.alive
        assert mine.pid == os.getpid()
        with pytest.raises(UserError, match=f"pid {os.getpid()}, since 20"):
            session.begin()
    again, handle = session.begin()
    handle.close()
    assert again.id != mine.id


def test_no_session() -> None:
    assert session.current() is None


def test_a_second_run_is_refused_and_told_who_holds_the_machine() -> None:
    with holder() as (process, other):
        with pytest.raises(UserError) as caught:
            session.begin()
        line = str(caught.value)
        assert f"another measurement is running on this machine (pid {process.pid}, since " in line
        assert "wait until it ends or stop it" in line
        assert "\n" not in line
        assert other.alive
        with pytest.raises(UserError, match="another measurement"):
            session.hold_round(wait_s=0.0)
    assert session.current() is None


def test_a_killed_holder_gives_everything_back() -> None:
    with holder() as (process, other):
        process.send_signal(signal.SIGKILL)
        process.wait()
        mine, handle = session.begin()
        session.hold_round(wait_s=0.0).close()
        handle.close()
        assert mine.id != other.id
        assert not other.alive


def test_hold_round_waits_for_a_round_that_is_stopping() -> None:
    with holder() as (process, _):
        timer = threading.Timer(0.3, process.kill)
        timer.start()
        session.hold_round(wait_s=60.0).close()
        timer.join()


def test_watch_calls_stop_when_the_holder_dies() -> None:
    stopped = threading.Event()
    with holder() as (process, other):
        session.watch(other, stopped.set, every_s=0.01)
        assert not stopped.wait(0.1)
        process.kill()
        process.wait()
        assert stopped.wait(30)


def test_another_process_with_the_same_pid_is_not_the_holder() -> None:
    me = os.getpid()
    assert Session("x", me, session.started(me)).alive
    assert not Session("x", me, session.started(me) - 100).alive


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts from the boot")
@pytest.mark.parametrize("step_s", [1.0, -1.0, 3600.0, -86400.0])
def test_a_set_clock_does_not_end_a_session(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """On Linux a start time is counted from the boot time, which moves as the wall clock is set."""
    mine = Session("x", os.getpid(), session.started(os.getpid()))
    booted, begun = psutil.boot_time() + step_s, psutil.Process().create_time() + step_s
    monkeypatch.setattr(psutil, "boot_time", lambda: booted)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: begun)
    assert mine.alive


@pytest.mark.parametrize("text", ["", "not json"])
def test_an_unreadable_holder(text: str) -> None:
    with holder():
        session.RUN_LOCK.write_text(text)
        with pytest.raises(UserError, match="holder unknown"):
            session.begin()


def test_the_lock_is_for_all_users() -> None:
    before = os.umask(0o022)
    try:
        session.begin()[1].close()
    finally:
        os.umask(before)
    assert session.RUN_LOCK.stat().st_mode & 0o666 == 0o666
