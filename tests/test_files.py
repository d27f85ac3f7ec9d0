"""Files are there whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twoturn import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file.txt"
    with files.whole(file) as partial:
        partial.write_text("half")
        assert names(file.parent) == [partial.name]
        partial.write_text("whole")
    assert file.read_text() == "whole"
    assert names(file.parent) == ["file.txt"]


@pytest.mark.parametrize("before", [None, "old"])
def test_a_failure_changes_nothing(tmp_path: Path, before: str | None) -> None:
    file = tmp_path / "file.txt"
    if before is not None:
        file.write_text(before)
    with pytest.raises(IsADirectoryError), files.whole(file) as partial:
        partial.write_text(tmp_path.read_text())
    assert names(tmp_path) == (["file.txt"] if before else [])
    assert before is None or file.read_text() == before


def test_a_writer_that_wrote_nothing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.whole(tmp_path / "file.txt"):
        pass


def test_what_dead_writers_left_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = {f".file[1].txt.{os.getppid()}", ".file[1].txt.bak", f".other.txt.{gone.pid}"}
    for name in {*kept, f".file[1].txt.{gone.pid}"}:
        (tmp_path / name).touch()
    files.write_text(tmp_path / "file[1].txt", "zażółć")
    assert set(names(tmp_path)) == {*kept, "file[1].txt"}
    assert (tmp_path / "file[1].txt").read_bytes() == "zażółć".encode()
