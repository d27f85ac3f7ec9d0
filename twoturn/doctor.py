"""What is here and what is missing, on one screen: servers, checkpoints, texts, the machine.

It looks and starts nothing: no server, no environment, no request.
"""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from twoturn import checkpoints, config, engines, lock, machine, recipes, servers
from twoturn import session as sessions
from twoturn.engines.attached import api_key
from twoturn.errors import UserError

LOOK_S = 0.5  # how long other programs are watched
BUSY_PERCENT = 20.0  # of one core
SWAP_GB = 1.0
PRESSURE_LEVELS = {1.0: "normal", 2.0: "warning", 4.0: "critical"}  # of macOS
PROGRAMS = {"llama-cpp": "llama-server"}  # adapters whose program has another name
LINUX_LOCKS = {"llama-cpp"}  # locks whose package exists for Linux alone
WAYS = {  # to what no lock brings
    "llama-cpp": "brew install llama.cpp, then executable: llama-server",
    "omlx": "its app or formula on a Mac (github.com/jundot/omlx), then executable: omlx",
    "sglang": "pip install sglang where CUDA is, then executable: sglang, or attach it",
    "vllm": "pip install vllm where CUDA is, then executable: vllm, or attach it",
}
USUAL_PORTS = {"LM Studio": 1234, "Ollama": 11434}


@dataclass(frozen=True)
class Row:
    """One thing that was looked at. `cure` is empty where nothing has to be done."""

    name: str
    said: str
    cure: str = ""

    @property
    def fault(self) -> bool:
        return bool(self.cure)


def lines(file: str, root: Path) -> Iterator[str]:
    """The whole report. Raises UserError where the campaign itself is wrong."""
    campaign = config.load(file, root)
    engines.check(campaign, file)
    facts, state = machine.facts(), machine.state()
    chip = ", ".join(str(facts[key]) for key in ("chip", "os", "arch", "accelerator"))
    yield f"{file}, Python {platform.python_version()}"
    yield f"{chip}, {facts['cores']} cores, {facts['memory_gb']} GB"
    models = [_checkpoint(name, campaign, file, root) for name in campaign.checkpoints]
    parts = {
        "Servers of the campaign": [
            _server(name, campaign, file, root) for name in campaign.servers
        ],
        "Checkpoints": models,
        "Texts": list(_texts(campaign, file, root)),
        "Other servers": list(others(campaign, root)),
        "The machine": fitness(state, facts["cores"], busy(LOOK_S), sessions.holder()),
    }
    for title, rows in parts.items():
        yield from ["", title, *table(rows)] if rows else []
    yield ""
    needed = [row for title in list(parts)[:3] for row in parts[title]]
    missing = sum(row.fault for row in needed)
    unfit = [row.name for row in parts["The machine"] if row.fault]
    later = any("on first use" in row.said for row in needed)
    whole = "Everything is here or made on first use." if later else "Everything is here."
    yield f"{missing} to be put right before measuring" if missing else whole
    yield f"Not fit to measure now: {', '.join(unfit)}." if unfit else "Fit to measure."


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Rows in columns, a mark before what wants something done."""
    width = max(len(row.name) for row in rows)
    for row in rows:
        cure = f" → {row.cure}" if row.cure else ""
        yield f"{'!' if row.cure else ' '} {row.name:<{width}}  {row.said}{cure}"


# --- servers, checkpoints and texts ---------------------------------------------------------------


def _server(name: str, campaign: config.Campaign, file: str, root: Path) -> Row:
    entry = campaign.servers[name]
    modes = ", ".join(engines.get(campaign, name).modes)
    if entry.install is not None:
        try:
            recipe = recipes.server(name, entry, file, root, {})
        except UserError as error:
            return Row(name, error.what, error.cure or "")
        said, cure = _environment(root, recipe)
        return Row(name, f"{recipe['version']} ({modes}): {said}", cure)
    if entry.attach is not None:
        return Row(name, f"{entry.version} ({modes})", _attached(entry))
    program = str(entry.executable or (entry.command or [""])[0])
    here = program == "{python}" or shutil.which(program) is not None
    version = lock.probe(program) if entry.executable and here else entry.version
    cure = "" if here else f"{program} is not found: install it or write its full path"
    return Row(name, f"{version or 'version not known'} ({modes})", cure)


def _environment(root: Path, recipe: Mapping[str, Any]) -> tuple[str, str]:
    folder = servers.environment_folder(root, recipe["adapter"], recipe["environment_sha256"])
    if not (folder / ".complete").is_file():
        return "its environment is made on first use", ""
    if wrong := servers.environment_differences(folder, recipe["packages"]):
        return wrong[0], f"remove {servers.STATE}/envs/{folder.name}; it is made again"
    return "its environment is here", ""


def _attached(entry: config.Server) -> str:
    """What has to be done before an attached server can be measured."""
    try:
        api_key(entry.api_key_env)
    except UserError as error:
        return f"{error.what}: {error.cure}"
    there = servers.is_open(str(entry.attach))
    return "" if there else f"nobody answers at {entry.attach}: start it"


def _checkpoint(name: str, campaign: config.Campaign, file: str, root: Path) -> Row:
    made = campaign.checkpoints[name].make is not None
    try:
        folder = checkpoints.folder(name, campaign, file, root)
    except UserError as error:
        if made:
            return Row(name, "made on first use")
        return Row(name, error.what, error.cure or "")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    said = _size(size)
    if size > psutil.virtual_memory().available:
        return Row(name, said, "larger than the memory that is free now: close programs")
    return Row(name, said)


def _texts(campaign: config.Campaign, file: str, root: Path) -> Iterator[Row]:
    """Every file that prompts come from, once. A recording goes by its series: its own name may
    tell whose it is."""
    users: dict[str, dict[str, config.Workload]] = {}
    for name, series in campaign.series.items():
        users.setdefault(series.workload.source, {})[name] = series.workload
    for source, workloads in users.items():
        recordings = [name for name, one in workloads.items() if isinstance(one, config.Replay)]
        shown = f"recording of {recordings[0]}" if recordings else source
        try:
            found = [recipes.source(name, one, file, root) for name, one in workloads.items()]
        except UserError as error:
            yield Row(shown, error.what, error.cure or "")
            continue
        turns = found[0].get("turns")
        yield Row(shown, "here" if turns is None else f"{turns} requests")


def others(campaign: config.Campaign, root: Path) -> Iterator[Row]:
    """Adapters that the campaign does not use, and servers at their usual ports."""
    used = {entry.adapter_name(name) for name, entry in campaign.servers.items()}
    for name, adapter in sorted(engines.ADAPTERS.items()):
        if name in used or name in ("command", "attached"):
            continue
        modes, lock_file = ", ".join(adapter().modes), f"workflow/envs/{name}.lock"
        fits = sys.platform == "linux" or name not in LINUX_LOCKS
        if fits and (root / lock_file).is_file():
            version = recipes.environment(root / lock_file, lock_file)["packages"].get(
                recipes.CARRIERS.get(name, name)
            )
            yield Row(name, f"{version} ({modes}): to be had by install: {lock_file}")
        else:
            program = PROGRAMS.get(name, name)
            here = f"on this machine, as executable: {program}"
            there = f"not here; {WAYS[name]}" if name in WAYS else "not here"
            yield Row(name, f"({modes}): {here if shutil.which(program) else there}")
    taken = {entry.attach for entry in campaign.servers.values()}
    for name, port in USUAL_PORTS.items():
        address = f"http://127.0.0.1:{port}"
        if address not in taken and servers.is_open(address):
            yield Row(name, f"somebody answers at its usual port: attach: {address}")


# --- the machine ----------------------------------------------------------------------------------


def busy(seconds: float) -> list[str]:
    """Programs that took a fifth of a core or more meanwhile, the busiest three."""
    watched = [
        process for process in psutil.process_iter(["name"]) if process.pid != psutil.Process().pid
    ]
    for process in watched:
        _percent(process)
    time.sleep(seconds)
    found = [(_percent(process), str(process.info["name"])) for process in watched]
    return [
        f"{name} {percent:.0f} %"
        for percent, name in sorted(found, reverse=True)[:3]
        if percent >= BUSY_PERCENT
    ]


def _percent(process: psutil.Process) -> float:
    try:
        return process.cpu_percent()
    except psutil.Error:
        return 0.0


def fitness(
    state: Mapping[str, Any], cores: int, programs: Iterable[str], holder: str | None
) -> list[Row]:
    """What may disturb a measurement now; `state` is that of `machine.state`.

    An eighth of the cores, at least half a core, may be at work: the system itself is.
    """
    plugged, low, pressure = (
        state[key] for key in ("power_plugged", "low_power_mode", "memory_pressure")
    )
    load, swap = state["load_1min"], state["swap_used"] / 2**30
    working = list(programs)
    others = f" ({', '.join(working)})" if working else ""
    return [
        Row("power", _word(plugged, "mains", "battery"), "plug it in" if plugged is False else ""),
        Row("low-power mode", _word(low, "on", "off"), "switch it off" if low else ""),
        _memory_pressure(pressure),
        Row("memory", f"{_size(state['memory_available'])} free"),
        Row(
            "swap",
            f"{swap:.1f} GB in use",
            "memory was short: close programs or restart" if swap > SWAP_GB else "",
        ),
        Row(
            "load",
            f"{load:.1f} of {cores} cores in the last minute{others}",
            "wait or end other work" if working or load > max(0.5, cores / 8) else "",
        ),
        Row(
            "other measurement",
            holder or "none",
            "wait until it ends: two would measure each other" if holder else "",
        ),
    ]


def _memory_pressure(pressure: float | None) -> Row:
    name, cure = "memory pressure", "close programs"
    if pressure is None:
        return Row(name, "not known")
    if pressure in PRESSURE_LEVELS:  # a share of 1 cannot be told from level 1, nor does it happen
        return Row(name, PRESSURE_LEVELS[pressure], cure if pressure > 1 else "")
    return Row(name, f"{pressure:.0%} of the last 10 s", cure if pressure > 0.01 else "")


def _word(value: bool | None, yes: str, no: str) -> str:
    return "not known" if value is None else yes if value else no


def _size(size: float) -> str:
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.0f} MB"
