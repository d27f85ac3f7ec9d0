"""Whole campaigns on a machine that loses 34 % of its speed: no sentence has the wrong direction.

The scripted servers count their starts in a file, which is how one knows when it runs: the speed
falls by 34 % and levels off, as a machine's does that grows warm. Noise is seeded by the start, so
that a rerun differs by the jitter of timers alone. The null arm is a copy of the reference's spec
and cannot be told from it; its servers are known by their place in the planned order.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.test_comparisons import left_over
from tests.workflow import Clone
from twoturn import plan, session
from twoturn.article.view import View

pytestmark = [pytest.mark.slow, pytest.mark.machine]

CAMPAIGN = """
name: drifting
servers:
  sound: {{command: {command}, version: "1.0"}}
  broken: {{command: {broken}, version: "1.0"}}
checkpoints:
  words: {{path: checkpoints/words}}
series:
  sound:
    workload: &short {{kind: chat, prompts: 1, prompt_tokens: 32, max_tokens: 48, seed: 3}}
    reference: plain
    null_arm: true
    arms:
      plain: {{checkpoint: words, server: sound}}
      zero: {{checkpoint: words, server: sound}}
      five: {{checkpoint: words, server: sound, args: [--speed, "1.05"]}}
      twenty: {{checkpoint: words, server: sound, args: [--speed, "1.2"]}}
  broken:
    workload: *short
    reference: plain
    null_arm: true
    arms:
      plain: {{checkpoint: words, server: broken}}
      twenty: {{checkpoint: words, server: broken, args: [--speed, "1.2"]}}
"""
ROUNDS = 6
NULL = "plain-null"


def starts_of(arm: str, names: list[str]) -> list[int]:
    """Which starts of a series after the run's first one, which warms up, are an arm's."""
    order = [name for number in range(1, ROUNDS + 1) for name in plan.order(names, 3, number)]
    return [place for place, name in enumerate(order, start=1) if name == arm]


def command(starts: str, *more: str) -> str:
    words = [
        *("{python}", "tests/servers/scripted.py", "--port", "{port}", "--model", "{model}"),
        *(
            "--starts",
            starts,
            "--luck",
            "1",
            "--noise",
            "0.01",
            "--tok-s",
            "600",
            "--ttft-ms",
            "40",
        ),
        *("--drift", "-0.34", "--drift-starts", "9", *more),
    ]
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


@pytest.fixture(scope="module")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the campaign was run to its end."""
    clone = Clone(tmp_path_factory.mktemp("drifting") / "clone")
    folder = clone.folder / "checkpoints" / "words"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "scripted"}')
    for name in ("starts-sound", "starts-broken"):
        (clone.folder / name).touch()
    slow = ",".join(map(str, starts_of(NULL, ["plain", "twenty", NULL])))
    (clone.folder / "campaign.yaml").write_text(
        CAMPAIGN.format(
            command=command("starts-sound"),
            broken=command("starts-broken", "--slow-starts", slow),
        )
    )
    done = clone.snakemake("--configfile", "campaign.yaml", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return clone.folder


@pytest.fixture(scope="module")
def contrasts(drifted: Path) -> pd.DataFrame:
    return pq.read_table(drifted / "results/drifting/contrasts.parquet").to_pandas()


@pytest.fixture(scope="module")
def claims(drifted: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(
        drifted / "results/drifting/claims.parquet"
    ).to_pylist()
    return rows


@pytest.fixture(scope="module", params=["en", "pl"])
def told(request: pytest.FixtureRequest, drifted: Path) -> tuple[str, str]:
    language = request.param
    return language, (drifted / f"reports/drifting/article_{language}.md").read_text()


def test_the_machine_drifted_by_a_third(drifted: Path) -> None:
    cells = pq.read_table(drifted / "results/drifting/cells.parquet").to_pandas()
    plain = cells[(cells["series"] == "sound") & (cells["arm"] == "plain")]
    speed = plain[plain["kind"] == "round"].sort_values("started_at")["decode_tok_s"].to_numpy()
    assert 0.66 < speed[-1] / speed[0] < 0.9  # a part of it was lost in the warm-up round
    assert speed[0] / 600 < 0.95


def test_no_contrast_has_the_wrong_direction(contrasts: pd.DataFrame) -> None:
    sound = contrasts[contrasts["series"] == "sound"].set_index(["metric", "arm"])
    rates = sound.loc["decode_tok_s"]
    assert rates.loc["zero", "verdict"] in ("same", "unresolved")
    assert rates.loc[NULL, "verdict"] in ("same", "unresolved")
    assert rates.loc["five", "verdict"] in ("faster", "unresolved")
    assert rates.loc["twenty", "verdict"] == "faster"
    for arm, ratio in {"zero": 1, "five": 1.05, "twenty": 1.2}.items():
        assert rates.loc[arm, "ratio"] == pytest.approx(ratio, rel=0.05)
        assert "strong_drift" in rates.loc[arm, "warnings"]
    # No arm differs in its first token.
    assert set(sound.loc["ttft_s", "verdict"]) <= {"same", "unresolved"}


WON = {"en": "`{}` decodes faster than", "pl": "wariant `{}` dekoduje szybciej niż"}
LOST = {"en": "`{}` decodes slower than", "pl": "wariant `{}` dekoduje wolniej niż"}


def test_articles_call_what_is_there_and_nothing_else(told: tuple[str, str]) -> None:
    language, text = told
    assert WON[language].format("twenty") in text
    assert not any(LOST[language].format(arm) in text for arm in ("zero", "five", "twenty", NULL))
    assert not any(WON[language].format(arm) in text for arm in ("zero", NULL))


def test_every_comparing_sentence_is_a_claim(
    told: tuple[str, str], claims: list[dict[str, Any]]
) -> None:
    language, text = told
    left = left_over(language, text, claims)
    assert [one for one in left if not one.startswith("![")] == []


def test_a_broken_null_arm_costs_its_own_series_and_no_other(
    contrasts: pd.DataFrame, claims: list[dict[str, Any]]
) -> None:
    broken = contrasts[contrasts["series"] == "broken"]
    assert set(broken["verdict"]) == {"invalid"}
    assert broken["ratio"].isna().all()
    assert {codes[0].partition(":")[0] for codes in broken["warnings"]} == {"null_arm_differs"}
    state = {row["series"]: row["verdict"] for row in claims if row["claim"].endswith("/null_arm")}
    assert state == {"sound": "passed", "broken": "failed"}
    mine = [row for row in claims if row["series"] == "broken"]
    assert all(row["effect"] is None and row["ratio"] is None for row in mine)


SILENT = {
    "en": (
        "The null arm `plain-null` is a second copy of `plain` and came out different",
        "The series `broken` decides nothing, because the null arm",
        "invalid",
    ),
    "pl": (
        "Wariant zerowy `plain-null` jest drugą kopią wariantu `plain`, a wyszedł inny",
        "Seria `broken` niczego nie rozstrzyga, ponieważ wariant zerowy",
        "nieważne",
    ),
}


def test_the_broken_series_says_so_in_sentence_table_and_figure(
    told: tuple[str, str], drifted: Path
) -> None:
    language, text = told
    null, headline, word = SILENT[language]
    assert null in text
    assert headline in text
    table = [line for line in text.splitlines() if line.startswith("|") and word in line]
    assert len(table) == 1 + 4 + 2  # its meaning; two arms on two metrics; both as switches
    figures = {
        name: (drifted / f"reports/drifting/figures/forest_{name}_{language}.svg").read_text()
        for name in ("sound", "broken")
    }
    assert f"](figures/forest_broken_{language}.svg)" in text
    assert figures["broken"].count(f">{word}<") == 4
    reason = View(language).reason("null_arm_differs:decode_tok_s")
    assert f">{word}: {reason}<" in figures["broken"]
    assert word not in figures["sound"]


def test_drift_and_control_are_told_with_the_curves_interval(
    told: tuple[str, str], drifted: Path
) -> None:
    language, text = told
    drift = text[text.index({"en": "## Drift of", "pl": "## Dryf"}[language]) :]
    drift = drift[: drift.index("\n## ")]
    rows = [line.split("|")[1:-1] for line in drift.splitlines() if line.startswith("|")]
    values = [row for row in rows if "–" in row[3] and "---" not in row[0]]
    assert len(values) == 4  # two series, two metrics
    for row in values:
        low, high = row[3].strip().replace(",", ".").split("–")
        assert float(low) <= float(row[2].replace(",", ".")) <= float(high)
    curves = pd.read_csv(drifted / "reports/drifting/figures/slots_sound.csv")
    assert {"slot", "control", "curve"} == set(curves["kind"])
    assert curves.loc[curves["kind"] == "curve", ["low", "high"]].notna().all(axis=None)


def test_with_other_versions_the_old_results_are_told_as_old(drifted: Path, tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    for name in ("campaign.yaml", "results", "locks", "checkpoints", "starts-sound"):
        source, target = drifted / name, clone.folder / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)
    shutil.copy2(drifted / "starts-broken", clone.folder)
    file = clone.folder / "campaign.yaml"
    bumped = re.sub(r'(?s)(sound: .*?version: )"1.0"', r'\1"2.0"', file.read_text(), count=1)
    file.write_text(bumped)
    table = "results/drifting/claims.parquet"
    only_tell = {"TWOTURN_TELL": "1"}
    with session.RUN_LOCK.open("r+") as handle:  # telling waits for nobody's measurement
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = clone.snakemake(
            table, "--configfile", "campaign.yaml", "--cores", "1", env=only_tell
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((clone.folder / "results/cells/sound").iterdir())) == 1  # nothing was measured
    view = View("en")
    told = {
        row["claim"]: view.claim(row) for row in pq.read_table(clone.folder / table).to_pylist()
    }
    old = [name for name in told if name.startswith("sound/earlier/")]
    assert len(old) == 3 * 2  # three arms, two metrics
    assert re.match(
        r"Measured on .+ with `sound 1\.0` \(fingerprint `\w{12}`\), not since: decode speed, "
        r"`twenty` was faster than `plain`",
        told["sound/earlier/decode_tok_s/twenty"],
    )
    assert "decides nothing, because it is not measured yet" in told["sound/headline"]
    assert not any(name.startswith("broken/earlier/") for name in told)
