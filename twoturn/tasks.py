"""Tasks whose answers a program can check: the file, its kinds of checks, and what passes.

A task is put as it stands, the same in every round and to every arm. Its hidden tests are never
sent. How an answer is read (`CHECKS`) is part of what a score means: a change there raises
`plan.CHECKER`.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from twoturn import config, sandbox
from twoturn.errors import UserError
from twoturn.sandbox import Outcome

Check = Literal["number", "line", "json", "python"]
KINDS = ("arithmetic", "edit", "extract", "code")


class Task(BaseModel):
    """One question with its reference solution."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: config.Name
    level: Literal[1, 2]
    check: Check
    prompt: str = Field(min_length=1)
    answer: str = Field(min_length=1, description="the reference solution, as a model would write")
    tests: tuple[str, ...] = Field((), description="of code: expressions that must be true")
    kind: str = Field("", description="the part of the file that it stands in")

    @property
    def prompt_id(self) -> str:
        """How cells name it: kind, level and id."""
        return f"{self.kind}/{self.level}/{self.id}"

    @model_validator(mode="after")
    def _tests(self) -> Self:
        if (self.check == "python") != bool(self.tests):
            raise ValueError("`tests` belong to the check python, which needs some")
        return self


_FILE = TypeAdapter(dict[Literal["arithmetic", "edit", "extract", "code"], list[Task]])


def parse(text: str, file: str) -> list[Task]:
    """The tasks of a file, in its order; `file` only names it in errors. Raises UserError."""
    try:
        found = _FILE.validate_python(config.read_yaml(text, file))
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"] if part != "[key]")
        what = fault["msg"].removeprefix("Value error, ")
        raise UserError(what[:1].lower() + what[1:], file=file, key=key or None) from None
    tasks = [task.model_copy(update={"kind": kind}) for kind in found for task in found[kind]]
    if not tasks:
        raise UserError("it holds no task", file=file)
    names = [task.id for task in tasks]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"the id {doubled[0]!r} stands twice", file=file, cure="rename one")
    return tasks


def check_references(tasks: list[Task], file: str) -> None:
    """Whether every reference solution passes its own check. Raises UserError for the first."""
    for task in tasks:
        outcome = score(task, task.answer)
        if not outcome.passed:
            raise UserError(
                f"the reference solution does not pass its own check: {outcome.reason}",
                file=file,
                key=task.id,
                cure="correct the answer or its tests",
            )


def score(task: Task, answer: str) -> Outcome:
    """Whether an answer passes. Never raises for what a model wrote."""
    return CHECKS[task.check](task, answer)


# --- checks ---------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_AROUND = " \t\"'`*_“”‘’"


def _number(task: Task, answer: str) -> Outcome:
    found = _last_number(answer)
    if found is None:
        return Outcome(False, "no number in it")
    same = found == _last_number(task.answer)
    return Outcome(same, None if same else "another number")


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    return float(found[-1].replace(",", "")) if found else None


def _line(task: Task, answer: str) -> Outcome:
    wanted = _bare(task.answer)
    same = any(_bare(line) == wanted for line in answer.splitlines())
    return Outcome(same, None if same else "no such line")


def _bare(line: str) -> str:
    """Without what a model likes to put around an answer."""
    return line.strip(_AROUND).removesuffix(".").strip(_AROUND)


def _json(task: Task, answer: str) -> Outcome:
    found = _first_json(answer)
    if found is None:
        return Outcome(False, "no JSON in it")
    same = found == _first_json(task.answer)
    return Outcome(same, None if same else "other values")


def _first_json(text: str) -> str | None:
    """The first object or array of a text, so that equal ones are equal texts: true is not 1, and
    the order of keys does not count."""
    decoder = json.JSONDecoder()
    for place in (found.start() for found in re.finditer(r"[{\[]", text)):
        with suppress(ValueError, RecursionError):
            return json.dumps(decoder.raw_decode(text, place)[0], sort_keys=True)
    return None


def _python(task: Task, answer: str) -> Outcome:
    blocks = list(map(textwrap.dedent, _FENCE.findall(answer)))  # fenced in a list, it is indented
    code = "\n".join(blocks) if blocks else answer
    tests = "".join(f"assert {test}, {f'not true: {test}'!r}\n" for test in task.tests)
    return sandbox.run(f"{code}\n\n{tests}")


CHECKS: dict[Check, Callable[[Task, str], Outcome]] = {
    "number": _number,
    "line": _line,
    "json": _json,
    "python": _python,
}
