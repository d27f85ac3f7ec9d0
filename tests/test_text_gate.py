"""The text gate: what is wrong only when warm is caught, and what is merely different is told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import COMMAND, Tree
from twoturn import bench, cells, claims, cold_texts, contrasts, measure, text_gate
from twoturn.claims import reason_fields
from twoturn.messages import message
from twoturn.plan import Arm
from twoturn.session import Session
from twoturn.text_gate import Finding, Request, examine, first_difference, unspeculated


def arm(name: str, speculation: str = "none", **more: Any) -> Arm:
    facts: dict[str, Any] = {
        **{"checkpoint": "c", "server": "s", "adapter": "mlx-lm", "version": "1"},
        **{"block_size": None, "draft": None, "settings": {}, "args": ()},
    }
    return Arm(name=name, speculation=speculation, **{**facts, **more})


PLAIN = arm("plain")
DRAFT = arm("draft", "draft", block_size=4, draft="d")
ASKED = (message("user", "1 2 3"),)


@dataclass
class Cold:
    """Fresh servers whose answers are known, and which of them were asked."""

    texts: dict[str, str]
    asked: list[str] = field(default_factory=list)

    def __call__(self, arm: Arm, messages: text_gate.Messages) -> str | None:
        self.asked.append(arm.name)
        return self.texts.get(arm.name)


def found(texts: Sequence[tuple[Arm, str]], cold: Cold, *arms: Arm) -> list[Finding]:
    requests = [Request(one, ASKED, text) for one, text in texts]
    return examine(requests, arms or (PLAIN, DRAFT), cold)


def test_without_speculation_nothing_of_it_is_left() -> None:
    one = arm("adaptive", "dflash", adaptive=True, draft="d")
    plain = unspeculated(one, [one])
    assert plain is not None
    assert (plain.speculation, plain.block_size, plain.adaptive, plain.draft) == (
        *("none", None, False),
        None,
    )


def test_same_texts_need_no_fresh_server() -> None:
    cold = Cold({})
    assert found([(PLAIN, "a b"), (DRAFT, "a b")], cold) == [Finding("identical")] * 2
    assert cold.asked == []


@pytest.mark.parametrize(
    ("warm", "cold", "verdict", "other"),
    [
        ("x", {"plain": "a", "draft": "a"}, "wrong_when_warm", "a"),
        ("x", {"plain": "a", "draft": "b"}, "wrong_when_warm", "a"),
        ("b", {"plain": "a", "draft": "b"}, "diverges", "a"),
        ("a", {"plain": "a", "draft": "b"}, "identical", None),
        ("x", {"plain": "a"}, None, None),  # the draft's server does not start once more
        ("b", {"draft": "b"}, None, None),  # the same, but nobody knows what is right
        ("x", {"draft": "b"}, "wrong_when_warm", "b"),
        ("x", {}, None, None),
    ],
)
def test_the_rule(warm: str, cold: dict[str, str], verdict: Any, other: str | None) -> None:
    texts = [(PLAIN, "a"), (DRAFT, warm)]
    if warm == "a":  # another server of the same checkpoint wrote something else
        texts.append((arm("else", server="t"), "c"))
    assert found(texts, Cold(cold))[1] == Finding(verdict, other)


def test_the_reference_may_be_the_wrong_one() -> None:
    cold = Cold({"plain": "a", "draft": "a"})
    plain, draft = found([(PLAIN, "x"), (DRAFT, "a")], cold)
    assert (plain, draft) == (Finding("wrong_when_warm", "a"), Finding("identical"))


def test_without_an_answer_that_nobody_drafted_equality_says_nothing() -> None:
    other = replace(DRAFT, name="other", block_size=2)
    cold = Cold({"draft": "a", "other": "a"})
    texts = [(DRAFT, "x"), (other, "x")]
    assert [one.verdict for one in found(texts, cold, DRAFT, other)] == ["wrong_when_warm"] * 2


def test_other_checkpoints_and_other_messages_are_not_compared() -> None:
    cold = Cold({"q4": "y", "plain": "z"})
    requests = [
        Request(PLAIN, ASKED, "x"),
        Request(arm("q4", checkpoint="d"), ASKED, "y"),
        Request(PLAIN, (*ASKED, message("assistant", "x"), message("user", "4")), "z"),
    ]
    assert examine(requests, [PLAIN], cold) == [Finding("identical")] * 3
    assert cold.asked == []


@pytest.mark.parametrize(
    ("mine", "arms", "name"),
    [
        (PLAIN, [PLAIN, arm("other")], "plain"),
        (DRAFT, [DRAFT, PLAIN], "plain"),
        (DRAFT, [PLAIN, arm("like")], "plain"),
        (replace(DRAFT, settings={"x": 1}), [PLAIN, arm("like", settings={"x": 1})], "like"),
        (DRAFT, [DRAFT, arm("elsewhere", server="t"), arm("q4", checkpoint="d")], "draft"),
    ],
)
def test_who_tells_what_is_right(mine: Arm, arms: list[Arm], name: str) -> None:
    plain = unspeculated(mine, arms)
    assert plain is not None
    assert plain.name == name
    assert (plain.speculation, plain.draft, plain.block_size) == ("none", None, None)


def test_what_a_command_calls_speculation_cannot_be_taken_away() -> None:
    assert unspeculated(replace(DRAFT, adapter="command"), [DRAFT]) is None


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_first_difference(one: list[int], other: list[int]) -> None:
    place = first_difference(one, other)
    if place is None:
        assert one == other
    else:
        assert one[:place] == other[:place]
        assert one[place : place + 1] != other[place : place + 1]


# With servers -------------------------------------------------------------------------------------

ARMS: dict[str, dict[str, Any]] = {
    "plain": {"args": ["--prompt-cache"]},
    "same": {"speculation": "draft", "draft": "draft", "args": ["--prompt-cache", "--draft"]},
    "rounds": {
        **{"speculation": "draft", "draft": "draft"},
        "args": ["--prompt-cache", "--draft", "--seed", "1"],
    },
    "stale": {
        **{"speculation": "draft", "draft": "draft"},
        "args": ["--prompt-cache", "--draft", "--wrong-from", "20"],
    },
}


def measured(tree: Tree, **workload: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """(arm, turn) → row of the first round of a conversation with four arms."""
    tree.write(
        {
            "servers": {"one": {"command": [*COMMAND, "--tok-s", "300"], "version": "1.0"}},
            "checkpoints": {name: {"path": f"models/{name}"} for name in ("small", "draft")},
            "series": {
                "talk": {
                    "workload": {
                        **{"kind": "conversation", "text": "texts/words.txt", "turns": 2},
                        **{"prompt_tokens": 32, "max_tokens": 8, **workload},
                    },
                    "rounds": 4,
                    "reference": "plain",
                    "arms": {
                        name: {"checkpoint": "small", "server": "one", **more}
                        for name, more in ARMS.items()
                    },
                }
            },
        }
    )
    loaded = tree.load()
    (series,) = loaded.plan.series
    session = Session("s", os.getpid(), 0.0)
    said: list[str] = []
    measure.run_round(loaded, series, 1, session, tree.root / "logs", said.append)
    files = [tree.root / cell for cell in series.cells(1)]
    rows = [row for file in files for row in cells.read(file)[0].to_pylist()]
    tree_said[tree.root] = said
    return {(row["arm"], row["turn"]): row for row in rows if row["kind"] == "round"}


tree_said: dict[Path, list[str]] = {}


def cold_runs(tree: Tree) -> list[str]:
    return [line for line in tree_said[tree.root] if line.startswith("cold run")]


def test_a_fault_of_a_warm_server_is_caught(tree: Tree) -> None:
    rows = measured(tree)
    gates = {key: (row["text_gate"], row["status"]) for key, row in rows.items()}
    assert gates == {
        ("plain", 1): ("identical", "ok"),
        ("plain", 2): ("identical", "ok"),
        ("same", 1): ("identical", "ok"),
        ("same", 2): ("identical", "ok"),
        ("rounds", 1): ("diverges", "ok"),
        ("rounds", 2): ("diverges", "ok"),
        ("stale", 1): ("identical", "ok"),
        ("stale", 2): ("wrong_when_warm", "wrong_when_warm"),
    }
    wrong = rows["stale", 2]
    assert wrong["cached_tokens"] > 20  # the cache itself looks perfect
    assert wrong["divergence_token"] == 1
    assert wrong["reason"] == "turn 2 is not what a fresh server writes, from token 1 on"
    assert rows["rounds", 1]["reason"] is None
    assert rows["rounds", 1]["divergence_token"] == 1
    assert {rows[name, 2]["divergence_token"] for name in ("plain", "same")} == {None}
    # Turn 1: plain and rounds. Turn 2, as plain asked it: plain and stale. As rounds asked: both.
    # `same` and `stale` of turn 1 are right at once.
    assert len(cold_runs(tree)) == 6


def test_sampled_answers_are_not_held_against_each_other(tree: Tree) -> None:
    rows = measured(tree, temperature=0.7)
    assert {(row["text_gate"], row["status"]) for row in rows.values()} == {(None, "ok")}
    assert cold_runs(tree) == []


def test_no_server_is_started_in_a_mode_that_it_does_not_have(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(tree)
    loaded = tree.load()
    series = loaded.plan.series[0]
    this = bench.Round(
        *(loaded, series, 1, Session("s", os.getpid(), 0.0), True),
        *({"one": None}, "", tree.root, print),
    )
    cold, started = cold_texts._Cold(this), list[str]()
    monkeypatch.setattr(cold, "_ask", lambda arm, _: started.append(arm.speculation))
    plain = unspeculated(series.arm("stale"), series.arms)
    assert plain is not None
    cold(plain, ASKED)
    monkeypatch.setattr("twoturn.engines.command.Command.modes", ("draft",))
    cold(plain, (message("user", "another question"),))
    assert started == ["none"]


def test_cold_runs_leave_nothing(tree: Tree) -> None:
    measured(tree)
    assert list((tree.root / ".twoturn/cells").iterdir()) == []


# What follows -------------------------------------------------------------------------------------


def test_a_wrong_text_is_no_contrast_and_the_reason_names_the_arm(tree: Tree) -> None:
    measured(tree)
    series = tree.load().plan.series
    files = sorted((tree.root / series[0].directory).rglob("*.parquet"))
    table = cells.join([(file, series[0].fingerprint) for file in files])
    rows = contrasts.from_cells(table.to_pandas(), series).to_pylist()
    reasons = {row["arm"]: row["warnings"] for row in rows if row["verdict"] == "invalid"}
    assert reasons["stale"][0] == "wrong_when_warm:stale"
    assert not any(code.startswith("wrong") for code in reasons["rounds"])
    assert {row["ratio"] for row in rows if row["arm"] == "stale"} == {None}
    told = claims.from_contrasts(contrasts.from_cells(table.to_pandas(), series), series)
    (claim,) = [row for row in told.to_pylist() if row["claim"] == "talk/decode_tok_s/stale"]
    assert (claim["verdict"], claim["reason"]) == ("invalid", "wrong_when_warm:stale")
    assert reason_fields(claim["reason"])[1] == {"detail": ("name", "stale")}
    assert pq.read_schema(files[0]).equals(cells.SCHEMA)


def test_the_gap_where_a_text_parts() -> None:
    request = Request(PLAIN, ASKED, "abcdef", ((2, 0.5), (1, None), (3, 0.25)))
    assert [request.gap_at(place) for place in range(8)] == [
        *(0.5, 0.5, None, 0.25, 0.25, 0.25),
        *(None, None),  # the reference had ended there
    ]
    assert Request(PLAIN, ASKED, "abc").gap_at(0) is None


def test_answers_are_compared_with_those_of_the_round() -> None:
    """The control's texts too, where it is asked the same: reference against reference."""
    this: Any = SimpleNamespace(series=SimpleNamespace(reference="plain"))

    def cell(one: Arm, text: str) -> bench.Cell:
        row = {"status": "ok", "prompt_id": "p", "turn": 1}
        return bench.Cell(one, [row], [Request(one, ASKED, text, ((2, 0.5), (4, 0.25)))])

    measured, control = [cell(PLAIN, "abcdef"), cell(DRAFT, "abcxef")], [cell(PLAIN, "aXcdef")]
    cold_texts.compare(this, measured, measured)
    cold_texts.compare(this, control, measured)
    found = [one.rows[0] for one in (*measured, *control)]
    assert [row["divergence_index"] for row in found] == [None, 3, 1]
    assert [row["divergence_gap_nats"] for row in found] == [None, 0.25, 0.5]
