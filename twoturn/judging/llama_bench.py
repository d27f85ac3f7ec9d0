"""The results of llama-bench (`-o json`, `-o jsonl`): an entry is one test of one configuration.

An entry holds its configuration, `test_time` (the start, whole seconds, UTC), and for each of its
repetitions `samples_ns` and `samples_ts` (tokens per second); older versions only their means.
Repetitions run one after the other, so an entry is one run, whatever its number of samples. Its
value is all tokens ÷ all seconds. `n_prompt` alone is a test of prefill, `n_gen` alone one of
decoding; both together (`-pg`) time a mixture that is neither and are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from twoturn.errors import UserError
from twoturn.judging.rows import unreadable
from twoturn.judging.study import MAX_RUNS, Recorded, Run, Study, metric_of, number, study

SUFFIXES = (".json", ".jsonl", ".ndjson")

RESULTS = frozenset({"test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"}) | {
    "samples_ns",
    "samples_ts",
}
SHAPE = ("n_prompt", "n_gen", "n_depth")
MODEL = ("model_filename", "model_type", "model_size", "model_n_params")
BUILD = ("build_commit", "build_number")
GROUPS = {field: group[0] for group in (MODEL, BUILD) for field in group}
"""Fields that go together: another model has another size."""

MAX_BYTES = 100_000_000
"""Of a JSON file, which is read as a whole, and of a line of JSONL; real ones are kilobytes."""

AGREE = 0.01
"""Rounding of `samples_ts` is far below; mean rate and total rate differ with the square of the
noise. What is further apart was changed by hand or is of another unit."""

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Test:
    """One entry and where it stands."""

    file: Path
    place: str
    metric: str
    entry: Entry
    time_s: float | None


def read(
    files: Sequence[Path],
    *,
    metric: str | None = None,
    arm_field: str | None = None,
    where: Sequence[tuple[str, str]] = (),
) -> Study:
    """The tests of all files as one study.

    The one field in which entries differ makes the arms (`n_threads=8`); fields of the model and of
    the build go together; if entries differ in nothing, files are the arms. Raises UserError for
    what is no llama-bench result, for several shapes of a test, and where several fields differ and
    none is named in `arm_field`.
    """
    told = ", ".join(str(file) for file in files)
    tests = [test for file in files for test in _tests(file, where)]
    if metric is not None:
        tests = [test for test in tests if test.metric == metric_of(metric, told, "--metric")]
    if not tests:
        raise UserError(
            "no test of prefill or decoding alone" if metric is None else f"no test of {metric}",
            file=told,
            cure="run llama-bench with -p or -n, not -pg, and see --where and --metric",
        )
    _one_shape(tests, told)
    differing = _differing([test.entry for test in tests])
    name, also = _arms(tests, differing, arm_field, told)
    runs = [_run(test, name(test)) for test in tests]
    recorded = Recorded(
        versions=all(run.version not in ("", "unknown") for run in runs),
        repetitions=max(len(test.entry.get("samples_ns") or [0]) for test in tests),
        also=also,
    )
    return study(runs, name=files[0].stem, file=told, recorded=recorded)


def _tests(file: Path, where: Sequence[tuple[str, str]]) -> Iterator[Test]:
    last: float | None = None
    for place, entry in _entries(file):
        for name, _ in where:
            if name not in entry:
                raise UserError(
                    f"no field {name!r}",
                    file=file,
                    key=f"{place}: --where",
                    cure=f"the fields are {', '.join(sorted(set(entry) - RESULTS))}",
                )
        time_s = _time(entry, file, place)
        if time_s is not None and last is not None and time_s < last:
            raise UserError(
                "the test began before the one that stands above it",
                file=file,
                key=f"{place}: test_time",
                cure="the clock was set back or the entries were sorted: give the file as it was "
                "written",
            )
        last = time_s
        if any(_shown(entry[name]) != value for name, value in where):
            continue
        if (metric := _metric(entry, file, place)) is not None:
            yield Test(file, place, metric, entry, time_s)


def _entries(file: Path) -> Iterator[tuple[str, Entry]]:
    """Place and entry, of either format. Raises UserError."""
    cure = "give the output of llama-bench -o json or -o jsonl"
    try:
        if file.suffix == ".json":
            if file.stat().st_size > MAX_BYTES:
                raise UserError("too large to be read as a whole", file=file, cure="use -o jsonl")
            text = file.read_text(encoding="utf-8-sig")
            found = json.loads(text) if text.strip() else []
            numbered = enumerate(found if isinstance(found, list) else [found], 1)
            entries: Iterable[tuple[str, Any]] = ((f"entry {n}", one) for n, one in numbered)
        else:
            entries = _json_lines(file)
        count = 0
        for place, entry in entries:
            count += 1
            known = isinstance(entry, dict) and {"n_prompt", "n_gen"} <= set(entry)
            if not known or not set(entry) & {"avg_ts", "samples_ns"}:
                raise UserError("no entry of llama-bench", file=file, key=place, cure=cure)
            json.dumps(entry, ensure_ascii=False).encode()  # half a character cannot be printed
            if count > MAX_RUNS:
                raise UserError(f"more than {MAX_RUNS} tests", file=file, cure=cure)
            yield place, entry
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(file, error, cure) from None
    if not count:
        raise UserError("the file is empty", file=file, cure=cure)


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    with file.open(encoding="utf-8-sig") as stream:
        number = 0
        while line := stream.readline(MAX_BYTES):
            number += 1
            if line.strip():
                yield f"line {number}", json.loads(line)


def _time(entry: Entry, file: Path, place: str) -> float | None:
    if "test_time" not in entry:
        return None
    try:
        moment = datetime.fromisoformat(str(entry["test_time"]))
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        raise UserError(
            f"{str(entry['test_time'])[:40]!r} is no date",
            file=file,
            key=f"{place}: test_time",
            cure="give the file as llama-bench wrote it",
        ) from None


def _metric(entry: Entry, file: Path, place: str) -> str | None:
    """What a test times; None for a mixture."""
    for name in ("n_prompt", "n_gen"):
        if type(entry[name]) is not int or entry[name] < 0:
            raise UserError(
                "not a number of tokens",
                file=file,
                key=f"{place}: {name}",
                cure="give the file as llama-bench wrote it",
            )
    prompt, answer = entry["n_prompt"] > 0, entry["n_gen"] > 0
    if prompt == answer:
        return None
    return "prefill_tok_s" if prompt else "decode_tok_s"


def _one_shape(tests: Sequence[Test], told: str) -> None:
    for metric in {test.metric for test in tests}:
        own = [test.entry for test in tests if test.metric == metric]
        for name in SHAPE:
            if len(values := {_shown(entry.get(name, 0)) for entry in own}) > 1:
                shown = sorted(values, key=lambda value: (len(value), value))
                raise UserError(
                    f"tests of {metric} differ in {name}: {', '.join(shown)}",
                    file=told,
                    cure=f"choose one: --where {name}={shown[0]}",
                )


def _differing(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Field → its values, of the fields in which configurations differ; one field per group."""
    names = dict.fromkeys(name for entry in entries for name in entry)
    found: dict[str, list[str]] = {}
    for name in names:
        values = list(dict.fromkeys(_shown(entry.get(name)) for entry in entries))
        if name not in RESULTS and name not in SHAPE and len(values) > 1:
            group = GROUPS.get(name, name)
            if name == group or group not in found:
                found[group] = values
    return found


def _arms(
    tests: Sequence[Test], differing: Mapping[str, list[str]], field: str | None, told: str
) -> tuple[Callable[[Test], str], tuple[str, ...]]:
    """How a test's arm is called, and in what else arms differ."""
    if field is None and not differing:
        if len({test.file for test in tests}) < 2:
            raise UserError(
                "it holds one arm: all its tests have the same configuration",
                file=told,
                cure="give the file of the other arm too",
            )
        return (lambda test: test.file.stem), ()
    if field is None and len(differing) > 1:
        shown = "; ".join(f"{name}: {', '.join(some[:4])}" for name, some in differing.items())
        raise UserError(
            f"tests differ in several fields ({shown})",
            file=told,
            cure="keep some with --where FIELD=VALUE, or name the one that makes the arms with "
            f"--columns arm={next(iter(differing))}",
        )
    chosen = GROUPS.get(field, field) if field is not None else next(iter(differing))
    if chosen not in differing:
        raise UserError(
            f"all tests have the same {chosen!r}, or none has it",
            file=told,
            key="--columns arm",
            cure=f"tests differ in {', '.join(differing) or 'no field'}",
        )

    def name(test: Test) -> str:
        value = _shown(test.entry.get(chosen))
        return (
            PurePath(value.replace("\\", "/")).stem if chosen == MODEL[0] else f"{chosen}={value}"
        )

    also = tuple(other for other in differing if other != chosen)
    for other in also:
        seen: dict[str, str] = {}
        for test in tests:
            value = _shown(test.entry.get(other))
            if seen.setdefault(name(test), value) != value:
                raise UserError(
                    f"arm {name(test)!r} was measured with two values, {seen[name(test)]!r} and "
                    f"{value!r}",
                    file=told,
                    key=other,
                    cure=f"keep one of them: --where {other}={value}",
                )
    return name, also


def _run(test: Test, arm: str) -> Run:
    file, entry = str(test.file), test.entry
    return Run(
        file=file,
        place=test.place,
        metric=test.metric,
        arm=arm,
        value=_rate(entry, file, test.place),
        time_s=_later(test),
        version=str(entry.get("build_commit", "")),
    )


def _later(test: Test) -> float | None:
    """Tests that began in the same second stand in their order in the file."""
    return None if test.time_s is None else test.time_s + int(test.place.split()[1]) * 1e-6


def _rate(entry: Entry, file: str, place: str) -> float:
    """All tokens ÷ all seconds. Raises UserError where the entry contradicts itself."""
    rates = [
        number(value, file, f"{place}: {name}")
        for name in ("avg_ts", "samples_ts")
        if name in entry
        for value in (entry[name] if isinstance(entry[name], list) else [entry[name]])
    ]
    if "samples_ns" not in entry:
        return rates[0]
    samples = entry["samples_ns"]
    if not isinstance(samples, list) or not samples:
        raise UserError(
            "no repetitions",
            file=file,
            key=f"{place}: samples_ns",
            cure="leave the failed test out, or run it again",
        )
    times = [number(value, file, f"{place}: samples_ns") for value in samples]
    tokens: int = entry["n_prompt"] + entry["n_gen"]
    own = [tokens * 1e9 / time for time in times]
    told = entry.get("samples_ts", own)
    agree = isinstance(told, list) and len(told) == len(own)
    if agree and "avg_ts" in entry:
        agree = abs(rates[0] * len(own) / sum(own) - 1) < AGREE
    if not agree or any(abs(one / two - 1) > AGREE for one, two in zip(told, own, strict=True)):
        raise UserError(
            "samples_ns, samples_ts and avg_ts do not belong together",
            file=file,
            key=place,
            cure="give the file as llama-bench wrote it: nanoseconds, and tokens per second",
        )
    return tokens * len(times) * 1e9 / sum(times)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
