"""The workflow as a whole, on scripted servers whose speeds are known."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.workflow import Clone
from twoturn import campaign, cells, privacy

pytestmark = [pytest.mark.slow, pytest.mark.machine]

CONFIG = ("--configfile", "campaign.yaml")
ARTICLE = "reports/scripted/article_en.md"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which the scripted campaign was run to its end with one core."""
    clone = Clone(tmp_path_factory.mktemp("measured") / "clone")
    clone.scripted()
    done = clone.snakemake(*CONFIG, "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left" in done.stderr
    return clone


def plan_of(clone: Clone):  # type: ignore[no-untyped-def]
    return campaign.load("campaign.yaml", clone.folder).plan


def assert_planned_order(clone: Clone) -> None:
    """`started_at` proves the mirrored order, rounds one after the other."""
    for series in plan_of(clone).series:
        seen = []
        for number in series.round_numbers():
            starts = {}
            for arm in series.arms:
                file = clone.folder / series.directory / f"{number:02d}" / f"{arm.slug}.parquet"
                starts[arm.name] = cells.read(file)[0]["started_at"].to_pylist()[0]
            by_time = sorted(starts, key=starts.__getitem__)
            assert tuple(by_time) == series.order(number)
            seen.append((min(starts.values()), max(starts.values())))
        for odd, even in zip(
            series.round_numbers()[::2], series.round_numbers()[1::2], strict=True
        ):
            assert series.order(odd) == tuple(reversed(series.order(even)))
        assert all(before[1] < after[0] for before, after in itertools.pairwise(seen))


def processes_of(clone: Clone) -> list[list[str]]:
    """Command lines of the processes that were started for a clone and still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(clone.folder) in " ".join(words := process.cmdline()):
                found.append(words)
        except psutil.Error:
            continue
    return found


def assert_quiet(clone: Clone, within_s: float = 15.0) -> None:
    deadline = time.monotonic() + within_s
    while (left := processes_of(clone)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    folder = clone.folder / ".twoturn" / "cells"
    assert not folder.exists() or list(folder.iterdir()) == []


def test_known_speeds_get_their_verdicts(measured: Clone) -> None:
    table = pq.read_table(measured.folder / "results/scripted/contrasts.parquet").to_pylist()
    verdicts = {
        row["arm"]: row
        for row in table
        if (row["series"], row["metric"]) == ("speeds", "decode_tok_s")
    }
    assert verdicts["fast"]["verdict"] == "faster", verdicts
    assert 1.2 < verdicts["fast"]["ratio"] < 1.4
    assert verdicts["same"]["verdict"] in ("same", "unresolved")
    assert verdicts["plain-null"]["verdict"] in ("same", "unresolved")
    pair = [row for row in table if row["series"] == "pair"]
    assert {row["verdict"] for row in pair} == {"invalid"}  # two rounds are too few


def test_both_articles_tell_it(measured: Clone) -> None:
    english = (measured.folder / ARTICLE).read_text()
    polish = (measured.folder / "reports/scripted/article_pl.md").read_text()
    assert "`fast` decodes faster than `plain`" in english
    assert "On these prompts `same` decodes" not in english
    assert "Na tych promptach `fast` dekoduje szybciej niż `plain`" in polish.replace(
        "wariant ", ""
    )
    assert len(english.splitlines()) == len(polish.splitlines())


def test_cells_prove_the_order(measured: Clone) -> None:
    assert_planned_order(measured)
    assert_quiet(measured)


def test_cells_hold_what_a_reader_needs(measured: Clone) -> None:
    series = plan_of(measured).one("speeds")
    folder = measured.folder / series.directory
    _, metadata = cells.read(folder / "01" / "fast.parquet")
    assert metadata["fingerprint"] == series.fingerprint
    assert metadata["order"] == list(series.order(1))
    assert "--speed" in metadata["command_line"]
    assert metadata["environment_before"]["memory_available"] > 0
    kinds = {file.parent.name for file in cells.of_series(folder, 6)}
    assert {"warmup", "control"} <= kinds
    assert [file.parent.parent.name for file in folder.glob("*/control/*.parquet")] == ["06"]
    assert [file.name for file in folder.glob("*/warmup/same.parquet")] == ["same.parquet"]


def test_nothing_tells_whose_machine_it_was(measured: Clone) -> None:
    places = (measured.folder, Path.home(), Path(sys.executable).parent)
    names = (socket.gethostname(), privacy._user())
    words = [
        *(str(path) for path in places if len(path.parts) > 2),
        *(name for name in names if len(name) > 3 and name not in privacy.GENERIC),
    ]
    for folder in ("results", "reports", "logs"):
        for file in (measured.folder / folder).rglob("*"):
            if file.is_file():
                text = file.read_bytes()
                assert not [word for word in words if word.encode() in text], file


def test_a_finished_campaign_plans_no_measuring_job(measured: Clone, tmp_path: Path) -> None:
    assert measured.planned(ARTICLE, *CONFIG) == {}
    for file in measured.folder.rglob("*"):
        if file.is_file() and ".snakemake" not in file.parts:
            file.touch()
    assert measured.planned(ARTICLE, *CONFIG) == {}
    shutil.rmtree(measured.folder / ".snakemake")
    assert measured.planned(ARTICLE, *CONFIG) == {}
    other = Clone(tmp_path / "other")
    other.scripted()
    shutil.copytree(measured.folder / "results", other.folder / "results")
    assert other.planned(ARTICLE, *CONFIG) == {}


def test_edits_that_do_not_measure_measure_nothing(measured: Clone) -> None:
    rule = measured.folder / "workflow/rules/measure.smk"
    rule.write_text(rule.read_text().replace("threads: 1024", "threads: 1000"))
    for module in ("measure.py", "client.py", "article/__init__.py", "plan.py"):
        file = measured.folder / "twoturn" / module
        file.write_text(file.read_text() + "\n# an edit\n")
    assert measured.planned(ARTICLE, *CONFIG) == {}


def forget(clone: Clone) -> None:
    """As in an unpacked archive: no metadata of Snakemake, results newer than all else."""
    shutil.rmtree(clone.folder / ".snakemake", ignore_errors=True)
    for folder in ("results", "reports"):
        for file in (clone.folder / folder).rglob("*"):
            file.touch()


def test_a_bump_measures_its_own_series_and_says_why(measured: Clone) -> None:
    forget(measured)
    measured.scripted(other_version="1.1")
    done = measured.snakemake("-n", ARTICLE, *CONFIG)
    assert "other 1.0 → 1.1" in done.stdout + done.stderr
    assert measured.planned(ARTICLE, *CONFIG) == {"measure_pair": 2}
    measured.scripted()
    assert measured.planned(ARTICLE, *CONFIG) == {}


def test_a_changed_setting_is_told(measured: Clone) -> None:
    file = measured.scripted()
    text = file.read_text()
    old, new = 'args: [--speed, "1.3"]', 'settings: {model: "{x}"}, args: [--speed, "1.3"]'
    file.write_text(text.replace(old, new))
    done = measured.snakemake("-n", ARTICLE, *CONFIG)
    assert "model of fast unset → {x}" in done.stdout + done.stderr
    measured.scripted()
    assert measured.planned(ARTICLE, *CONFIG) == {}


def test_a_changed_checkpoint_measures_its_own_series(measured: Clone) -> None:
    forget(measured)
    file = measured.folder / "checkpoints/second/config.json"
    before = file.read_text()
    file.write_text('{"model_type": "scripted", "name": "another"}')
    try:
        done = measured.snakemake("-n", ARTICLE, *CONFIG)
        assert "checkpoint of another changed" in done.stdout + done.stderr
        assert measured.planned(ARTICLE, *CONFIG) == {"measure_pair": 2}
    finally:
        file.write_text(before)
    assert measured.planned(ARTICLE, *CONFIG) == {}


def test_a_changed_fact_of_the_machine_measures_everything(measured: Clone) -> None:
    file = measured.folder / "locks/local.json"
    before = file.read_text()
    build = re.search(r'"os_build": "([^"]*)"', before)
    assert build
    file.write_text(before.replace(build[1], "24G90"))
    try:
        done = measured.snakemake("-n", ARTICLE, *CONFIG)
        assert f"os_build {build[1]} → 24G90" in done.stdout + done.stderr
        assert measured.planned(ARTICLE, *CONFIG) == {"measure_pair": 2, "measure_speeds": 6}
        run = measured.snakemake(*CONFIG, "--cores", "1")
        said = run.stdout + run.stderr
        assert run.returncode != 0
        assert "locks/local.json" in said
        assert f"os_build: lock 24G90, here {build[1]}" in said
        assert "make lock" in said
    finally:
        file.write_text(before)
    assert measured.planned(ARTICLE, *CONFIG) == {}


def test_a_deleted_cell_is_missed(measured: Clone) -> None:
    forget(measured)
    series = plan_of(measured).one("speeds")
    file = measured.folder / series.directory / "03" / "same.parquet"
    whole = file.read_bytes()
    file.unlink()
    try:
        assert measured.planned(ARTICLE, *CONFIG) == {"measure_speeds": 1}
        run = measured.snakemake(ARTICLE, *CONFIG, "--cores", "1")
        assert (file.parent / "plain.parquet").is_file()  # what is there stays
        assert "round 3 of speeds is missing and round 6 is there" in run.stderr
    finally:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(whole)


def test_raising_the_rounds_keeps_the_first_ones(measured: Clone) -> None:
    measured.scripted(pair_rounds=4)
    assert measured.planned(ARTICLE, *CONFIG) == {"measure_pair": 2}
    measured.scripted()


def test_many_cores_keep_the_order(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    clone.scripted(rounds=2)
    done = clone.snakemake(*CONFIG, "--cores", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_planned_order(clone)


def start(clone: Clone) -> subprocess.Popen[str]:
    return subprocess.Popen(
        clone.command(*CONFIG, "--cores", "1"),
        cwd=clone.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clone.env(),
        start_new_session=True,
        # As from a terminal: a shell's background job, this test run perhaps, ignores interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_server(clone: Clone, rounds_done: int) -> None:
    """Wait until the given number of rounds is there and a server runs for the next one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done = list(clone.folder.glob("results/cells/speeds/*/0?/plain.parquet"))
        busy = [one for one in processes_of(clone) if "scripted.py" in " ".join(one[:2])]
        if len(done) >= rounds_done and busy:
            return
        time.sleep(0.05)
    pytest.fail("no server was started in time")


def test_a_second_run_stops_with_one_line_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    first, second = Clone(tmp_path / "first"), Clone(tmp_path / "second")
    first.scripted(rounds=4)
    second.scripted(rounds=2)
    running = start(first)
    try:
        wait_for_server(first, rounds_done=1)
        refused = second.snakemake(*CONFIG, "--cores", "1")
        said = refused.stdout + refused.stderr
        assert refused.returncode != 0
        lines = [line for line in said.splitlines() if "another measurement is running" in line]
        assert len(lines) == 1
        assert f"pid {running.pid}" in lines[0]
        assert not (second.folder / "results/cells").exists()
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    assert_no_torn_round(first)
    survivors = {
        file: file.stat().st_mtime_ns for file in first.folder.glob("results/**/0?/*.parquet")
    }
    assert survivors
    done = first.snakemake(*CONFIG, "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file: file.stat().st_mtime_ns for file in survivors} == survivors
    assert_planned_order(first)
    assert_no_torn_round(first)
    assert_quiet(first)
    assert first.planned(ARTICLE, *CONFIG) == {}


def assert_no_torn_round(clone: Clone) -> None:
    for series in plan_of(clone).series:
        folder = clone.folder / series.directory
        for number in series.round_numbers():
            there = {path.name for path in (folder / f"{number:02d}").glob("*.parquet")}
            assert there in (set(), {f"{arm.slug}.parquet" for arm in series.arms})


@pytest.mark.parametrize(
    ("number", "pattern"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "")],
)
def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, pattern: str
) -> None:
    clone = Clone(tmp_path / "clone")
    clone.scripted(rounds=2)
    running = start(clone)
    wait_for_server(clone, rounds_done=0)
    os.killpg(running.pid, number)
    said, _ = running.communicate(timeout=120)
    assert running.returncode != 0
    assert pattern in said
    assert_quiet(clone)
    assert_no_torn_round(clone)
    assert not list(clone.folder.glob("results/**/.*"))


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which nothing is measured."""
    return Clone(tmp_path_factory.mktemp("idle") / "clone")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rounds: 2", "rounds: 3", "campaign.yaml: series.speeds: rounds: 3 is odd"),
        ("rounds: 2", "round: 2", "series.speeds.round: unknown key; did you mean 'rounds'?"),
        ("fast: {", "null: {", "YAML reads the key 'null' as NoneType, not as text; choose"),
        ("fast: {", "off: {", "YAML reads the key 'off' as bool, not as text; choose"),
        ("fast: {", "1e3: {", "'1e3' is no usable name; begin with a letter"),
        ("same: {", "Fast: {", "'fast' share the file name 'fast'; rename one"),
        (
            "checkpoints/second",
            "checkpoints/nowhere",
            "checkpoints.second.path: the folder checkpoints/nowhere is missing; put the",
        ),
        ('"{python}"', "no-such-program", "servers.even.command: the program 'no-such-program'"),
        (
            '[--speed, "1.3"]',
            "[--refuse]",
            "campaign.yaml: series.speeds.arms.fast: the model id 'models/first' does not answer",
        ),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_measured(
    idle: Clone, old: str, new: str, line: str
) -> None:
    file = idle.scripted(rounds=2)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    done = idle.snakemake(*CONFIG, "--cores", "1")
    assert done.returncode != 0
    told = [one for one in done.stderr.splitlines() if one.startswith("twoturn: ")]
    assert line in told[0]
    assert set(told) == {told[0]}  # a failed job's log repeats it
    assert "Traceback" not in done.stderr
    assert not list(idle.folder.glob("results/**/*.parquet"))
    assert_quiet(idle)


def test_config_on_the_command_line_is_refused(idle: Clone) -> None:
    idle.scripted(rounds=2)
    done = idle.snakemake("-n", *CONFIG, "--config", "name=x")
    assert "twoturn: --config is not read" in done.stderr
    assert done.returncode != 0
