"""One round of one series: its arms one after the other, each against a server of its own.

The cells of a round appear together or not at all. The first round of a session is preceded by a
discarded warm-up round, the last one of a series is followed by the control: the reference once
more. Both are kept beside the round's cells as kinds of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from twoturn import (
    cells,
    checkpoints,
    client,
    engines,
    lock,
    machine,
    making,
    metrics,
    privacy,
    reasons,
    servers,
    text_gate,
    tokens,
    workloads,
)
from twoturn.campaign import Loaded
from twoturn.engines import Engine, LogsLate, Place, ReadsOtherFiles
from twoturn.engines.attached import api_key
from twoturn.engines.base import find
from twoturn.errors import UserError
from twoturn.plan import Arm, Series, round_name
from twoturn.session import Session
from twoturn.stream import Answer

SLEPT_S = 1.0  # clocks that part by more mean that the machine slept
WARM_UP_TOKENS = 32
COLD_TOKENS = 16  # shared with the warm-up request by chance, beside the template's own first ones
Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """Everything that the cells of one round share. `opening`: the session has measured nothing of
    the series yet. `pythons`: server → the Python of its environment, or None."""

    loaded: Loaded
    series: Series
    number: int
    session: Session
    opening: bool
    pythons: Mapping[str, Path | None]
    text: str
    log_folder: Path
    say: Say


@dataclass
class Cell:
    """One arm measured once: rows for the file, of each what was asked and answered, and what must
    not be written down."""

    arm: Arm
    rows: list[dict[str, Any]] = field(default_factory=list)
    requests: list[text_gate.Request] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = field(default=(), repr=False)


# --- before anything is measured -----------------------------------------------------------------


def preflight(loaded: Loaded, wanted: Sequence[Series], say: Say) -> None:
    """Everything that can be known to be wrong before the first request. Raises UserError.

    Makes the servers' environments, because their absence is what a first run has to cure.
    """
    if not wanted:
        return
    seen = lock.observe(loaded.campaign, loaded.root)
    if wrong := lock.differences(dict(loaded.lock), seen):
        name = loaded.campaign.machine
        if lock.other_system(dict(loaded.lock), seen):
            raise UserError(
                f"this campaign is measured on {lock.described(dict(loaded.lock))}, and this is "
                f"{lock.described(seen)}",
                file=lock.path(name),
                cure="run it there; `make plan` and `make tell` work everywhere",
            )
        raise UserError(
            f"the lock is not of this machine as it is now ({'; '.join(wrong)})",
            file=lock.path(name),
            cure="measure on its machine, or renew it: "
            f"`make lock MACHINE={name} CAMPAIGN={loaded.file}`",
        )
    for series in wanted:
        _check_order(loaded, series)
    arms = [arm for series in wanted for arm in series.arms]
    for name in sorted({arm.checkpoint for arm in arms} | {a.draft for a in arms if a.draft}):
        making.ensure(name, loaded.campaign, loaded.root, loaded.file, say)
    for series in wanted:
        for arm in series.arms:
            _check_files(loaded, series, arm)
            _check_draft(loaded, series, arm)
    for name in sorted({arm.server for arm in arms}):
        _server_python(loaded, name, say)
        _check_attached(loaded, name)
        entry = loaded.campaign.servers[name]
        command = entry.command[0] if entry.command else None
        for key, program in (("command", command), ("executable", entry.executable)):
            if program not in (None, "{python}") and shutil.which(str(program)) is None:
                raise UserError(
                    f"the program {program!r} is not found on this machine",
                    file=loaded.file,
                    key=f"servers.{name}.{key}",
                    cure="install it or write its full path",
                )


def _check_attached(loaded: Loaded, name: str) -> None:
    entry = loaded.campaign.servers[name]
    if entry.attach is None:
        return
    try:
        api_key(entry.api_key_env)
    except UserError as error:
        raise error.at(loaded.file, f"servers.{name}.api_key_env") from None
    if not servers.is_open(entry.attach):
        raise UserError(
            f"nobody answers at {entry.attach}",
            file=loaded.file,
            key=f"servers.{name}.attach",
            cure="start it, then run again; it is neither started nor stopped here",
        )


def _check_order(loaded: Loaded, series: Series) -> None:
    """A round that is measured after a later one breaks the order, and the series with it."""
    first = reasons.missing_rounds(series, loaded.root)[:1]
    there = [n for n in series.round_numbers() if _is_there(loaded, series, n)]
    if first and there and there[-1] > first[0]:
        raise UserError(
            f"round {first[0]} of {series.name} is missing and round {there[-1]} is there: "
            "measured now it would break the order",
            file=f"{series.directory}/{round_name(first[0])}",
            cure="restore it, or remove the folders of the later rounds and run again",
        )


def _check_files(loaded: Loaded, series: Series, arm: Arm) -> None:
    """Whether the server can read what the arm's checkpoints hold."""
    engine = engines.get(loaded.campaign, arm.server)
    if not isinstance(engine, ReadsOtherFiles):
        return
    for name in filter(None, (arm.checkpoint, arm.draft)):
        try:
            engine.weights(checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root))
        except UserError as error:
            raise UserError(
                f"{arm.server} cannot read {name}: {error.what}",
                file=loaded.file,
                key=f"series.{series.name}.arms.{arm.name}",
                cure=error.cure,
            ) from None


def _check_draft(loaded: Loaded, series: Series, arm: Arm) -> None:
    server = loaded.campaign.servers[arm.server]
    if server.command is not None or server.attach is not None:
        return  # what a command, or who started a server, makes of a draft is their own affair

    def folder(name: str) -> Path:
        return checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root)

    target = folder(arm.checkpoint)
    try:
        if arm.draft is not None:
            making.check_draft(target, folder(arm.draft), arm.speculation, arm.block_size)
        elif arm.speculation == "mtp":
            making.check_head(target)
    except UserError as error:
        raise error.at(loaded.file, f"series.{series.name}.arms.{arm.name}") from None


def _server_python(loaded: Loaded, server: str, say: Say) -> Path | None:
    """The Python of the server's own environment, made and checked, or None where it has none."""
    entry = loaded.campaign.servers[server]
    if entry.install is None:
        return None
    recipe = loaded.recipes["servers"][server]
    folder = servers.environment_folder(
        loaded.root, recipe["adapter"], recipe["environment_sha256"]
    )
    python = servers.ensure_environment(loaded.root, entry.install, folder, say)
    if wrong := servers.environment_differences(folder, recipe["packages"]):
        raise UserError(
            f"the environment of {server} is not what its lock file pins ({'; '.join(wrong[:3])})",
            file=entry.install,
            cure=f"remove {servers.STATE}/envs/{folder.name} and run again",
        )
    return python


# --- one round -----------------------------------------------------------------------------------


def run_round(
    loaded: Loaded, series: Series, number: int, session: Session, log_folder: Path, say: Say
) -> None:
    """Measure one round and publish its cells. Raises UserError."""
    folder = loaded.root / series.directory
    previous = folder / round_name(number - 1)
    # Snakemake makes the folder of an output before its job runs: an empty one is no round.
    if number > 1 and not _is_there(loaded, series, number - 1):
        raise UserError(
            f"round {number} of {series.name} cannot be measured before round {number - 1}",
            cure="run the workflow, which keeps the order",
        )
    this = Round(
        loaded,
        series,
        number,
        session,
        number == 1 or _session_of(previous) != session.id,
        {arm.server: _server_python(loaded, arm.server, say) for arm in series.arms},
        (loaded.root / series.workload.text).read_text(encoding="utf-8"),
        log_folder,
        say,
    )
    _clear_leftovers(folder)
    _write_spec(folder / "spec.json", series, loaded.root)
    warmed = loaded.root / servers.STATE / "warmed"  # the session that has measured a round
    with _staging(folder, number) as staging:
        if not warmed.is_file() or warmed.read_text(encoding="utf-8") != session.id:
            warm_up = _measure_arms(this, series.order(number), "warmup")
            _write_cells(this, warm_up, staging / "warmup")
        measured = _measure_arms(this, series.order(number), "round")
        if number == series.rounds:
            control = _measure_arms(this, [series.reference], "control")
            _write_cells(this, control, staging / "control")
        _pass_text_gate(this, measured)  # its cold servers run when nothing is timed any more
        _write_cells(this, measured, staging)
        _publish(staging, folder / round_name(number))
    warmed.write_text(session.id, encoding="utf-8")


def _is_there(loaded: Loaded, series: Series, number: int) -> bool:
    return all((loaded.root / cell).is_file() for cell in series.cells(number))


def _measure_arms(this: Round, names: Sequence[str], kind: str) -> list[Cell]:
    measured = []
    for position, name in enumerate(names):
        this.say(f"{kind} {this.number}: {name} ({position + 1} of {len(names)})")
        measured.append(_measure_cell(this, this.series.arm(name), kind, position))
    _compare_texts(this, measured)
    return measured


def _write_cells(this: Round, measured: Sequence[Cell], folder: Path) -> None:
    for cell in measured:
        root, secrets = this.loaded.root, cell.secrets
        metadata = privacy.redact_all(cell.metadata, root, secrets)
        rows = [
            # What a server says may hold paths of the machine, or the key that it was sent.
            row | privacy.redact_all({k: row.get(k) for k in ("reason", "model")}, root, secrets)
            for row in cell.rows
        ]
        cells.write(cells.table(rows, metadata), folder / f"{cell.arm.slug}.parquet")


# --- texts ---------------------------------------------------------------------------------------


def _answers(measured: Sequence[Cell]) -> list[tuple[dict[str, Any], text_gate.Request]]:
    """Valid rows with what was asked and answered."""
    return [
        (row, request)
        for cell in measured
        for row, request in zip(cell.rows, cell.requests, strict=True)
        if row["status"] == "ok"
    ]


def _compare_texts(this: Round, measured: Sequence[Cell]) -> None:
    """Fill in where each answer first differs from the reference arm's, in characters; null where
    it is the same, or where one of the two is no valid answer."""
    answers = _answers(measured)
    of_reference = {
        (row["prompt_id"], row["turn"]): request.text
        for row, request in answers
        if request.arm.name == this.series.reference
    }
    for row, request in answers:
        if (other := of_reference.get((row["prompt_id"], row["turn"]))) is not None:
            row["divergence_index"] = text_gate.first_difference(request.text, other)


def _pass_text_gate(this: Round, measured: Sequence[Cell]) -> None:
    """Fill in whether greedy texts are right; a row that is wrong when warm is no measurement."""
    if this.series.workload.temperature > 0:
        return  # samples differ rightly
    answers = [(row, request) for row, request in _answers(measured) if row["kind"] == "round"]
    arms = sorted(this.series.arms, key=lambda arm: arm.name != this.series.reference)
    found = text_gate.examine([request for _, request in answers], arms, _Cold(this))
    for (row, request), finding in zip(answers, found, strict=True):
        row["text_gate"] = finding.verdict
        if finding.other is None:
            continue
        tokenizer = _tokenizer(this, request.arm)
        encode: Callable[[str], Sequence[Any]] = tokenizer.encode if tokenizer else str.split
        place = text_gate.first_difference(encode(request.text), encode(finding.other))
        row["divergence_token"] = None if place is None else place + 1
        if finding.verdict == "wrong_when_warm":
            row["status"] = finding.verdict
            since = "" if place is None else f", from token {place + 1} on"
            row["reason"] = f"turn {row['turn']} is not what a fresh server writes{since}"


class _Cold:
    """What a fresh server of an arm answers to messages that are the first that it is sent, or None
    if it gives no whole answer. The same question is asked once.

    None too where no such server can be had: one that already ran cannot be started afresh, and not
    every server can do without speculation."""

    def __init__(self, this: Round) -> None:
        self.this = this
        self.known: dict[tuple[str, text_gate.Messages], str | None] = {}

    def __call__(self, arm: Arm, messages: text_gate.Messages) -> str | None:
        modes = engines.get(self.this.loaded.campaign, arm.server).modes
        if arm.attached or arm.speculation not in modes:
            return None
        recipe = dataclasses.replace(arm, name="", null=False)  # copies of an arm answer alike
        key = (repr(recipe), messages)
        if key not in self.known:
            self.this.say(f"cold run {self.this.number}: {arm.name}, {arm.speculation}")
            self.known[key] = self._ask(arm, messages)
        return self.known[key]

    def _ask(self, arm: Arm, messages: text_gate.Messages) -> str | None:
        this, found = self.this, list[str | None]()

        def ask(
            base_url: str, model: str, timeout_s: float, api_key: str | None
        ) -> tuple[int, dict[str, Any] | None]:
            sent = _send(this, base_url, model, api_key, messages, None)
            if sent.answer.http_status != 200:
                return sent.answer.http_status, {"error": sent.answer.error}
            wanted = metrics.Wanted(model, this.series.workload.max_tokens, None)
            whole = metrics.measure(sent.answer, wanted).status == "ok"
            found.append(sent.answer.full_text if whole else None)
            return 200, {"choices": [None]}

        try:
            with _cell_folder(this.loaded.root) as folder:
                place = _place(this, arm, folder, this.pythons[arm.server])
                launch = engines.get(this.loaded.campaign, arm.server).launch(arm, place)
                with servers.run(launch, place.port, folder / "server.log", ask):
                    return found[-1]
        except servers.ServerFault as fault:
            this.say(f"cold run {this.number}: {arm.name}: {fault}")
            return None


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
    with _cell_folder(this.loaded.root) as folder:
        raw_log = folder / "server.log"
        place, launch = _place(this, arm, folder, python), None
        try:
            launch = engine.launch(arm, place)
            cell.secrets = tuple(filter(None, (launch.api_key,)))
            with servers.run(launch, place.port, raw_log) as running:
                said, wrong = engine.read_back(running, arm)
                if wrong:
                    raise servers.ServerFault("wrong_settings", "; ".join(wrong))
                _send_workload(this, engine, cell, running, {**facts, "load_s": running.load_s})
                cell.metadata["settings_read_back"] = said
            if any(row["status"] != "ok" for row in cell.rows):
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
            _keep_log(raw_log, server_log, this.loaded.root, cell.secrets)
    cell.metadata |= {
        "fingerprint": this.series.fingerprint,
        "kind": kind,
        "round": this.number,
        "order": list(this.series.order(this.number)),
        "seed": this.series.workload.seed,
        "recipe": this.series.spec["arms"][arm.name],
        "machine": this.series.spec["machine"],
        "command_line": _shown(launch.argv, place) if launch and launch.argv else None,
        "settings": dict(launch.settings) if launch else None,
        "metallib_sha256": servers.metallib_sha256(python) if python else None,
        "environment_before": before,
        "environment_after": machine.state(),
        "session": this.session.id,
    }
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


def _place(this: Round, arm: Arm, folder: Path, python: Path | None) -> Place:
    loaded = this.loaded
    models = {}
    (folder / "models").mkdir()
    for name in filter(None, (arm.checkpoint, arm.draft)):
        target = checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root)
        (folder / "models" / name).symlink_to(target)
        models[name] = f"models/{name}"
    # Code that a server compiles for itself lasts as long as its environment, as bytecode does;
    # made anew for each cell, the compiler would run inside the first requests.
    tmp = python.parent.parent / "tmp" if python else folder / "tmp"
    tmp.mkdir(exist_ok=True)
    (folder / "home").mkdir()
    named = loaded.campaign.servers[arm.server].executable
    executable = Path(find(named)).absolute() if named else None
    return Place(loaded.root, folder, servers.free_port(), python, tmp, models, executable)


def _send_workload(
    this: Round, engine: Engine, cell: Cell, running: servers.Running, facts: Mapping[str, Any]
) -> None:
    """A warm-up request of the same shape, then every turn of every dialogue, one at a time."""
    workload, arm = this.series.workload, cell.arm
    tokenizer = _tokenizer(this, arm)
    cold = COLD_TOKENS + (tokenizer.shared() if tokenizer else 0)
    warm_up = workload.model_copy(update={"prompts": 1, "turns": 1, "kind": "chat"})
    short = min(WARM_UP_TOKENS, workload.max_tokens)
    key = f"{round_name(this.number)}-{facts['kind']}"
    for dialogue in workloads.dialogues(warm_up, this.text, tokenizer, f"{key}-warmup"):
        send = _Sender(this, engine, arm, running, tokenizer, short)
        messages: text_gate.Messages = (("user", dialogue.messages[0]),)
        row, answer = send(messages, dialogue.prompt_tokens)
        place = {"turn": 1, "prompt_id": f"{dialogue.prompt_id}-warmup", "kind": "warmup"}
        cell.rows.append({**facts, **row, **place})
        cell.requests.append(text_gate.Request(arm, messages, answer.full_text))
    send = _Sender(this, engine, arm, running, tokenizer, workload.max_tokens)
    for dialogue in workloads.dialogues(workload, this.text, tokenizer, key):
        messages = ()
        for turn, user in enumerate(dialogue.messages, start=1):
            messages += (("user", user),)
            expected = tokenizer.count(_as_sent(messages)) if tokenizer else None
            row, answer = send(messages, expected)
            if turn == 1 and row["status"] == "ok" and (row["cached_tokens"] or 0) > cold:
                reason = f"{row['cached_tokens']} tokens of a new prompt came from a cache"
                # Nothing cold is claimed of a server that already ran, so its row stays valid.
                row |= {"reason": reason} | ({} if arm.attached else {"status": "not_cold"})
            cell.rows.append({**facts, **row, "turn": turn, "prompt_id": dialogue.prompt_id})
            cell.requests.append(text_gate.Request(arm, messages, answer.full_text))
            messages += (("assistant", answer.text),)


def _tokenizer(this: Round, arm: Arm) -> tokens.ChatTokenizer | None:
    loaded = this.loaded
    return tokens.load(
        checkpoints.folder(arm.checkpoint, loaded.campaign, loaded.file, loaded.root)
    )


def _as_sent(messages: text_gate.Messages) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


def _send(
    this: Round,
    base_url: str,
    model: str,
    api_key: str | None,
    messages: text_gate.Messages,
    prompt_tokens: int | None,
    max_tokens: int | None = None,
) -> client.Sent:
    """One streamed request of the series' workload; its own length where none is given."""
    workload = this.series.workload
    max_tokens = workload.max_tokens if max_tokens is None else max_tokens
    body = {
        "model": model,
        "messages": _as_sent(messages),
        "max_tokens": max_tokens,
        "temperature": workload.temperature,
    }
    guess = prompt_tokens or sum(len(content) for _, content in messages) // 3
    timeouts = client.Timeouts.scaled(guess, max_tokens)
    return client.stream_chat(base_url, body, timeouts, api_key=api_key)


@dataclass(frozen=True)
class _Sender:
    """Sends one request and makes its row."""

    this: Round
    engine: Engine
    arm: Arm
    running: servers.Running
    tokenizer: tokens.ChatTokenizer | None
    max_tokens: int

    def __call__(
        self, messages: text_gate.Messages, prompt_tokens: int | None
    ) -> tuple[dict[str, Any], Answer]:
        running = self.running
        log = servers.LogTail(running.log_file)
        sent = _send(
            self.this,
            running.base_url,
            running.model,
            running.api_key,
            messages,
            prompt_tokens,
            self.max_tokens,
        )
        wanted = metrics.Wanted(running.model, self.max_tokens, prompt_tokens)
        encode = self.tokenizer.encode if self.tokenizer else None
        measured = metrics.measure(sent.answer, wanted, encode)
        engine = self.engine
        said = log.when(engine.logged) if isinstance(engine, LogsLate) else log.since()
        telemetry = engine.telemetry(sent.answer, said)
        row = {
            **dataclasses.asdict(measured),
            **engines.scale(telemetry, measured.completion_tokens),
            "server_decode_tok_s": telemetry.decode_tok_s,
            "server_ttft_s": telemetry.ttft_s,
            "started_at": sent.started_at,
            "start_monotonic_s": sent.start_monotonic_s,
            "wall_minus_monotonic_s": sent.wall_minus_monotonic_s,
        }
        fault = self._fault(telemetry, sent.wall_minus_monotonic_s)
        if row["status"] == "ok" and fault:
            row["status"], row["reason"] = fault
        return row, sent.answer

    def _fault(self, telemetry: engines.Telemetry, clocks_apart_s: float) -> tuple[str, str] | None:
        """What the stream alone cannot tell."""
        if abs(clocks_apart_s) > SLEPT_S:
            return "slept", f"wall and monotonic clock part by {clocks_apart_s:.1f} s"
        if self.arm.speculation != "none" and not telemetry.speculated:
            return "spec_inactive", "no sign that speculation ran"
        if self.arm.speculation == "none" and telemetry.speculated:
            return "spec_unexpected", "speculation ran though it was not asked for"
        return None


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
            cure="let it answer as the campaign says, then run again",
        )
    last = tail.splitlines()[-1:] or ["no log"]
    raise UserError(
        f"{fault} (last line of its log: {last[0]})",
        file=this.loaded.file,
        key=f"series.{this.series.name}.arms.{arm.name}",
        cure=f"see {this.log_folder}/{kind}-{arm.slug}.server.log",
    )


# --- files ---------------------------------------------------------------------------------------


def _write_spec(file: Path, series: Series, root: Path) -> None:
    """What the fingerprint covers, in words of JSON, so that a later change can be explained."""
    if file.is_file():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".spec.{os.getpid()}")
    spec = privacy.redact_all(dict(series.spec), root)
    partial.write_text(json.dumps(spec, indent=1, sort_keys=True), encoding="utf-8")
    partial.replace(file)


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
    _sync(staging)
    staging.rename(folder)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear_leftovers(folder: Path) -> None:
    """Staging folders of processes that are gone."""
    for path in folder.glob(".[0-9]*.*"):
        owner = path.name.rsplit(".", 1)[-1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)


def _session_of(folder: Path) -> str | None:
    """The session in which a round was measured."""
    for file in sorted(folder.glob("*.parquet")):
        _, metadata = cells.read(file)
        return str(metadata["session"])
    return None


@contextlib.contextmanager
def _cell_folder(root: Path) -> Iterator[Path]:
    """The fresh folder that one server lives in; those of dead processes go on the way."""
    base = root / servers.STATE / "cells"
    base.mkdir(parents=True, exist_ok=True)
    for path in base.iterdir():
        owner = path.name.split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)
    folder = base / f"{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_log(source: Path, target: Path, root: Path, secrets: tuple[str, ...]) -> None:
    with contextlib.suppress(OSError):
        text = source.read_text(encoding="utf-8", errors="replace")
        # Cut last: half a key would not be found.
        target.write_text(privacy.redact(text, root, secrets)[-1_000_000:], encoding="utf-8")
