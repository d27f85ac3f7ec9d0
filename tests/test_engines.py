"""Adapters: command lines, environment, and one scale for the figures of speculation."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import RECIPES, SCRIPTED, Tree, parsed, planned
from tests.test_stream import load_capture
from twoturn import client, config, engines, preflight, servers
from twoturn.engines import Engine, Place, Telemetry, contradiction, scale
from twoturn.engines.base import count, rate
from twoturn.engines.command import Command
from twoturn.engines.mlx_lm import MlxLm
from twoturn.engines.mlx_vlm import MlxVlm
from twoturn.errors import UserError
from twoturn.exchange import Exchange
from twoturn.plan import Arm
from twoturn.servers import Launch, Running
from twoturn.stream import Answer, parse

Data = dict[str, Any]
ROOT = Path(__file__).parents[1]
PLAIN = Arm("plain", "demo", "mlx-vlm", "mlx-vlm", "0.7.10", "none", None, None, {}, ())
MTP = replace(PLAIN, name="mtp", speculation="mtp", block_size=3, draft="head")
DFLASH = replace(PLAIN, name="dflash", speculation="dflash", block_size=None, draft="head")
PLACE = Place(
    ROOT, Path("/cell"), 4321, Path("/env/bin/python"), Path("/env/tmp"),
    {"demo": "models/demo", "head": "models/head"},
)  # fmt: skip

RUNNING = Running("http://127.0.0.1:1", Launch([], {}, Path(), "m"), 1, 0.0, Path("log"))


def told(engine: Engine, answer: Answer) -> Telemetry:
    return engine.telemetry(answer, "")


def captured(name: str) -> Answer:
    arrivals = load_capture(name)
    return parse(arrivals, arrivals[-1][0])


# mlx-vlm


@pytest.mark.parametrize(
    ("arm", "more"),
    [
        (PLAIN, []),
        (MTP, ["--draft-model", "models/head", "--draft-kind", "mtp", "--draft-block-size", "3"]),
        (DFLASH, ["--draft-model", "models/head", "--draft-kind", "dflash"]),
        (
            replace(DFLASH, adaptive=True),  # it always adapts, up to the trained block
            ["--draft-model", "models/head", "--draft-kind", "dflash"],
        ),
        (replace(PLAIN, args=("--x", "a b")), ["--x", "a b"]),
        (replace(PLAIN, settings={"prefill_step_size": 512}), ["--prefill-step-size", "512"]),
        (replace(PLAIN, settings={"kv_bits": 8}), ["--kv-bits", "8"]),
    ],
)
def test_mlx_vlm_command_line(arm: Arm, more: list[str]) -> None:
    launch = MlxVlm().launch(arm, PLACE)
    start = "/env/bin/python -m mlx_vlm.server --model models/demo --host 127.0.0.1 --port 4321"
    assert list(launch.argv) == [*start.split(), *more]
    assert (launch.model, launch.cwd) == ("models/demo", Path("/cell"))


@pytest.mark.parametrize(
    ("settings", "enabled"),
    [({}, "1"), ({"prefix_cache": True}, "1"), ({"prefix_cache": False}, "0")],
)
def test_mlx_vlm_prefix_cache(settings: Data, enabled: str) -> None:
    launch = MlxVlm().launch(replace(PLAIN, settings=settings), PLACE)
    assert launch.env["APC_ENABLED"] == enabled
    assert launch.env["APC_DISK_ENABLED"] == "0"  # what outlives a server would warm the next arm
    assert (
        launch.settings
        == {"prefix_cache": True, "cache_blocks": None, "prefill_step_size": None, "kv_bits": None}
        | settings
    )
    assert launch.env["HOME"] == "/cell/home"
    assert "APC_NUM_BLOCKS" not in launch.env


def test_mlx_vlm_size_of_the_prefix_cache() -> None:
    launch = MlxVlm().launch(replace(PLAIN, settings={"cache_blocks": 16}), PLACE)
    assert launch.env["APC_NUM_BLOCKS"] == "16"
    assert launch.env["TMPDIR"] == "/env/tmp"


@pytest.mark.parametrize(
    ("health", "wrong"),
    [
        ({"apc_enabled": True, "loaded_model": "models/demo"}, []),
        ({}, []),
        (None, []),
        ([], []),
        ({"apc_enabled": False}, ["prefix_cache: asked True, the server says False"]),
        (
            {"apc_enabled": True, "loaded_model": "models/x"},
            ["model: asked models/demo, the server says models/x"],
        ),
    ],
)
def test_mlx_vlm_reads_back(monkeypatch: pytest.MonkeyPatch, health: Any, wrong: list[str]) -> None:
    monkeypatch.setattr(client, "get_json", lambda *_: (200, health))
    said, found = MlxVlm().read_back(RUNNING, PLAIN)
    assert found == wrong
    assert set(said) == {"prefix_cache", "model"}


@pytest.mark.parametrize(
    ("name", "n", "counts"),
    [
        ("q35_mlxvlm_mtp_b4_turn1.sse", 128, (59, 175, 69)),
        ("q35_mlxvlm_dflash_b5_turn2.sse", 128, (106, 317, 21)),
        ("mlx_vlm_mtp_apc1_turn2.sse", 48, (47, 93, 0)),
    ],
)
def test_mlx_vlm_speculation_as_recorded(name: str, n: int, counts: tuple[int, int, int]) -> None:
    rounds, drafted, accepted = counts
    telemetry = told(MlxVlm(), captured(name))
    assert (telemetry.cycles, telemetry.drafted, telemetry.accepted) == counts
    row = scale(telemetry, n)
    assert row == {
        "verify_cycles": rounds,
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
        "effective_block_size": pytest.approx(1 + drafted / rounds),
        "accept_length": pytest.approx(1 + accepted / rounds),
        "tokens_per_step": pytest.approx((n - 1) / rounds),
        "accept_rate": pytest.approx(accepted / drafted),
        "draft_share": pytest.approx(accepted / n),
    }


def test_mlx_vlm_without_a_draft_as_recorded() -> None:
    telemetry = told(MlxVlm(), captured("q35_mlxvlm_nodraft_turn1.sse"))
    row = scale(telemetry, 128)
    assert row.pop("tokens_per_step") == 1.0
    assert set(row.values()) == {None}
    assert telemetry.ttft_s == pytest.approx(0.5640330750002249)
    assert telemetry.decode_tok_s == pytest.approx(508.03342656776823)


def test_mlx_vlm_fault_as_recorded() -> None:
    answer = captured("mlx_vlm_dflash_rq3_turn1.sse")
    assert answer.error is not None
    assert told(MlxVlm(), answer) == Telemetry()


# mlx-lm


def hybrid(folder: Path) -> Path:
    """The demo's target, which has recurrent layers, under the name that mlx-lm knows."""
    shutil.copytree(ROOT / "checkpoints/demo/target", folder)
    config = json.loads((folder / "config.json").read_text())
    told = {"model_type": "qwen3_5", "text_config": config, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def test_mlx_lm_takes_a_draft_where_its_cache_can_be_trimmed() -> None:
    target, python = ROOT / "checkpoints/demo/llama", Path(sys.executable)
    assert MlxLm().refusal(replace(PLAIN, speculation="draft"), target, python) is None
    assert MlxLm().refusal(PLAIN, Path("nowhere"), Path("no python")) is None
    assert MlxLm().refusal(replace(PLAIN, speculation="draft"), target, Path("no")) is None


def test_mlx_lm_refusal_is_told_before_anything_is_measured(
    tree: Tree, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server would answer nothing until the deadline: `captures/mlx-lm/hybrid_draft.http`."""
    (tree.root / "workflow/envs").mkdir(parents=True)
    shutil.copy(ROOT / "workflow/envs/mlx-lm.lock", tree.root / "workflow/envs")
    for name in ("small", "draft"):
        shutil.rmtree(tree.root / "models" / name)
    hybrid(tree.root / "models/small")
    shutil.copytree(ROOT / "checkpoints/demo/llama-draft", tree.root / "models/draft")
    data["servers"] = {"mlx-lm": {"install": "workflow/envs/mlx-lm.lock"}}
    drafted = {"speculation": "draft", "draft": "draft", "block_size": 4}
    arm = {"checkpoint": "small", "server": "mlx-lm", **drafted}
    data["series"] = {"first": {**data["series"]["first"], "arms": {"plain": arm}}}
    tree.write(data)
    loaded = tree.load()
    # The environment is not made for it: this Python has mlx-lm too.
    monkeypatch.setattr(preflight, "server_python", lambda *_: Path(sys.executable))
    with pytest.raises(UserError) as caught:
        preflight.check(loaded, [loaded.plan.one("first")], print)
    assert str(caught.value) == (
        "campaign.yaml: series.first.arms.plain: mlx-lm takes back no draft on small: its "
        "ArraysCache cannot be trimmed, and the server would answer nothing; take another target "
        "or server, or leave the speculation out"
    )


# Any program


def launched(command: tuple[str, ...], arm: Arm = PLAIN) -> Launch:
    return Command(command).launch(arm, replace(PLACE, python=None))


def test_placeholders_are_filled_in() -> None:
    launch = launched(("{python}", "x.py", "--port={port}", "{model}", "{other}"))
    assert list(launch.argv) == [sys.executable, "x.py", "--port=4321", "models/demo", "{other}"]
    assert launch.start_deadline_s == 600.0


def test_settings_and_arguments_of_the_arm() -> None:
    settings = {"model": "its-own-name", "start_deadline_s": 5}
    arm = replace(PLAIN, settings=settings, args=("--fast", "{port}"))
    launch = launched(("sh", "{model}"), arm)
    assert list(launch.argv)[1:] == ["its-own-name", "--fast", "{port}"]
    assert Path(launch.argv[0]).is_absolute()
    assert (launch.model, launch.start_deadline_s) == ("its-own-name", 5.0)


def test_a_program_that_is_not_here() -> None:
    with pytest.raises(UserError, match="the program 'no-such-program' is not found"):
        launched(("no-such-program",))


def test_a_path_of_the_project_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    script = str(SCRIPTED.relative_to(ROOT))
    launch = launched(("{python}", script))
    assert (launch.cwd / launch.argv[1]).is_file()


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        (None, Telemetry()),
        ({}, Telemetry()),
        (
            {"predicted_per_second": 50.0, "prompt_ms": 250.0},
            Telemetry(decode_tok_s=50.0, ttft_s=0.25),
        ),
        ({"draft_n": 9, "draft_n_accepted": 3}, Telemetry(drafted=9, accepted=3)),
        (
            {"draft_rounds": 3, "draft_n": 9, "draft_n_accepted": 3},
            Telemetry(cycles=3, drafted=9, accepted=3, target_steps=3),
        ),
        ({"draft_n": "9", "prompt_ms": -1, "predicted_per_second": True}, Telemetry()),
    ],
)
def test_what_a_program_tells(timings: Data | None, expected: Telemetry) -> None:
    assert told(Command(), Answer(200, "clean", 1.0, timings=timings)) == expected


def test_a_scripted_server_tells_what_it_did(
    scripted: Callable[..., tuple[Launch, int, Path]],
) -> None:
    launch, port, log = scripted("--draft", "--block-size", "4", "--accept-length", "2")
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 21}
    with servers.run(launch, port, log) as running:
        sent = client.stream_chat(running.base_url, body, client.Timeouts(5, 30, 30, 60))
        assert Command().read_back(running, PLAIN) == ({}, [])
    row = scale(told(Command(), sent.answer), 21)
    assert (row["verify_cycles"], row["drafted_tokens"], row["accepted_tokens"]) == (10, 30, 10)
    assert (row["accept_length"], row["tokens_per_step"]) == (2.0, 2.0)
    assert row["effective_block_size"] == 4.0


# One scale

COUNTS = st.none() | st.integers(0, 10_000)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_scale_holds_for_any_counts(
    cycles: int | None,
    drafted: int | None,
    accepted: int | None,
    steps: int | None,
    emitted: int | None,
) -> None:
    row = scale(Telemetry(None, None, cycles, drafted, accepted, steps), emitted)
    assert row["accept_length"] is None or row["accept_length"] >= 1
    assert row["effective_block_size"] is None or row["effective_block_size"] >= 1
    if not cycles:
        assert row["accept_length"] is row["effective_block_size"] is row["draft_share"] is None
    if accepted is None:
        assert row["accept_length"] is row["accept_rate"] is row["draft_share"] is None
    elif drafted and accepted <= drafted:
        assert row["accept_rate"] is not None
        assert 0 <= row["accept_rate"] <= 1


def test_draft_share_is_not_accept_rate() -> None:
    """1 - 1/2.21 = 0.547: what is often called an acceptance rate is a share of the output."""
    row = scale(Telemetry(cycles=100, drafted=300, accepted=121, target_steps=100), 221)
    assert row["accept_length"] == pytest.approx(2.21)
    assert row["draft_share"] == pytest.approx(1 - 1 / 2.21)
    assert row["accept_rate"] == pytest.approx(121 / 300)


def test_acceptance_has_three_meanings() -> None:
    """401 tokens in 60 rounds: 85 % of the output was drafted, which at a block of 16 is 38 % of
    the drafts, and 6.7 tokens a round. Without the drafted count there is no rate."""
    counts = Telemetry(cycles=60, drafted=60 * 15, accepted=341, target_steps=60)
    row = scale(counts, 401)
    assert row["draft_share"] == pytest.approx(0.850, abs=5e-4)
    assert row["accept_rate"] == pytest.approx(0.379, abs=5e-4)
    assert row["accept_length"] == pytest.approx(6.683, abs=5e-4)
    row = scale(counts.but(drafted=None), 401)
    assert (row["accept_rate"], row["effective_block_size"]) == (None, None)
    assert row["accept_length"] == pytest.approx(6.683, abs=5e-4)
    row = scale(counts.but(cycles=None, target_steps=None), 401)
    assert row["accept_length"] is row["draft_share"] is row["tokens_per_step"] is None


@given(
    block=st.integers(2, 16),
    taken=st.lists(st.integers(0, 15), min_size=1, max_size=60),
    past=st.integers(0, 15),
    drafted=st.booleans(),
)
def test_a_bonus_token_is_counted_once_and_what_can_be_is_believed(
    block: int, taken: list[int], past: int, drafted: bool
) -> None:
    """Whatever each round accepts, also past the end of the answer, where the last block is cut."""
    accepted = [min(one, block - 1) for one in taken]
    emitted = 1 + sum(accepted) + len(accepted) - min(past, accepted[-1])
    counts = Telemetry(
        cycles=len(accepted),
        drafted=len(accepted) * (block - 1) if drafted else None,
        accepted=sum(accepted),
        target_steps=len(accepted),
    )
    assert contradiction(counts, emitted, block) is None
    length = scale(counts, emitted)["accept_length"]
    assert length is not None
    assert 1 <= length <= block


SAID = "40 rounds accepted 44 tokens, the answer has 45"


@pytest.mark.parametrize(
    ("counts", "emitted", "block", "said"),
    [
        # drafted and accepted were changed over: 1 + 500/100 would be 6 of a block of 2
        (
            Telemetry(cycles=100, drafted=100, accepted=500),
            601,
            8,
            "500 tokens accepted of 100 drafted",
        ),
        (
            Telemetry(cycles=20, accepted=77, target_steps=20),
            98,
            4,
            "77 tokens accepted in 20 rounds, with a block of 4",
        ),
        # a lifetime's counters
        (
            Telemetry(cycles=1100, drafted=7700, accepted=3500),
            601,
            8,
            "1100 rounds accepted 3500 tokens, the answer has 601",
        ),
        # each round is a step, and most of the answer came without one
        (
            Telemetry(cycles=10, drafted=70, accepted=20, target_steps=10),
            601,
            8,
            "10 rounds accepted 20 tokens, the answer has 601",
        ),
        # the same where other steps had no draft
        (Telemetry(cycles=10, drafted=70, accepted=20, target_steps=570), 601, 8, None),
        (Telemetry(cycles=20, accepted=9_999), None, None, None),  # nothing to hold it against
        (Telemetry(cycles=20), 98, 4, None),
        # left to the server, which may choose a long last block
        (Telemetry(cycles=40, drafted=45, accepted=30), 45, None, None),
        (Telemetry(cycles=40, drafted=45, accepted=44), 45, None, SAID),
        (Telemetry(cycles=0, drafted=0, accepted=0, target_steps=47), 48, 4, None),
        (Telemetry(), None, None, None),
    ],
)
def test_a_bonus_token_or_a_foreign_count_that_cannot_be_is_told(
    counts: Telemetry, emitted: int | None, block: int | None, said: str | None
) -> None:
    assert contradiction(counts, emitted, block) == said


@pytest.mark.parametrize(
    ("value", "whole", "positive"),
    [
        (3, 3, 3.0),
        (3.0, 3, 3.0),
        (0, 0, None),
        (2.5, None, 2.5),
        (-1, None, None),
        (True, None, None),
        ("3", None, None),
        (None, None, None),
        (float("nan"), None, None),
    ],
)
def test_reported_numbers(value: Any, whole: int | None, positive: float | None) -> None:
    assert count(value) == whole
    assert rate(value) == positive


def test_an_infinite_count_is_none() -> None:
    """Python's json reads Infinity, so a server can send it."""
    assert count(float("inf")) is None


# Whether speculation ran


@pytest.mark.parametrize(
    ("telemetry", "asked", "status"),
    [
        (Telemetry(), "none", None),
        (Telemetry(cycles=0, drafted=0), "none", None),
        (Telemetry(drafted=3), "none", "spec_unexpected"),
        (Telemetry(active=True), "none", "spec_unexpected"),
        (Telemetry(), "ngram", "spec_inactive"),
        (Telemetry(cycles=0, drafted=0), "ngram", "spec_inactive"),
        (Telemetry(drafted=3), "ngram", None),
        # It looked for something to repeat and found nothing.
        (Telemetry(cycles=0, drafted=0, active=True), "ngram", None),
        (Telemetry(cycles=2, drafted=8, active=False), "ngram", "spec_inactive"),
    ],
)
def test_whether_the_asked_mode_ran(telemetry: Telemetry, asked: Any, status: str | None) -> None:
    running = servers.Running("", "m", 1, 0.1, Path("log"))
    arm = replace(PLAIN, speculation=asked)
    sender = Exchange(None, MlxVlm(), arm, running, None, 8)  # type: ignore[arg-type]
    fault = sender._fault(telemetry, 0.0)
    assert (fault and fault[0]) == status


# What a campaign may ask for


def refused(data: Data) -> str:
    with pytest.raises(UserError) as caught:
        engines.check(parsed(data), "c.yaml")
    return str(caught.value)


def test_the_base_is_allowed(data: Data) -> None:
    engines.check(parsed(data), "c.yaml")
    assert isinstance(engines.get(parsed(data), "one"), Command)
    data["servers"]["one"] = {"install": "x.lock", "adapter": "mlx-vlm"}
    assert isinstance(engines.get(parsed(data), "one"), MlxVlm)


def test_an_unknown_adapter(data: Data) -> None:
    data["servers"]["one"] = {"executable": "one"}
    known = ", ".join(sorted(engines.ADAPTERS))
    assert refused(data) == (
        f"c.yaml: servers.one: there is no adapter for 'one'; known: {known}; or start it with "
        "`command`"
    )


def with_mlx_vlm(data: Data, **arm: Any) -> Data:
    data["servers"]["one"] = {"install": "x.lock", "adapter": "mlx-vlm"}
    data["series"]["first"]["arms"]["plain"].update(arm)
    return data


def test_an_unknown_mode(data: Data) -> None:
    assert refused(with_mlx_vlm(data, speculation="ngram")) == (
        "c.yaml: series.first.arms.plain.speculation: one does not know 'ngram'; it knows none, "
        "mtp, dflash"
    )


def test_an_adaptive_block_where_the_server_adapts(data: Data) -> None:
    dflash = {"speculation": "dflash", "draft": "draft", "block_size": "adaptive"}
    engines.check(parsed(with_mlx_vlm(data, **dflash)), "c.yaml")
    assert refused(with_mlx_vlm(data, **dflash | {"speculation": "mtp"})) == (
        "c.yaml: series.first.arms.plain.block_size: one does not adapt the block of mtp; name a "
        "size, or leave it out for the server's own"
    )
    data["servers"]["one"] = {"executable": "omlx", "adapter": "omlx"}
    del data["series"]["first"]["arms"]["quick"]
    data["series"]["first"]["arms"]["plain"] |= dflash
    engines.check(parsed(data), "c.yaml")
    data["series"]["first"]["arms"]["plain"]["settings"] = {"dflash_verify_mode": "dflash"}
    assert refused(data) == (
        "c.yaml: series.first.arms.plain.settings.dflash_verify_mode: an adaptive block is "
        "dflash_verify_mode: adaptive; leave it out, or name the size of the block"
    )


@pytest.mark.parametrize(
    ("key", "cure"),
    [
        ("prefix_cash", "did you mean 'prefix_cache'?"),
        ("zzz", "it has cache_blocks, kv_bits, prefill_step_size, prefix_cache"),
    ],
)
def test_an_unknown_setting(data: Data, key: str, cure: str) -> None:
    assert refused(with_mlx_vlm(data, settings={key: 1})) == (
        f"c.yaml: series.first.arms.plain.settings.{key}: one has no setting '{key}'; {cure}"
    )


@pytest.mark.parametrize("value", ["off", "no", 2])
def test_a_setting_of_another_type(data: Data, value: Any) -> None:
    """A quoted "off" is a text, and texts are true: the cache would be on."""
    assert "prefix_cache" in refused(with_mlx_vlm(data, settings={"prefix_cache": value}))


@pytest.mark.parametrize("value", ["soon", float("nan"), -1])
def test_a_deadline_that_is_none(data: Data, value: Any) -> None:
    data["series"]["first"]["arms"]["plain"]["settings"] = {"start_deadline_s": value}
    assert "start_deadline_s" in refused(data)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"executable": "mlx_vlm.server", "adapter": "mlx-vlm"},
            "servers.one.executable: mlx-vlm is not started by 'executable'; let the workflow make "
            "its environment: install: workflow/envs/….lock",
        ),
        (
            {"install": "workflow/envs/mlx-lm.lock", "adapter": "omlx"},
            "servers.one.install: omlx is not started by 'install'; name the program that is on "
            "this machine: executable: omlx",
        ),
    ],
)
def test_how_a_server_comes_here(data: Data, entry: Data, line: str) -> None:
    data["servers"]["one"] = entry
    assert refused(data) == f"c.yaml: {line}"


def test_an_mtp_head_is_a_checkpoint_of_its_own(data: Data) -> None:
    assert refused(with_mlx_vlm(data, speculation="mtp")) == (
        "c.yaml: series.first.arms.plain: speculation mtp needs `draft`, a checkpoint's name"
    )


@pytest.mark.parametrize(("draft", "right"), [(None, True), ("draft", False)])
def test_an_mtp_head_inside_the_target(data: Data, draft: str | None, right: bool) -> None:
    data["servers"]["one"] = {"executable": "omlx", "adapter": "omlx"}
    quick = {"checkpoint": "small", "server": "one", "speculation": "mtp", "draft": draft}
    data["series"]["first"]["arms"]["quick"] = quick
    if right:
        engines.check(parsed(data), "c.yaml")
    else:
        assert refused(data) == (
            "c.yaml: series.first.arms.quick.draft: one takes the MTP head that lies in the "
            "target's own checkpoint; leave `draft` out"
        )


def test_the_adapter_command_needs_a_command(data: Data) -> None:
    data["servers"]["one"] = {"executable": "sh", "adapter": "command"}
    assert "servers.one" in refused(data)


def test_an_adapter_beside_a_command(data: Data) -> None:
    data["servers"]["one"]["adapter"] = "mlx-vlm"
    assert "servers.one.adapter: the adapter command and the key `command` go" in refused(data)


@pytest.mark.parametrize(
    ("raw", "numbers"),
    [
        ("0.6.3rc2", (0, 6, 3)),
        ("0.7.0.dev4", (0, 7, 0)),
        ("0.5.7 (build 2142)", (0, 5, 7)),
        ("0.6.2-dflash2", (0, 6, 2)),
        ("0.1.10+omlx.6", (0, 1, 10)),
        ("version: 9894 (a8cfdbb9e4c4)\nbuilt with GNU 16.1.1 for Linux x86_64", ()),
        ("b10217-ddd4ec142", ()),
        ("b9465-23e6dab86", ()),
        ("0.28.1rc1.dev43+gabc1234", (0, 28, 1)),
        ("0.4.8 (Build 1)", (0, 4, 8)),
        ("0.3.5 build2", (0, 3, 5)),
        ('{"version":"0.33.2"}', (0, 33, 2)),
        ("26.6.1 (25G76)", (26, 6, 1)),
        ("main", ()),
        ("", ()),
    ],
)
def test_version_forms_are_kept_raw_and_read_where_they_can_be(
    data: Data, raw: str, numbers: tuple[int, ...]
) -> None:
    """Only the numbers are compared, and an unknown form is not judged."""
    assert engines._numbers(raw) == numbers
    told = {name: {**one, "version": raw} for name, one in RECIPES["servers"].items()}
    plan = planned(data, {**RECIPES, "servers": told})
    assert {arm.version for series in plan.series for arm in series.arms} == {raw}


@pytest.mark.parametrize("adapter", engines.ADAPTERS.values())
def test_adapters_keep_to_the_protocol(adapter: type[Engine]) -> None:
    assert engines.ADAPTERS[adapter.name] is adapter
    assert set(adapter.modes) <= set(config.SPECULATION)
    assert adapter.Settings.model_config["extra"] == "forbid"
    assert adapter.Settings.model_config["strict"] is True
