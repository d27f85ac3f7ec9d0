"""oMLX: its files, its pages and log lines as recorded, and whole rounds on a scripted one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tree, parsed
from twoturn import (
    __main__,
    campaign,
    cells,
    client,
    engines,
    lock,
    machine,
    matrix,
    measure,
    metrics,
    preflight,
    servers,
)
from twoturn.engines import Place, Telemetry, omlx, scale
from twoturn.engines.omlx import Omlx
from twoturn.errors import UserError
from twoturn.plan import Arm
from twoturn.servers import Launch, Running
from twoturn.session import Session, started
from twoturn.stream import Answer, parse

Data = dict[str, Any]
ROOT = Path(__file__).parents[1]
CAPTURES = ROOT / "tests/captures/omlx"
SERVER = ROOT / "tests/servers/omlx.py"
M4MAX = "campaigns/omlx-m4max.yaml"
PLAIN = Arm("plain", "small", "omlx", "omlx", "0.5.3", "none", None, None, {}, ())
MTP = replace(PLAIN, name="mtp", speculation="mtp", block_size=4)
DFLASH = replace(PLAIN, name="dflash", speculation="dflash", draft="draft")
NEW = {"hot_cache_max_size": "24GB", "hot_cache_write_through": True}


def page(name: str) -> Data:
    read: Data = json.loads((CAPTURES / f"{name}.json").read_text())
    return read


def log_of(name: str) -> list[str]:
    return (CAPTURES / f"{name}.log").read_text().splitlines()


def stream(name: str) -> Answer:
    body = (CAPTURES / f"{name}.sse").read_bytes()
    return parse([(1.0, body)], 2.0)


# Before the start


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A cell with two models and an oMLX of version 0.6.4."""
    folder = tmp_path / "cell"
    for name in ("models/small", "models/draft", "home"):
        (folder / name).mkdir(parents=True)
    models = {name: f"models/{name}" for name in ("small", "draft")}
    port, program = servers.free_port(), pretended(tmp_path, "0.6.4")
    return Place(tmp_path, folder, port, None, tmp_path, models, program)


def pretended(folder: Path, version: str) -> Path:
    """A program `omlx` that is the scripted one."""
    file = folder / "omlx"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} --fake-version {version} "$@"\n')
    file.chmod(0o755)
    return file


def files(place: Place) -> tuple[Data, Data]:
    base = place.folder / "base"
    return tuple(json.loads((base / name).read_text()) for name in FILES)  # type: ignore[return-value]


FILES = ("settings.json", "model_settings.json")


def test_what_is_written_before_the_start(place: Place) -> None:
    launch = Omlx().launch(replace(PLAIN, settings=NEW), place)
    whole, models = files(place)
    assert whole["server"]["sse_keepalive_mode"] == "off"
    assert whole["scheduler"] == {"max_concurrent_requests": 1, "chunked_prefill": False}
    assert whole["cache"] == {
        "enabled": True,
        "hot_cache_only": False,
        "ssd_cache_dir": str(place.folder / "ssd"),
        "ssd_cache_max_size": "auto",
        "hot_cache_max_size": "24GB",
        "hot_cache_write_through": True,
    }
    assert whole["sampling"] == {"max_context_window": 262144, "top_p": 0.95, "top_k": 0}
    assert models["models"]["small"]["mtp_enabled"] is False
    assert models["models"]["small"]["dflash_enabled"] is False
    assert (launch.model, launch.cwd) == ("small", place.folder)
    assert launch.env["HOME"] == str(place.home)
    words = f"serve --base-path base --model-dir models --host 127.0.0.1 --port {place.port}"
    assert " ".join(launch.argv).startswith(f"{place.executable} {words}")
    assert not any("cache" in word for word in launch.argv if word != "--no-hf-cache")


def test_keep_alives_are_what_was_asked_for(place: Place) -> None:
    launch = Omlx().launch(replace(PLAIN, settings={"sse_keepalive_mode": "chunk"}), place)
    assert files(place)[0]["server"]["sse_keepalive_mode"] == "chunk"
    assert "--sse-keepalive-mode chunk" in " ".join(launch.argv)


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        (PLAIN, {}),
        (MTP, {"mtp_num_draft_tokens": 3}),
        (replace(MTP, block_size=None), {}),
        (
            replace(DFLASH, block_size=8),
            {"dflash_block_size": 8, "dflash_draft_model": "", "dflash_in_memory_cache": True},
        ),
        (
            replace(DFLASH, adaptive=True),
            {
                "dflash_verify_mode": "adaptive",
                "dflash_draft_model": "",
                "dflash_in_memory_cache": True,
            },
        ),
        (
            replace(DFLASH, settings={"dflash_verify_mode": "adaptive", "prefix_cache": False}),
            {
                "dflash_verify_mode": "adaptive",
                "dflash_draft_model": "",
                "dflash_in_memory_cache": False,
            },
        ),
    ],
)
def test_the_modes_exclude_each_other(place: Place, arm: Arm, told: Data) -> None:
    Omlx().launch(arm, place)
    model = files(place)[1]["models"]["small"]
    if "dflash_draft_model" in told:
        told["dflash_draft_model"] = str(place.folder / "models/draft")
    assert model == {
        "is_default": True,
        "max_context_window": 262144,
        "mtp_enabled": arm.speculation == "mtp",
        "dflash_enabled": arm.speculation == "dflash",
        **told,
    }


def test_the_key_is_in_one_file(place: Place, tmp_path: Path) -> None:
    launch = Omlx().launch(PLAIN, place)
    key = files(place)[0]["auth"]["api_key"]
    assert launch.api_key == key
    assert len(key) >= 32
    assert key not in " ".join([*launch.argv, *launch.env.values(), str(launch.settings)])
    assert key not in repr(launch)
    settings = place.folder / "base/settings.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert not files(place)[0]["auth"]["skip_api_key_verification"]
    other = replace(place, folder=tmp_path / "other")
    other.folder.mkdir()
    assert Omlx().launch(PLAIN, other).api_key != key


@pytest.mark.parametrize(
    "settings", [{"hot_cache_max_size": "24"}, {"burst_decode_mode": "fast"}, {"top_k": -1}]
)
def test_settings_that_it_does_not_have(data: Data, settings: Data) -> None:
    data["servers"]["one"] = {"executable": "omlx", "adapter": "omlx"}
    data["series"]["first"]["arms"] = {
        "plain": {"checkpoint": "small", "server": "one", "settings": settings}
    }
    with pytest.raises(UserError) as caught:
        engines.check(parsed(data), "c.yaml")
    assert f"arms.plain.settings.{next(iter(settings))}: " in str(caught.value)


# What it says of itself, as recorded


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Data]:
    """The pages of a running 0.5.3, to be changed at will."""
    pages = {
        "/api/status": page("api_status"),
        "/admin/api/global-settings": page("admin_global_settings"),
        "/admin/api/models": page("admin_models"),
        "/admin/api/stats": page("admin_stats"),
    }
    settings = page("put_settings_unknown_key")["settings"]
    pages["/admin/api/models"]["models"][0]["settings"] = {**settings, "mtp_num_draft_tokens": None}
    monkeypatch.setattr(client, "log_in", lambda *_: (200, {"omlx_admin_session": "s"}))
    monkeypatch.setattr(client, "get_json", lambda _, path, *__: (200, pages[path]))
    (tmp_path / "log").write_text("\n".join(log_of("plain_moe")))
    return pages


def read_back(tmp_path: Path, arm: Arm) -> tuple[Data, list[str]]:
    launch = Launch(["omlx"], {}, tmp_path, arm.checkpoint, api_key="KEY")
    running = Running("http://127.0.0.1:1", launch, 1, 0.0, tmp_path / "log")
    return Omlx().read_back(running, replace(arm, checkpoint="tiny-qwen3"))


def test_read_back_as_recorded(recorded: dict[str, Data], tmp_path: Path) -> None:
    """A server that was started with flags: 1 GiB of memory cache is used, its settings say 0."""
    said, wrong = read_back(tmp_path, PLAIN)
    assert wrong == [
        "sse_keepalive_mode: asked off, the server says chunk",
        "max_concurrent_requests: asked 1, the server says 8",
        "max_context_window: asked 262144, the server says 32768",
        "hot_cache_bytes: asked 0, the server says 1073741824",
    ]
    assert said["version"] == "0.5.3"
    assert said["hot_cache_max_size"] == "0"
    assert said["cache_block_tokens"] == 256
    assert said["engines"]["mlx-lm"]["version"] == "0.31.3"
    assert said["engines"]["mlx-vlm"]["commit"] == "78b96eb5462141447b9a6b4943ef553891da56dd"
    assert said["custom_kernels"]["qwen35_prefill"] is False
    assert "KEY" not in json.dumps(said)


def test_a_key_that_this_version_does_not_know(recorded: dict[str, Data], tmp_path: Path) -> None:
    arm = replace(DFLASH, block_size=8, settings={"dflash_verify_mode": "dflash"})
    _, wrong = read_back(tmp_path, arm)
    assert "dflash_block_size: asked 8, the server says nothing" in wrong
    assert "dflash_verify_mode: asked dflash, the server says nothing" in wrong
    assert "dflash_enabled: asked True, the server says False" in wrong
    assert not any("dflash_in_memory_cache" in line for line in wrong)
    _, wrong = read_back(tmp_path, replace(PLAIN, settings=NEW))
    assert "hot_cache_write_through: asked True, the server says nothing" in wrong


@pytest.mark.parametrize(
    ("log", "mode"),
    [
        ("plain_moe", None),
        ("mtp_moe", "mtp"),
        ("dflash_moe", "dflash"),
        ("dflash_moe_ERROR_midstream", "dflash"),
    ],
)
def test_the_mode_that_was_loaded(
    recorded: dict[str, Data], tmp_path: Path, log: str, mode: str | None
) -> None:
    (tmp_path / "log").write_text("\n".join(log_of(log)))
    said, wrong = read_back(tmp_path, PLAIN)
    assert said["loaded_as"] == mode
    line = f"loaded_as: asked none, the server says {mode}"
    assert (line in wrong) is (mode is not None)


def test_a_server_that_does_not_let_us_in(
    recorded: dict[str, Data], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "log_in", lambda *_: (401, {}))
    line = "its settings cannot be read back (HTTP 401 at /admin/api/login)"
    assert read_back(tmp_path, PLAIN) == ({}, [line])


@pytest.mark.parametrize("broken", [None, [], 3, {"models": None}, {"models": ["x", {}]}])
def test_pages_of_another_shape(recorded: dict[str, Data], tmp_path: Path, broken: Any) -> None:
    recorded["/admin/api/models"] = broken
    recorded["/admin/api/stats"] = {"engines": broken, "runtime_cache": broken}
    recorded["/admin/api/global-settings"] = {"server": broken, "cache": broken}
    _, wrong = read_back(tmp_path, PLAIN)
    assert wrong


def test_packages_beside_the_program(tmp_path: Path) -> None:
    site = tmp_path / "env/lib/python3.12/site-packages"
    for name, version in (("mlx", "0.32.0"), ("dflash_mlx", "0.1.10+omlx.7"), ("other", "1")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    program = tmp_path / "omlx"
    program.write_text(f"#!{tmp_path}/env/bin/python3.12\nprint()\n")
    kernels = site / "mlx/lib/mlx.metallib"
    kernels.parent.mkdir(parents=True)
    kernels.write_bytes(b"kernels")
    assert omlx._beside(program) == {
        "packages": {"mlx": "0.32.0", "dflash-mlx": "0.1.10+omlx.7"},
        "metallib_sha256": hashlib.sha256(b"kernels").hexdigest(),
    }
    program.write_bytes(b"\xcf\xfa\xed\xfe")
    unknown = {"packages": {}, "metallib_sha256": None}
    assert omlx._beside(program) == omlx._beside(tmp_path / "none") == unknown


# Requests, as recorded


def told(log: str, emitted: int = 48) -> tuple[Telemetry, Data]:
    usage = {"completion_tokens": emitted}
    telemetry = Omlx().telemetry(Answer(200, "clean", 1.0, usage=usage), log)
    return telemetry, scale(telemetry, emitted)


def lines(name: str, word: str) -> list[str]:
    return [line for line in log_of(name) if word in line]


@pytest.mark.parametrize(
    ("name", "number", "cycles", "accepted"),
    [
        ("dflash_moe", 0, 18, 30),
        ("dflash_moe", 1, 3, 45),
        ("dflash_moe_33k", 0, 17, 31),
        ("dflash_moe_33k", 1, 12, 36),
        ("dflash_moe_33k", 2, 12, 36),
    ],
)
def test_dflash_as_recorded(name: str, number: int, cycles: int, accepted: int) -> None:
    telemetry, row = told(lines(name, "DFlash generation complete")[number])
    assert (telemetry.cycles, telemetry.drafted, telemetry.accepted) == (cycles, None, accepted)
    assert row["accept_length"] == pytest.approx(1 + accepted / cycles)
    assert row["draft_share"] == pytest.approx(accepted / 48)
    assert row["accept_rate"] is row["effective_block_size"] is None


def test_what_dflash_calls_acceptance_is_a_share_of_the_output() -> None:
    line = "DFlash generation complete: 48 tokens, 38.0 tok/s, acceptance=75.0%, cycles=12"
    _, row = told(line)
    assert (row["accepted_tokens"], row["accept_length"], row["draft_share"]) == (36, 4.0, 0.75)
    assert row["accept_rate"] is None
    phases = f"{line}, phases[prefill=347.2ms draft=187.8ms(first=9.3/incr=178.5)]"
    assert told(phases)[1] == row


@pytest.mark.parametrize(
    ("tokens", "share", "cycles", "accepted"),
    [(1200, 54.8, 543, 657), (1200, 54.6, 543, 655), (1000, 50.0, 400, 500)],
)
def test_the_rounding_of_the_share(tokens: int, share: float, cycles: int, accepted: int) -> None:
    """N = A + V where that agrees with the share; otherwise the share alone."""
    line = f"DFlash generation complete: {tokens} tokens, 1 tok/s, acceptance={share}%, "
    assert told(f"{line}cycles={cycles}", tokens)[0].accepted == accepted


@pytest.mark.parametrize(
    ("name", "number", "cycles", "accepted"),
    [("mtp_moe", 1, 13, 36), ("mtp_moe_33k", 0, 20, 27), ("mtp_moe_33k", 2, 16, 33)],
)
def test_mtp_as_recorded(name: str, number: int, cycles: int, accepted: int) -> None:
    telemetry, row = told(lines(name, "MTP[")[number])
    assert (telemetry.cycles, telemetry.accepted) == (cycles, accepted)
    assert row["accept_rate"] == 1.0
    assert row["tokens_per_step"] is None


def test_mtp_own_tokens_per_cycle_are_another_figure() -> None:
    (line,) = [line for line in lines("mtp_moe_33k", "MTP[") if "cycles=20" in line]
    assert "tok/cycle=2.40 accept=27/27" in line
    _, row = told(line)
    assert (row["accept_length"], row["accept_rate"]) == (2.35, 1.0)
    assert 2.4 not in row.values()


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("tok/cycle=3.20 accept=88/120 (73.3%) depth[d1=40/40,d2=48/80] d0=2", (40, 120, 88)),
        ("accept=30/40 (75.0%)", (40, 40, 30)),
        ("full-accept=10/40 (25.0%) draft-tokens=88/120 (73.3%)", (40, None, None)),
        ("accept=0/0 (n/a)", (40, 0, 0)),
    ],
)
def test_other_forms_of_the_line(line: str, counts: tuple[int, int | None, int | None]) -> None:
    telemetry, _ = told(f"x - MTP[7] finish=length tokens=128 cycles=40 {line} emits[init=2]")
    assert (telemetry.cycles, telemetry.drafted, telemetry.accepted) == counts


def test_without_speculation_as_recorded() -> None:
    telemetry, row = told("\n".join(log_of("plain_moe")))
    assert telemetry.cycles is telemetry.drafted is telemetry.accepted is None
    assert row["tokens_per_step"] == 1.0


def test_a_fallback_is_no_speculation() -> None:
    line = "DFlash generation complete: 48 tokens, 9.0 tok/s, acceptance=0.0%, cycles=48"
    assert told(f"{line}, fallback=AR")[0].cycles is None


@pytest.mark.parametrize(
    ("name", "cached", "ttft_s", "tok_s"),
    [
        ("dflash_moe_33k_turn2_stream", 33064, 0.67, 51.89),
        ("mtp_moe_33k_turn2_stream", 32768, 7.15, 55.92),
        ("plain_moe_turn2_stream", 4096, 2.76, 276.33),
    ],
)
def test_streams_as_recorded(name: str, cached: int, ttft_s: float, tok_s: float) -> None:
    answer = stream(name)
    telemetry = Omlx().telemetry(answer, "")
    measured = metrics.measure(answer, metrics.Wanted("tiny-q36-moe-mtp", 48, None), None)
    assert measured.cached_tokens == cached
    assert measured.status == "ok"
    assert (telemetry.ttft_s, telemetry.decode_tok_s) == (ttft_s, tok_s)


def test_a_failure_after_http_200_as_recorded() -> None:
    answer = stream("dflash_moe_ERROR_midstream_turn1_stream")
    measured = metrics.measure(answer, metrics.Wanted("tiny-q36-moe-mtp", 48, None), None)
    assert measured.status == "server_error"


# A scripted one


def asked(running: Running, tokens: int = 24) -> Answer:
    body = {
        "model": running.model,
        "messages": [{"role": "user", "content": "a b c"}],
        "max_tokens": tokens,
    }
    patience = client.Timeouts(5, 30, 30, 60)
    return client.stream_chat(running.base_url, body, patience, api_key=running.api_key).answer


@pytest.mark.parametrize(
    ("arm", "counts"),
    [
        (replace(PLAIN, settings=NEW), (None, None, None)),
        (MTP, (12, 36, 11)),
        (replace(DFLASH, block_size=8), (12, None, 12)),
    ],
    ids=["none", "mtp", "dflash"],
)
def test_a_mode_from_start_to_figures(place: Place, arm: Arm, counts: tuple[Any, ...]) -> None:
    engine = Omlx()
    launch, log = engine.launch(arm, place), place.folder / "server.log"
    with servers.run(launch, place.port, log) as running:
        said, wrong = engine.read_back(running, arm)
        refused = client.log_in(running.base_url, "/admin/api/login", {"api_key": "x"}, 5)
        before = servers.LogTail(log)
        answer = asked(running)
    assert refused == (401, {})
    assert wrong == []
    assert said["loaded_as"] == (arm.speculation if arm.speculation != "none" else None)
    telemetry = engine.telemetry(answer, before.since())
    assert (telemetry.cycles, telemetry.drafted, telemetry.accepted) == counts
    assert not (place.folder / "uploaded").exists()  # its own benchmark was never asked for
    assert launch.api_key not in json.dumps(said)


@pytest.mark.parametrize(
    ("arm", "line"),
    [
        (replace(DFLASH, block_size=8), "dflash_block_size: asked 8, the server says nothing"),
        (
            replace(PLAIN, settings=NEW),
            "hot_cache_write_through: asked True, the server says nothing",
        ),
    ],
)
def test_an_old_version_is_found_out(place: Place, tmp_path: Path, arm: Arm, line: str) -> None:
    launch = Omlx().launch(arm, replace(place, executable=pretended(tmp_path, "0.5.3")))
    with servers.run(launch, place.port, place.folder / "server.log") as running:
        assert Omlx().read_back(running, arm)[1] == [line]


def test_a_wrong_key(place: Place) -> None:
    launch = replace(Omlx().launch(PLAIN, place), api_key="another")
    with (
        pytest.raises(servers.ServerFault) as caught,
        servers.run(launch, place.port, place.folder / "server.log"),
    ):
        pass
    assert caught.value.status == "unauthorized"


# Whole rounds


KEYS = "the-key-of-a-cell-"


@pytest.fixture
def rounds(
    tree: Tree, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Measure round 1 of a series with an oMLX of a version; gives rows by arm, and metadata."""
    made: list[str] = []

    def token(_: int) -> str:
        made.append(f"{KEYS}{len(made)}")
        return made[-1]

    monkeypatch.setattr(omlx.secrets, "token_urlsafe", token)

    def run(version: str, *args: str) -> dict[str, tuple[list[Data], Data]]:
        program = pretended(tmp_path, version)
        (tree.root / "models/small/config.json").write_text('{"mtp_num_hidden_layers": 1}')
        (tree.root / "models/draft/config.json").write_text('{"dflash_config": {}}')
        plain = {"checkpoint": "small", "server": "omlx", "args": list(args)}
        arms = {
            "plain": plain,
            "mtp": {**plain, "speculation": "mtp", "block_size": 4},
            "dflash": {**plain, "speculation": "dflash", "draft": "draft"},
        }
        data["servers"] = {"omlx": {"executable": str(program)}}
        data["series"] = {"first": {**data["series"]["first"], "arms": arms}}
        data["series"]["first"]["workload"]["max_tokens"] = 16
        tree.write(data)
        loaded = tree.load()
        series = loaded.plan.one("first")
        preflight.check(loaded, [series], print)
        sitting = Session("s", os.getpid(), started(os.getpid()))
        measure.run_round(loaded, series, 1, sitting, tmp_path / "logs", print)
        folder = tree.root / series.directory / "01"
        read = {arm.name: cells.read(folder / f"{arm.slug}.parquet") for arm in series.arms}
        return {name: (table.to_pylist(), metadata) for name, (table, metadata) in read.items()}

    yield run
    assert len(made) == len(set(made)) > 0
    for file in [*tree.root.rglob("*"), *(tmp_path / "logs").rglob("*")]:
        if file.is_file():
            assert KEYS.encode() not in file.read_bytes(), file


def test_a_round_of_all_modes(rounds: Any, tmp_path: Path) -> None:
    found = rounds("0.6.4", "--fake-leak")
    for name, (rows, metadata) in found.items():
        assert {(row["status"], row["reason"]) for row in rows} == {("ok", None)}, name
        assert metadata["settings_read_back"]["version"] == "0.6.4"
        assert metadata["command_line"][:2] == ["omlx", "serve"]
        assert {row["server_version"] for row in rows} == {"0.6.4"}
        assert {row["cached_tokens"] for row in rows} <= {0, 1, 2}
    cycles = {name: rows[-1]["verify_cycles"] for name, (rows, _) in found.items()}
    assert cycles == {"plain": None, "mtp": 8, "dflash": 8}
    logs = [file.read_text() for file in (tmp_path / "logs").glob("*.log")]
    assert any("this build tells its key: <key>" in text for text in logs)


@pytest.mark.parametrize("fault", ["--fake-fallback", "--fake-silent"])
def test_a_draft_that_does_not_run(rounds: Any, fault: str) -> None:
    found = rounds("0.6.4", fault)
    assert found["plain"][0][-1]["status"] == "ok"
    row = found["dflash"][0][-1]
    assert (row["status"], row["reason"]) == ("spec_inactive", "no sign that speculation ran")


# What is asked of an old version, a missing program, another machine


def with_omlx(data: Data, program: str, **arm: Any) -> Data:
    data["servers"] = {"omlx": {"executable": program}}
    arms = {"plain": {"checkpoint": "small", "server": "omlx", **arm}}
    data["series"] = {"first": {**data["series"]["first"], "arms": arms}}
    return data


@pytest.mark.parametrize(
    ("version", "arm", "where"),
    [
        ("0.5.3", {"settings": NEW}, "arms.plain.settings.hot_cache_write_through"),
        ("0.6.3rc2", {"settings": NEW}, None),
        ("0.6.4", {"settings": NEW}, None),
        ("main", {"settings": NEW}, None),
        ("0.5.3", {"settings": {"hot_cache_write_through": False}}, None),
        (
            "0.5.3",
            {"speculation": "dflash", "draft": "draft", "block_size": 8},
            "arms.plain.block_size",
        ),
        ("0.5.3", {"speculation": "mtp", "block_size": 4}, None),
    ],
)
def test_what_an_old_version_does_not_have(
    tree: Tree, data: Data, tmp_path: Path, version: str, arm: Data, where: str | None
) -> None:
    tree.write(with_omlx(data, str(pretended(tmp_path, version)), **arm))
    if where is None:
        tree.load()
        return
    with pytest.raises(UserError) as caught:
        tree.load()
    assert str(caught.value).startswith(f"campaign.yaml: series.first.{where}: omlx 0.5.3 does not")


@pytest.mark.parametrize(("version", "right"), [("0.5.3", False), ("0.6.4", True)])
def test_sampling_of_dflash(
    tree: Tree, data: Data, tmp_path: Path, version: str, right: bool
) -> None:
    program = str(pretended(tmp_path, version))
    data = with_omlx(data, program, speculation="dflash", draft="draft")
    data["series"]["first"]["workload"]["temperature"] = 0.6
    tree.write(data)
    if right:
        tree.load()
        return
    with pytest.raises(UserError, match=r"series\.first\.workload\.temperature: omlx 0\.5\.3 does"):
        tree.load()


def test_the_path_of_a_program_is_in_no_recipe(tree: Tree, data: Data, tmp_path: Path) -> None:
    tree.write(with_omlx(data, str(pretended(tmp_path, "0.6.4"))))
    loaded = tree.load()
    assert loaded.recipes["servers"]["omlx"]["version"] == "0.6.4"
    assert str(tmp_path) not in json.dumps(loaded.plan.one("first").spec)


def test_a_missing_program(tree: Tree, data: Data, tmp_path: Path) -> None:
    tree.write(with_omlx(data, "no-such-program"))
    with pytest.raises(UserError) as caught:
        tree.load()
    assert str(caught.value) == (
        "campaign.yaml: servers.omlx: the machine's lock knows no version of omlx; install "
        "no-such-program here, then `make lock`"
    )
    program = pretended(tmp_path, "0.6.4")
    tree.write(with_omlx(data, str(program)))
    loaded = tree.load()
    program.unlink()
    with pytest.raises(UserError, match=r"omlx: lock 0\.6\.4, here not found"):
        preflight.check(loaded, loaded.plan.series, print)


def test_a_target_without_a_head(tree: Tree, data: Data, tmp_path: Path) -> None:
    tree.write(with_omlx(data, str(pretended(tmp_path, "0.6.4")), speculation="mtp"))
    loaded = tree.load()
    with pytest.raises(UserError) as caught:
        preflight.check(loaded, loaded.plan.series, print)
    assert str(caught.value) == (
        "campaign.yaml: series.first.arms.plain: the target's config.json names no MTP head of its "
        "own; take a checkpoint that was converted with its head"
    )


def test_the_campaign_of_the_mac_is_planned_anywhere() -> None:
    loaded = campaign.load(M4MAX, ROOT)
    first, *_ = __main__.plan_lines(loaded)
    assert first == (
        "not locked yet: os, os_build, qwen-dflash, qwen-q4, qwen-q6, qwen-q8; `make lock "
        "MACHINE=m4max CAMPAIGN=campaigns/omlx-m4max.yaml` on the machine finds them, and every "
        "fingerprint is then new"
    )
    arms = [arm for series in loaded.plan.series for arm in series.arms]
    assert {arm.speculation for arm in arms} == {"none", "mtp", "dflash"}
    blocks = {arm.block_size for arm in loaded.plan.one("block_size").arms}
    assert blocks == {None, 2, 3, 4, 5, 6, 8, 16}
    assert len(matrix.sweeps(loaded.plan.one("block_size"))[0]) == 8  # one adapts
    assert len(loaded.plan.one("kinds").prompt_kinds) == 5
    assert matrix.switches(loaded.plan.one("runtime"))[-1] == "keep_alive"
    assert {arm.checkpoint for arm in loaded.plan.one("bits").arms} == {"qwen-q4", "qwen-q6"}
    assert loaded.plan.one("two_turns").workload.prompt_tokens == 33000
    assert loaded.plan.one("sampled").workload.temperature == 0.6


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may be the one that is meant")
def test_the_campaign_of_the_mac_is_measured_there() -> None:
    loaded = campaign.load(M4MAX, ROOT)
    with pytest.raises(UserError) as caught:
        preflight.check(loaded, loaded.plan.series, print)
    line = str(caught.value)
    start = "locks/m4max.json: this campaign is measured on Apple M4 Max with 128 GB (metal), and "
    assert line.startswith(start)
    assert line.endswith("run it there; `make plan` and `make tell` work everywhere")


def test_its_machine_has_to_write_the_lock_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = lock.read("m4max", ROOT)["machine"]
    monkeypatch.setattr(machine, "facts", lambda: {**known, "os": "macOS 26.0", "os_build": "25A"})
    loaded = campaign.load(M4MAX, ROOT)
    with pytest.raises(UserError) as caught:
        preflight.check(loaded, loaded.plan.series, print)
    line = str(caught.value)
    assert "os: lock None, here macOS 26.0; os_build: lock None, here 25A" in line
    assert line.endswith("`make lock MACHINE=m4max CAMPAIGN=campaigns/omlx-m4max.yaml`")


def test_the_documented_line_on_an_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    known = lock.read("m4max", ROOT)
    monkeypatch.setattr(lock, "load", lambda *_: {**known, "servers": {"omlx": "0.5.3"}})
    with pytest.raises(UserError) as caught:
        campaign.load(M4MAX, ROOT)
    page = (ROOT / "docs/campaign.md").read_text(encoding="utf-8")
    assert f"```text\n{caught.value}\n```" in page


def test_what_a_lock_does_not_know() -> None:
    known = {"machine": {"chip": "x", "cores": None}, "servers": {"a": "1"}, "checkpoints": {}}
    assert lock.unknown(known) == []
    assert lock.unknown({**known, "checkpoints": {"b": None}}) == ["b"]
