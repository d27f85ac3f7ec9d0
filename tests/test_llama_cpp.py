"""llama.cpp's server: command lines, captured answers, verify rounds from rounded figures."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Tree
from tests.test_stream import load_capture
from twoturn import checkpoints, client, metrics, preflight
from twoturn.engines import Place, ReadsOtherFiles, scale
from twoturn.engines.llama_cpp import LlamaCpp, verify_rounds
from twoturn.errors import UserError
from twoturn.plan import Arm
from twoturn.servers import Launch, Running
from twoturn.stream import Answer, parse

CAPTURES = Path(__file__).parent / "captures" / "llama_cpp"
RUNNING = Running("http://127.0.0.1:1", Launch([], {}, Path(), "m"), 1, 0.0, Path("log"))
PLAIN = Arm("plain", "demo", "llama-cpp", "llama-cpp", "0.10434.0", "none", None, None, {}, ())
DRAFT = replace(PLAIN, name="draft", speculation="draft", block_size=5, draft="small")
NGRAM = replace(PLAIN, name="ngram", speculation="ngram", block_size=9)
ASKED = "I spec  print_stats: statistics  ngram-simple: #calls(b,g,a) =    1    63      0\n"


def captured(name: str) -> Answer:
    arrivals = load_capture(str(CAPTURES / name))
    return parse(arrivals, arrivals[-1][0])


# --- command lines --------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("demo", "small"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.gguf").touch()
    models = {"demo": "models/demo", "small": "models/small"}
    return Place(Path(), tmp_path, 4321, Path("/env/bin/python"), Path("/env/tmp"), models)


START = (
    "/env/bin/llama-server-vulkan --model models/demo/model.gguf --alias models/demo "
    "--host 127.0.0.1 --port 4321 --parallel 1 --offline --no-ui --verbosity 4 --spec-type "
)


@pytest.mark.parametrize(
    ("arm", "more"),
    [
        (PLAIN, "none"),
        # A draft model alone is loaded and never used, and block size counts the anchor.
        (DRAFT, "draft-simple --model-draft models/small/model.gguf --spec-draft-n-max 4"),
        (replace(DRAFT, block_size=None), "draft-simple --model-draft models/small/model.gguf"),
        (NGRAM, "ngram-simple --spec-ngram-simple-size-m 8"),
        (
            replace(NGRAM, settings={"ngram": "map-k", "ngram_lookup": 4}),
            "ngram-map-k --spec-ngram-map-k-size-m 8 --spec-ngram-map-k-size-n 4",
        ),
        (
            replace(NGRAM, settings={"ngram": "mod", "ngram_lookup": 4}),
            "ngram-mod --spec-ngram-mod-n-max 8 --spec-ngram-mod-n-match 4 "
            "--spec-ngram-mod-n-min 1",
        ),
        (
            replace(PLAIN, settings={"prefix_cache": False, "threads": 1, "context": 4096}),
            "none --no-cache-prompt --cache-ram 0 --threads 1 --ctx-size 4096",
        ),
        (
            replace(
                PLAIN, settings={"kv_type": "q8_0", "gpu_layers": 0, "batch": 64}, args=("--x", "y")
            ),
            "none --cache-type-k q8_0 --cache-type-v q8_0 --gpu-layers 0 "
            "--batch-size 64 --ubatch-size 64 --x y",
        ),
    ],
)
def test_command_line(place: Place, arm: Arm, more: str) -> None:
    launch = LlamaCpp().launch(arm, place)
    assert list(launch.argv) == (START + more).split()
    assert (launch.model, launch.cwd) == ("models/demo", place.folder)
    assert launch.env["HOME"] == str(place.home)


def test_which_gguf_file(tmp_path: Path) -> None:
    engine = LlamaCpp()
    assert isinstance(engine, ReadsOtherFiles)
    with pytest.raises(UserError, match=r"holds no GGUF file; put one beside .* or make one"):
        engine.weights(tmp_path)
    (tmp_path / "some-Q4_1.gguf").touch()
    assert engine.weights(tmp_path).name == "some-Q4_1.gguf"
    (tmp_path / "other.gguf").touch()
    with pytest.raises(UserError, match=r"2 GGUF files lie in .* none is called model\.gguf"):
        engine.weights(tmp_path)
    (tmp_path / checkpoints.GGUF).touch()
    assert engine.weights(tmp_path).name == "model.gguf"


def test_a_missing_gguf_file_is_told_before_anything_is_measured(
    tree: Tree, data: dict[str, Any]
) -> None:
    lock = Path(__file__).parents[1] / "workflow/envs/llama-cpp.lock"
    shutil.copy(lock, tree.root / "llama-cpp.lock")
    data["servers"]["one"] = {"install": "llama-cpp.lock", "adapter": "llama-cpp"}
    del data["series"]["first"]["arms"]["quick"]
    tree.write(data)
    loaded = tree.load()
    assert loaded.recipes["servers"]["one"]["version"] == "0.10434.0"
    with pytest.raises(UserError) as caught:
        preflight.check(loaded, [loaded.plan.one("first")], print)
    assert str(caught.value) == (
        "campaign.yaml: series.first.arms.plain: one cannot read small: small holds no GGUF file; "
        "put one beside its config.json, or make one: {make: {from: small, gguf: f16}}"
    )
    assert not (tree.root / ".twoturn/envs").exists()


# --- read back ------------------------------------------------------------------------------------

PROPS = {"model_alias": "models/demo", "model_ftype": "F16", "total_slots": 1, "build_info": "b1"}


@pytest.mark.parametrize(
    ("arm", "props", "slots", "wrong"),
    [
        (PLAIN, PROPS, [{"n_ctx": 64, "speculative": False}], []),
        (NGRAM, PROPS, [{"n_ctx": 64, "speculative": True}], []),
        (NGRAM, None, {"error": {"code": 501}}, []),
        (
            DRAFT,
            PROPS,
            [{"n_ctx": 64, "speculative": False}],
            ["speculation: asked True, the server says False"],
        ),
        (
            PLAIN,
            PROPS | {"model_alias": "models/x"},
            [],
            ["model: asked models/demo, the server says models/x"],
        ),
    ],
)
def test_reads_back(
    monkeypatch: pytest.MonkeyPatch, arm: Arm, props: Any, slots: Any, wrong: list[str]
) -> None:
    told = {"/props": props, "/slots": slots}
    monkeypatch.setattr(client, "get_json", lambda _, path, *__: (200, told[path]))
    said, found = LlamaCpp().read_back(RUNNING, arm)
    assert found == wrong
    assert set(said) == {"model", "weights", "build", "slots", "context", "speculation"}


# --- captured answers -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [file.name for file in sorted(CAPTURES.glob("*.sse"))])
def test_every_capture_is_read_as_it_stands(name: str) -> None:
    """Against the file's own text: figures of usage and timings, nothing that it does not say."""
    text = (CAPTURES / name).read_text()
    said = json.loads(re.findall(r'"timings":(\{[^}]*\})', text)[-1])
    answer = captured(name)
    telemetry = LlamaCpp().telemetry(answer, "")
    wanted = metrics.Wanted(answer.models[-1], said["predicted_n"], None)
    row = metrics.measure(answer, wanted, None)
    assert row.status == "ok"
    assert row.cached_tokens == said["cache_n"]
    assert row.prompt_tokens == said["cache_n"] + said["prompt_n"]
    assert row.completion_tokens == said["predicted_n"]
    assert telemetry.ttft_s == pytest.approx(said["prompt_ms"] / 1000)
    assert telemetry.decode_tok_s == pytest.approx(said["predicted_per_second"])
    assert telemetry.drafted == said.get("draft_n")
    assert telemetry.accepted == said.get("draft_n_accepted")
    assert telemetry.target_steps == said["predicted_n"] - 1 - said.get("draft_n_accepted", 0)
    assert (telemetry.cycles, telemetry.active) == (None, None)  # a stream does not tell rounds
    assert telemetry.speculated == ("draft_n" in said)


@pytest.mark.parametrize(
    ("name", "drafted", "accepted", "tokens_per_step"),
    [
        ("llama_smol_ngsimple_turn1.sse", 40, 17, 63 / 46),
        ("llama_smol_ngcache_turn1.sse", 69, 23, 63 / 40),
        ("llama_smol_selfdraft_turn1.sse", 50, 50, 63 / 13),
        ("llama_tiny_draft3_turn2.sse", 291, 28, 127 / 99),
        ("xllamacpp_tiny_draft4_turn1.sse", 133, 28, 63 / 35),
    ],
)
def test_figures_as_recorded(
    name: str, drafted: int, accepted: int, tokens_per_step: float
) -> None:
    answer = captured(name)
    assert answer.usage is not None
    row = scale(LlamaCpp().telemetry(answer, ""), answer.usage["completion_tokens"])
    assert (row["drafted_tokens"], row["accepted_tokens"]) == (drafted, accepted)
    assert row["tokens_per_step"] == pytest.approx(tokens_per_step)
    assert row["accept_rate"] == pytest.approx(accepted / drafted)
    assert row["verify_cycles"] is row["accept_length"] is row["effective_block_size"] is None


@pytest.mark.parametrize(
    "timings",
    [
        {"predicted_n": 4, "draft_n": 9, "draft_n_accepted": 8},  # it stopped inside a block
        {"predicted_n": 0},
        {"predicted_n": "64", "draft_n": True, "draft_n_accepted": -1},
        {"predicted_n": float("nan")},
    ],
)
def test_steps_that_cannot_be_are_null(timings: dict[str, Any]) -> None:
    telemetry = LlamaCpp().telemetry(Answer(200, "clean", 1.0, timings=timings), "")
    assert telemetry.target_steps is telemetry.cycles is None


# --- proof of mode, verify rounds -----------------------------------------------------------------


def test_a_drafter_that_finds_nothing_ran_all_the_same() -> None:
    answer = captured("llama_smol_none_turn1.sse")
    assert not LlamaCpp().telemetry(answer, "").speculated
    telemetry = LlamaCpp().telemetry(answer, ASKED)
    assert telemetry.speculated
    assert (telemetry.drafted, telemetry.accepted, telemetry.cycles) == (0, 0, 0)
    assert telemetry.target_steps == 63
    row = scale(telemetry, 64)
    assert row["tokens_per_step"] == 1.0
    assert row["accept_length"] is row["accept_rate"] is row["draft_share"] is None


def log(by_place: list[int], drafted: int, rounds: int) -> str:
    """The server's lines after a request, by its own formulas."""
    accepted = sum(by_place)
    mean = 1 + accepted / rounds
    shares = ", ".join(f"{one / rounds:.3f}" for one in by_place)
    return (
        f"slot print_timing: id  0 | task 0 | draft acceptance = {accepted / drafted:.5f} "
        f"({accepted:5d} accepted / {drafted:5d} generated), mean len = {mean:5.2f}\n"
        f"slot print_timing: id  0 | task 0 |      acc per pos = ({shares})\n"
    )


def test_rounds_are_what_all_roundings_allow() -> None:
    said = log([20, 5, 1], 300, 100)
    assert verify_rounds(300, 26, 101, said) == 100
    assert verify_rounds(300, 25, 102, said) is None  # another request's line
    assert verify_rounds(300, 26, 99, said) is None  # more rounds than steps cannot be
    first = said.splitlines()[0]
    assert verify_rounds(300, 26, 101, first) is None  # 1.26 alone: 99, 100, 101 …
    assert verify_rounds(133, 28, 35, log([20, 8], 133, 34).splitlines()[0]) == 34
    assert verify_rounds(60, 0, 63, log([0, 0], 60, 30)) is None  # 1.00 whatever V
    assert verify_rounds(None, None, 63, "") is None
    odd = said.replace("1.26", " nan").replace("0.200", "nan")
    assert verify_rounds(300, 26, 101, odd) is None
    assert verify_rounds(0, 0, 63, "") == 0


CUMULATIVE = """\
I slot print_timing: id  1 | task 0 | draft acceptance = 0.50000 (120 accepted / 240 generated), \
mean acceptance length =  2.50, acceptance rate per position = (0.700, 0.500, 0.300)
I statistics     draft-eagle3: #calls(b,g,a) =    1     80     80, #gen drafts =     80, \
#acc drafts =    60, #gen tokens =    240, #acc tokens =   120, #mean acc len = 2.50
draft acceptance rate = 0.60000 (   90 accepted /   150 generated)
I statistics draft-mtp: #calls(b,g,a) = 10 500 500, #gen drafts = 500, #acc drafts = 430, \
#gen tokens = 1000, #acc tokens = 800, dur(b,g,a) = 0.007, 20000.000, 1.000 ms
"""


def test_cumulative_counters_of_the_log_are_not_read() -> None:
    """`statistics` lines are of the server's life; the line of the request tells of the request,
    also where a build writes its words out."""
    assert verify_rounds(240, 120, 80, CUMULATIVE) == 80
    assert verify_rounds(150, 90, 80, CUMULATIVE) is None  # that line tells no length
    assert verify_rounds(1000, 800, 500, CUMULATIVE) is None
    timings = {"predicted_n": 35, "draft_n": 48, "draft_n_accepted": 30}
    told = LlamaCpp().telemetry(Answer(200, "clean", 1.0, timings=timings), CUMULATIVE)
    assert (told.drafted, told.accepted, told.target_steps, told.cycles) == (48, 30, 4, None)


@given(st.data())
def test_rounds_are_right_or_null(data: st.DataObject) -> None:
    rounds = data.draw(st.integers(1, 300))
    by_place, most = [], rounds
    for _ in range(data.draw(st.integers(1, 8))):
        most = data.draw(st.integers(0, most))
        by_place.append(most)
    accepted, drafted = sum(by_place), rounds * len(by_place)
    steps = rounds + data.draw(st.integers(0, 20))
    found = verify_rounds(drafted, accepted, steps, log(by_place, drafted, rounds))
    assert found in (None, rounds)
