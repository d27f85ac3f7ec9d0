"""Everything that can be known to be wrong before the first request."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from twoturn import (
    checkpoints,
    config,
    engines,
    lengths,
    lock,
    making,
    prefix,
    reasons,
    replay,
    servers,
    tasks,
    tokens,
    tool_templates,
)
from twoturn.bench import Say
from twoturn.campaign import Loaded
from twoturn.engines import ReadsOtherFiles, Refuses
from twoturn.engines.attached import api_key
from twoturn.errors import UserError
from twoturn.plan import Arm, Series, round_name


def check(loaded: Loaded, wanted: Sequence[Series], say: Say) -> None:
    """Raises UserError for the first fault of the series that will be measured.

    Makes checkpoints and the servers' environments, because their absence is what a first run has
    to cure.
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
        if isinstance(series.workload, config.Quality):
            file = series.workload.text
            text = (loaded.root / file).read_text(encoding="utf-8")
            tasks.check_references(tasks.parse(text, file), file)
    arms = [arm for series in wanted for arm in series.arms]
    for name in sorted({arm.checkpoint for arm in arms} | {a.draft for a in arms if a.draft}):
        making.ensure(name, loaded.campaign, loaded.root, loaded.file, say)
    for series in wanted:
        for arm in series.arms:
            _check_files(loaded, series, arm)
            _check_draft(loaded, series, arm)
        _check_recording(loaded, series)
        for line in lengths.told(loaded, series):
            say(line)
    for series in wanted:
        _check_templates(loaded, series, say)
    for name in sorted({arm.server for arm in arms}):
        server_python(loaded, name, say)
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
    for series in wanted:
        for arm in series.arms:
            _check_refusal(loaded, series, arm, say)


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
    there = [n for n in series.round_numbers() if reasons.is_there(series, n, loaded.root)]
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


def _check_refusal(loaded: Loaded, series: Series, arm: Arm, say: Say) -> None:
    """Whether the arm's server says beforehand that it will not run it."""
    engine = engines.get(loaded.campaign, arm.server)
    if not isinstance(engine, Refuses) or arm.null:
        return
    python = server_python(loaded, arm.server, say)
    target = checkpoints.folder(arm.checkpoint, loaded.campaign, loaded.file, loaded.root)
    if python is not None and (why := engine.refusal(arm, target, python)):
        raise UserError(
            why,
            file=loaded.file,
            key=f"series.{series.name}.arms.{arm.name}",
            cure="take another target or server, or leave the speculation out",
        )


def _check_templates(loaded: Loaded, series: Series, say: Say) -> None:
    """Whether each target's chat template keeps the first turn at the start of the second; where it
    does not, second turns are measured and not compared."""
    workload = series.workload
    if not isinstance(workload, config.Conversation):
        return
    text = (loaded.root / workload.text).read_text(encoding="utf-8")
    for name in sorted({arm.checkpoint for arm in series.arms}):
        place = checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root)
        if (tokenizer := tokens.load(place)) is None:
            continue
        try:
            share = prefix.expected(workload, text, tokenizer)
        except UserError as error:
            raise error.at(loaded.file, f"series.{series.name}.workload") from None
        if share < prefix.KEPT:
            say(
                f"{series.name}: the chat template of {name} keeps {share:.0%} of a first turn at "
                f"the start of the second, and less than {prefix.KEPT:.0%} is no prefix: second "
                "turns are measured and not compared (template_breaks_prefix)"
            )


def _check_recording(loaded: Loaded, series: Series) -> None:
    """Whether the chat templates of a replay say all that was recorded."""
    workload = series.workload
    if not isinstance(workload, config.Replay):
        return
    data = (loaded.root / workload.source).read_bytes()
    recording = replay.read(data, plain=workload.tools == "plain")
    for name in dict.fromkeys(arm.checkpoint for arm in series.arms):
        tokenizer = tokens.load(checkpoints.folder(name, loaded.campaign, loaded.file, loaded.root))
        if tokenizer and (what := tool_templates.fault(recording, tokenizer)):
            raise UserError(
                f"{what}, as {name} has it",
                file=loaded.file,
                key=f"series.{series.name}.workload.file",
                cure="`tools: plain` writes calls and results as text"
                if workload.tools == "template"
                else "take a checkpoint whose template takes these roles",
            )


def server_python(loaded: Loaded, server: str, say: Say) -> Path | None:
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
