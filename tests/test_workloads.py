"""Prompts: exact in tokens, the same for all arms of a round, new in every round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twoturn import tokens, workloads
from twoturn.config import Chat, Conversation
from twoturn.messages import as_sent
from twoturn.stream import Answer, Channel, TokenChunk
from twoturn.texts import kinds, prompt_kind, prompt_name, sections
from twoturn.workloads import Dialogue, dialogues, nonce

ROOT = Path(__file__).parents[1]
TOKENIZER = tokens.load(ROOT / "checkpoints/demo/target")
TEXT = (ROOT / "texts/python-topics.txt").read_text(encoding="utf-8")
# Letters that take several tokens each, which a cut may fall between.
ACCENTED = "Zażółć gęślą jaźń 🦀 i coś więcej, 漢字. " * 300


def made(key: str = "01", text: str = TEXT, /, **workload: Any) -> list[Dialogue]:
    kind = Conversation if "turns" in workload else Chat
    return dialogues(kind(**{"kind": "chat"} | workload), text, TOKENIZER, key)


NONCE = 10  # letters
KINDS = (ROOT / "texts/kinds.txt").read_text(encoding="utf-8")


def test_prompts_of_a_kind_are_cut_from_its_sections_alone() -> None:
    wanted = {"kinds": ["code", "repeat"], "prompts": 2, "prompt_tokens": 96}
    found = made("01", KINDS, **wanted)
    assert [one.prompt_id for one in found] == ["code-1", "code-2", "repeat-1", "repeat-2"]
    assert [one.prompt_tokens for one in found] == [96] * 4
    starts = [bare(one)[0][:40] for one in found]
    assert len(set(starts)) == 4
    for start, kind in zip(starts, ("code", "code", "repeat", "repeat"), strict=True):
        assert any(section.startswith(start) for section in sections(KINDS, kind))
    assert len({texts(one)[0][:NONCE] for one in found}) == 4
    again = made("02", KINDS, **wanted)
    assert [bare(one)[0][:40] for one in again] == starts


def test_the_shipped_kinds_are_all_there_and_no_section_says_its_kind() -> None:
    assert kinds(KINDS) == ["code", "prose", "chat", "structured", "repeat"]
    for kind in kinds(KINDS):
        assert len(found := sections(KINDS, kind)) >= 3
        assert not any("kind:" in section for section in found)
    assert kinds(TEXT) == []


def test_a_kind_is_told_from_its_prompts() -> None:
    assert [prompt_kind(prompt_name(2, kind)) for kind in ("code", "a-b")] == ["code", "a-b"]
    assert prompt_name(3) == "p3"


def texts(dialogue: Dialogue) -> tuple[str, ...]:
    """What the user says in each turn."""
    said = [as_sent(turn) for turn in dialogue.turns]
    assert all([one["role"] for one in turn] == ["user"] for turn in said)
    return tuple(turn[0]["content"] for turn in said)


def bare(dialogue: Dialogue) -> tuple[str, ...]:
    """What the user says without the nonce."""
    first, *later = texts(dialogue)
    return (first[NONCE:], *later)


@pytest.mark.parametrize("wanted", [24, 56, 1500, 3001])
def test_prompts_have_the_wanted_number_of_tokens(wanted: int) -> None:
    assert TOKENIZER is not None
    for dialogue in made(prompts=3, prompt_tokens=wanted):
        assert dialogue.prompt_tokens == wanted
        message = {"role": "user", "content": texts(dialogue)[0]}
        assert len(TOKENIZER.encode(TOKENIZER.render([message]))) == wanted


@settings(max_examples=15)
@given(st.integers(24, 700), st.integers(0, 99), st.sampled_from(["01", "02", "07-warmup"]))
def test_any_length_and_seed_is_exact(wanted: int, seed: int, key: str) -> None:
    (dialogue,) = made(key, prompt_tokens=wanted, seed=seed)
    assert dialogue.prompt_tokens == wanted


def test_letters_are_not_cut() -> None:
    for wanted in range(290, 320):
        (dialogue,) = made("01", ACCENTED, prompt_tokens=wanted)
        assert dialogue.prompt_tokens == wanted
        assert "\ufffd" not in texts(dialogue)[0]


def test_a_length_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(Exception, match="16"):
        made(prompt_tokens=16)


def test_the_same_seed_gives_the_same_texts() -> None:
    assert made(prompts=3, seed=1) == made(prompts=3, seed=1)
    assert made(prompts=3, seed=1) != made(prompts=3, seed=2)
    assert bare(made(seed=1)[0]) != bare(made(seed=2)[0])


def test_rounds_differ_in_the_nonce_alone() -> None:
    first, second = (
        made("01", prompts=3, prompt_tokens=256),
        made("02", prompts=3, prompt_tokens=256),
    )
    for one, other in zip(first, second, strict=True):
        assert texts(one)[0] != texts(other)[0]
        short, long = sorted((bare(one)[0], bare(other)[0]), key=len)
        # the nonces' own tokens may differ in number, which the text makes up for
        assert long.startswith(short[:-40])
        assert len(long) - len(short) < 40


def test_a_nonce_begins_the_prompt_and_is_the_same_for_all_arms() -> None:
    """An arm is no argument: what differs is the seed, the round and the prompt."""
    first = made("01", prompts=4, seed=3)
    for index, dialogue in enumerate(first):
        assert texts(dialogue)[0].startswith(nonce(3, "01", index))
    assert first == made("01", prompts=4, seed=3)


def test_nonces_of_a_campaign_differ() -> None:
    keys = [f"{number:02d}{kind}" for number in range(1, 7) for kind in ("", "-warmup")]
    nonces = [nonce(7, key, index) for key in keys for index in range(3)]
    assert len(set(nonces)) == len(nonces)
    assert all(len(text) == NONCE and text[:8].isdigit() for text in nonces)


def test_nonces_of_any_seed_differ() -> None:
    for seed in range(100):
        nonces = [nonce(seed, f"{number:02d}", index) for number in range(1, 9) for index in (0, 1)]
        assert len(set(nonces)) == len(nonces)


def test_prompts_of_a_cell_differ() -> None:
    found = made(prompts=5, prompt_tokens=64)
    assert [dialogue.prompt_id for dialogue in found] == ["p1", "p2", "p3", "p4", "p5"]
    assert len({bare(dialogue)[0] for dialogue in found}) == 5


def test_more_prompts_do_not_change_the_first_ones() -> None:
    assert made(prompts=5)[:2] == made(prompts=2)


def test_turns_go_on_in_the_text() -> None:
    assert TOKENIZER is not None
    (dialogue,) = made(kind="conversation", turns=3, prompt_tokens=100, turn_tokens=40)
    assert len(texts(dialogue)) == 3
    later = texts(dialogue)[1:]
    assert [len(TOKENIZER.encode(text)) for text in later] == pytest.approx([40, 40], abs=2)
    (longer,) = made(prompt_tokens=400)
    assert bare(longer)[0].startswith("".join(bare(dialogue)))


def test_a_short_text_is_used_more_than_once() -> None:
    text = "A short text about nothing at all, told in one line. "
    (dialogue,) = made("01", text, prompt_tokens=900)
    assert dialogue.prompt_tokens == 900
    assert texts(dialogue)[0].count("A short text") > 10


def test_sections_are_shuffled_and_not_mixed() -> None:
    text = "\f".join(f"section {name} " + f"{name} " * 40 for name in "abcd")
    starts = {bare(made("01", text, seed=seed)[0])[0][:9] for seed in range(20)}
    assert starts == {f"section {name}" for name in "abcd"}


def test_without_a_tokenizer_lengths_are_characters() -> None:
    workload = Conversation(kind="conversation", turns=2, prompt_tokens=100, turn_tokens=10)
    (dialogue,) = dialogues(workload, TEXT, None, "01")
    assert dialogue.prompt_tokens is None
    first, second = texts(dialogue)
    each = workloads.CHARACTERS_PER_TOKEN
    assert (len(first), len(second)) == (NONCE + 100 * each, 10 * each)
    assert first.startswith(nonce(7, "01", 0))


def test_a_decoy_is_the_same_text_under_another_nonce() -> None:
    (dialogue,) = made("01-round", prompt_tokens=300)
    workload = Conversation.model_validate({"kind": "conversation", "prompt_tokens": 300})
    decoy = workloads.alike(workload, TEXT, TOKENIZER, "01-round-decoy")
    assert decoy.prompt_tokens == dialogue.prompt_tokens
    one, other = texts(dialogue)[0], texts(decoy)[0]
    assert one[:NONCE] != other[:NONCE]
    assert one[NONCE : NONCE + 200] == other[NONCE : NONCE + 200]


def answer(content: str, reasoning: str = "") -> Answer:
    parts: list[tuple[str, Channel]] = [(reasoning, "reasoning"), (content, "content")]
    chunks = tuple(TokenChunk(0.0, text, channel, None) for text, channel in parts if text)
    return Answer(200, "clean", 0.0, chunks=chunks)


@pytest.mark.parametrize(
    ("history", "content", "reasoning", "back", "held"),
    [
        ("exact", "One two.", "", {"content": "One two."}, "One two."),
        ("exact", "2", "1+1", {"content": "2", "reasoning_content": "1+1"}, "1+1"),
        ("exact", "<think>1+1</think>2", "", {"content": "<think>1+1</think>2"}, ...),
        ("altered", "One two three.", "", {"content": "two three."}, None),
        ("altered", " \n One", "1", {"content": ""}, None),
        ("thinking_stripped", "2", "1+1", {"content": "2"}, None),
        ("thinking_stripped", "2", "", {"content": "2"}, "2"),
        ("thinking_stripped", "<think>1+1</think>\n\n2", "", {"content": "2"}, None),
        ("thinking_stripped", "1+1\n</think>\n\n2 ", "", {"content": "2 "}, None),
        ("thinking_stripped", "<think>1+", "", {"content": ""}, None),
    ],
)
def test_what_goes_back(
    history: Any, content: str, reasoning: str, back: dict[str, str], held: Any
) -> None:
    workload = Conversation.model_validate({"kind": "conversation", "history": history})
    said = answer(content, reasoning)
    assert as_sent(workloads.goes_back(workload, said)) == [{"role": "assistant", **back}]
    assert workloads.unchanged(workload, said) == (content if held is ... else held)
