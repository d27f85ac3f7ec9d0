"""Conversations against servers that handle the first turn in every way, up to the sentences.

A cold prompt takes 0.3 s, so that the clock can tell; a word is a token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tests.conftest import COMMAND, Tree
from tests.test_article import prose
from twoturn import (
    article,
    cells,
    claims,
    contrasts,
    measure,
    numbers,
    prefix,
    preflight,
    servers,
)
from twoturn.session import Session

CACHE = "--prompt-cache"
SPEC = {"speculation": "draft", "draft": "draft"}
TEMPLATE = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}<assistant> "
DATED = "{{ strftime_now('%M:%S.%f')[:7] }} "
TIMES = [f"{m:02d}:{s:02d}.{d}" for m in range(60) for s in range(60) for d in range(10)]


@dataclass(frozen=True)
class Told:
    """What came of measured rounds. `said`: what was told before and during measuring."""

    rows: list[dict[str, Any]]
    contrasts: list[dict[str, Any]]
    texts: Mapping[str, str]
    said: list[str]

    def of(self, arm: str, turn: int = 1, kind: str = "round") -> dict[str, Any]:
        keys = ("arm", "turn", "kind")
        return next(row for row in self.rows if [row[key] for key in keys] == [arm, turn, kind])

    def contrast(self, metric: str, arm: str) -> dict[str, Any]:
        return next(one for one in self.contrasts if (one["metric"], one["arm"]) == (metric, arm))

    def tells(self, english: str, polish: str) -> bool:
        return english in self.texts["en"] and polish in self.texts["pl"]


Measure = Callable[..., Told]


@pytest.fixture
def measured(tree: Tree) -> Measure:
    """Measure rounds of one series, in this process; each server is one of its own."""

    def go(
        arms: Mapping[str, Mapping[str, Any]], *, rounds: int = 1, cold_s: float = 0.3, **more: Any
    ) -> Told:
        tree.write(
            {
                "servers": {
                    "one": {
                        "command": [*COMMAND, "--tok-s", "2000", "--ttft-ms", str(1000 * cold_s)],
                        "version": "1.0",
                    }
                },
                "checkpoints": {name: {"path": f"models/{name}"} for name in ("small", "draft")},
                "series": {
                    "talk": {
                        "workload": {
                            **{"kind": "conversation", "text": "texts/words.txt", "turns": 2},
                            **{"prompt_tokens": 200, "turn_tokens": 10, "max_tokens": 12, **more},
                        },
                        "rounds": max(4, rounds),
                        "reference": "plain",
                        "arms": {
                            name: {"checkpoint": "small", "server": "one", **entry}
                            for name, entry in arms.items()
                        },
                    }
                },
            }
        )
        loaded, session, said = tree.load(), Session("s", os.getpid(), 0.0), list[str]()
        (series,) = loaded.plan.series
        preflight.check(loaded, [series], said.append)
        warmed = tree.root / servers.STATE / "warmed"
        warmed.parent.mkdir(exist_ok=True)
        warmed.write_text(session.id)  # these servers have nothing to warm up for
        for number in range(1, rounds + 1):
            measure.run_round(loaded, series, number, session, tree.root / "logs", said.append)
        files = cells.of_series(tree.root / series.directory, rounds)
        table = cells.join([(file, series.fingerprint) for file in files])
        found = contrasts.from_cells(table.to_pandas(), [series])
        told = claims.from_contrasts(found, [series])
        data = article.gather(loaded, table.to_pandas(), found, told, {})
        texts = {language: article.render(language, data) for language in ("en", "pl")}
        one, other = (numbers.parse(prose(text), name) for name, text in texts.items())
        assert one == other
        return Told(table.to_pylist(), found.to_pylist(), texts, said)

    return go


def with_template(tree: Tree, template: str) -> None:
    """Give the target a tokenizer whose tokens are words, and a chat template."""
    words = (tree.root / "texts/words.txt").read_text().split()
    known = dict.fromkeys(["?", "<user>", "<assistant>", *words, *TIMES])
    vocabulary = {word: number for number, word in enumerate(known)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(tree.root / "models/small/tokenizer.json"))
    file = tree.root / "models/small/tokenizer_config.json"
    file.write_text(json.dumps({"chat_template": template}))


def test_a_cache_that_speculation_loses(measured: Measure) -> None:
    """Faster in decoding, slower in the whole conversation: the headline is the conversation's."""
    slow = [CACHE, "--tok-s", "200", "--noise", "0.01"]
    lost = measured(
        {
            "plain": {"args": slow},
            "draft": {
                **SPEC,
                "args": [*slow, "--speed", "1.5", "--draft", "--draft-drops-cache"],
            },
        },
        rounds=4,
        cold_s=0.4,
        max_tokens=40,
        decoy=False,
    )
    assert {row["status"] for row in lost.rows} == {"ok"}
    assert lost.of("plain", 2)["cached_tokens"] > 100
    assert lost.of("draft", 2)["cached_tokens"] == 0
    assert lost.contrast("decode_tok_s", "draft")["verdict"] == "faster"
    assert lost.contrast("turn2_ttft_s", "draft")["verdict"] == "slower"
    assert "cache_counter_suspect" not in lost.contrast("turn2_ttft_s", "draft")["warnings"]
    assert lost.contrast("conversation_s", "draft")["verdict"] == "slower"
    assert lost.tells(
        "`draft` wins the decoding and loses the conversation",
        "`draft` wygrywa dekodowanie, a przegrywa rozmowę",
    )
    assert lost.tells("Every other arm of the series `talk` finishes the conversation later", "")
    assert "| `draft` | 2 |" in lost.texts["en"]


def test_counters_that_the_clock_contradicts(measured: Measure, tree: Tree) -> None:
    """A counter of 0 on a warm turn, and a hit that was cold: times stay, counts are not told."""
    shared = str(tree.root / "cache.jsonl")
    found = measured(
        {
            "plain": {"args": [CACHE]},
            "zero": {"args": [CACHE, "--report", "zero"]},
            "hit": {"args": [CACHE, "--report", "hit"]},
            "off": {},
            "disk": {"args": [CACHE, "--cache-file", shared]},
            "disk_again": {"args": [CACHE, "--cache-file", shared]},
        }
    )
    assert found.of("zero", 2)["cached_tokens"] == 0
    assert found.of("zero", 2)["ttft_s"] < 0.15 < 0.25 < found.of("zero")["ttft_s"]
    assert found.of("hit", 2)["cached_tokens"] > 100
    assert found.of("hit", 2)["ttft_s"] > 0.25
    quiet = {"zero", "hit"}
    assert {row["status"] for row in found.rows if row["arm"] in quiet | {"plain", "off"}} == {"ok"}
    for arm in quiet:
        cached, new = table_row(found.texts["en"], arm, 2)[3:5]
        assert (cached, new) == ("n/d", "n/d")
    assert table_row(found.texts["en"], "off", 2)[3] == "0"
    assert table_row(found.texts["en"], "plain", 2)[3] not in ("n/d", "0")
    assert found.tells(
        "`zero` reports that none of the second prompt came from its cache, and the clock says",
        "`zero` podaje, że z drugiego promptu nic nie przyszło z cache'u, a zegar temu przeczy",
    )
    cached = found.of("hit", 2)["cached_tokens"]
    assert found.tells(
        f"`hit` reports {cached} tokens of the second prompt from its cache, and the clock says",
        f"`hit` podaje, że tokeny drugiego promptu wzięte z cache'u to: {cached}, a zegar temu",
    )
    second = found.contrast("turn2_ttft_s", "zero")
    assert second["verdict"] == "invalid"  # of one round
    # The disk outlives the first of its two arms, whichever that is in this round.
    statuses = sorted(found.of(arm)["status"] for arm in ("disk", "disk_again"))
    assert statuses == ["not_cold", "ok"]
    assert found.tells("`not_cold`: part of a new prompt came from a cache", "`not_cold`: ")


def table_row(text: str, arm: str, turn: int) -> list[str]:
    """The cells of a line of the table by turn."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| `{arm}` | {turn} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_prompt_that_is_cut_silently(measured: Measure, tree: Tree) -> None:
    with_template(tree, TEMPLATE)
    cut = measured({"plain": {"args": [CACHE]}, "cut": {"args": [CACHE, "--keep", "50"]}})
    assert cut.of("plain", 2)["status"] == "ok"
    assert cut.of("plain", 2)["prefix_share"] > prefix.KEPT
    assert {row["status"] for row in cut.rows if row["arm"] == "cut"} == {"prompt_truncated"}
    assert cut.of("cut")["reason"] == "sent 200 tokens, the server read 50"
    assert cut.tells(
        "`prompt_truncated`: the server read a prompt of another length than the one sent",
        "`prompt_truncated`: serwer przeczytał prompt innej długości niż wysłany",
    )


def test_a_time_in_the_template_is_the_templates_fault(measured: Measure, tree: Tree) -> None:
    with_template(tree, DATED + TEMPLATE)
    arms = {"plain": {"args": [CACHE, "--dated"]}, "same": {"args": [CACHE, "--dated"]}}
    broken = measured(arms, decoy=False)
    assert broken.said[0] == (
        "talk: the chat template of small keeps 0% of a first turn at the start of the second, and "
        "less than 95% is no prefix: second turns are measured and not compared "
        "(template_breaks_prefix)"
    )
    assert broken.of("plain", 2)["cached_tokens"] == 0
    assert broken.of("plain", 2)["prefix_share"] == 0
    assert {row["status"] for row in broken.rows} == {"ok"}
    assert {row["text_gate"] for row in broken.rows} == {None}  # another time, another answer
    assert "template_breaks_prefix:small" in broken.contrast("turn2_ttft_s", "same")["warnings"]
    assert not any("template" in w for w in broken.contrast("conversation_s", "same")["warnings"])
    assert broken.tells(
        "It is the chat template of `small` that breaks the prefix, and not an engine",
        "To szablon czatu checkpointu `small` psuje prefiks, a nie silnik",
    )


def test_altered_answers_part_from_the_first_turn_where_they_begin(
    measured: Measure, tree: Tree
) -> None:
    with_template(tree, TEMPLATE)
    found = measured({"plain": {"args": [CACHE]}, "off": {}}, history="altered")
    assert found.of("plain", 2)["prefix_share"] == 1  # of the prompt; the answer is ours to change
    assert found.of("plain", 2)["prompt_tokens"] == found.of("plain")["prompt_tokens"] + 23
    assert found.said[0].startswith("round 1")
    assert found.tells(
        "ended 2 cells of `plain` and `off`: every one was reported cold",
        "zamykał 2 komórki wariantów `plain` i `off`: według licznika ani razu nic nie przyszło",
    )
    assert found.tells(
        "every answer goes back without its first word",
        "każda odpowiedź wraca do historii bez pierwszego słowa",
    )


def test_no_decoy_where_none_is_wanted(measured: Measure) -> None:
    found = measured({"plain": {}, "off": {}}, decoy=False, cold_s=0.02)
    assert {row["kind"] for row in found.rows} == {"warmup", "round"}
    assert "decoy" not in found.texts["en"]


def test_a_decoy_changes_no_fingerprint(tree: Tree, data: dict[str, Any]) -> None:
    def fingerprint(**more: Any) -> str:
        data["series"]["second"]["workload"] |= more
        tree.write(data)
        return tree.load().plan.one("second").fingerprint

    assert fingerprint() == fingerprint(decoy=False) != fingerprint(history="altered")
