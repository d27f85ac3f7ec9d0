"""A server: its own environment, one running process, and the proof that the process is ours.

An environment is made from a hash-checked lock file on first use and shared by all cells. A process
is started on a free port through the guard, is ready when it answers one token as the right model,
and is gone, port and all, when the context ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import uv

from twoturn import client, files
from twoturn.errors import UserError
from twoturn.hashes import sha256_file

GUARD = Path(__file__).with_name("guard.py")
STATE = ".twoturn"  # environments and passing files; never results
LOG_TAIL = 50  # lines kept of a server that failed
READY_POLL_S = 0.03
LOG_PATIENCE_S = 2.0
RELEASE_S = 20.0
PROCESS = "server.json"  # in a cell's folder: number and start time of its server

Ask: TypeAlias = Callable[[str, str, float, str | None], tuple[int, dict[str, Any] | None]]
"""(base_url, model, timeout_s, api_key) → (HTTP status, JSON body) as of `client.complete_once`."""


class ServerFault(Exception):
    """A server did not start, or died. `status` is the cell's; the message is one line."""

    def __init__(self, status: str, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.status, self.log_tail = status, log_tail


@dataclass(frozen=True)
class Launch:
    """How one server is started: argv (never a shell), environment, folder, and its model id.

    With `attach`, the address of a server that already runs, nothing is started. `api_key` goes
    into requests and nowhere else.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    model: str
    start_deadline_s: float = 600.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    attach: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Running:
    """A server that answers. `load_s` is the time from start to the first right answer; it and
    `pid` are None where the server was not started here."""

    base_url: str
    launch: Launch
    pid: int | None
    load_s: float | None
    log_file: Path

    @property
    def model(self) -> str:
        return self.launch.model

    @property
    def api_key(self) -> str | None:
        return self.launch.api_key


# --- environments -------------------------------------------------------------------------------


def environment_folder(root: Path, adapter: str, environment_sha256: str) -> Path:
    return root / STATE / "envs" / f"{adapter}-{environment_sha256[:12]}"


def environment_python(folder: Path) -> Path:
    return folder / "bin" / "python"


def ensure_environment(
    root: Path, lock_file: str, folder: Path, say: Callable[[str], None] = lambda line: None
) -> Path:
    """The Python of a server's own environment, made on first use. Raises UserError.

    Hashes are checked. Whoever comes second waits; a half-made environment is made again.
    """
    done = folder / ".complete"
    if done.is_file():
        return environment_python(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()  # scripts in it hold its path, which a link may not outlive
    with folder.with_name(f".{folder.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if done.is_file():
            return environment_python(folder)
        say(f"making the environment {folder.name} from {lock_file} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        _uv(lock_file, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder))
        _uv(
            lock_file,
            *("pip", "sync", "--quiet", "--require-hashes", "--compile-bytecode"),
            *("--python", str(environment_python(folder)), str(root / lock_file)),
        )
        (folder / "tmp").mkdir()
        done.touch()
    return environment_python(folder)


def _uv(lock_file: str, *arguments: str) -> None:
    ended = subprocess.run(
        [uv.find_uv_bin(), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"},
    )
    if ended.returncode:
        told = " | ".join(line.strip() for line in ended.stderr.strip().splitlines()[-6:])
        raise UserError(
            f"the environment cannot be made: {told}",
            file=lock_file,
            cure="check the network and the pins, then run again",
        )


def installed(folder: Path) -> dict[str, str]:
    """Versions of what really lies in an environment, by normalised name."""
    site = [str(path) for path in folder.glob("lib/python*/site-packages")]
    return {
        found.metadata["Name"].lower().replace("_", "-").replace(".", "-"): found.version
        for found in importlib.metadata.distributions(path=site)
    }


def environment_differences(folder: Path, packages: Mapping[str, str]) -> list[str]:
    """Packages whose version is not the pinned one, in words."""
    pinned = {name.lower().replace("_", "-").replace(".", "-"): v for name, v in packages.items()}
    return [
        f"{name}: pinned {pinned.get(name, 'not at all')}, installed {version}"
        for name, version in sorted(installed(folder).items())
        # one name may be pinned twice, for different Pythons: any of the pins will do
        if version not in pinned.get(name, "").split(" or ")
    ]


@functools.cache
def metallib_sha256(python: Path) -> str | None:
    """Hash of the compiled Metal kernels in an environment, None where there are none."""
    found = sorted(python.parent.parent.glob("lib/python*/site-packages/mlx/lib/mlx.metallib"))
    return sha256_file(found[0]) if found else None


# --- one process --------------------------------------------------------------------------------


def clean_env(home: Path, tmp: Path) -> dict[str, str]:
    """What every server sees: no proxies, no keys, no hub, its own home, C numbers."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LC_ALL": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def run(launch: Launch, port: int, log_file: Path, ask: Ask | None = None) -> Iterator[Running]:
    """Start a server, wait until it is ready, give it, stop it and wait until its port is free.

    ask: the request whose right answer means ready, `ask_one_token` if None. It is the first that
    the server gets, and is put again only while the server refuses it.
    A server that already runs is neither started nor stopped. Raises ServerFault with status
    start_failed, start_timeout, wrong_model or unauthorized; connection_lost where it is gone.
    """
    if launch.attach is not None:
        log_file.touch()  # what it writes goes elsewhere
        _wait_attached(launch, log_file, ask or ask_one_token)
        yield Running(launch.attach, launch, None, None, log_file)
        return
    begun, ready, pid = time.monotonic(), False, None
    guard = subprocess.Popen(
        [sys.executable, "-I", str(GUARD), str(log_file), "--", *launch.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(launch.env),
        cwd=launch.cwd,
        start_new_session=True,
    )
    try:
        pid = _pid(guard, launch, log_file)
        _note(pid, log_file.with_name(PROCESS))
        _wait_ready(launch, port, pid, guard, log_file, begun, ask or ask_one_token)
        load_s, ready = time.monotonic() - begun, True
        yield Running(f"http://127.0.0.1:{port}", launch, pid, load_s, log_file)
    finally:
        _stop(guard)
        if pid is not None:
            if guard.returncode < 0:  # it was killed; macOS then leaves its server running
                _kill_group(pid)
            # Memory is given back when the last process of the group has ended.
            _wait_until(functools.partial(_group_is_gone, pid), "a process of it is left")
        if ready:  # otherwise the port may be another's
            _wait_until(lambda: not _listening(port), f"its port {port} is still open")


def stop_stale(cell: Path) -> None:
    """Stop what the server of a crashed run has left, by the number of each process.

    `cell`: the folder that the server lived in. What has this folder as its home is ours, whatever
    its group and parents; where the system does not show a process's surroundings, the one with the
    noted number and start time is. Others' processes are never touched.
    """
    noted = _noted(cell / PROCESS)
    left = [process for process in psutil.process_iter() if _lived_in(process, cell, noted)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=RELEASE_S)


def _note(pid: int, file: Path) -> None:
    with contextlib.suppress(psutil.Error):
        told = {"pid": pid, "started": psutil.Process(pid).create_time()}
        files.write_text(file, json.dumps(told))


def _noted(file: Path) -> tuple[int, float] | None:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return int(told["pid"]), float(told["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lived_in(process: psutil.Process, cell: Path, noted: tuple[int, float] | None) -> bool:
    try:
        return bool(process.environ().get("HOME") == str(cell / "home"))
    except psutil.AccessDenied:
        return noted is not None and noted == (process.pid, process.create_time())
    except (psutil.Error, OSError):
        return False


class LogTail:
    """What a server writes to its log from now on."""

    def __init__(self, log_file: Path) -> None:
        self.file = log_file
        self.start = log_file.stat().st_size

    def since(self) -> str:
        with self.file.open("rb") as stream:
            stream.seek(self.start)
            return stream.read().decode("utf-8", "replace")

    def when(self, whole: Callable[[str], bool], patience_s: float = LOG_PATIENCE_S) -> str:
        """The same as soon as it is whole, or as it is when patience ends: a server may write to
        its log from another thread and after its answer."""
        deadline = time.monotonic() + patience_s
        while not whole(said := self.since()) and time.monotonic() < deadline:
            time.sleep(READY_POLL_S)
        return said


def log_tail(log_file: Path) -> str:
    """The last lines of a server's log."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(max(0, log_file.stat().st_size - 64_000))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_TAIL:])


def _pid(guard: subprocess.Popen[bytes], launch: Launch, log_file: Path) -> int:
    assert guard.stdout is not None
    line = guard.stdout.readline()
    if not line:
        raise ServerFault("start_failed", f"{launch.argv[0]} cannot be started", log_tail(log_file))
    pid: int = json.loads(line)["pid"]
    return pid


def _wait_ready(
    launch: Launch,
    port: int,
    pid: int,
    guard: subprocess.Popen[bytes],
    log_file: Path,
    begun: float,
    ask: Ask,
) -> None:
    def listening() -> bool:
        if guard.poll() is not None or not psutil.pid_exists(pid):
            raise ServerFault("start_failed", "the server ended while starting", log_tail(log_file))
        return _listening(port)

    _wait_answer(launch, f"http://127.0.0.1:{port}", listening, log_file, begun, ask)
    if not _ours(port, pid):
        raise ServerFault("wrong_model", f"port {port} is answered by a process that is not ours")


def _wait_attached(launch: Launch, log_file: Path, ask: Ask) -> None:
    def listening() -> bool:
        if not is_open(str(launch.attach)):
            raise ServerFault("connection_lost", f"nobody answers at {launch.attach}")
        return True

    _wait_answer(launch, str(launch.attach), listening, log_file, time.monotonic(), ask)


def _wait_answer(
    launch: Launch,
    base_url: str,
    listening: Callable[[], bool],
    log_file: Path,
    begun: float,
    ask: Ask,
) -> None:
    """Ready is a right answer, not an open port. `listening` raises ServerFault where waiting is in
    vain."""
    said = "nothing was heard"
    while time.monotonic() - begun < launch.start_deadline_s:
        if not listening():
            time.sleep(READY_POLL_S)
            continue
        left = launch.start_deadline_s - (time.monotonic() - begun)
        status, answer = ask(base_url, launch.model, max(1.0, left), launch.api_key)
        if status == 200 and answer is not None and answer.get("choices"):
            model = answer.get("model")
            if model not in (None, launch.model):
                raise ServerFault("wrong_model", f"asked for {launch.model!r}, {model!r} answered")
            return
        said = f"HTTP {status}" + (f": {_error_text(answer)}" if answer else "")
        if status in (401, 403):
            raise ServerFault("unauthorized", f"the server wants a key ({said})", said)
        if 400 <= status < 500 and status not in (408, 425, 429):
            raise ServerFault(
                "wrong_model",
                f"the model id {launch.model!r} does not answer ({said})",
                log_tail(log_file),
            )
        time.sleep(READY_POLL_S)
    raise ServerFault(
        "start_timeout",
        f"not ready after {launch.start_deadline_s:.0f} s ({said})",
        log_tail(log_file),
    )


def ask_one_token(
    base_url: str, model: str, timeout_s: float, api_key: str | None = None
) -> tuple[int, dict[str, Any] | None]:
    """One token, not streamed: (HTTP status, body); status 0 where nobody answers."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "."}],
        "max_tokens": 1,
        "temperature": 0,
    }
    return client.complete_once(base_url, body, timeout_s, api_key)


def _error_text(answer: Mapping[str, Any]) -> str:
    error = answer.get("error", answer.get("detail", answer))
    text = error.get("message", error) if isinstance(error, dict) else error
    return str(text)[:200]


def is_open(base_url: str) -> bool:
    """Whether somebody listens at http://127.0.0.1:PORT."""
    return _listening(int(base_url.rsplit(":", 1)[1]))


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _ours(port: int, pid: int) -> bool:
    """Whether the listener on the port is the started process or one of its children."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return any(
            link.status == psutil.CONN_LISTEN and link.laddr.port == port
            for process in family
            for link in process.net_connections(kind="tcp")
        )
    except psutil.AccessDenied:  # macOS may refuse; the fresh port is then the only proof
        return True
    except psutil.Error:
        return False


def _stop(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    assert guard.stdout is not None
    with contextlib.suppress(OSError):
        guard.stdin.close()
    guard.wait()
    guard.stdout.close()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _group_is_gone(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of those that have ended
        return True
    return not any(_runs_in(process, pid) for process in psutil.process_iter())


def _runs_in(process: psutil.Process, group: int) -> bool:
    """Not so what has ended and waits to be buried: it holds no memory."""
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _wait_until(released: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + RELEASE_S
    while not released():
        if time.monotonic() > deadline:
            raise UserError(
                f"the server is stopped and {otherwise}",
                cure="stop that process; nothing more is measured beside it",
            )
        time.sleep(READY_POLL_S)
