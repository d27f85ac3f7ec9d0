"""A server process: ready, ours, and gone afterwards; every way in which it may not start."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import SCRIPTED
from tests.servers import scripted as scripted_server
from twoturn import client, metrics, servers
from twoturn.errors import UserError
from twoturn.servers import Launch, Running, ServerFault
from twoturn.stream import Answer

ROOT = Path(__file__).parents[1]
Scripted = Callable[..., tuple[Launch, int, Path]]
PATIENT = client.Timeouts(5.0, 30.0, 30.0, 60.0)


def family(port: int) -> list[int]:
    """Processes that were started for a port, guard included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(port) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def gone(port: int, within_s: float = 60.0) -> bool:
    """Whether nothing is left of a server; waiting is only as long as it takes."""
    deadline = time.monotonic() + within_s
    while (left := bool(family(port)) or servers._listening(port)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def ask(running: Running, max_tokens: int = 8) -> metrics.Measured:
    body = {
        "model": running.model,
        "messages": [{"role": "user", "content": "one two three"}],
        "max_tokens": max_tokens,
    }
    sent = client.stream_chat(running.base_url, body, PATIENT)
    return metrics.measure(sent.answer, metrics.Wanted(running.model, max_tokens, None))


@contextlib.contextmanager
def foreign(*options: str) -> Iterator[int]:
    """A scripted server that somebody else has started; its port."""
    port = servers.free_port()
    argv = [sys.executable, str(SCRIPTED), "--port", str(port), "--model", "m", *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield port
        finally:
            process.kill()


def fault(launch: Launch, port: int, log: Path) -> ServerFault:
    with pytest.raises(ServerFault) as caught, servers.run(launch, port, log):
        pytest.fail("the server was taken for ready")
    assert "\n" not in str(caught.value)
    return caught.value


# A life


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to the guard")
def test_a_server_that_leaves_its_group_is_gone_too(scripted: Scripted) -> None:
    launch, port, log = scripted()
    behind = shlex.join(launch.argv)
    hiding = replace(launch, argv=["/bin/sh", "-c", f"setsid {behind} & wait"])
    with servers.run(hiding, port, log) as running:
        assert ask(running).status == "ok"
        assert family(port)
    assert family(port) == []
    assert not servers._listening(port)


def test_the_request_that_proves_it_ready_may_be_given(scripted: Scripted) -> None:
    """Nothing comes before it: even a probe of one token would leave a prompt in the cache."""
    prompt = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 2}
    cached = []

    def ask(
        base_url: str, model: str, timeout_s: float, api_key: str | None = None
    ) -> tuple[int, dict[str, Any] | None]:
        status, answer = client.complete_once(base_url, {**prompt, "model": model}, timeout_s)
        if answer is not None:
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        return status, answer

    for first in (ask, None):
        launch, port, log = scripted("--prompt-cache")
        with servers.run(launch, port, log, first) as running:
            ask(running.base_url, running.model, 30.0)
    assert cached == [0, 2, 1]  # fresh; its own prompt again; after the usual probe


def test_a_server_starts_answers_and_is_gone(scripted: Scripted) -> None:
    launch, port, log = scripted()
    with servers.run(launch, port, log) as running:
        assert running.base_url == f"http://127.0.0.1:{port}"
        assert running.load_s is not None
        assert running.load_s > 0
        assert running.pid is not None
        assert str(SCRIPTED) in psutil.Process(running.pid).cmdline()
        assert len(family(port)) == 2  # the guard and the server
        row = ask(running)
        assert (row.status, row.completion_tokens) == ("ok", 8)
        assert 1.0 <= row.first_chunk_tokens < 8.0  # on a busy machine tokens arrive together
        assert psutil.pid_exists(running.pid)
    assert not psutil.pid_exists(running.pid)
    assert family(port) == []
    assert not servers._listening(port)
    assert log.read_text() == "serving m\n"


def test_it_is_gone_after_an_error_too(scripted: Scripted) -> None:
    launch, port, log = scripted()
    with pytest.raises(KeyboardInterrupt), servers.run(launch, port, log):
        raise KeyboardInterrupt
    assert family(port) == []


def test_loading_takes_part_in_load_s(scripted: Scripted) -> None:
    with servers.run(*scripted("--load-s", "0.4")) as running:
        assert running.load_s is not None
        assert running.load_s >= 0.4


def test_a_server_that_dies_while_it_answers(scripted: Scripted) -> None:
    launch, port, log = scripted("--die-after", "5")
    with servers.run(launch, port, log) as running:
        row = ask(running)
        assert row.status in ("truncated_stream", "connection_lost")
        assert len(row.chunk_times_s) <= 5
        assert running.pid is not None
        assert gone(port)
        assert not psutil.pid_exists(running.pid)


def test_a_server_sees_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    env = servers.clean_env(tmp_path / "home", tmp_path)
    assert "secret" not in env.values()
    assert not {name.lower() for name in env} & {"http_proxy", "https_proxy", "all_proxy"}
    assert (env["HOME"], env["TMPDIR"]) == (str(tmp_path / "home"), str(tmp_path))
    assert env["HF_HUB_OFFLINE"] == "1"
    printed = subprocess.run(
        [sys.executable, "-c", "import os; print(*os.environ)"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"OPENAI_API_KEY", "HTTP_PROXY"} & set(printed.stdout.split())


# The scripted server does what it says; what is checked comes from counts, not from clocks


def talk(running: Running, *texts: str, max_tokens: int = 6) -> list[Answer]:
    """One conversation: each text is a user turn, answers go back as they came."""
    messages: list[dict[str, str]] = []
    answers = []
    for text in texts:
        messages.append({"role": "user", "content": text})
        body = {"model": running.model, "messages": messages, "max_tokens": max_tokens}
        answers.append(client.stream_chat(running.base_url, body, PATIENT).answer)
        messages.append({"role": "assistant", "content": answers[-1].text})
    return answers


def cached(answer: Answer) -> int:
    assert answer.usage is not None
    return int(answer.usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("options", [(), ("--prompt-cache",)])
def test_scripted_second_turn(scripted: Scripted, options: tuple[str, ...]) -> None:
    with servers.run(*scripted(*options)) as running:
        first, second = talk(running, "one two three four", "five six")
    assert first.usage is not None
    assert second.usage is not None
    assert first.timings is not None
    assert second.timings is not None
    # roles are tokens: 1 + 4, then the answer's role, its 6 words, and 1 + 2
    assert (first.usage["prompt_tokens"], second.usage["prompt_tokens"]) == (5, 5 + 7 + 3)
    assert second.usage["completion_tokens"] == len(second.chunks) == 6
    if options:  # the role of the first request's only message is known from the readiness probe
        assert (cached(first), cached(second)) == (1, 5)
        assert second.timings["prompt_ms"] < 20
    else:
        assert (cached(first), cached(second)) == (0, 0)
        assert first.timings["prompt_ms"] == second.timings["prompt_ms"] == 20


def test_scripted_answers_depend_on_prompt_and_seed(scripted: Scripted) -> None:
    texts = []
    for options in ((), ("--noise", "0.5", "--speed", "9"), ("--seed", "1")):
        with servers.run(*scripted(*options)) as running:
            texts.append([talk(running, text)[0].text for text in ("one", "one", "two")])
    assert texts[0] == texts[1]
    assert texts[0][0] == texts[0][1] != texts[0][2]
    assert texts[2][0] != texts[0][0]
    assert [len(word) for word in texts[0][0].split(" ")] == [5] * 6 + [0]


@pytest.mark.parametrize("noise", ["0", "0.1"])
def test_scripted_luck_is_of_the_start(scripted: Scripted, noise: str) -> None:
    rates: list[set[float]] = []
    for _ in range(2):
        with servers.run(*scripted("--noise", noise, "--speed", "2")) as running:
            told = [answer.timings or {} for answer in talk(running, "one", "two")]
            rates.append({figures["predicted_per_second"] for figures in told})
    assert [len(rate) for rate in rates] == [1, 1]
    assert (rates == [{800.0}, {800.0}]) == (noise == "0")
    assert (rates[0] == rates[1]) == (noise == "0")


def test_scripted_schedule() -> None:
    """Token i is due at TTFT + i/rate; from --slow-after on at half the rate."""
    words = ["--port", "0", "--model", "m", "--noise", "0", "--tok-s", "100", "--slow-after", "2"]
    model = scripted_server.Model(scripted_server.options().parse_args(words))
    due = [model.due_s(0.5, index) for index in range(5)]
    assert due == pytest.approx([0.50, 0.51, 0.52, 0.54, 0.56])


# It does not start


def test_a_server_that_ends_while_starting(scripted: Scripted) -> None:
    launch, port, log = scripted()
    argv = [*launch.argv[:2], "--prot", str(port)]
    told = fault(Launch(argv, launch.env, launch.cwd, "m", 60), port, log)
    assert told.status == "start_failed"
    assert str(told) == "the server ended while starting"
    assert "unrecognized arguments" in told.log_tail or "required" in told.log_tail
    assert gone(port)


def test_a_program_that_is_not_there(scripted: Scripted, capfd: pytest.CaptureFixture[str]) -> None:
    launch, port, log = scripted()
    told = fault(Launch(["/no/such/program"], launch.env, launch.cwd, "m", 60), port, log)
    assert told.status == "start_failed"
    assert str(told) == "/no/such/program cannot be started"


def test_a_program_that_is_not_there_makes_no_noise(
    scripted: Scripted, capfd: pytest.CaptureFixture[str]
) -> None:
    launch, port, log = scripted()
    fault(Launch(["/no/such/program"], launch.env, launch.cwd, "m", 60), port, log)
    assert capfd.readouterr().err == ""


def test_a_server_that_is_never_ready(scripted: Scripted) -> None:
    """Ready too early: an open port that answers 503 is not ready, and patience ends."""
    launch, port, log = scripted("--never-ready", deadline_s=2.0)
    told = fault(launch, port, log)
    assert told.status == "start_timeout"
    assert str(told) == "not ready after 2 s (HTTP 503: loading model)"
    assert gone(port)


def test_a_server_that_never_listens(scripted: Scripted) -> None:
    launch, port, log = scripted("--load-s", "600", deadline_s=0.5)
    told = fault(launch, port, log)
    assert (told.status, "nothing was heard" in str(told)) == ("start_timeout", True)
    assert gone(port)


def test_a_wrong_model(scripted: Scripted) -> None:
    """Model id: whoever answers under another one is not the one asked for."""
    told = fault(*scripted("--wrong-model"))
    assert told.status == "wrong_model"
    assert str(told) == "asked for 'm', 'another-model' answered"


def test_an_unknown_model(scripted: Scripted) -> None:
    told = fault(*scripted("--refuse"))
    assert told.status == "wrong_model"
    assert str(told) == "the model id 'm' does not answer (HTTP 404: model m not found)"
    assert told.log_tail == "serving m"


@pytest.mark.parametrize("listener", ["right", "mute"])
def test_somebody_else_has_the_port(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """Stale server on the port: refused whether ours cannot bind or the other answers first."""
    monkeypatch.setattr(servers, "RELEASE_S", 0.2)
    if listener == "right":
        with foreign() as port:
            told = fault(*scripted(port=port))
            assert len(family(port)) == 1  # the other one is not ours to stop
        assert told.status in ("wrong_model", "start_failed")
    else:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            port = mute.getsockname()[1]
            told = fault(*scripted(port=port, deadline_s=1.5))
        assert told.status in ("start_timeout", "start_failed")


def test_an_answer_of_another_process_is_refused(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours lives but listens elsewhere, and the right model answers on the port."""
    monkeypatch.setattr(servers, "RELEASE_S", 0.2)
    with foreign() as port:
        launch, _, log = scripted()  # on a port of its own
        told = fault(launch, port, log)
    assert told.status == "wrong_model"
    assert str(told) == f"port {port} is answered by a process that is not ours"


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_is_wanted(scripted: Scripted, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """401: told at once, without trying for minutes."""
    refusal = (status, {"error": {"message": "no key"}})
    monkeypatch.setattr(servers, "ask_one_token", lambda *_: refusal)
    told = fault(*scripted())
    assert told.status == "unauthorized"
    assert str(told) == f"the server wants a key (HTTP {status}: no key)"


@pytest.mark.parametrize("status", [0, 408, 425, 429, 500, 502, 503])
def test_a_passing_fault_is_waited_for(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Ready too early: what a loading server says is waited for."""
    real, said = servers.ask_one_token, [(status, None), (200, {}), (200, None)]
    monkeypatch.setattr(servers, "ask_one_token", lambda *a: said.pop() if said else real(*a))
    with servers.run(*scripted()) as running:
        assert ask(running).status == "ok"
    assert said == []


# Its parent dies

PARENT = """
import sys
import threading
from pathlib import Path
from twoturn import servers
launch = servers.Launch(sys.argv[4:], {}, Path(sys.argv[1]), "m", 60)
with servers.run(launch, int(sys.argv[2]), Path(sys.argv[3])) as running:
    print(running.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_does_not_outlive_its_parent(scripted: Scripted, number: int) -> None:
    launch, port, log = scripted()
    argv = [sys.executable, "-c", PARENT, str(launch.cwd), str(port), str(log), *launch.argv]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert pid in family(port)
        parent.send_signal(number)
    assert gone(port)


# Its log and its environment


def test_a_log_that_comes_after_the_answer_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    tail = servers.LogTail(log)
    assert tail.when(lambda said: "end" in said, 0.05) == ""  # patience ends
    late = threading.Timer(0.1, log.write_text, ["before\nlate\nend\n"])
    late.start()
    assert tail.when(lambda said: "end" in said, 10.0) == "late\nend\n"
    late.join()
    assert tail.since() == "late\nend\n"


def test_log_tail(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert servers.log_tail(log) == ""
    log.write_bytes(b"".join(b"line %d\n" % n for n in range(20_000)) + b"caf\xff\n")
    lines = servers.log_tail(log).splitlines()
    assert len(lines) == servers.LOG_TAIL
    assert lines[-1] == "caf\ufffd"
    assert lines[0] == f"line {20_001 - servers.LOG_TAIL}"


def installed(folder: Path, *packages: tuple[str, str]) -> Path:
    for name, version in packages:
        info = folder / f"lib/python3.11/site-packages/{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({"some-package": "1.0", "other": "2"}, []),
        ({"Some.Package": "1.0", "other": "1 or 2", "not_for_here": "3"}, []),
        (
            {"some-package": "1.1", "other": "2"},
            ["some-package: pinned 1.1, installed 1.0"],
        ),
        ({"some-package": "1.0"}, ["other: pinned not at all, installed 2"]),
    ],
)
def test_what_lies_in_an_environment(
    tmp_path: Path, pins: dict[str, str], words: list[str]
) -> None:
    folder = installed(tmp_path, ("Some_Package", "1.0"), ("other", "2"))
    assert servers.environment_differences(folder, pins) == words


def test_a_whole_environment_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, ...]] = []

    def uv(lock_file: str, *arguments: str) -> None:
        made.append(arguments)
        (tmp_path / "env").mkdir(exist_ok=True)

    monkeypatch.setattr(servers, "_uv", uv)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "half").touch()  # of a run that was killed
    for _ in range(2):
        python = servers.ensure_environment(tmp_path, "x.lock", tmp_path / "env")
        assert python == tmp_path / "env/bin/python"
    assert len(made) == 2
    assert "--require-hashes" in made[1]
    assert not (tmp_path / "env" / "half").exists()


def test_a_lock_file_that_cannot_be_installed(tmp_path: Path) -> None:
    (tmp_path / "x.lock").write_text("no-hash==1\n")
    with pytest.raises(servers.UserError) as caught:
        servers.ensure_environment(tmp_path, "x.lock", tmp_path / "env")
    assert str(caught.value).startswith("x.lock: the environment cannot be made: ")
    assert not (tmp_path / "env" / ".complete").exists()


def living_in(folder: Path) -> subprocess.Popen[bytes]:
    """A process of its own group, whose home is in the folder of a cell."""
    (folder / "home").mkdir(parents=True)
    env = servers.clean_env(folder / "home", folder)
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(argv, env=env, start_new_session=True)


def test_what_a_crashed_run_left_is_stopped_and_nothing_else(tmp_path: Path) -> None:
    ours, others = living_in(tmp_path / "1-aa"), living_in(tmp_path / "1-aab")
    try:
        servers.stop_stale(tmp_path / "1-aa")
        assert not psutil.pid_exists(ours.pid)
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


@pytest.mark.parametrize("noted", ["right", "another start", "garbage", None])
def test_where_surroundings_are_not_shown_number_and_start_are_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: str | None
) -> None:
    def hidden(process: psutil.Process) -> dict[str, str]:
        raise psutil.AccessDenied(process.pid)

    process = living_in(tmp_path / "1-aa")
    monkeypatch.setattr(psutil.Process, "environ", hidden)
    try:
        file = tmp_path / "1-aa" / servers.PROCESS
        servers._note(process.pid, file)
        told = json.loads(file.read_text())
        if noted == "another start":
            file.write_text(json.dumps({**told, "started": told["started"] - 1}))
        elif noted == "garbage":
            file.write_text("[")
        elif noted is None:
            file.unlink()
        servers.stop_stale(tmp_path / "1-aa")
        assert (process.poll() is not None) == (noted == "right")
    finally:
        process.kill()
        process.wait()


def test_a_running_server_is_noted_with_its_start(scripted: Scripted) -> None:
    launch, port, log = scripted()
    with servers.run(launch, port, log) as running:
        assert running.pid is not None
        started = psutil.Process(running.pid).create_time()
        assert servers._noted(log.with_name(servers.PROCESS)) == (running.pid, started)


def test_a_process_of_the_group_that_is_left_is_told(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RELEASE_S", 0.1)
    monkeypatch.setattr(servers, "_group_is_gone", lambda pid: False)
    launch, port, log = scripted()
    left = pytest.raises(UserError, match="a process of it is left; stop that process")
    with left, servers.run(launch, port, log):
        pass


def test_a_killed_guard_leaves_no_server_where_the_kernel_does_not_help(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Mac: nothing binds the server to the guard's life."""
    alone = tmp_path / "guard.py"
    alone.write_text(servers.GUARD.read_text().replace('sys.platform == "linux"', "False"))
    monkeypatch.setattr(servers, "GUARD", alone)
    launch, port, log = scripted()
    with servers.run(launch, port, log) as running:
        assert running.pid is not None
        (guard,) = (
            process for process in psutil.Process().children() if process.pid != os.getpid()
        )
        guard.kill()
        while guard.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert psutil.Process(running.pid).status() != psutil.STATUS_ZOMBIE
    assert gone(port)
