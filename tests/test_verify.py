"""Whether results are what the plan says: a whole tree, and all that can be wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tree
from twoturn import cells, config, reasons, verify, weights
from twoturn.__main__ import main
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.plan import Series, round_name

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def row(series: Series, arm: str, number: int, kind: str, second: int) -> dict[str, Any]:
    one = series.arm(arm)
    return {
        "series": series.name,
        "arm": arm,
        "checkpoint": one.checkpoint,
        "server": one.server,
        "server_version": one.version,
        "speculation": one.speculation,
        "block_size": one.block_size,
        "round": number,
        "position": series.order(number).index(arm) if kind != "control" else 0,
        "turn": 1,
        "prompt_id": "p1",
        "kind": kind,
        "status": "ok",
        "started_at": BEGUN + timedelta(seconds=second),
        "start_monotonic_s": float(second),
        "wall_minus_monotonic_s": 0.0,
        "session_id": "one",
    }


def write(
    loaded: Loaded,
    series: Series,
    arm: str,
    number: int,
    kind: str,
    second: int,
    changed: dict[str, Any] | None = None,
) -> Path:
    """One cell as a round would write it; `changed`: of its row, or else of its metadata."""
    changed = changed or {}
    metadata = {
        "fingerprint": series.fingerprint,
        "kind": kind,
        "round": number,
        "order": list(series.order(number)),
        "seed": series.workload.seed,
        "recipe": json.loads(reasons.spec_text(series, loaded.root))["arms"][arm],
        "machine": series.spec["machine"],
        "session": "one",
    }
    told = row(series, arm, number, kind, second)
    told |= {key: value for key, value in changed.items() if key in told}
    metadata |= {key: value for key, value in changed.items() if key not in told}
    folder = loaded.root / series.directory / round_name(number)
    if kind != "round":
        folder /= kind
    file = folder / f"{series.arm(arm).slug}.parquet"
    rows = [told]
    if kind == "round" and isinstance(series.workload, config.Conversation):
        rows.append(told | {"prompt_id": "p1-decoy", "kind": "decoy"})
    cells.write(cells.table(rows, metadata), file)
    return file


def join(loaded: Loaded) -> None:
    cells.write(
        cells.join(cells.of_plan(loaded.plan.series, loaded.root)),
        loaded.root / "results/cells.parquet",
    )


@pytest.fixture
def measured(tree: Tree) -> Loaded:
    """A campaign of two series, measured as planned."""
    loaded = tree.load()
    second = 0
    for series in loaded.plan.series:
        reasons.write_spec(series, loaded.root)
        (loaded.root / series.directory / weights.FILE).write_text("{}")
        for number in series.round_numbers():
            for arm in series.order(number):
                write(loaded, series, arm, number, "round", second := second + 10)
        write(loaded, series, series.reference, series.rounds, "control", second := second + 10)
        for arm in series.order(1):
            write(loaded, series, arm, 1, "warmup", 1)
    join(loaded)
    for name in ("contrasts", "quality", "claims"):
        shutil.copy(loaded.root / "results/cells.parquet", loaded.root / f"results/{name}.parquet")
    return loaded


def told(loaded: Loaded) -> list[str]:
    return [str(one) for one in verify.findings(loaded)]


def place(loaded: Loaded, series: str = "first", number: int = 1) -> Path:
    return loaded.root / loaded.plan.one(series).directory / round_name(number)


def test_what_is_as_planned_has_no_findings(measured: Loaded) -> None:
    assert told(measured) == []
    assert list(verify.lines(measured)) == ["0 missing, 0 foreign, 0 broken"]


def test_nothing_measured_is_missing_and_not_broken(tree: Tree) -> None:
    loaded = tree.load()
    found = verify.findings(loaded)
    assert {one.kind for one in found} == {"missing"}
    rounds = sum(series.rounds for series in loaded.plan.series)
    assert len(found) == rounds + 4  # and four tables
    assert list(verify.lines(loaded))[-1] == f"{rounds + 4} missing, 0 foreign, 0 broken"


def test_the_command_says_it_by_its_exit_code(
    measured: Loaded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(measured.root)
    assert main(["verify", measured.file]) == 0
    (place(measured) / "plain.parquet").write_bytes(b"")
    assert main(["verify", measured.file]) == 1
    said = capsys.readouterr()
    assert "broken: results/cells/first/" in said.out
    assert said.err == "twoturn: results/cells: 1 broken; see the lines above\n"


Damage = Callable[[Loaded], object]


def rewrite(**changed: Any) -> Damage:
    def damage(loaded: Loaded) -> None:
        series = loaded.plan.one("first")
        arm = series.order(1)[0]
        second = int(changed.get("second", 10))
        write(loaded, series, arm, 1, "round", second, changed)

    return damage


def swap_rounds(loaded: Loaded) -> None:
    one, other = place(loaded, "second", 1), place(loaded, "second", 2)
    one.rename(one.with_name("03x"))
    other.rename(one)
    one.with_name("03x").rename(other)


def flip(loaded: Loaded) -> None:
    file = place(loaded) / "quick.parquet"
    data = bytearray(file.read_bytes())
    data[60] ^= 16
    file.write_bytes(data)


def copy_arm(loaded: Loaded) -> None:
    shutil.copy(place(loaded) / "plain.parquet", place(loaded) / "quick.parquet")


def copy_series(loaded: Loaded) -> None:
    second = place(loaded, "second") / "plain.parquet"
    shutil.copy(second, place(loaded) / "plain.parquet")


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (lambda one: shutil.rmtree(place(one, number=2)), "missing", "/02: not measured yet"),
        (lambda one: shutil.rmtree(place(one)), "broken", "round 1 is not whole and round 2 is"),
        (lambda one: (place(one) / "quick.parquet").unlink(), "broken", "/01: a part of a round"),
        (flip, "broken", "quick.parquet: not a whole cell"),
        (
            lambda one: (place(one) / "quick.parquet").write_bytes(b"PAR1"),
            "broken",
            "quick.parquet: not a whole cell",
        ),
        (copy_arm, "broken", "quick.parquet: its recipe is not that of its place"),
        (copy_series, "broken", "plain.parquet: measured for fingerprint"),
        (swap_rounds, "broken", "its round is not that of its place 2, not 1"),
        (rewrite(fingerprint="0" * 12), "broken", "measured for fingerprint 000000000000, not"),
        (rewrite(order=["plain", "quick"] * 2), "broken", "its order is not that of its place"),
        (rewrite(seed=8), "broken", "its seed is not that of its place"),
        (rewrite(machine={"chip": "x"}), "broken", "its machine is not that of its place"),
        (rewrite(series="second"), "broken", "rows of the series second"),
        (rewrite(kind="control"), "broken", "rows of the kind control"),
        (rewrite(position=5), "broken", "position 5 in its rows, not"),
        (rewrite(session="two"), "broken", "measured in different sessions, so they are no pairs"),
        (rewrite(prompt_id="p2"), "broken", "its arms were not asked the same"),
        (rewrite(second=9999), "broken", "against the order"),
        (
            lambda one: (place(one).parent / "spec.json").write_text("{"),
            "broken",
            "spec.json: not what the fingerprint covers",
        ),
        (lambda one: (place(one).parent / "spec.json").unlink(), "missing", "spec.json: not there"),
        (lambda one: (place(one) / "notes.txt").touch(), "foreign", "notes.txt: neither a cell"),
        (
            lambda one: (place(one) / "other.parquet").write_bytes(b""),
            "broken",
            "other.parquet: not a whole cell",
        ),
        (
            lambda one: shutil.copy(place(one) / "quick.parquet", place(one) / "other.parquet"),
            "broken",
            "no arm of the series is called other",
        ),
        (
            lambda one: shutil.copytree(place(one), place(one).with_name(".03.1")),
            "foreign",
            "left by a run that was killed",
        ),
        (
            lambda one: shutil.rmtree(place(one, number=2) / "control"),
            "missing",
            "/02/control: no control after the last round",
        ),
        (
            lambda one: (one.root / "results/claims.parquet").write_bytes(b"PAR1"),
            "broken",
            "claims.parquet: not a whole table",
        ),
        (
            lambda one: shutil.copy(
                place(one) / "quick.parquet", one.root / "results/cells.parquet"
            ),
            "broken",
            "results/cells.parquet: not what its cells hold",
        ),
        (
            lambda one: (one.root / "results/contrasts.parquet").unlink(),
            "missing",
            "results/contrasts.parquet: not made yet",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_cure(
    measured: Loaded, damage: Damage, kind: str, said: str
) -> None:
    damage(measured)
    lines = [line for line in told(measured) if said in line]
    assert lines, told(measured)
    assert all(line.startswith(f"{kind}: results/") for line in lines)
    assert all("; " in line and "\n" not in line for line in lines)
    broken = any(line.startswith("broken") for line in told(measured))
    if broken:
        with pytest.raises(UserError):
            list(verify.lines(measured))


def earlier(measured: Loaded) -> Path:
    """The folder of the first series becomes that of another version of its server."""
    folder = place(measured).parent
    spec = json.loads((folder / "spec.json").read_text())
    for arm in spec["arms"].values():  # without the place of the scripted server
        arm["server"] |= {"version": "0.9", "command": ["x"]}
    other = folder.with_name(verify.plan.fingerprint(spec))
    shutil.copytree(folder, other)
    for file in other.rglob("*.parquet"):
        table, metadata = cells.read(file)
        metadata |= {"fingerprint": other.name, "recipe": spec["arms"][metadata_arm(table)]}
        cells.write(cells.table(table.to_pylist(), metadata), file)
    (other / "spec.json").write_text(json.dumps(spec))
    return other


def metadata_arm(table: Any) -> str:
    return str(table["arm"][0].as_py())


def test_an_earlier_measurement_is_held_to_its_own_spec(measured: Loaded) -> None:
    other = earlier(measured)
    assert told(measured) == []
    shutil.rmtree(other / "02")  # not planned today, so not missed
    assert told(measured) == []
    (other / "01/quick.parquet").write_bytes(b"")
    assert [line for line in told(measured) if "not a whole cell" in line]


def test_an_earlier_spec_has_to_give_its_fingerprint(measured: Loaded) -> None:
    other = earlier(measured)
    spec = json.loads((other / "spec.json").read_text())
    spec["workload"]["seed"] = 99
    (other / "spec.json").write_text(json.dumps(spec))
    (line,) = told(measured)
    assert f"{other.name}/spec.json: it gives the fingerprint " in line
    spec["arms"]["plain"]["args"] = ["~/x"]  # a home path was taken out: it cannot be computed
    (other / "spec.json").write_text(json.dumps(spec))
    assert not [line for line in told(measured) if "gives the fingerprint" in line]


def test_names_are_sorted_without_reading_anything() -> None:
    there, foreign = verify.sort_out(
        [
            "a/0123456789ab/spec.json",
            "a/0123456789ab/01/x.parquet",
            "a/0123456789ab/01/control/x.parquet",
            "a/0123456789ab/1/x.parquet",
            "a/0123456789AB/01/x.parquet",
            "a/0123456789ab/.01.7/x.parquet",
            "x",
        ]
    )
    (one,) = there.values()
    folder = "results/cells/a/0123456789ab"
    assert (one.folder, one.spec) == (folder, True)
    assert one.rounds == {
        1: {
            "round": {"x": f"{folder}/01/x.parquet"},
            "control": {"x": f"{folder}/01/control/x.parquet"},
        }
    }
    assert [finding.path.removeprefix("results/cells/") for finding in foreign] == [
        "a/0123456789ab/1/x.parquet",
        "a/0123456789AB/01/x.parquet",
        "a/0123456789ab/.01.7/x.parquet",
        "x",
    ]
