"""What a run survives: faults at random moments of a small real campaign, then the same command.

    python -m benchmarks.faults --faults 50 --seed 1

Each run is the whole workflow on scripted servers, as a user starts it. A moment is drawn, one
thing goes wrong there, and the workflow is started again, undisturbed, to its end. What is there
then is compared with a campaign that nothing disturbed: no torn round, no file half written under
its final name, no process, passing file or lock left, no round measured twice, and no other value:
keys, counts, token numbers, hashes of texts and statuses. A row may differ in one way alone: it
tells by its status what happened to it while it was measured.

On Linux a root user gets full and read-only disks as file systems of their own (tmpfs, in a mount
namespace of their own: `unshare -m`); other users a read-only folder, and no full disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import psutil
import pyarrow.parquet as pq

from tests.workflow import Clone
from twoturn import campaign, cells

CAMPAIGN = """
name: faults
languages: [en]
servers:
  scripted:
    command: ["{python}", tests/servers/scripted.py, --port, "{port}", --model, "{model}",
      --noise, "0.02", --tok-s, "200", --ttft-ms, "20", --load-s, "0.2", --prompt-cache]
    version: "1.0"
checkpoints:
  seedling: {path: checkpoints/seedling}
  deeper: {make: {from: seedling, layers: 4}}
series:
  turns:
    workload: {kind: conversation, prompts: 1, prompt_tokens: 32, turns: 2, max_tokens: 24, seed: 3}
    rounds: 2
    reference: plain
    arms:
      plain: {checkpoint: seedling, server: scripted}
      drafted: {checkpoint: deeper, server: scripted, speculation: mtp, args: [--draft]}
"""
# Lies beside the campaign, is imported by every Python of the workflow, and moves its wall clock.
CLOCK = """
import pathlib, time
_file, _time = pathlib.Path(__file__).with_name("clock-offset"), time.time
def _moved():
    try:
        return _time() + float(_file.read_text())
    except (OSError, ValueError):
        return _time()
time.time = _moved
"""
SAME = (
    *("series", "arm", "checkpoint", "server", "server_version", "speculation", "block_size"),
    *("round", "position", "turn", "prompt_id", "kind", "model", "prompt_tokens", "cached_tokens"),
    *("completion_tokens", "finish_reason", "verify_cycles", "drafted_tokens", "accepted_tokens"),
    *("output_sha256", "output_chars", "divergence_index", "longest_repeat", "status", "text_gate"),
)
KEY = ("series", "arm", "round", "prompt_id", "turn")
# Statuses by which a row says what happened to it while it was measured.
TOLD = {"connection_lost", "truncated_stream", "start_failed", "slept", "start_timeout"}
MISS_S = 40.0  # a moment that has not come by then does not come
QUIET_S = 25.0  # until everything that was stopped is gone
Rows = dict[tuple[Any, ...], dict[str, Any]]


# --- the campaign ---------------------------------------------------------------------------------


def prepare(folder: Path, mounted: bool) -> Clone:
    """A fresh clone with the campaign, on a small file system of its own where that is possible."""
    if mounted:
        folder.mkdir(parents=True)
        mount("-t", "tmpfs", "-o", "size=64m", "none", str(folder))
    clone = Clone(folder, without=("checkpoints",))
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    (folder / "sitecustomize.py").write_text(CLOCK)
    seedling = folder / "checkpoints/seedling"
    seedling.mkdir(parents=True)
    told = {"model_type": "llama", "num_hidden_layers": 2}
    (seedling / "config.json").write_text(json.dumps(told))
    weights = {f"model.layers.{n}.mlp.down_proj.weight": mx.ones((8, 8)) for n in range(2)}
    mx.save_safetensors(str(seedling / "model.safetensors"), weights)
    return clone


def start(clone: Clone, log: Path, *targets: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as stream:
        return subprocess.Popen(
            clone.command("--configfile", "campaign.yaml", "--cores", "1", *targets),
            cwd=clone.folder,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=clone.env(),
            start_new_session=True,
        )


def run(clone: Clone, log: Path, *targets: str) -> bool:
    """Run to the end or to the targets, undisturbed."""
    try:
        return start(clone, log, *targets).wait(timeout=300) == 0
    except subprocess.TimeoutExpired:
        return False


# --- what is there --------------------------------------------------------------------------------


def rounds_there(clone: Clone) -> dict[Path, dict[str, bytes]]:
    """Bytes of all rounds that are there, whole or not."""
    return {
        folder.relative_to(clone.folder): {
            str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.parquet")
        }
        for folder in sorted(clone.folder.glob("results/cells/*/*/[0-9][0-9]"))
        if any(folder.glob("*.parquet"))
    }


def torn(clone: Clone, arms: Mapping[str, set[str]]) -> list[str]:
    """Rounds of which some cells are there and others not."""
    return [
        str(place)
        for place, files in rounds_there(clone).items()
        if {name for name in files if "/" not in name} != arms[place.parts[2]]
    ]


def half_written(clone: Clone) -> list[str]:
    """Files under their final names that cannot be read."""
    found = []
    for file in [*clone.folder.glob("results/**/*"), *clone.folder.glob("reports/**/*")]:
        try:
            if file.name.startswith(".") or any(
                part.startswith(".") for part in file.relative_to(clone.folder).parts
            ):
                continue
            if file.suffix == ".parquet":
                pq.read_table(file, partitioning=None, page_checksum_verification=True)
            elif file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".svg" and not file.read_text().endswith("</svg>\n"):
                raise ValueError(file)
        except (OSError, ValueError):
            found.append(str(file.relative_to(clone.folder)))
    return found


def rows(clone: Clone) -> Rows:
    """All rows of the campaign's cells, by what identifies them."""
    plan = campaign.load("campaign.yaml", clone.folder).plan
    found: Rows = {}
    for series in plan.series:
        for file in cells.of_series(clone.folder / series.directory, series.rounds):
            folder = file.parent.name if file.parent.name in ("warmup", "control") else "round"
            for row in cells.read(file)[0].to_pylist():
                found[(folder, *(row[key] for key in KEY))] = row
    return found


def processes(clone: Clone) -> list[psutil.Process]:
    """Processes that were started in a clone and still run."""
    place, found = str(clone.folder), []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = [*process.cmdline(), process.cwd(), process.environ().get("HOME", "")]
            if process.status() != psutil.STATUS_ZOMBIE and any(place in word for word in words):
                found.append(process)
    return found


def of_kind(clone: Clone, kind: str) -> list[psutil.Process]:
    """A clone's servers, guards, jobs (scripts of the workflow) or Snakemakes."""
    marks = {"server": "scripted.py", "guard": "guard.py", "job": "scripts/"}
    found = []
    for process in processes(clone):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if kind == "guard" or "guard.py" not in " ".join(words):
                found += [process] * any(marks[kind] in word for word in words[:4])
    return found


def leftovers(clone: Clone) -> list[str]:
    """Passing files and folders."""
    found = [
        *clone.folder.glob("results/**/.*"),
        *clone.folder.glob("reports/**/.*"),
        *clone.folder.glob("locks/.*"),
        *clone.folder.glob("checkpoints/made/.*partial*"),
        *clone.folder.glob(".twoturn/cells/*"),
        *(file for file in clone.folder.glob(".twoturn/**/*") if file.suffix[1:].isdigit()),
    ]
    return sorted(str(path.relative_to(clone.folder)) for path in found)


# --- moments --------------------------------------------------------------------------------------


def _seen(pattern: str) -> Callable[[Clone], bool]:
    return lambda clone: any(True for _ in clone.folder.glob(pattern))


def _said(line: str) -> Callable[[Clone], bool]:
    def found(clone: Clone) -> bool:
        for log in clone.folder.glob("logs/measure/*/*/*.log"):
            with contextlib.suppress(OSError):
                if line in log.read_text():
                    return True
        return False

    return found


MOMENTS: dict[str, tuple[Callable[[Clone], bool], float]] = {
    # name → (has it come?, seconds after it at most)
    "plan": (lambda clone: True, 3.0),
    "make": (_seen("checkpoints/made/.deeper.partial-*"), 0.3),
    "start": (_seen(".twoturn/cells/*/server.log"), 0.2),
    "warm-up": (_said("warmup 1: "), 1.5),
    "stream": (_said("round 1: "), 1.2),
    "second round": (_said("round 2: "), 1.2),
    "control": (_said("control 2: "), 0.8),
    "write": (_seen("results/cells/*/*/.[0-9]*/*.parquet"), 0.03),
    "published": (_seen("results/cells/*/*/[0-9]*/*.parquet"), 0.4),
    "analysis": (_seen("logs/results/faults/*.log"), 4.0),
    "render": (_seen("logs/reports/faults/*.log"), 4.0),
}
LATE = ("analysis", "render")


def wait_for(clone: Clone, moment: str, running: subprocess.Popen[bytes], draw: float) -> bool:
    """Wait for a moment of a run. False if the run ended before."""
    come, spread_s = MOMENTS[moment]
    deadline = time.monotonic() + MISS_S
    while not come(clone):
        if running.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    time.sleep(draw * spread_s)
    return running.poll() is None


# --- faults ---------------------------------------------------------------------------------------


@dataclass
class World:
    """A run that a fault happens to. `undo` is done when it has ended; `told` are statuses by which
    rows may say what happened."""

    clone: Clone
    running: subprocess.Popen[bytes]
    random: random.Random
    folder: Path
    mounted: bool
    undo: list[Callable[[], None]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    removed: list[Path] = field(default_factory=list)  # what the told cure removes


def to_group(number: signal.Signals) -> Callable[[World], None]:
    """As a terminal does it, or a shutdown."""
    return lambda world: os.killpg(world.running.pid, number)


def to_snakemake(number: signal.Signals) -> Callable[[World], None]:
    return lambda world: world.running.send_signal(number)


def to_one(kind: str, number: signal.Signals) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.told |= TOLD if kind in ("server", "guard") else set()
        for process in of_kind(world.clone, kind):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    return act


def power_cut(world: World) -> None:
    """All processes at once, none of which can say goodbye."""
    for process in processes(world.clone):
        with contextlib.suppress(psutil.Error):
            process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(world.running.pid, signal.SIGKILL)


def full_disk(world: World) -> None:
    ballast = world.clone.folder / "ballast"
    world.undo.append(lambda: ballast.unlink(missing_ok=True))
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(2**16))
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as stream:
        while True:
            stream.write(b"x")


def read_only(world: World) -> None:
    if world.mounted:
        place = str(world.clone.folder)
        world.undo.append(lambda: mount("-o", "remount,rw", place))
        deadline = time.monotonic() + 5  # busy as long as a file is open for writing
        while not mount("-o", "remount,ro", place, check=False):
            if time.monotonic() > deadline:
                # The job's log is open all the time; take away the folder of results instead.
                return _without_results(world)
            time.sleep(0.01)
        return
    _without_results(world)


def _without_results(world: World) -> None:
    """Nothing can be written under results: read-only for a user; for root a mount."""
    results = world.clone.folder / "results"
    results.mkdir(exist_ok=True)
    if os.geteuid() == 0 and world.mounted:
        mount("--bind", str(results), str(results))
        mount("-o", "remount,bind,ro", str(results))
        world.undo.append(lambda: unmount(results))
        return
    folders = [results, *(path for path in results.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    world.undo.append(lambda: [path.chmod(0o755) for path in folders if path.exists()] and None)


def second_run(world: World) -> None:
    log = world.folder / "second.log"
    ended = run(world.clone, log)
    said = log.read_text()
    lines = [line for line in said.splitlines() if "another measurement is running" in line]
    if world.running.poll() is None and (ended or len(lines) != 1):
        world.problems.append(f"the second run was not refused in one line: {lines}")


def vanished(path: str) -> Callable[[World], None]:
    def act(world: World) -> None:
        place = world.clone.folder / path
        aside = place.with_name(f"{place.name}-aside")
        if place.exists():
            place.rename(aside)
            world.undo.append(lambda: _back(aside, place))

    return act


def _back(aside: Path, place: Path) -> None:
    if place.is_dir():  # made again meanwhile
        shutil.rmtree(place)
    aside.rename(place)


def clock(seconds: float) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.told |= {"slept"}
        (world.clone.folder / "clock-offset").write_text(str(seconds))

    return act


def spoil(pattern: str, how: Callable[[bytes], bytes], *, stop: bool = True) -> Callable[..., None]:
    """Spoil a file that is there, after the run was stopped."""

    def act(world: World) -> None:
        if stop:
            os.killpg(world.running.pid, signal.SIGKILL)
            world.running.wait()
            _quiet(world.clone)
        files = sorted(world.clone.folder.glob(pattern))
        if not files:
            return
        file = world.random.choice(files)
        file.write_bytes(how(file.read_bytes()))
        if "/cells/" in str(file) and file.suffix == ".parquet":
            # The cure that is told: this round and those after it.
            place = next(p for p in file.parents if p.name.isdigit() and len(p.name) == 2)
            world.removed = [p for p in sorted(place.parent.glob("[0-9][0-9]")) if p >= place]
        elif file.suffix == ".parquet":
            world.removed = [file]

    return act


def cut(data: bytes) -> bytes:
    return data[: len(data) // 3]


def garbage(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


def flipped(data: bytes) -> bytes:
    """One bit, in the middle of the first page."""
    place = min(len(data) // 2, 60)
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


def nothing(data: bytes) -> bytes:
    return b""


TABLE = "results/faults/cells.parquet"
ROUNDS = "results/cells/*/*/[0-9][0-9]/*.parquet"
ANY = tuple(MOMENTS)
MEASURING = tuple(name for name in ANY if name not in LATE and name not in ("plan", "make"))
ROUND_ONE = ("warm-up", "stream")
FAULTS: dict[str, tuple[Callable[[World], None], tuple[str, ...]]] = {
    # name → (what is done, moments at which it may be)
    **{
        f"{number.name} to the group": (to_group(number), ANY)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
    },
    **{
        f"{number.name} to snakemake": (to_snakemake(number), ANY)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    },
    **{
        f"{number.name} to the job": (to_one("job", number), (*MEASURING, *LATE))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    },
    "SIGKILL to the server": (to_one("server", signal.SIGKILL), MEASURING),
    "SIGTERM to the server": (to_one("server", signal.SIGTERM), MEASURING),
    "SIGKILL to the guard": (to_one("guard", signal.SIGKILL), MEASURING),
    "power cut": (power_cut, ANY),
    "full disk": (full_disk, ANY),
    "read-only disk": (read_only, ANY),
    "second run": (second_run, ("make", "stream", "second round", "analysis")),
    "vanished checkpoint": (vanished("checkpoints/seedling"), (*MEASURING, "plan", "make")),
    "vanished made checkpoint": (vanished("checkpoints/made/deeper"), MEASURING),
    "clock an hour ahead": (clock(3600), MEASURING),
    "clock a minute back": (clock(-60), MEASURING),
    "cell cut": (spoil(ROUNDS, cut), ("published", "second round", "analysis")),
    "cell of nothing": (spoil(ROUNDS, nothing), ("published", "second round")),
    "cell of garbage": (spoil(ROUNDS, garbage), ("second round", "analysis")),
    "cell with a flipped bit": (spoil(ROUNDS, flipped), ("second round", "analysis")),
    "spec.json of garbage": (spoil("results/cells/*/*/spec.json", garbage), ROUND_ONE),
    "spec.json cut": (spoil("results/cells/*/*/spec.json", cut), ROUND_ONE),
    "lock cut": (spoil("locks/local.json", cut), ANY),
    "hashes cut": (spoil(".twoturn/hashes.json", cut), ANY),
    "plan file cut": (spoil(".twoturn/plans/*.json", cut), ANY),
    "made.json cut": (spoil("checkpoints/made/*/made.json", cut), MEASURING),
    "joined table cut": (spoil("results/faults/*.parquet", cut), LATE),
    "snakemake's memory cut": (spoil(".snakemake/metadata/*", cut), ANY),
}


def mount(*arguments: str, check: bool = True) -> bool:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=check)
    return done.returncode == 0


def unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], capture_output=True, check=True)


# --- one fault ------------------------------------------------------------------------------------


@dataclass
class Found:
    """What one fault left behind."""

    fault: str
    moment: str
    missed: bool = False
    torn: list[str] = field(default_factory=list)
    half_written: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)  # what a person has to do before it goes on
    told: int = 0  # rows that say what happened to them
    seconds: float = 0.0

    @property
    def bad(self) -> list[str]:
        kinds = ("torn", "half_written", "orphans", "lost", "wrong", "leftovers", "by_hand")
        return [f"{kind}: {one}" for kind in kinds for one in getattr(self, kind)]


def _quiet(clone: Clone) -> list[psutil.Process]:
    """Processes of the clone that are still there when patience ends."""
    deadline = time.monotonic() + QUIET_S
    while (left := processes(clone)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def inject(
    fault: str, moment: str, folder: Path, base: Path | None, truth: Rows, chance: random.Random
) -> Found:
    """One clone, one fault, the same command again, and what came of it."""
    begun = time.monotonic()
    found, mounted = Found(fault, moment), may_mount()
    clone = prepare(folder / "clone", mounted)
    if base is not None:
        for part in ("results", ".twoturn", "locks", "checkpoints"):
            shutil.copytree(base / part, clone.folder / part, dirs_exist_ok=True)
    log = folder / "run.log"
    # What follows the cells is the same for all of them; who is hit in it goes on to the article.
    targets = () if moment in LATE else (TABLE,)
    try:
        world = World(clone, start(clone, log, *targets), chance, folder, mounted)
        if not wait_for(clone, moment, world.running, chance.random()):
            found.missed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(world.running.pid, signal.SIGKILL)
            world.running.wait()
            _quiet(clone)
            return found
        before = {} if "cell" in fault else whole(clone)
        act, _ = FAULTS[fault]
        act(world)
        try:
            world.running.wait(timeout=120)
        except subprocess.TimeoutExpired:
            found.by_hand.append("the run does not end")
            os.killpg(world.running.pid, signal.SIGKILL)
        found.orphans = [" ".join(p.cmdline())[-150:] for p in _quiet(clone)]
        for undo in reversed(world.undo):
            undo()
        found.by_hand += world.problems
        arms = arms_of(clone)
        found.torn = torn(clone, arms)
        if not fault.startswith(("cell", "spec", "joined")):
            found.half_written = half_written(clone)
        after = {p: f for p, f in whole(clone).items() if clone.folder / p not in world.removed}
        _go_on(clone, world, log, found, targets)
        _compare(clone, {**before, **after}, truth, world.told, arms, found)
    finally:
        found.seconds = time.monotonic() - begun
        for process in processes(clone):
            with contextlib.suppress(psutil.Error):
                process.kill()
        if mounted:
            unmount(clone.folder)
    return found


def arms_of(clone: Clone) -> dict[str, set[str]]:
    """Series → names of the cells of a round."""
    plan = campaign.load("campaign.yaml", clone.folder).plan
    return {s.name: {f"{arm.slug}.parquet" for arm in s.arms} for s in plan.series}


def whole(clone: Clone) -> dict[Path, dict[str, bytes]]:
    arms = arms_of(clone)
    return {
        place: files
        for place, files in rounds_there(clone).items()
        if arms[place.parts[2]] <= set(files)
    }


def _go_on(clone: Clone, world: World, log: Path, found: Found, targets: tuple[str, ...]) -> None:
    """The same command again. Where files were spoiled, the cure that is told, and once more."""
    (clone.folder / "clock-offset").unlink(missing_ok=True)
    mark = log.stat().st_size
    if run(clone, log, *targets):
        if any(place.is_dir() for place in world.removed):
            found.wrong.append("a spoiled cell went through")
        return
    said = log.read_bytes()[mark:].decode(errors="replace")
    if "Traceback" in said:
        found.by_hand.append("a traceback")
    told = [line for line in said.splitlines() if line.startswith("twoturn: ")]
    cures = ("remove its round's folder", "remove it and run again")
    if world.removed and any(cure in line for line in told for cure in cures):
        for place in world.removed:
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        if run(clone, log, *targets):
            return
    found.by_hand.append(f"the next run fails: {told or said[-400:]}")


def _compare(
    clone: Clone,
    kept: Mapping[Path, Mapping[str, bytes]],
    truth: Rows,
    told: set[str],
    arms: Mapping[str, set[str]],
    found: Found,
) -> None:
    found.torn += torn(clone, arms)
    found.half_written += half_written(clone)
    now = rounds_there(clone)
    found.lost += [str(place) for place, files in kept.items() if now.get(place) != files]
    found.leftovers = leftovers(clone)
    found.orphans += [" ".join(p.cmdline())[-150:] for p in _quiet(clone)]
    seen = rows(clone)
    stopped = {key[:4] for key, row in seen.items() if row["status"] in told}
    for key in sorted({*truth, *seen}, key=str):
        one, other = truth.get(key), seen.get(key)
        if key[:4] in stopped and (other is None or other["status"] in told or one is None):
            found.told += other is not None
        elif key[0] == "warmup" and one is None:
            continue  # a second session has a warm-up round of its own
        elif one is None or other is None:
            found.wrong.append(f"{key} is {'missing' if other is None else 'new'}")
        elif differ := [name for name in SAME if one[name] != other[name]]:
            excused = told and set(differ) <= {"divergence_index", "text_gate"}  # of a lost partner
            if not excused:
                pairs = ", ".join(f"{n} {one[n]} → {other[n]}" for n in differ)
                found.wrong.append(f"{key}: {pairs}")


# --- all of them ----------------------------------------------------------------------------------


def may_mount() -> bool:
    return os.geteuid() == 0 and sys.platform == "linux" and os.environ.get("FAULTS_MOUNT") == "1"


def undisturbed(folder: Path, *targets: str) -> tuple[Rows, Path]:
    """Rows of an undisturbed campaign, and its clone without what is made of the cells."""
    clone = prepare(folder / "undisturbed", mounted=False)
    if not run(clone, folder / "undisturbed.log", *targets):
        raise SystemExit((folder / "undisturbed.log").read_text()[-3000:])
    truth = rows(clone)
    odd = [row for row in truth.values() if row["status"] != "ok"]
    assert not odd, odd[:1]
    shutil.rmtree(clone.folder / "results/faults")
    return truth, clone.folder


def draw(number: int, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Fault and moment: every fault once before any comes again."""
    names: list[str] = []
    for _ in range(number):
        if not names:
            names = [n for n in FAULTS if n != "full disk" or may_mount()]
            chance.shuffle(names)
        name = names.pop()
        yield name, chance.choice(FAULTS[name][1])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a passing one")
    parser.add_argument("--only", help="faults whose name holds this")
    wanted = parser.parse_args(argv)
    if os.geteuid() == 0 and sys.platform == "linux" and "FAULTS_MOUNT" not in os.environ:
        command = [sys.executable, "-m", "benchmarks.faults", *(argv or sys.argv[1:])]
        private = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
        env = {**os.environ, "FAULTS_MOUNT": "1" if private else "0"}
        return subprocess.run([*(["unshare", "-m"] * private), *command], env=env).returncode
    with tempfile.TemporaryDirectory(prefix="faults-") as passing:
        base = wanted.keep or Path(passing)
        return campaign_of_faults(base, wanted.faults, wanted.seed, wanted.only)


def campaign_of_faults(folder: Path, number: int, seed: int, only: str | None = None) -> int:
    chance, begun = random.Random(seed), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    truth, base = undisturbed(folder)
    print(f"undisturbed: {len(truth)} rows in {time.monotonic() - begun:.0f} s", flush=True)
    done: list[Found] = []
    plan = (one for one in draw(100 * number, chance) if only is None or only in one[0])
    with contextlib.suppress(KeyboardInterrupt):  # what is done is told all the same
        while sum(not one.missed for one in done) < number:
            fault, moment = next(plan)
            place = folder / f"{len(done) + 1:03d}"
            place.mkdir()
            found = inject(fault, moment, place, base if moment in LATE else None, truth, chance)
            done.append(found)
            state = "missed" if found.missed else "; ".join(found.bad) or "ok"
            rows = f", {found.told} rows tell it" if found.told else ""
            line = f"{len(done):3d} {found.seconds:5.1f} s  {fault} at {moment}: {state}{rows}"
            print(line, flush=True)
    told = [one for one in done if not one.missed]
    total: Counter[str] = Counter()
    for one in told:
        for kind in ("torn", "half_written", "orphans", "lost", "wrong", "leftovers", "by_hand"):
            total[kind] += len(getattr(one, kind))
        total["told"] += one.told
    print(
        f"runs {2 * len(told) + 1}, faults {len(told)}, torn rounds {total['torn']}, "
        f"half-written files {total['half_written']}, orphans {total['orphans']}, "
        f"lost cells {total['lost']}, wrong values {total['wrong']}, "
        f"passing files left {total['leftovers']}, needing a human {total['by_hand']}; "
        f"{total['told']} rows tell by their status what happened to them; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if any(one.bad for one in told) else 0


if __name__ == "__main__":
    sys.exit(main())
