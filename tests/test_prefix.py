"""What of a conversation a chat template keeps, with templates as they are used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from twoturn import prefix
from twoturn.config import Conversation
from twoturn.messages import message
from twoturn.prefix import KEPT, Turn, expected, share, tells_time
from twoturn.tokens import ChatTokenizer

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "texts/python-topics.txt").read_text(encoding="utf-8")
FILE = str(ROOT / "checkpoints/demo/target/tokenizer.json")
CHATML = """
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
EMPTY_THOUGHT = CHATML.replace("assistant\n{%", "assistant\n<think>\n\n</think>\n\n{%")
"""As Qwen3's: an empty thought opens the answer and is not in the history."""
THOUGHT_TOLD = CHATML.replace(
    "{{ m.content }}",
    "{% if m.reasoning_content %}{{ m.reasoning_content }}\n{% endif %}{{ m.content }}",
)
FIRST = (message("user", "Which of these is the largest? " * 20),)
NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def tokenizer(template: str) -> ChatTokenizer:
    return ChatTokenizer(Tokenizer.from_file(FILE), template, {})


def workload(**more: object) -> Conversation:
    return Conversation.model_validate({"kind": "conversation", "prompt_tokens": 400, **more})


@pytest.mark.parametrize(
    ("template", "kept", "time"),
    [
        (CHATML, True, False),
        (EMPTY_THOUGHT, False, False),
        ("{{ strftime_now('%d %b %Y') }}" + CHATML, True, False),
        ("{{ strftime_now('%d %b %Y %H:%M') }}" + CHATML, False, True),
    ],
    ids=["chatml", "empty thought", "date", "time"],
)
def test_templates(template: str, kept: bool, time: bool) -> None:
    assert (expected(workload(max_tokens=48), TEXT, tokenizer(template)) >= KEPT) is kept
    assert tells_time(tokenizer(template)) is time


def test_an_altered_answer_is_no_fault_of_the_template() -> None:
    for history in ("altered", "thinking_stripped"):
        assert expected(workload(history=history), TEXT, tokenizer(CHATML)) == 1


@pytest.mark.parametrize(("template", "kept"), [(CHATML, False), (THOUGHT_TOLD, True)])
def test_a_template_that_drops_a_thought(template: str, kept: bool) -> None:
    thought = "First the small ones, then the large ones, one by one. " * 4
    back = message("assistant", "The last.", reasoning_content=thought)
    after = Turn((*FIRST, back, message("user", "Why?")), NOW + timedelta(seconds=9))
    found = share(tokenizer(template), Turn(FIRST, NOW), thought, after)
    assert (found >= KEPT) is kept


def test_a_share_counts_tokens() -> None:
    one = tokenizer(CHATML)
    other = Turn((message("user", "Another question"),), NOW)
    held = one.encode(one.render([{"role": "user", "content": "Another question"}]))
    found = share(one, other, None, Turn(FIRST, NOW))
    assert 0 < found * len(held) < len(held)
    assert prefix.common("abc", "abd") == prefix.common("ab", "abd") == 2
