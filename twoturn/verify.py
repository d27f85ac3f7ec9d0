"""Whether a tree of results is what the plan says: whole, in order, of the right fingerprint.

    twoturn verify [CAMPAIGN]

Nothing is written and nothing measured. Three kinds of findings: *missing* is planned and not
there; *foreign* is there and nobody's; *broken* is there and cannot be believed. Each says its
cure. What another campaign or an earlier version measured lies in the same tree and is held to the
same, except to today's plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from twoturn import cells, config, plan, weights
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.plan import Series, round_name
from twoturn.reasons import SPEC, spec_text

CELLS = "results/cells"
_PLACE = re.compile(
    r"(?P<series>[a-z][a-z0-9_.-]*)/(?P<fingerprint>[0-9a-f]{12})/"
    rf"(?:{re.escape(SPEC)}|{re.escape(weights.FILE)}|"
    r"(?P<round>\d\d+)/(?:(?P<kind>warmup|control)/)?(?P<arm>[a-z][a-z0-9_.-]*)\.parquet)"
)
_HIDDEN_WORDS = ("~", "<user>", "<host>", "<key>")  # privacy.redact put them there
_AGAIN = "remove the folders of this round and of later ones, then run again"

Kind: TypeAlias = Literal["missing", "foreign", "broken"]
Cell: TypeAlias = tuple[pa.Table, dict[str, Any]]


@dataclass(frozen=True)
class Finding:
    """One line: what is wrong with which file or folder, and what to do about it."""

    kind: Kind
    path: str
    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.what}; {self.cure}"


@dataclass
class Measured:
    """The files of one series as it was measured under one fingerprint. `rounds`: number → kind of
    cell → name of the arm's file without its ending → path."""

    folder: str
    rounds: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    spec: bool = False


def lines(loaded: Loaded) -> Iterator[str]:
    """Every finding, then how many there are. Raises UserError at the end if one is broken."""
    found = findings(loaded)
    yield from map(str, found)
    counted = {kind: sum(one.kind == kind for one in found) for kind in get_args(Kind)}
    yield ", ".join(f"{count} {kind}" for kind, count in counted.items())
    if counted["broken"]:
        raise UserError(f"{counted['broken']} broken", file=CELLS, cure="see the lines above")


def findings(loaded: Loaded) -> list[Finding]:
    """All that is missing, foreign or broken in the results, in the order of the plan."""
    root = loaded.root
    base = root / CELLS
    listing = sorted(
        path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()
    )
    there, found = sort_out(listing)
    planned = {one.directory: one for one in loaded.plan.series}
    for series in loaded.plan.series:
        found += against_plan(series, there.get(series.directory, Measured(series.directory)))
    for measured in there.values():
        found += _of_folder(measured, root, planned.get(measured.folder))
    found += _joined(loaded, broken=any(one.kind == "broken" for one in found))
    return found


# --- names ----------------------------------------------------------------------------------------


def sort_out(listing: Iterable[str]) -> tuple[dict[str, Measured], list[Finding]]:
    """(folder of a measured series → its files, what belongs to none). Pure.

    listing: paths of files below results/cells.
    """
    there: dict[str, Measured] = {}
    foreign: list[Finding] = []
    for path in listing:
        shown = f"{CELLS}/{path}"
        if any(part.startswith(".") for part in path.split("/")):
            cure = "nothing to do: the next round that is measured there removes it"
            foreign.append(Finding("foreign", shown, "left by a run that was killed", cure))
        elif (place := _PLACE.fullmatch(path)) is None:
            cure = "move it elsewhere"
            foreign.append(
                Finding("foreign", shown, f"neither a cell nor {SPEC} nor {weights.FILE}", cure)
            )
        else:
            folder = f"{CELLS}/{place['series']}/{place['fingerprint']}"
            measured = there.setdefault(folder, Measured(folder))
            if place["round"] is None:
                measured.spec |= path.endswith(f"/{SPEC}")
            else:
                kinds = measured.rounds.setdefault(int(place["round"]), {})
                kinds.setdefault(place["kind"] or "round", {})[place["arm"]] = shown
    return there, foreign


def against_plan(series: Series, measured: Measured) -> list[Finding]:
    """Rounds and controls that the plan has and the tree has not; rounds that are there in part, or
    after a gap. Pure."""
    found: list[Finding] = []
    arms = {arm.slug for arm in series.arms}
    whole = []
    for number in series.round_numbers():
        folder = f"{series.directory}/{round_name(number)}"
        cells_there = set(measured.rounds.get(number, {}).get("round", {}))
        if not cells_there:
            found.append(Finding("missing", folder, "not measured yet", "`make article`"))
        elif lacking := sorted(arms - cells_there):
            what = f"a part of a round: {', '.join(lacking)} not there"
            found.append(Finding("broken", folder, what, f"restore it, or {_AGAIN}"))
        else:
            whole.append(number)
    if gap := [n for n in series.round_numbers() if n not in whole and n < max(whole, default=0)]:
        what = f"round {gap[0]} is not whole and round {whole[-1]} is there"
        found.append(Finding("broken", series.directory, what, f"restore it, or {_AGAIN}"))
    control = measured.rounds.get(series.rounds, {}).get("control", {})
    if whole and whole[-1] == series.rounds and config.slug(series.reference) not in control:
        folder = f"{series.directory}/{round_name(series.rounds)}/control"
        what = "no control after the last round: more rounds were planned when it was measured"
        cure = f"plan {max(measured.rounds)} rounds again, or do without"
        found.append(Finding("missing", folder, what, cure))
    return found


# --- what the files hold --------------------------------------------------------------------------


def _of_folder(measured: Measured, root: Path, series: Series | None) -> list[Finding]:
    """A measured series against its spec: today's, or the one that lies beside its cells."""
    spec, found = _spec(measured, root, series)
    if spec is None:
        return found
    read: dict[str, Cell] = {}
    for kinds in measured.rounds.values():
        for path in (path for arms in kinds.values() for path in arms.values()):
            try:
                read[path] = cells.read(root / path)
            except UserError as error:
                cure = error.cure or _AGAIN
                found.append(Finding("broken", path, error.what, cure))
    for number, kinds in sorted(measured.rounds.items()):
        for kind, arms in kinds.items():
            for slug, path in arms.items():
                if path in read:
                    faults = cell_faults(*read[path], spec, measured.folder, kind, number, slug)
                    found += [Finding("broken", path, what, _AGAIN) for what in faults]
    found += [
        Finding("broken", f"{measured.folder}/{round_name(number)}", what, _AGAIN)
        for number, what in round_faults(measured, read)
    ]
    return found


def _spec(
    measured: Measured, root: Path, series: Series | None
) -> tuple[Mapping[str, Any] | None, list[Finding]]:
    """(what the fingerprint covers, what is wrong with the file that says it)."""
    path = f"{measured.folder}/{SPEC}"
    cure = "remove it and the joined table, then `make tell` writes both anew"
    if series is not None:
        spec = json.loads(spec_text(series, root))
        told = _json(root / path)
        if told == spec:
            return spec, []
        what = "not what the fingerprint covers" if measured.spec else "not there"
        return spec, [Finding("broken" if measured.spec else "missing", path, what, cure)]
    told = _json(root / path)
    cure = "restore it, or remove the whole folder"
    if told is None or not {"workload", "arms", "reference", "machine"} <= set(told):
        return None, [Finding("broken", path, "not there or not readable", cure)]
    computed = plan.fingerprint(told)
    hidden = any(word in json.dumps(told) for word in _HIDDEN_WORDS)
    if computed != measured.folder.rsplit("/", 1)[1] and not hidden:
        return None, [Finding("broken", path, f"it gives the fingerprint {computed}", cure)]
    return told, []


def cell_faults(
    table: pa.Table,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    folder: str,
    kind: str,
    number: int,
    slug: str,
) -> Iterator[str]:
    """What contradicts a cell's place in the tree, in words. Pure.

    spec: what the fingerprint covers; folder, kind, number, slug: where the file lies.
    """
    fingerprint = folder.rsplit("/", 1)[1]
    if metadata.get("fingerprint") != fingerprint:
        yield f"measured for fingerprint {metadata.get('fingerprint')}, not {fingerprint}"
        return
    names = {config.slug(name): name for name in spec["arms"]}
    if slug not in names:
        yield f"no arm of the series is called {slug}"
        return
    name, seed = names[slug], spec["workload"]["seed"]
    order = list(plan.order(list(spec["arms"]), seed, number))
    wanted = {"kind": kind, "round": number, "order": order, "seed": seed}
    wanted |= {"recipe": spec["arms"][name], "machine": spec["machine"]}
    for key, value in wanted.items():
        if metadata.get(key) != value:
            shown = f" {metadata.get(key)}, not {value}" if key in ("kind", "round") else ""
            yield f"its {key} is not that of its place{shown}"
    rows = table.to_pylist()
    if not rows:
        yield "it holds no row"
    position = order.index(name) if kind != "control" else 0
    alike = {"arm": name, "round": number, "position": position}
    alike |= {"session_id": metadata.get("session")}
    for column, value in alike.items():
        if odd := sorted({str(row[column]) for row in rows if row[column] != value}):
            yield f"{column} {odd[0]} in its rows, not {value}"
    if odd := sorted({config.slug(row["series"]) for row in rows} - {folder.split("/")[-2]}):
        yield f"rows of the series {odd[0]}"
    allowed = {kind, "warmup", *(["decoy"] if kind == "round" else [])}
    if odd := sorted({row["kind"] for row in rows} - allowed):
        yield f"rows of the kind {odd[0]}"
    keys = [(row["prompt_id"], row["turn"]) for row in rows]
    if len(set(keys)) < len(keys):
        yield "one request stands in it twice"


def round_faults(measured: Measured, read: Mapping[str, Cell]) -> Iterator[tuple[int, str]]:
    """(round, what is wrong): arms of several sessions or with other requests than the others', and
    times that contradict the order of rounds and of arms in a round. Pure."""
    before: dict[str, Any] | None = None
    for number, kinds in sorted(measured.rounds.items()):
        there = [read[path] for path in kinds.get("round", {}).values() if path in read]
        starts = [_first_row(table) for table, _ in there if table.num_rows]
        starts.sort(key=lambda row: int(row["position"]))
        if len({metadata.get("session") for _, metadata in there}) > 1:
            yield number, "its arms were measured in different sessions, so they are no pairs"
        requests = {frozenset(asked) for table, _ in there if (asked := _requests(table))}
        if len(requests) > 1:
            yield number, "its arms were not asked the same"
        for one, other in pairwise(starts):
            if not _is_before(one, other):
                yield number, f"{other['arm']} was measured before {one['arm']}, against the order"
        if starts:
            if before is not None and not _is_before(before, starts[0]):
                yield number, f"measured before round {before['round']}"
            before = starts[-1]


def _first_row(table: pa.Table) -> dict[str, Any]:
    columns = ["arm", "round", "position", "session_id", "start_monotonic_s", "started_at"]
    rows: list[dict[str, Any]] = table.select(columns).to_pylist()
    return min(rows, key=lambda row: float(row["start_monotonic_s"]))


def _is_before(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """By the clock that cannot be set where there is one: within a session."""
    same = one["session_id"] == other["session_id"]
    clock = "start_monotonic_s" if same else "started_at"
    return bool(one[clock] <= other[clock])


def _requests(table: pa.Table) -> set[tuple[str, int]]:
    """Every (prompt, turn) of a cell; a server that did not start has none."""
    rows = table.select(["prompt_id", "turn"]).to_pylist()
    return {(r["prompt_id"], r["turn"]) for r in rows if r["prompt_id"] != cells.NO_PROMPT}


# --- tables ---------------------------------------------------------------------------------------


def _joined(loaded: Loaded, broken: bool) -> list[Finding]:
    """The joined table against its cells, and whether the tables made of it can be read. Where a
    cell is broken, it cannot be joined again."""
    name = loaded.plan.name
    folder = f"results/{name}" if name else "results"
    cure = "remove it, then `make tell` makes it again"
    found: list[Finding] = []
    for table in ("cells", "contrasts", "quality", "claims"):
        path = f"{folder}/{table}.parquet"
        if not (loaded.root / path).is_file():
            found.append(Finding("missing", path, "not made yet", "`make tell`"))
            continue
        try:
            told = cells.load(loaded.root / path)
            if table == "cells" and not broken and told.equals(_join(loaded)) is False:
                found.append(Finding("broken", path, "not what its cells hold", cure))
        except UserError as error:
            found.append(Finding("broken", path, error.what, cure))
    return found


def _join(loaded: Loaded) -> pa.Table:
    return cells.join(cells.of_plan(loaded.plan.series, loaded.root))


def _json(file: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None
