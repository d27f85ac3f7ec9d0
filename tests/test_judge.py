"""Measurements made elsewhere: what their design carries, the verdicts, and bad files."""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from twoturn import judge, numbers
from twoturn.__main__ import main
from twoturn.judging import design, tables
from twoturn.stats.base import Slot
from twoturn.stats.verdict import compare

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
CELLS = Path(__file__).parent / "fixtures" / "cells_demo.parquet"
RUNS = DATA / "dflash_mlx_v0141_runs.csv"
BENCH = DATA / "llama_bench.json"
INTERLEAVED = DATA / "interleaved.csv"
PAIRS = "--pairs baseline=baseline_tps,dflash=dflash_tps --columns round=run --metric decode_tok_s"

COMPARING = re.compile(r"\b(faster|slower|sooner|later than|same speed)\b|szybsz|wolniej", re.I)


class Judged:
    """What the command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def results(self) -> list[dict[str, Any]]:
        return [result for study in json.loads(self.out) for result in study["results"]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Judged]:
    def call(*files: Path, options: str = "") -> Judged:
        try:
            code = main(["judge", *map(str, files), *shlex.split(options)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        told = capsys.readouterr()
        return Judged(code, told.out, told.err)

    return call


def table(
    file: Path, order: str, *, log_ratio: float = 0.3, drift: float = 0.0, noise: float = 0.01
) -> Path:
    """Runs `B` and `A` in an order of time, one a minute; B ÷ A is exp(log_ratio)."""
    draw = np.random.default_rng(5)
    seen = dict.fromkeys("AB", 0)
    lines = ["arm,round,time,value"]
    for place, arm in enumerate(order):
        seen[arm] += 1
        log = log_ratio * (arm == "B") + drift * place / (len(order) - 1) + noise * draw.normal()
        lines.append(f"{arm},{seen[arm]},{60 * place},{40 * math.exp(log)}")
    file.write_text("\n".join(lines) + "\n")
    return file


# --- what is published elsewhere ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "tokens", "published"),
    [("mlx-community/Qwen3.6-35B-A3B-4bit", 1024, 2.202), ("Qwen/Qwen3.5-9B", 8192, 2.218)],
)
def test_the_paired_median_is_the_published_one(
    run: Callable[..., Judged], target: str, tokens: int, published: float
) -> None:
    where = f"{PAIRS} --where target={target} --where max_new_tokens={tokens} --reference baseline"
    told = run(RUNS, options=f"{where} --estimator paired-median --json")
    (result,) = told.results
    assert round(result["plain"]["ratio"], 3) == published
    assert (result["plain"]["rounds"], result["verdict"], result["contrast"]) == (3, None, None)
    text = run(RUNS, options=f"{where} --estimator paired-median").out
    assert f"{published}. It knows no drift." in text
    assert not COMPARING.search(text)


def test_three_published_pairs_carry_no_verdict(run: Callable[..., Judged]) -> None:
    where = "--where target=Qwen/Qwen3.5-9B --where max_new_tokens=8192 --reference baseline"
    (unknown,) = run(RUNS, options=f"{PAIRS} {where} --json").results
    assert (unknown["verdict"], unknown["design"]["order"]) == ("unpaired", "unknown")
    (known,) = run(RUNS, options=f"{PAIRS} {where} --in-order --json").results
    assert (known["verdict"], known["design"]["order"]) == ("invalid", "alternating")
    assert known["contrast"]["warnings"] == ["too_few_rounds"]
    assert known["contrast"]["ratio"] is None
    assert known["design"]["reach"] == 0.75


def test_a_row_of_pairs_is_a_round_of_its_own(run: Callable[..., Judged]) -> None:
    where = "--where target=Qwen/Qwen3.5-9B --where max_new_tokens=8192 --reference baseline"
    numbered = run(RUNS, options=f"{PAIRS} {where} --json").out
    assert run(RUNS, options=f"{PAIRS} {where} --json --columns round=").out == numbered


# --- orders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "name", "verdict"),
    [
        ("ABBAABBA", "mirrored", "faster"),
        ("ABABABAB", "alternating", "faster"),
        ("ABABBABA", "shuffled", "faster"),
        ("AAAABBBB", "blocked", "unpaired"),
        ("BBBBAAAA", "blocked", "unpaired"),
        ("AABBAABB", "irregular", "unpaired"),
        ("ABBA", "mirrored", "invalid"),
        ("ABBAAB", "mirrored", "invalid"),
    ],
)
def test_the_order_decides(
    run: Callable[..., Judged], tmp_path: Path, order: str, name: str, verdict: str
) -> None:
    file = table(tmp_path / "runs.csv", order)
    (result,) = run(file, options="--metric decode_tok_s --reference A --json").results
    assert (result["design"]["order"], result["verdict"]) == (name, verdict)
    text = run(file, options="--metric decode_tok_s --reference A").out
    assert bool(COMPARING.search(text)) == (verdict == "faster")
    assert (result["contrast"]["ratio"] is None) == (verdict != "faster")
    assert (result["plain"] is None) == (verdict == "faster")


def test_the_verdict_is_that_of_the_gate(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = table(tmp_path / "runs.csv", "ABBAABBAABBA", drift=-0.3)
    (result,) = run(file, options="--metric ttft_s --reference A --json").results
    frame = pd.read_csv(file)
    slots = [Slot(r.arm, r.round, "", r.time, r.value) for r in frame.itertuples()]
    known = compare(slots, metric="ttft_s", arm="B", reference="A")
    assert known.estimate is not None
    assert result["verdict"] == known.verdict == "slower"
    assert result["contrast"]["ratio"] == pytest.approx(math.exp(known.estimate.log_ratio))
    assert result["contrast"]["ci_low"] == pytest.approx(math.exp(known.estimate.low))
    assert "strong_drift" in result["contrast"]["warnings"]


@pytest.mark.parametrize("rounds", [4, 6, 12])
def test_what_alternation_does_to_the_plain_ratio(rounds: int) -> None:
    """Equal arms, a steady drift D and no noise: the plain ratio is off by D ÷ (2n − 1)."""
    drift = -0.4
    slots = [
        Slot("AB"[place % 2], place // 2 + 1, "", place, math.exp(drift * place / (2 * rounds - 1)))
        for place in range(2 * rounds)
    ]
    seen = design.of(slots, "B", "A", ordered=True, numbered=True)
    assert seen.order == "alternating"
    plain = design.paired_median(slots, "B", "A")
    assert plain == pytest.approx(math.exp(drift / (2 * rounds - 1)))
    assert design.alternating_shift(seen, drift) == pytest.approx(plain)


def test_alternation_is_told_with_its_shift(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = table(tmp_path / "runs.csv", "AB" * 6, log_ratio=0.0, drift=-0.4155, noise=0.002)
    told = run(file, options="--metric decode_tok_s --reference A")
    assert "by D ÷ 11 on" in told.out
    assert "multiplies the plain ratio by 0.96." in told.out
    assert "Verdict: same." in told.out


def test_equal_arms_in_alternation_are_seldom_called_different() -> None:
    """What the pair fit is trusted with: A B A B under a drift of 34 %, noise 4 %, six rounds."""
    draw = np.random.default_rng(20)
    runs, rounds, limit = 400, 6, 0.02
    false = 0
    for _ in range(runs):
        logs = np.linspace(0, -0.4155, 2 * rounds) + 0.04 * draw.normal(size=2 * rounds)
        slots = [
            Slot("AB"[place % 2], place // 2 + 1, "", float(place), math.exp(log))
            for place, log in enumerate(logs)
        ]
        result = compare(slots, metric="decode_tok_s", arm="B", reference="A")
        false += result.verdict in ("faster", "slower")
    assert false <= stats.binom.ppf(0.999, runs, limit)


def test_rounds_are_read_from_times_alone(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = table(tmp_path / "runs.csv", "ABBAABBA")
    whole = run(file, options="--metric decode_tok_s --reference A --json").results[0]
    bare = run(file, options="--metric decode_tok_s --reference A --json --columns round=")
    assert bare.results[0]["contrast"] == whole["contrast"]


def test_rounds_without_times_are_unpaired_unless_in_order(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    file = table(tmp_path / "runs.csv", "ABBAABBA")
    options = "--metric decode_tok_s --reference A --columns time= --json"
    (result,) = run(file, options=options).results
    assert (result["verdict"], result["design"]["order"]) == ("unpaired", "unknown")
    (result,) = run(file, options=f"{options} --in-order").results
    assert (result["verdict"], result["design"]["order"]) == ("faster", "mirrored")


@given(st.permutations("AAAABBBB"))
def test_every_order_has_a_name_and_only_rounds_are_interleaved(order: Sequence[str]) -> None:
    count = dict.fromkeys("AB", 0)
    slots = []
    for place, arm in enumerate(order):
        count[arm] += 1
        slots.append(Slot(arm, count[arm], "", place, 1.0))
    seen = design.of(slots, "B", "A", ordered=True, numbered=True)
    pairs = ["".join(order[place : place + 2]) for place in range(0, 8, 2)]
    assert seen.interleaved == all(pair in ("AB", "BA") for pair in pairs)
    assert (seen.order == "mirrored") == all(
        first == second[::-1] and first != second
        for first, second in zip(pairs[::2], pairs[1::2], strict=True)
    )


# --- null arm, control, prompts, versions ---------------------------------------------------------


EXAMPLE = "--columns arm=engine,value=tok_s,time=started --metric decode_tok_s --reference plain"


def test_a_null_arm_that_differs_takes_every_verdict(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    good = run(INTERLEAVED, options=f"{EXAMPLE} --json").results
    assert {one["arm"]: one["verdict"] for one in good}["draft"] == "faster"
    bad = run(INTERLEAVED, options=f"{EXAMPLE} --json --null-arm draft").results
    assert {one["verdict"] for one in bad} == {"invalid"}
    assert all(one["contrast"]["ratio"] is None and one["plain"] is None for one in bad)
    assert "nothing in the series" in run(INTERLEAVED, options=f"{EXAMPLE} --null-arm draft").out


def test_prompts_are_no_rounds(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    frame = pd.read_csv(table(file, "ABBAABBAABBA"))
    one, two = frame.assign(prompt="p1"), frame.assign(prompt="p2", time=frame["time"] + 20)
    factor = np.exp(np.linspace(0, 2, len(frame)))  # the geometric mean takes it out
    one["value"], two["value"] = one["value"] / factor, two["value"] * factor
    pd.concat([one, two]).to_csv(file, index=False)
    told = run(file, options="--metric decode_tok_s --reference A --json")
    assert told.results[0]["contrast"]["rounds"] == 6
    frame.to_csv(file, index=False)
    plain = run(file, options="--metric decode_tok_s --reference A --json")
    for key in ("ratio", "df", "rounds"):
        assert told.results[0]["contrast"][key] == pytest.approx(plain.results[0]["contrast"][key])
    assert json.loads(told.out)[0]["prompts"] == 2


def test_controls_and_warmups_enter_no_ratio(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = table(tmp_path / "runs.csv", "ABBAABBA")
    frame = pd.read_csv(file).assign(kind="round")
    frame.loc[len(frame)] = ["A", 5, 9999.0, 1.0, "control"]
    frame.loc[len(frame)] = ["A", 0, -60.0, 1.0, "warmup"]
    options = "--metric decode_tok_s --reference A --json"
    before = run(file, options=options)
    frame.to_csv(file, index=False)
    after = run(file, options=options)
    assert after.results[0]["contrast"] == before.results[0]["contrast"]
    assert json.loads(after.out)[0]["recorded"]["control"] is True
    assert json.loads(before.out)[0]["recorded"]["control"] is False


def test_a_parquet_table_is_judged_as_the_csv(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = tmp_path / "interleaved.parquet"
    frame = pd.read_csv(INTERLEAVED)
    frame.assign(started=pd.to_datetime(frame["started"])).to_parquet(file)
    assert run(file, options=f"{EXAMPLE} --json").results == (
        run(INTERLEAVED, options=f"{EXAMPLE} --json").results
    )


def test_hodges_lehmann_has_its_own_confidence(run: Callable[..., Judged]) -> None:
    told = run(INTERLEAVED, options=f"{EXAMPLE} --arm draft --estimator hodges-lehmann --json")
    draft = next(one for one in told.results if one["arm"] == "draft")
    assert draft["plain"]["confidence"] == 0.96875
    assert draft["plain"]["low"] < draft["plain"]["ratio"] < draft["plain"]["high"]
    assert draft["verdict"] is None


# --- llama-bench ----------------------------------------------------------------------------------


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BENCH.read_text())
    return found


def written(file: Path, found: Any) -> Path:
    lines = (json.dumps(one) for one in found) if file.suffix == ".jsonl" else [json.dumps(found)]
    file.write_text("\n".join(lines) + "\n")
    return file


def decoding(order: str, seconds: int = 40) -> list[dict[str, Any]]:
    """Single repetitions of the two thread counts (A: 4, B: 8) in an order."""
    draw = np.random.default_rng(2)
    found = []
    for place, arm in enumerate(order):
        rate = {"A": 20.0, "B": 26.0}[arm] * math.exp(0.01 * draw.normal())
        clock = f"2026-11-29T{10 + seconds * place // 3600:02d}:{seconds * place // 60 % 60:02d}:"
        found.append(
            {
                **entries()[1],
                "n_threads": {"A": 4, "B": 8}[arm],
                "test_time": f"{clock}{seconds * place % 60:02d}Z",
                "samples_ns": [round(128e9 / rate)],
                "samples_ts": [rate],
                "avg_ts": rate,
            }
        )
    return found


def test_repetitions_of_a_test_are_no_rounds(run: Callable[..., Judged]) -> None:
    told = run(BENCH, options="--reference n_threads=4 --json")
    assert {(one["metric"], one["verdict"]) for one in told.results} == {
        ("prefill_tok_s", "unpaired"),
        ("decode_tok_s", "unpaired"),
    }
    assert json.loads(told.out)[0]["recorded"]["repetitions"] == 5
    decode = next(one for one in told.results if one["metric"] == "decode_tok_s")
    four, eight = (
        1 / np.mean(one["samples_ns"]) for one in entries() if one["n_gen"]
    )  # all tokens ÷ all seconds
    assert decode["plain"]["ratio"] == pytest.approx(eight / four)
    text = run(BENCH, options="--reference n_threads=4").out
    assert "one blocked run, not rounds" in text
    assert not COMPARING.search(text)


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize(("order", "verdict"), [("ABBAABBA", "faster"), ("AAAABBBB", "unpaired")])
def test_tests_that_were_run_in_turns_are_rounds(
    run: Callable[..., Judged], tmp_path: Path, suffix: str, order: str, verdict: str
) -> None:
    file = written(tmp_path / f"bench.{suffix}", decoding(order))
    (result,) = run(file, options="--reference n_threads=4 --json").results
    assert (result["arm"], result["verdict"]) == ("n_threads=8", verdict)


def test_tests_of_one_second_stand_in_their_order(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    file = written(tmp_path / "bench.jsonl", decoding("ABBAABBA", seconds=0))
    (result,) = run(file, options="--reference n_threads=4 --json").results
    assert (result["design"]["order"], result["verdict"]) == ("mirrored", "faster")


def test_files_are_the_arms_where_nothing_else_differs(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    one = written(tmp_path / "before.json", [entries()[1]])
    later = {**entries()[1], "test_time": "2026-11-29T12:00:00Z"}
    two = written(tmp_path / "after.json", [later])
    (result,) = run(one, two, options="--reference before --json").results
    assert (result["arm"], result["verdict"]) == ("after", "unpaired")


def test_models_go_by_their_file_and_no_folder_is_told(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    other = {**entries()[1], "model_filename": "/home/me/big-Q8_0.gguf", "model_size": 1}
    told = run(
        written(tmp_path / "bench.json", [entries()[1], other]), options="--reference tiny-Q4_K_M"
    )
    assert "`big-Q8_0` against `tiny-Q4_K_M`" in told.out
    assert "/home/me" not in told.out


def test_a_named_field_makes_the_arms_and_the_others_are_told(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    other = {**entries()[1], "n_threads": 8, "type_k": "q8_0"}
    file = written(tmp_path / "bench.json", [entries()[1], other])
    told = run(file, options="--columns arm=n_threads --reference n_threads=4")
    assert "The arms also differ in `type_k`" in told.out
    assert "several fields (n_threads: 4, 8; type_k: f16, q8_0)" in run(file).err


def test_mixed_tests_are_passed_over(run: Callable[..., Judged], tmp_path: Path) -> None:
    found = [{**one, "n_prompt": 512} for one in entries()]
    file = written(tmp_path / "bench.json", [found[1], *entries()[1:], found[3]])
    results = run(file, options="--reference n_threads=4 --json --metric decode_tok_s").results
    assert [one["metric"] for one in results] == ["decode_tok_s"]


# --- own cells ------------------------------------------------------------------------------------


def test_own_cells_are_judged_by_the_whole_gate(run: Callable[..., Judged]) -> None:
    told = run(CELLS, options="--json")
    assert told.code == 0, told.err
    assert {one["reference"] for one in json.loads(told.out)} == {"plain"}
    assert all(one["contrast"] is not None for one in told.results)


def test_own_cells_of_another_make_are_refused(run: Callable[..., Judged], tmp_path: Path) -> None:
    file, cells = tmp_path / "cells.parquet", pd.read_parquet(CELLS)
    cells.assign(round="first").to_parquet(file)
    refused(run(file), file, "cannot be read (ArrowInvalid)")
    cells.assign(started_at=None).to_parquet(file)
    refused(run(file), file, "cannot be read (ValueError)")
    cells.loc[cells.index[::2], "fingerprint"] = "another"
    cells.to_parquet(file)
    refused(run(file), file, "has cells of 2 fingerprints")
    cells[cells["arm"] == "plain"].assign(fingerprint="one").to_parquet(file)
    refused(run(file), file, "holds one arm")
    cells[cells["kind"] == "round"].assign(fingerprint="one").to_parquet(file)
    refused(run(file), file, "nothing says what the arms of series")
    assert run(file, options="--reference plain").code == 0
    cells[:0].to_parquet(file)
    refused(run(file), file, "the table is empty")
    refused(run(CELLS, options="--where series=no"), CELLS, "there are short_prompt, two_turns")
    refused(run(CELLS, options="--where x=no"), CELLS, "--where: no column 'x'")
    refused(run(CELLS, options="--arm no"), CELLS, "--arm: no arm 'no'")


def test_own_cells_of_a_prefill_series_are_judged_length_by_length(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    file, cells = tmp_path / "cells.parquet", pd.read_parquet(CELLS)
    short = cells[cells["series"] == "short_prompt"].assign(prompt_id="n40")
    pd.concat([short, short.assign(prompt_id="n80", prompt_tokens=80)]).to_parquet(file)
    each = ["prefill_tok_s@40", "prefill_tok_s@80"]
    found = run(file, options="--json").results
    assert list(dict.fromkeys(one["metric"] for one in found)) == each
    assert all(one["verdict"] not in (None, "not_measured") for one in found)
    named = run(file, options="--json --metric prefill_tok_s").results
    assert named == found
    text = run(file, options="--lang pl")
    assert text.code == 0, text.err
    assert "80" in text.out


def test_own_cells_with_scores_are_passed_over(run: Callable[..., Judged], tmp_path: Path) -> None:
    file, cells = tmp_path / "cells.parquet", pd.read_parquet(CELLS)
    scored = (cells["series"] == "two_turns").map({True: True, False: None})
    cells.assign(passed=scored).to_parquet(file)
    assert [one["series"] for one in json.loads(run(file, options="--json").out)] == [
        "short_prompt"
    ]
    cells[cells["series"] == "two_turns"].assign(passed=False).to_parquet(file)
    refused(run(file), file, "no series of it is timed")


def test_a_metric_that_one_arm_lacks_is_not_measured(
    run: Callable[..., Judged], tmp_path: Path
) -> None:
    file = tmp_path / "runs.csv"
    frame = pd.read_csv(table(file, "ABBAABBA")).assign(metric="ttft_s")
    more = frame.assign(metric="decode_tok_s", arm=frame["arm"].replace("B", "C"))
    pd.concat([frame, more]).to_csv(file, index=False)
    found = run(file, options="--reference A --json").results
    assert {(one["metric"], one["arm"]): one["verdict"] for one in found} == {
        ("ttft_s", "B"): "slower",
        ("ttft_s", "C"): "not_measured",
        ("decode_tok_s", "B"): "not_measured",
        ("decode_tok_s", "C"): "faster",
    }


# --- languages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "options"),
    [
        (INTERLEAVED, EXAMPLE),
        (BENCH, "--reference n_threads=4"),
        (RUNS, f"{PAIRS} --where target=Qwen/Qwen3.5-9B --where max_new_tokens=1024 "
               "--reference baseline --in-order"),
    ],
)  # fmt: skip
def test_both_languages_hold_the_same_numbers(
    run: Callable[..., Judged], file: Path, options: str
) -> None:
    english = run(file, options=options).out
    polish = run(file, options=f"{options} --lang pl").out
    assert numbers.parse(english, "en") == numbers.parse(polish, "pl")
    assert "Werdykt" in polish
    assert "Verdict" not in polish


def test_what_differs_in_polish_only_by_language(run: Callable[..., Judged]) -> None:
    english = json.loads(run(BENCH, options="--reference n_threads=4 --json").out)
    polish = json.loads(run(BENCH, options="--reference n_threads=4 --json --lang pl").out)
    for one in (*english, *polish):
        one.pop("sentences")
    assert english == polish


# --- bad files ------------------------------------------------------------------------------------

GOOD = ["arm,round,time,value", "A,1,0,40", "B,1,1,50", "B,2,2,51", "A,2,3,41"]
GOOD += ["A,3,4,40.5", "B,3,5,50.5", "B,4,6,51.5", "A,4,7,41.5"]
METRIC = "--metric decode_tok_s --reference A"


def changed(line: int, text: str) -> str:
    return "\n".join([*GOOD[:line], text, *GOOD[line + 1 :]]) + "\n"


BAD: list[tuple[str, str | bytes, str, str]] = [
    ("empty", "", METRIC, "the file is empty"),
    ("blank", "\n\n", METRIC, "the file is empty"),
    ("header alone", GOOD[0] + "\n", METRIC, "no row holds a run"),
    ("garbage", bytes(range(256)) * 9, METRIC, "cannot be read (UnicodeDecodeError)"),
    ("nul", "arm,value\n\0\0,\0\n", METRIC, ""),
    ("nan", changed(3, "B,2,2,nan"), METRIC, "line 4: value: the value is not a positive finite"),
    ("inf", changed(3, "B,2,2,inf"), METRIC, "line 4: value: the value is not a positive finite"),
    ("zero", changed(3, "B,2,2,0"), METRIC, "line 4: value: the value is not a positive finite"),
    ("negative", changed(3, "B,2,2,-1"), METRIC, "line 4: value: the value is not a positive"),
    ("null", changed(3, "B,2,2,"), METRIC, "line 4: value: there is no value"),
    ("text", changed(3, "B,2,2,fast"), METRIC, "line 4: value: 'fast' is not a number"),
    ("text", changed(3, "B,2,2,4_0"), METRIC, "line 4: value: '4_0' is not a number"),
    ("comma", changed(3, 'B,2,2,"51,5"'), METRIC, "write numbers with a decimal point"),
    ("short line", changed(3, "B,2,51"), METRIC, "line 4: 3 fields, and 4 names of columns"),
    ("no arm", changed(3, ",2,2,51"), METRIC, "line 4: the arm has no name; fill in 'arm'"),
    ("odd round", changed(3, "B,x,2,51"), METRIC, "line 4: round: 'x' is no number of a round"),
    ("odd time", changed(3, "B,2,noon,51"), METRIC, "line 4: time: 'noon' is no time like"),
    ("nan time", changed(3, "B,2,nan,51"), METRIC, "line 4: time: 'nan' is no time like"),
    ("two clocks", changed(3, "B,2,2026-11-29,51"), METRIC, "is no time like the others"),
    ("same moment", changed(3, "B,2,1.5,51").replace("A,2,3", "A,2,1.5"), METRIC, "share the time"),
    ("clock", changed(7, "B,4,1.5,51.5"), METRIC, "'B' has round 4 at an earlier or the same time"),
    ("twice", changed(3, "B,1,2,51"), METRIC, "line 4: arm 'B' has round 1 twice"),
    ("missing pair", "\n".join(GOOD[:-1]), METRIC, "round: round 4 has no run of arm 'A'"),
    ("one arm", "\n".join(GOOD).replace("B,", "A,"), METRIC, "it holds one arm, 'A'"),
    ("one round", "\n".join(GOOD[:3]), METRIC, "a single run of each arm"),
    (
        "equal",
        re.sub(r",[\d.]+\n", ",40\n", "\n".join(GOOD) + "\n"),
        METRIC,
        "all values are equal",
    ),
    ("units", changed(3, "B,2,2,51000"), METRIC, "arm 'B' seem to stand in two units"),
    (
        "units of arms",
        re.sub(r"(B,\d,\d,)5\d(\.5)?", r"\g<1>0.05", "\n".join(GOOD)),
        METRIC,
        "arms 'B' and 'A' seem to stand in two units",
    ),
    ("no metric", "\n".join(GOOD), "--reference A", "metric: nothing says whether more or less"),
    ("odd metric", "\n".join(GOOD), "--reference A --metric tok_s", "unknown metric 'tok_s'; use "),
    ("no reference", "\n".join(GOOD), "--metric ttft_s", "they are A, B; say --reference A"),
    ("odd reference", "\n".join(GOOD), "--metric ttft_s --reference C", "the arms are A, B"),
    ("odd arm", "\n".join(GOOD), f"{METRIC} --arm C", "--arm: no arm 'C' to compare"),
    ("itself", "\n".join(GOOD), f"{METRIC} --arm A", "--arm: no arm 'A' to compare"),
    ("odd null", "\n".join(GOOD), f"{METRIC} --null-arm C", "--null-arm: no arm 'C'"),
    ("no column", "\n".join(GOOD), f"{METRIC} --columns value=tok_s", "value: no column 'tok_s'"),
    ("odd role", "\n".join(GOOD), f"{METRIC} --columns speed=value", "speed: no such role"),
    ("other names", "a,b\n1,2\n", METRIC, "arm: no such column; name it with --columns arm=NAME"),
    ("same names", "arm,arm\n1,2\n", METRIC, "column 'arm' stands twice"),
    ("wide", "a," * 9999, METRIC, "more than 1000 columns"),
    ("where", "\n".join(GOOD), f"{METRIC} --where arm=C", "arm: no row has the value 'C'"),
    ("where column", "\n".join(GOOD), f"{METRIC} --where x=C", "--where: no column 'x'"),
    (
        "versions",
        "\n".join(
            f"{line},{'version' if n == 0 else 2 if n == 3 else 1}" for n, line in enumerate(GOOD)
        ),
        METRIC,
        "arm 'B' has two versions, '1' at line 3 and '2'",
    ),
    (
        "fingerprints",
        "\n".join(f"{line},{'fingerprint' if n == 0 else n > 4}" for n, line in enumerate(GOOD)),
        METRIC,
        "line 6: fingerprint 'True', and 'False' before",
    ),
    (
        "unit column",
        "\n".join(
            f"{line},{'unit' if n == 0 else 'ms' if n == 3 else 's'}" for n, line in enumerate(GOOD)
        ),
        METRIC,
        "line 4: unit 'ms', and 's' before",
    ),
    ("not in order", "\n".join([*GOOD[:1], *GOOD[:0:-1]]), f"{METRIC} --in-order", "earlier than"),
    ("no pairs", "\n".join(GOOD), f"{METRIC} --pairs A=x,B=y", "--pairs A: no column 'x'"),
    (
        "estimator",
        "\n".join(GOOD),
        f"{METRIC} --columns time=,round= --estimator paired-median",
        "paired-median needs rounds",
    ),
    (
        "nanoseconds",
        re.sub(r"(,\d,\d)(,)", r"\g<1>000000000000\2", "\n".join(GOOD)),
        METRIC,
        "more than thirty years",
    ),
]


@pytest.mark.parametrize(("text", "options", "said"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_table_is_one_line(
    run: Callable[..., Judged], tmp_path: Path, text: str | bytes, options: str, said: str
) -> None:
    file = tmp_path / "runs.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(run(file, options=options), file, said)


def refused(told: Judged, file: Path, said: str) -> None:
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"twoturn: {file}")
    assert told.err.count("\n") == 1
    assert said in told.err
    assert "; " in told.err, "no cure"


def test_the_good_table_is_good(run: Callable[..., Judged], tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(GOOD))
    assert run(file, options=f"{METRIC} --json").results[0]["verdict"] == "faster"


def bench(**changes: Any) -> list[dict[str, Any]]:
    return [{**entries()[1], **changes}, entries()[3]]


BAD_BENCH: list[tuple[str, Any, str]] = [
    ("other json", {"a": 1}, "entry 1: no entry of llama-bench"),
    ("numbers", [1, 2], "entry 1: no entry of llama-bench"),
    ("no entry", [], "the file is empty"),
    ("one arm", entries()[1:2], "it holds one arm: all its tests have the same configuration"),
    ("zero", bench(samples_ts=[0.0] * 5), "entry 1: samples_ts: the value is not a positive"),
    ("nan", bench(avg_ts=math.nan), "entry 1: avg_ts: the value is not a positive finite"),
    ("null", bench(avg_ts=None), "entry 1: avg_ts: there is no value"),
    ("failed", bench(samples_ns=[]), "entry 1: samples_ns: no repetitions"),
    ("text", bench(samples_ns=["x"] * 5), "samples_ns: 'x' is not a number"),
    ("units", bench(samples_ns=[6_000_000] * 5), "do not belong together"),
    ("lengths", bench(samples_ts=[21.0]), "do not belong together"),
    ("tokens", bench(n_gen="128"), "entry 1: n_gen: not a number of tokens"),
    ("clock", bench(test_time="2026-11-30T00:00:00Z"), "entry 2: test_time: the test began before"),
    ("half a character", bench(model_type="\ud800"), "cannot be read (UnicodeEncodeError)"),
    ("date", bench(test_time="t"), "entry 1: test_time: 't' is no date"),
    ("shapes", [*bench(), {**entries()[3], "n_gen": 64}], "differ in n_gen: 64, 128; choose one"),
    (
        "single",
        [
            {**one, "samples_ns": one["samples_ns"][:1], "samples_ts": one["samples_ts"][:1],
             "avg_ts": one["samples_ts"][0]}
            for one in bench()
        ],
        "a single run of each arm",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "said"), [b[1:] for b in BAD_BENCH], ids=[b[0] for b in BAD_BENCH]
)
def test_a_bad_result_of_llama_bench_is_one_line(
    run: Callable[..., Judged], tmp_path: Path, found: Any, said: str
) -> None:
    file = written(tmp_path / "bench.json", found)
    refused(run(file, options="--reference n_threads=4"), file, said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("runs.parquet", b"PAR1 not really PAR1", "cannot be read (ArrowInvalid)"),
        ("runs.parquet", CELLS.read_bytes()[:200], "cannot be read"),
        ("runs.parquet", b"", "cannot be read"),
        ("bench.json", b"", "the file is empty"),
        ("bench.json", b"{", "cannot be read (JSONDecodeError)"),
        ("bench.json", b"[" * 100_000, "cannot be read (RecursionError)"),
        ("bench.json", bytes(range(256)), "cannot be read (UnicodeDecodeError)"),
        ("bench.jsonl", b"{}\n{", "line 1: no entry of llama-bench"),
        ("bench.jsonl", b"\n\n", "the file is empty"),
        ("runs.txt", b"a", "unknown format"),
        ("runs", b"a", "unknown format"),
    ],
)
def test_a_file_that_is_none_is_one_line(
    run: Callable[..., Judged], tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    refused(run(file, options=METRIC), file, said)


def test_files_that_are_not_there(run: Callable[..., Judged], tmp_path: Path) -> None:
    for name in ("a.csv", "a.parquet", "a.json"):
        refused(run(tmp_path / name, options=METRIC), tmp_path / name, "no such file")
    (tmp_path / "folder.csv").mkdir()
    refused(run(tmp_path / "folder.csv", options=METRIC), tmp_path / "folder.csv", "is a folder")


def test_a_long_file_is_not_read_to_its_end(
    run: Callable[..., Judged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_RUNS", 3)
    file = tmp_path / "runs.csv"
    file.write_text("\n".join([*GOOD, "A,this line,is never,read"]))
    refused(run(file, options=METRIC), file, "line 5: more than 3 runs")


@given(content=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".json", ".jsonl", ".tsv"]))
def test_any_bytes_are_judged_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    file = tmp_path_factory.mktemp("any") / f"file{suffix}"
    file.write_bytes(content)
    assert main(["judge", str(file), *METRIC.split()]) == 1


@pytest.mark.parametrize(
    "options",
    [
        "",
        "x.csv --columns arm",
        "x.csv --pairs a=b,a=c",
        "x.csv --estimator mean",
        "x.csv --lang de",
    ],
)
def test_wrong_usage_is_two(capsys: pytest.CaptureFixture[str], options: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["judge", *options.split()])
    assert stop.value.code == 2
    assert "usage: twoturn judge" in capsys.readouterr().err


# --- docs/judge.md --------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "judge.md"
SHELL = re.compile(r"```sh\n(twoturn judge [^`]*?)\n```\n+```text\n([^`].*?)\n```", re.DOTALL)
EXAMPLES = SHELL.findall(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("command", "output"), EXAMPLES)
def test_the_examples_print_what_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    monkeypatch.chdir(ROOT)
    main(shlex.split(command.replace("\\\n", ""))[1:])
    told = capsys.readouterr()
    assert (told.out + told.err).split() == output.split()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_the_page_tells_every_role_and_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(
        r"^\| `(\w+)` \|", page.split("\n## Columns\n")[1].split("\n## ")[0], re.MULTILINE
    )
    assert told == list(tables.ROLES)
    assert all(f"`{name}`" in page for name in get_args(judge.Estimator))


@pytest.mark.parametrize("metric", ["prompts:decode_tok_s", "best_block:decode_tok_s"])
def test_a_verdict_about_others_is_no_metric_of_values(
    run: Callable[..., Judged], tmp_path: Path, metric: str
) -> None:
    """Which way such a name speaks is not known: more of it was called slower."""
    file = table(tmp_path / "runs.csv", "ABBAABBA")
    judged = run(file, options=f"--metric {metric} --reference A")
    assert judged.code == 1
    assert len(judged.err.splitlines()) == 1
    assert ":" not in judged.err.partition("use")[2]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Warsaw", "America/New_York"])
def test_dates_do_not_depend_on_where_they_are_read(
    run: Callable[..., Judged], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    lines = table(tmp_path / "runs.csv", "ABBAABBA").read_text().splitlines()
    for suffix, code in (("", 0), ("Z", 0), (None, 1)):  # none, all, every second one
        told = [lines[0]]
        for number, line in enumerate(lines[1:]):
            arm, round_, seconds, value = line.split(",")
            minutes = int(seconds) // 60
            mark = suffix if suffix is not None else "Z" * (number % 2)
            told.append(f"{arm},{round_},2026-10-25T02:{minutes:02d}:00{mark},{value}")
        (tmp_path / "dates.csv").write_text("\n".join(told) + "\n")
        judged = run(tmp_path / "dates.csv", options="--metric decode_tok_s --reference A")
        assert judged.code == code, judged.err
    monkeypatch.undo()
    time.tzset()
