"""Tasks pass their own reference solutions, and no program of a model does harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twoturn import sandbox, tasks
from twoturn.errors import UserError

FILE = Path(__file__).parents[1] / "tasks/tasks.yaml"
TASKS = tasks.parse(FILE.read_text(encoding="utf-8"), "tasks/tasks.yaml")


def task(check: str, answer: str, *tests: str) -> tasks.Task:
    return tasks.Task.model_validate(
        {"id": "t", "level": 1, "check": check, "prompt": "?", "answer": answer, "tests": tests}
    )


def test_there_are_enough_of_each() -> None:
    assert len(TASKS) >= 60
    for kind in tasks.KINDS:
        levels = [one.level for one in TASKS if one.kind == kind]
        assert levels == sorted(levels)
        assert min(levels.count(1), levels.count(2)) >= 8


def test_every_reference_solution_passes() -> None:
    tasks.check_references(TASKS, "tasks/tasks.yaml")


def test_a_reference_solution_that_fails_is_one_line() -> None:
    wrong = task("python", "def f():\n    return 1", "f() == 2")
    with pytest.raises(UserError) as caught:
        tasks.check_references([wrong], "t.yaml")
    assert str(caught.value) == (
        "t.yaml: t: the reference solution does not pass its own check: "
        "AssertionError: not true: f() == 2; correct the answer or its tests"
    )


@pytest.mark.parametrize(
    ("check", "answer", "said"),
    [("number", "five", "no number in it"), ("json", "{'a': 1}", "no JSON in it")],
)
def test_a_reference_solution_that_cannot_be_read_is_one_line(
    check: str, answer: str, said: str
) -> None:
    with pytest.raises(UserError, match=rf"t.yaml: t: the reference .* own check: {said}; correct"):
        tasks.check_references([task(check, answer)], "t.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "t.yaml: input should be a valid dictionary"),
        ("edit: []", "t.yaml: it holds no task"),
        ("poems: []", "t.yaml: poems: input should be 'arithmetic', 'edit', 'extract' or 'code'"),
        ("edit: [{id: a}]", "t.yaml: edit.0.level: field required"),
        (
            "edit: [{id: a, level: 1, check: python, prompt: p, answer: x}]",
            "t.yaml: edit.0: `tests` belong to the check python, which needs some",
        ),
        (
            "edit: [&a {id: a, level: 1, check: line, prompt: p, answer: x}, *a]",
            "t.yaml: the id 'a' stands twice; rename one",
        ),
    ],
)
def test_a_wrong_file_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        tasks.parse(text, "t.yaml")
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("check", "wanted", "answer", "passed"),
    [
        ("number", "12", "3 * 4 = 12.", True),
        ("number", "1200", "It is 1,200", True),
        ("number", "12", "12, or 13", False),
        ("number", "12", "twelve", False),
        ("number", "-5", "x = \N{MINUS SIGN}5", True),
        ("number", "5", "x = \N{MINUS SIGN}5", False),
        ("line", "HOUSE", 'The word is:\n"HOUSE".', True),
        ("line", "HOUSE", "House", False),
        ("line", "The shop.", "**The shop.**", True),
        ("json", '{"a": 1, "b": null}', 'Here: ```json\n{"b": null, "a": 1}\n```', True),
        ("json", '{"open": false}', '{"open": 0}', False),
        ("json", "[1]", "[[1]", True),
        ("json", "[1]", "[" * 100_000, False),
        ("json", "[1]", "nothing", False),
        ("json", "[1]", "[" * 998 + "]" * 998, False),
        # A reference solution is as a model would write it, and read in the same way.
        ("number", "It is 1,200.", "1200", True),
        ("json", "Here: [1]", "[1] is it", True),
    ],
)
def test_answers(check: str, wanted: str, answer: str, passed: bool) -> None:
    assert tasks.score(task(check, wanted), answer).passed is passed


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("def f(x):\n    return 2 * x", None),
        ("Sure!\n```python\ndef f(x):\n    return 2 * x\n```\nprint it", None),
        ("```\ndef f(x):\n    return 2 * x\nprint(f(2))\n", None),
        ("```python3\ndef f(x):\n    return 2 * x\n```\nThat is it.", None),
        ("``` python\r\ndef f(x):\r\n    return 2 * x\r\n```", None),
        ("1. So:\n   ```py\n   def f(x):\n       return 2 * x\n   ```", None),
        ("def f(x):\n    return x", "AssertionError: not true: f(2) == 4"),
        ("Sure, here it is", "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(0)", "it ended before its tests"),
        ("import os\nos._exit(0)", "it ended before its tests"),
    ],
)
def test_code(answer: str, reason: str | None) -> None:
    outcome = tasks.score(task("python", "x", "f(2) == 4"), answer)
    assert (outcome.passed, outcome.reason) == (reason is None, reason)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("while True: pass", "not done in the time allowed"),
        ("import time\ntime.sleep(60)", "not done in the time allowed"),
        ("import os\nwhile True: os.fork()", "Refused: os.fork"),
        ("import os\nos.system('sleep 60 &')", "Refused: os.system"),
        ("import subprocess", "Refused: the module subprocess"),
        ("import _posixsubprocess", "Refused: the module _posixsubprocess"),
        ("import socket", "Refused: the module socket"),
        ("import ctypes", "Refused: the module ctypes"),
        ("import os\nos.kill(os.getppid(), 9)", "Refused: os.kill"),
        ("f = open('a', 'w')\nwhile True: f.write('x' * 99999)", "OSError: [Errno 27]"),
        ("for n in range(99): open(str(n), 'w')", "Refused: writing too many files"),
        ("open('../b', 'w')", "Refused: writing outside its folder"),
        (f"open({os.path.expanduser('~/.profile')!r})", "Refused: reading outside its folder"),
        (f"import os\nos.listdir({os.path.expanduser('~')!r})", "Refused: os.listdir outside"),
        ("open('/etc/passwd')", "Refused: reading outside its folder"),
        ("import os\nos.symlink('/etc', 'e')", "Refused: os.symlink"),
        ("import os\nos.truncate('../told', 0)", "Refused: os.truncate outside its folder"),
        ("import os\nos.rename('task.py', '../b')", "Refused: os.rename outside its folder"),
        ("import os\nos.remove(os.__file__ + 'x')", "Refused: os.remove outside its folder"),
        ("import os\nos.mkdir(os.path.dirname(os.__file__) + '/b')", "Refused: os.mkdir outside"),
        ("import os\nos.mkfifo('../b')", "AttributeError: module 'os' has no attribute 'mkfifo'"),
        ("import posix\nposix.mkfifo('../b')", "AttributeError: module 'posix' has no attribute"),
    ],
)
def test_what_a_program_must_not_do(program: str, reason: str) -> None:
    outcome = sandbox.run(program, 1, 2)
    assert not outcome.passed
    assert outcome.reason is not None
    assert outcome.reason.startswith(reason)


@pytest.mark.skipif(
    os.uname().sysname != "Linux", reason="macOS takes the limit and does not keep it"
)
def test_memory_is_limited() -> None:
    assert sandbox.run("x = 'x' * (1 << 34)", 1, 5).reason == "MemoryError"


def test_a_program_may_use_its_own_folder() -> None:
    program = (
        "import os\n"
        "os.mkdir('d')\n"
        "with open('d/a', 'w') as file: file.write('abc'); file.truncate(1)\n"
        "os.truncate('d/a', 0)\n"
        "os.rename('d/a', 'b')\n"
        "assert os.listdir('d') == []\n"
        "os.remove('b')\n"
        "os.rmdir('d')"
    )
    assert sandbox.run(program).reason is None


def test_a_program_knows_no_home_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "x")
    program = (
        "import os\nassert 'A_SECRET' not in os.environ\nassert os.listdir('.') == ['task.py']"
    )
    assert sandbox.run(f"{program}\nassert os.environ['HOME'] == os.getcwd()").passed


def test_ordinary_modules_are_there() -> None:
    names = "math, re, json, collections, itertools, functools, random, datetime, heapq, typing"
    assert sandbox.run(f"import {names}").passed
