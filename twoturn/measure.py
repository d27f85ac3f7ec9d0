"""One round of one series: its arms one after the other, each against a server of its own.

The cells of a round appear together or not at all. The first round of a session is preceded by a
discarded warm-up round, the last one of a series is followed by the control: the reference once
more. Both are kept beside the round's cells as kinds of their own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twoturn import (
    bench,
    cells,
    checkpoints,
    cold_texts,
    engines,
    files,
    machine,
    privacy,
    reasons,
    scoring,
    servers,
    text_gate,
    weights,
    workloads,
)
from twoturn.bench import Cell, Round, Say
from twoturn.campaign import Loaded
from twoturn.engines import Place, attached
from twoturn.errors import UserError
from twoturn.plan import Arm, Series, round_name
from twoturn.preflight import server_python
from twoturn.sending import send_workload
from twoturn.session import Session

NOT_KEPT = "A server may log what it is asked, so its log is not kept beside a recording.\n"
SERVERS_WORDS = {
    *("unauthorized", "not_ready", "http_error", "server_error", "connection_lost", "wrong_model"),
}
"""Statuses of requests whose reason is in the server's words."""
SAID = ("reason", "model", "failed_because")
"""What a server says may hold paths of the machine, or the key that it was sent; what Python says
of a model's code may name the file of a module."""

# --- one round -----------------------------------------------------------------------------------


def run_round(
    loaded: Loaded, series: Series, number: int, session: Session, log_folder: Path, say: Say
) -> None:
    """Measure one round and publish its cells. Raises UserError."""
    folder = loaded.root / series.directory
    previous = folder / round_name(number - 1)
    # Snakemake makes the folder of an output before its job runs: an empty one is no round.
    if number > 1 and not reasons.is_there(series, number - 1, loaded.root):
        raise UserError(
            f"round {number} of {series.name} cannot be measured before round {number - 1}",
            cure="run the workflow, which keeps the order",
        )
    text = (loaded.root / series.workload.source).read_text(encoding="utf-8")
    this = Round(
        loaded,
        series,
        number,
        session,
        number == 1 or _session_of(previous) != session.id,
        {arm.server: server_python(loaded, arm.server, say) for arm in series.arms},
        text,
        log_folder,
        say,
        workloads.extra(series.workload, text),
    )
    _clear_leftovers(folder)
    reasons.write_spec(series, loaded.root)
    warmed = loaded.root / servers.STATE / "warmed"  # the session that has measured a round
    weights.keep(_sizes(loaded, series), folder / weights.FILE)
    with _staging(folder, number) as staging:
        timed = series.workload.timed
        if timed and _says(warmed) != session.id:
            warm_up = _measure_arms(this, series.order(number), "warmup")
            _write_cells(this, warm_up, staging / "warmup")
        measured = _measure_arms(this, series.order(number), "round")
        cold_texts.compare(this, measured, measured)
        if number == series.rounds:
            control = _measure_arms(this, [series.reference], "control")
            if not timed:  # else its prompts are new
                cold_texts.compare(this, control, measured)
            _write_cells(this, control, staging / "control")
        cold_texts.judge(this, measured)  # its cold servers run when nothing is timed any more
        _write_cells(this, measured, staging)
        _publish(staging, folder / round_name(number))
    if timed:
        warmed.write_text(session.id, encoding="utf-8")


def _measure_arms(this: Round, names: Sequence[str], kind: str) -> list[Cell]:
    measured = []
    for position, name in enumerate(names):
        this.say(f"{kind} {this.number}: {name} ({position + 1} of {len(names)})")
        measured.append(_measure_cell(this, this.series.arm(name), kind, position))
    return measured


def _write_cells(this: Round, measured: Sequence[Cell], folder: Path) -> None:
    for cell in measured:
        root, secrets = this.loaded.root, cell.secrets
        metadata = privacy.redact_all(cell.metadata, root, secrets)
        rows = [
            row | privacy.redact_all({name: row.get(name) for name in SAID}, root, secrets)
            for row in (map(_without_words, cell.rows) if this.private else cell.rows)
        ]
        cells.write(cells.table(rows, metadata), folder / f"{cell.arm.slug}.parquet")


def _without_words(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what its server said: an error may repeat the prompt."""
    if row["status"] not in SERVERS_WORDS:
        return row
    return row | {"reason": "what the server said is not kept", "model": None}


# --- one cell ------------------------------------------------------------------------------------


def _measure_cell(this: Round, arm: Arm, kind: str, position: int) -> Cell:
    """Start the arm's server, send the workload, stop the server. A fault becomes a row.

    Raises UserError if a server does not even start while the session has measured nothing of the
    series: then little is lost, and somebody should look.
    """
    engine = engines.get(this.loaded.campaign, arm.server)
    python = this.pythons[arm.server]
    cell = Cell(arm)
    facts = _row_facts(this, arm, kind, position)
    before = machine.state()
    server_log = this.log_folder / f"{kind}-{arm.slug}.server.log"
    server_log.parent.mkdir(parents=True, exist_ok=True)
    with bench.cell_folder(this.loaded.root) as folder:
        raw_log = folder / "server.log"
        place, launch = bench.place(this, arm, folder), None
        try:
            launch = engine.launch(arm, place)
            cell.secrets = tuple(filter(None, (launch.api_key,)))
            with servers.run(launch, place.port, raw_log) as running:
                said, wrong = engine.read_back(running, arm)
                if wrong:
                    raise servers.ServerFault("wrong_settings", "; ".join(wrong))
                send_workload(this, engine, cell, running, {**facts, "load_s": running.load_s})
                cell.metadata["settings_read_back"] = said
            if any(row["status"] != "ok" for row in cell.rows) and not this.private:
                cell.metadata["log_tail"] = servers.log_tail(raw_log)
        except servers.ServerFault as fault:
            tail = fault.log_tail or servers.log_tail(raw_log)
            fault = _redacted(fault, this.loaded.root, cell.secrets)
            tail = privacy.redact(tail, this.loaded.root, cell.secrets)
            _or_give_up(this, arm, kind, fault, tail)
            cell.rows.append({**_fault_row(facts, fault), "turn": 1, "prompt_id": cells.NO_PROMPT})
            cell.requests.append(text_gate.Request(arm, (), ""))
            cell.metadata["log_tail"] = tail
        finally:
            if this.private and cell.requests:
                server_log.write_text(NOT_KEPT, encoding="utf-8")
            else:
                _keep_log(raw_log, server_log, this.loaded.root, cell.secrets)
    cell.metadata |= {
        "fingerprint": this.series.fingerprint,
        "kind": kind,
        "round": this.number,
        "order": list(this.series.order(this.number)),
        "seed": this.series.workload.seed,
        "recipe": this.series.spec["arms"][arm.name],
        "trained_block": bench.trained_block(this, arm),
        "machine": this.series.spec["machine"],
        "command_line": _shown(launch.argv, place) if launch and launch.argv else None,
        "settings": dict(launch.settings) if launch else None,
        "metallib_sha256": servers.metallib_sha256(python) if python else None,
        "environment_before": before,
        "environment_after": machine.state(),
        "session": this.session.id,
    }
    scoring.score(this, cell)
    return cell


def _row_facts(this: Round, arm: Arm, kind: str, position: int) -> dict[str, Any]:
    return {
        "series": this.series.name,
        "arm": arm.name,
        "checkpoint": arm.checkpoint,
        "server": arm.server,
        "server_version": arm.version,
        "speculation": arm.speculation,
        "block_size": arm.block_size,
        "round": this.number,
        "position": position,
        "kind": kind,
        "session_id": this.session.id,
    }


def _shown(argv: Sequence[str], place: Place) -> list[str]:
    """A command line without the places of our own Python and of a program of this machine."""
    names = {sys.executable: "python"}
    if place.executable:
        names[str(place.executable)] = place.executable.name
    return [names.get(word, word) for word in argv]


def _redacted(
    fault: servers.ServerFault, root: Path, secrets: tuple[str, ...]
) -> servers.ServerFault:
    return servers.ServerFault(fault.status, privacy.redact(str(fault), root, secrets))


def _fault_row(facts: Mapping[str, Any], fault: servers.ServerFault) -> dict[str, Any]:
    return {
        **facts,
        "status": fault.status,
        "reason": str(fault)[:300],
        "started_at": datetime.now(UTC),
        "start_monotonic_s": time.monotonic(),
        "wall_minus_monotonic_s": 0.0,
    }


def _or_give_up(this: Round, arm: Arm, kind: str, fault: servers.ServerFault, tail: str) -> None:
    if not this.opening:
        return
    if arm.attached:
        raise UserError(
            str(fault),
            file=this.loaded.file,
            key=f"servers.{arm.server}",
            cure=attached.cure(fault.status, this.loaded.campaign.servers[arm.server].api_key_env),
        )
    last = tail.splitlines()[-1:] or ["no log"]
    raise UserError(
        f"{fault} (last line of its log: {last[0]})",
        file=this.loaded.file,
        key=f"series.{this.series.name}.arms.{arm.name}",
        cure=f"see {this.log_folder}/{kind}-{arm.slug}.server.log",
    )


def _sizes(loaded: Loaded, series: Series) -> dict[str, weights.Precision]:
    """What the weights of the series' checkpoints take, told from the files that its servers read.
    What no reader knows is left out."""
    found = {}
    for arm in series.arms:
        engine = engines.get(loaded.campaign, arm.server)
        for name in filter(None, (arm.checkpoint, arm.draft)):
            folder = checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root)
            with contextlib.suppress(UserError):  # servers judge their weights themselves
                if isinstance(engine, engines.ReadsOtherFiles):
                    found[name] = weights.count_gguf(engine.weights(folder))
                elif (size := weights.counted(folder)) is not None:
                    found[name] = size
    return found


# --- files ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _staging(folder: Path, number: int) -> Iterator[Path]:
    """A passing folder on the same file system, gone unless it is published."""
    staging = folder / f".{round_name(number)}.{os.getpid()}"
    staging.mkdir(parents=True)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _publish(staging: Path, folder: Path) -> None:
    """The whole round appears at once. What an earlier, broken run left there goes first."""
    if folder.exists():
        shutil.rmtree(folder)
    files.sync(staging)
    staging.rename(folder)
    files.sync(folder.parent)


def _clear_leftovers(folder: Path) -> None:
    """Staging folders of processes that are gone."""
    for path in folder.glob(".[0-9]*.*"):
        owner = path.name.rsplit(".", 1)[-1]
        if files.is_left(owner):
            shutil.rmtree(path, ignore_errors=True)


def _says(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _session_of(folder: Path) -> str | None:
    """The session in which a round was measured."""
    for file in sorted(folder.glob("*.parquet")):
        _, metadata = cells.read(file)
        return str(metadata["session"])
    return None


def _keep_log(source: Path, target: Path, root: Path, secrets: tuple[str, ...]) -> None:
    with contextlib.suppress(OSError):
        text = source.read_text(encoding="utf-8", errors="replace")
        # Cut last: half a key would not be found.
        target.write_text(privacy.redact(text, root, secrets)[-1_000_000:], encoding="utf-8")
