"""A checkpoint's tokenizer and chat template, read without model code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing

from twoturn import tokens
from twoturn.errors import UserError

DEMO = Path(__file__).parents[1] / "checkpoints/demo/target"
TOKENIZER = tokens.load(DEMO)
HELLO = [{"role": "user", "content": "Hello"}]


def with_config(folder: Path, config: dict[str, Any] | None) -> tokens.ChatTokenizer:
    shutil.copy(DEMO / "tokenizer.json", folder)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    found = tokens.load(folder)
    assert found is not None
    return found


def test_the_demo_renders_its_template() -> None:
    assert TOKENIZER is not None
    text = TOKENIZER.render(HELLO)
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.count(HELLO) == len(ids)
    assert len(TOKENIZER.encode("<|im_start|>")) == 1  # a special token is one token


def test_what_every_prompt_begins_with(tmp_path: Path) -> None:
    """A system message that the template holds is in a cache after any request."""
    assert TOKENIZER is not None
    assert TOKENIZER.shared() == len(TOKENIZER.encode("<|im_start|>user\n"))
    system = "Be of help to everybody who asks.\n"
    talkative = with_config(tmp_path, {"chat_template": system + "{{ messages[0]['content'] }}"})
    assert talkative.shared() == len(talkative.encode(system))
    (tmp_path / "silent").mkdir()
    assert with_config(tmp_path / "silent", {"chat_template": "always the same"}).shared() > 0


@given(st.text(max_size=60), st.integers(0, 80))
def test_a_cut_is_a_beginning_of_whole_letters(text: str, tokens: int) -> None:
    assert TOKENIZER is not None
    cut = TOKENIZER.cut(text, tokens)
    assert text.startswith(cut)
    assert len(TOKENIZER.encode(cut)) <= max(tokens, 0) or cut == text


def test_nothing_is_added_to_a_prompt(tmp_path: Path) -> None:
    """The template writes the first token itself; a second one would not be what a server sees."""
    tokenizer = Tokenizer(WordLevel({"<s>": 0, "Hello": 1, "?": 2}, unk_token="?"))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = tokens.load(tmp_path)
    assert found is not None
    assert found.encode("Hello") == [1]
    assert found.count(HELLO) == 1


def test_no_tokenizer(tmp_path: Path) -> None:
    assert tokens.load(tmp_path) is None


@pytest.mark.parametrize(
    "config", [None, {}, {"chat_template": [{"name": "tool", "template": "x"}]}]
)
def test_no_template(tmp_path: Path, config: dict[str, Any] | None) -> None:
    found = with_config(tmp_path, config)
    assert found.render([*HELLO, {"role": "assistant", "content": "Hi"}]) == "Hello\nHi"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"chat_template": "{{ messages[0].content }}|{{ add_generation_prompt }}"}, "Hello|True"),
        (
            {"chat_template": "{{ bos_token }}{{ eos_token }}", "bos_token": "<s>"}
            | {"eos_token": {"content": "</s>"}},
            "<s></s>",
        ),
        (
            {
                "chat_template": [
                    {"name": "tool_use", "template": "no"},
                    {"name": "default", "template": "yes"},
                ]
            },
            "yes",
        ),
        ({"chat_template": "{% for m in messages %}\n  {% break %}\n{% endfor %}x"}, "x"),
        ({"chat_template": "{{ 'ż<' | tojson }}"}, '"ż<"'),
    ],
)
def test_templates_as_hubs_write_them(tmp_path: Path, config: dict[str, Any], text: str) -> None:
    assert with_config(tmp_path, config).render(HELLO) == text


def test_a_template_of_its_own_file_wins(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("own")
    assert with_config(tmp_path, {"chat_template": "other"}).render(HELLO) == "own"


def test_a_template_may_refuse_and_may_not_escape(tmp_path: Path) -> None:
    refusing = with_config(tmp_path, {"chat_template": "{{ raise_exception('no system role') }}"})
    with pytest.raises(UserError, match="no system role"):
        refusing.render(HELLO)
    template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    escaping = with_config(tmp_path, {"chat_template": template})
    with pytest.raises(UserError, match="unsafe"):
        escaping.render(HELLO)
