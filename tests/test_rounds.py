"""How many rounds an effect needs, by the noise in the campaign's own results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import Tree
from tests.test_article import demo_cells, loaded
from twoturn import cells, plan, rounds
from twoturn.__main__ import main
from twoturn.campaign import Loaded
from twoturn.contrasts import as_slots, slots
from twoturn.errors import UserError
from twoturn.stats import pair_fit
from twoturn.stats.base import Estimate
from twoturn.stats.planning import rounds_needed


@pytest.mark.parametrize("text", ["5%", "5 %", "0.05", " 5% ", "5,0%", ".05"])
def test_an_effect_is_a_share(text: str) -> None:
    assert rounds.effect_of(text) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1.05", "'1.05' is a ratio, not a difference; write 5%, or a share such as 0.05"),
        ("5", "write 5%, or a share"),
        ("1%", "use more than 2% and at most 100%"),
        ("0.02", "use more than 2%"),
        ("0", "use more than 2%"),
        ("-5%", "is no difference that can be planned for"),
        ("500%", "at most 100%"),
        ("five", "is no difference that can be planned for"),
        ("nan", "is no difference that can be planned for"),
        ("", "is no difference that can be planned for"),
    ],
)
def test_what_is_no_effect_is_told_with_its_cure(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        rounds.effect_of(text)
    assert str(caught.value).startswith("--effect: ")
    assert said in str(caught.value)


@pytest.fixture
def measured(tmp_path: Path) -> Loaded:
    """The demo campaign, one of its two series measured: its cells lie where the plan has them."""
    campaign = replace(loaded(), root=tmp_path)
    table = demo_cells(campaign)
    series = campaign.plan.series[1]
    own = table[(table["series"] == series.name) & (table["kind"] == "round")]
    for (number, arm), rows in own.groupby(["round", "arm"]):
        told = pa.Table.from_pandas(rows.drop(columns="fingerprint"), preserve_index=False)
        cells.write(
            cells.table(told.to_pylist(), {"fingerprint": series.fingerprint}),
            tmp_path / series.directory / plan.round_name(int(number)) / f"{arm}.parquet",
        )
    return campaign


def test_the_noise_is_that_of_each_pair_fit(measured: Loaded) -> None:
    series = measured.plan.series[1]
    found = rounds.noises(series, measured)
    arms = {arm.name for arm in series.arms} - {series.reference}
    assert {(one.metric, one.arm) for one in found} == {
        (metric, arm) for metric in series.metrics for arm in arms
    }
    table = slots(demo_cells(measured), series)
    for one in found:
        own = as_slots(table[table["metric"] == one.metric])
        fitted = pair_fit.estimate(own, arm=one.arm, reference=series.reference)
        assert isinstance(fitted, Estimate)
        assert one.noise_log == fitted.noise_log
        assert (one.rounds, one.reason) == (6, "")


def test_the_table_holds_what_each_pair_needs(measured: Loaded) -> None:
    series = measured.plan.series[1]
    title, head, *lines = rounds.lines(measured, 0.05)
    assert title == "Rounds for a difference of 5%, seen with a power of 80%:"
    assert tuple(head.split()) == rounds.HEAD
    assert lines.pop() == "short_prompt: no results yet; measure it with 6 rounds"
    for line, one in zip(lines, rounds.noises(series, measured), strict=True):
        assert one.noise_log is not None
        needed = rounds_needed(one.noise_log, 0.05)
        told = str(needed) if isinstance(needed, int) else "more than 100"
        assert line.split(maxsplit=5)[:3] == [series.name, one.metric, one.arm]
        assert line.endswith(f"  {told}")
    assert not any("short_prompt" in line for line in lines)


def test_without_results_there_is_one_line_for_each_series(tmp_path: Path) -> None:
    _, *lines = rounds.lines(replace(loaded(), root=tmp_path), 0.05)
    assert lines == [
        "short_prompt: no results yet; measure it with 6 rounds",
        "two_turns: no results yet; measure it with 6 rounds",
    ]


def test_a_series_that_cannot_be_used_says_why(measured: Loaded) -> None:
    series = measured.plan.series[1]
    for file in (measured.root / series.directory / "03").iterdir():
        file.unlink()
    _, *lines = rounds.lines(measured, 0.05)
    assert lines == [
        "short_prompt: no results yet; measure it with 6 rounds",
        *(
            f"two_turns/{one.metric}/{one.arm}: not known, because the number of rounds is odd"
            for one in rounds.noises(series, measured)
        ),
    ]


def test_the_command_refuses_in_one_line(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.root)
    assert main(["rounds", "campaign.yaml", "--effect", "1.05"]) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    with pytest.raises(SystemExit) as stop:
        main(["rounds", "campaign.yaml"])
    assert stop.value.code == 2
