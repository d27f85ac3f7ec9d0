"""The process in which a model's code runs: limits first, then a fence, then the program.

    python -I -S jail.py SECONDS PROGRAM

It runs in an empty folder of its own, with no environment, and knows nothing of this package. What
the kernel enforces: CPU time, size of a file, number of open files, core dumps; memory on Linux
(macOS takes the limit and does not keep it); the number of processes for everybody but root. What
Python's audit hook refuses, on every system, root or not: reading outside this folder and the
standard library, writing outside this folder, more than a few files, processes, sockets, foreign
code and signals. A hook cannot be taken off again by Python code, and it is no wall: it
keeps in what a model writes by mistake, not what an attacker would write on purpose.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
from contextlib import suppress
from typing import Any

MEMORY, FILE_SIZE, FILES, PROCESSES = 1 << 30, 1 << 20, 32, 64
WRITTEN = 16  # files opened for writing: at most 16 MB on disk

REFUSED = (
    *("socket.", "subprocess.", "ctypes.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn"),
    *("os.system", "os.kill", "os.startfile", "signal.pthread_kill", "_thread.start", "pty."),
    *("os.chmod", "os.chown", "os.link", "os.symlink", "os.putenv", "shutil.", "sqlite3.", "mmap."),
    *("os.setxattr", "os.removexattr", "os.getxattr", "os.listxattr"),
    *("resource.", "os.chdir", "ftplib.", "urllib.", "webbrowser."),
)
"""Audit events by what they begin with."""

MODULES = frozenset(
    {
        *("_posixsubprocess", "_ctypes", "_socket", "_multiprocessing", "_winapi", "_posixshmem"),
        *("ctypes", "socket", "subprocess", "multiprocessing", "pty", "resource"),
    }
)
"""Modules that lead round the events."""

READ = frozenset({"os.listdir", "os.scandir"})
CHANGED = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.utime"), 1),
    "os.rename": 2,
}
"""Audit events of what is done to a path → how many of their arguments are paths."""

UNSEEN = ("mkfifo", "mknod", "chroot")
"""Functions of `os` that raise no audit event: they are taken away."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class Refused(PermissionError):
    """What the program tried, in words."""


def limit(seconds: int) -> None:
    """What the kernel holds the process to; a limit that it does not know is left."""
    for name, most, at_last in (
        ("RLIMIT_CPU", seconds, seconds + 1),  # a signal that can be told, then the end
        ("RLIMIT_AS", MEMORY, MEMORY),
        ("RLIMIT_FSIZE", FILE_SIZE, FILE_SIZE),
        ("RLIMIT_NOFILE", FILES, FILES),
        ("RLIMIT_NPROC", PROCESSES, PROCESSES),
        ("RLIMIT_CORE", 0, 0),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, at_last))


def fence(here: str, library: tuple[str, ...]) -> None:
    """Refuse everything that has no business in the solution of a small task."""
    written = 0

    def is_below(path: Any, folders: tuple[str, ...]) -> bool:
        if isinstance(path, int):
            return path > 2  # a descriptor that was got by a permitted open
        real = os.path.realpath(os.fsdecode(path))
        return any(real == folder or real.startswith(folder + os.sep) for folder in folders)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal written
        if event == "open":
            path, mode, flags = arguments
            writes = bool((flags or 0) & WRITING) or bool(set(mode or "") & set("wax+"))
            written += writes
            if not is_below(path, (here,) if writes else (here, *library)):
                raise Refused(f"{'writing' if writes else 'reading'} outside its folder")
            if written > WRITTEN:
                raise Refused("writing too many files")
        elif event == "import":
            if arguments[0].split(".")[0] in MODULES:
                raise Refused(f"the module {arguments[0]}")
        elif event in READ or event in CHANGED:
            folders = (here, *library) if event in READ else (here,)
            for path in arguments[: CHANGED.get(event, 1)]:
                if not is_below("." if path is None else path, folders):
                    raise Refused(f"{event} outside its folder")
        elif event.startswith(REFUSED):
            raise Refused(event)

    for module in (os, sys.modules["posix"]):
        for name in UNSEEN:
            vars(module).pop(name, None)
    sys.addaudithook(hook)


def main() -> None:
    seconds, program = int(sys.argv[1]), sys.argv[2]
    library = {os.path.realpath(path) for path in (*sys.path, os.path.dirname(os.__file__))}
    sys.modules.pop("resource")
    here = os.path.realpath(os.getcwd())
    limit(seconds)
    fence(here, tuple(sorted(library - {here, "/"})))
    sys.argv[1:] = []
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
