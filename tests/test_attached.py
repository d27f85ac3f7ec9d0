"""A server that already runs: measured as it is, neither started nor stopped, never called cold."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import COMMAND, Tree, parsed
from tests.test_contrasts import CHAT, NULL, Series, cells_of, series_of
from tests.test_engines import PLAIN
from tests.test_servers import foreign
from twoturn import cells, client, contrasts, engines, measure, plan, preflight, sending, servers
from twoturn.engines.attached import Attached, api_key
from twoturn.engines.omlx import Omlx
from twoturn.engines.vllm import Vllm
from twoturn.errors import UserError
from twoturn.servers import Launch, Running, ServerFault
from twoturn.session import Session, started

Data = dict[str, Any]
Measure = Callable[..., list[Data]]


def attached(data: Data, port: int, **entry: Any) -> Data:
    """The campaign with one series whose server is attached."""
    data["servers"] = {"one": {"attach": f"http://127.0.0.1:{port}", "version": "1", **entry}}
    arm = {"checkpoint": "small", "server": "one", "settings": {"model": "m"}}
    data["series"] = {"first": {**data["series"]["first"], "arms": {"plain": arm}}}
    return data


@pytest.fixture
def measured(tree: Tree, data: Data, tmp_path: Path) -> Measure:
    """Measure rounds of the series against a port: rows of kind round, the last metadata."""

    def go(
        port: int, *numbers: int, meanwhile: Callable[[], None] = lambda: None, **entry: Any
    ) -> list[Data]:
        tree.write(attached(data, port, **entry))
        loaded = tree.load()
        series = loaded.plan.one("first")
        session = Session("test", os.getpid(), started(os.getpid()))
        preflight.check(loaded, [series], print)
        rows = []
        for number in numbers:
            measure.run_round(loaded, series, number, session, tmp_path / "log", print)
            table, metadata = cells.read(tree.root / series.cells(number)[0])
            rows += [
                row | {"metadata": metadata} for row in table.to_pylist() if row["kind"] == "round"
            ]
            meanwhile()
        return rows

    return go


def test_it_is_measured_and_left_running(measured: Measure) -> None:
    with foreign("--tok-s", "100") as port:
        rows = measured(port, 1, 2)
        assert {row["status"] for row in rows} == {"ok"}
        assert all(row["load_s"] is None and row["decode_tok_s"] > 0 for row in rows)
        assert all(row["metadata"]["command_line"] is None for row in rows)
        measured(port)  # preflight finds it still there


def test_a_prompt_that_its_cache_knew_is_told_and_valid(measured: Measure, tree: Tree) -> None:
    with foreign("--prompt-cache") as port:
        measured(port, 1)
        shutil.rmtree(tree.root / "results")
        (row,) = measured(port, 1)
    assert row["cached_tokens"] > sending.COLD_TOKENS
    assert (row["status"], row["reason"]) == (
        "ok",
        f"{row['cached_tokens']} tokens of a new prompt came from a cache",
    )


def test_one_that_is_gone_becomes_a_row(measured: Measure) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(foreign())
        first, second = measured(port, 1, 2, meanwhile=stack.close)
    assert first["status"] == "ok"
    assert (second["status"], second["reason"]) == (
        "connection_lost",
        f"nobody answers at http://127.0.0.1:{port}",
    )


def stopped(measured: Measure, port: int, **entry: Any) -> str:
    with pytest.raises(UserError) as caught:
        measured(port, 1, **entry)
    return str(caught.value)


def test_one_that_is_not_there_is_told_before_anything_is_measured(measured: Measure) -> None:
    with foreign() as port:
        pass
    assert stopped(measured, port) == (
        f"campaign.yaml: servers.one.attach: nobody answers at http://127.0.0.1:{port}; "
        "start it, then run again; it is neither started nor stopped here"
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--wrong-model", "asked for 'm', 'another-model' answered"),
        ("--refuse", "the model id 'm' does not answer (HTTP 404: model m not found)"),
    ],
)
def test_another_model(measured: Measure, option: str, said: str) -> None:
    with foreign(option) as port:
        assert stopped(measured, port) == (
            f"campaign.yaml: servers.one: {said}; "
            "let it answer as the campaign says, then run again"
        )


def test_a_key_is_sent_and_written_nowhere(
    measured: Measure, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sk-secret-1")
    with foreign("--api-key", "sk-secret-1") as port:
        (row,) = measured(port, 1, api_key_env="THE_KEY")
        assert row["status"] == "ok"
        said = stopped(measured, port)
        assert "the server wants a key (HTTP 401" in said
        assert said.endswith("name the environment variable that holds its key, as `api_key_env`")
    with foreign("--api-key", "sk-secret-2") as port:
        said = stopped(measured, port, api_key_env="THE_KEY")  # and it repeats what it was sent
    assert "Bearer <key>" in said
    assert said.endswith("put its key into the environment variable THE_KEY")
    for file in tree.root.rglob("*"):
        assert not file.is_file() or b"sk-secret-1" not in file.read_bytes()


@pytest.mark.parametrize("value", [None, "", "two\nlines", "zażółć"])
def test_a_key_that_is_none(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("THE_KEY", raising=False)
    else:
        monkeypatch.setenv("THE_KEY", value)
    with foreign() as port:
        assert stopped(measured, port, api_key_env="THE_KEY") == (
            "campaign.yaml: servers.one.api_key_env: the environment variable THE_KEY holds no "
            "usable key; set THE_KEY and run again; the key is sent and never stored"
        )
    assert api_key(None) is None


@pytest.mark.parametrize(
    ("options", "deadline_s", "status"),
    [
        (("--refuse",), 60.0, "wrong_model"),
        (("--wrong-model",), 60.0, "wrong_model"),
        (("--api-key", "other"), 60.0, "unauthorized"),
        (("--never-ready",), 0.3, "start_timeout"),
    ],
)
def test_the_status_of_a_row(
    tmp_path: Path, options: tuple[str, ...], deadline_s: float, status: str
) -> None:
    with foreign(*options) as port:
        address = f"http://127.0.0.1:{port}"
        launch = Launch([], {}, tmp_path, "m", deadline_s, attach=address, api_key="sk-secret-1")
        with (
            pytest.raises(ServerFault) as caught,
            servers.run(launch, 0, tmp_path / "log"),
        ):
            pytest.fail("the server was taken for ready")
        assert servers.is_open(address)  # it is not ours to stop
    assert caught.value.status == status
    assert "sk-secret-1" not in repr(launch)


# The text gate


def test_the_text_gate_starts_nothing_in_its_place(tree: Tree, data: Data) -> None:
    """Two servers that differ: of the one that was started a fresh one can tell, of the other
    nobody can, so it is not called wrong."""
    said: list[str] = []
    with foreign("--seed", "1") as port:
        attached(data, port)
        data["servers"]["here"] = {"command": COMMAND, "version": "1"}
        first = data["series"]["first"]
        first["arms"]["started"] = {"checkpoint": "small", "server": "here"}
        first["arms"]["drafted"] = {
            **first["arms"]["plain"],
            **{"speculation": "draft", "draft": "draft", "settings": {"model": "m"}},
        }
        tree.write(data)
        loaded = tree.load()
        series = loaded.plan.one("first")
        session = Session("s", os.getpid(), 0.0)
        measure.run_round(loaded, series, 1, session, tree.root / "logs", said.append)
        assert servers.is_open(f"http://127.0.0.1:{port}")
    files = [tree.root / cell for cell in series.cells(1)]
    rows = [row for file in files for row in cells.read(file)[0].to_pylist()]
    gates = {
        row["arm"]: (row["text_gate"], row["status"]) for row in rows if row["kind"] == "round"
    }
    assert gates == {
        "plain": (None, "ok"),
        "started": ("identical", "ok"),
        "drafted": (None, "spec_inactive"),
    }
    assert [line for line in said if "cold run" in line] == ["cold run 1: started, none"]


# What a campaign may ask for


def refused(data: Data) -> str:
    with pytest.raises(UserError) as caught:
        engines.check(parsed(data), "c.yaml")
    return str(caught.value)


def test_the_reader_is_the_named_adapter(data: Data) -> None:
    engine = engines.get(parsed(attached(data, 1, adapter="vllm")), "one")
    assert isinstance(engine, Attached)
    assert isinstance(engine.reader, Vllm)
    engines.check(parsed(data), "c.yaml")


@pytest.mark.parametrize("adapter", sorted({*engines.ADAPTERS} - {"command"}))
def test_every_adapter_may_read_it(data: Data, adapter: str) -> None:
    engines.check(parsed(attached(data, 1, adapter=adapter)), "c.yaml")


def test_omlx_reads_back_one_that_others_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "log_in", lambda *_: (200, {"omlx_admin_session": "s"}))
    monkeypatch.setattr(client, "get_json", lambda *_: (200, {"version": "0.7.0"}))
    launch = Launch([], {}, tmp_path, "m", attach="http://127.0.0.1:1")
    (tmp_path / "log").touch()
    running = Running("http://127.0.0.1:1", launch, None, None, tmp_path / "log")
    said, wrong = Attached("http://127.0.0.1:1", None, Omlx()).read_back(running, PLAIN)
    assert (said["version"], said["packages"], wrong) == ("0.7.0", {}, [])


def test_arguments_come_too_late(data: Data) -> None:
    attached(data, 1)["series"]["first"]["arms"]["plain"]["args"] = ["--fast"]
    assert refused(data) == (
        "c.yaml: series.first.arms.plain.args: one already runs, so it takes no arguments; "
        "start it with them yourself and remove them here"
    )


def test_settings_come_too_late(data: Data) -> None:
    attached(data, 1)["series"]["first"]["arms"]["plain"]["settings"] = {"prefix_cache": True}
    assert "one has no setting 'prefix_cache'; it has model, start_deadline_s" in refused(data)


def test_the_adapter_attached_needs_an_address(data: Data) -> None:
    data["servers"]["one"] = {"executable": "sh", "adapter": "attached"}
    assert refused(data) == (
        "c.yaml: servers.one.adapter: the adapter attached and the key `attach` go together; "
        "leave `adapter` out or name the `attach`"
    )


def test_an_arm_knows_that_it_is_attached(tree: Tree, data: Data) -> None:
    tree.write(attached(data, 1))
    (arm,) = tree.load().plan.one("first").arms
    assert isinstance(arm, plan.Arm)
    assert arm.attached


# What may be claimed


def table_of(series: Series) -> list[Data]:
    rows: list[Data] = contrasts.from_cells(cells_of(series), [series]).to_pylist()
    return rows


def with_attached(*names: str, **changes: Any) -> Series:
    series = series_of("mtp", null=True, **changes)
    arms = tuple(replace(arm, attached=arm.name in names) for arm in series.arms)
    return replace(series, arms=arms)


@pytest.mark.parametrize("who", [("mtp",), ("plain", NULL), ("plain", "mtp", NULL)])
def test_latencies_claim_nothing_and_decode_speed_does(who: tuple[str, ...]) -> None:
    series = with_attached(*who)
    found = {
        row["metric"]: row
        for row in table_of(series)
        if row["arm"] == "mtp" and ":" not in row["metric"]
    }
    for metric in ("conversation_s", "turn2_ttft_s"):
        assert found[metric]["verdict"] == "invalid"
        assert found[metric]["warnings"] == ["cold_not_provable"]
        assert found[metric]["ratio"] is None
    assert found["decode_tok_s"]["ratio"] is not None
    assert found["decode_tok_s"]["warnings"] == []


def test_a_null_arm_is_checked_on_what_may_be_claimed() -> None:
    series = with_attached("plain", NULL, metrics=CHAT)
    rows = table_of(series)
    assert {row["metric"] for row in rows if row["ratio"] is not None} == {"decode_tok_s"}
    assert contrasts.null_arm_state(rows, series) == "passed"


def test_started_servers_claim_as_before() -> None:
    rows = table_of(with_attached())
    assert not any("cold_not_provable" in row["warnings"] for row in rows)
