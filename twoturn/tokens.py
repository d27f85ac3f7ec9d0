"""A checkpoint's own tokenizer and chat template, read from its files without any model code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
from tokenizers import Tokenizer

from twoturn.errors import UserError

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


class ChatTokenizer:
    """Counts tokens as the server will: template first, then tokens, nothing added."""

    def __init__(self, tokenizer: Tokenizer, template: str | None, names: Mapping[str, Any]):
        self._tokenizer = tokenizer
        self._names = names
        self._template = _environment().from_string(template) if template else None

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def cut(self, text: str, tokens: int) -> str:
        """The beginning of the text that its first `tokens` tokens cover, whole letters only."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return text if tokens >= len(offsets) else text[: offsets[tokens][0]]

    def render(
        self, messages: Sequence[Message], tools: Tools = (), at: datetime | None = None
    ) -> str:
        """The prompt that asks for the next answer. Without a template: the texts in a row.

        A template may write the date: `at`, else now, by the clock of this machine. Raises
        UserError where it refuses.
        """
        if self._template is None:
            return "\n".join(message["content"] or "" for message in messages)
        try:
            return self._template.render(
                messages=[_with_read_arguments(message) for message in messages],
                tools=list(tools) or None,
                add_generation_prompt=True,
                strftime_now=(at or datetime.now()).strftime,
                **self._names,
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise UserError(f"the chat template cannot tell these messages: {error}") from None

    def count(self, messages: Sequence[Message], tools: Tools = ()) -> int:
        return len(self.encode(self.render(messages, tools)))

    def shared(self) -> int:
        """Tokens that every prompt begins with: a template may hold a system message of its own."""
        one, other = (
            self.encode(self.render([{"role": "user", "content": text}])) for text in ("0", "a")
        )
        pairs = enumerate(zip(one, other, strict=False))
        return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _with_read_arguments(message: Message) -> dict[str, Any]:
    """A message as servers give it to a template: arguments of calls as values, not as text."""
    if not message.get("tool_calls"):
        return dict(message)
    calls = [
        {**call, "function": {**call["function"], "arguments": _value(call["function"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _value(function: Mapping[str, Any]) -> Any:
    try:
        return json.loads(function["arguments"])
    except ValueError:
        return {}  # what mlx-lm and mlx-vlm make of arguments that are no JSON


def load(folder: Path) -> ChatTokenizer | None:
    """The tokenizer of a checkpoint folder, or None where there is no tokenizer.json."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    config = _json(folder / "tokenizer_config.json")
    template = config.get("chat_template")
    if (own := folder / "chat_template.jinja").is_file():
        template = own.read_text(encoding="utf-8")
    if isinstance(template, list):  # several named templates; servers take "default"
        template = next((t["template"] for t in template if t.get("name") == "default"), None)
    names = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, str | dict)
    }
    return ChatTokenizer(Tokenizer.from_file(str(file)), template, names)


def _json(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return found


def _environment() -> jinja2.Environment:
    """As model hubs render chat templates: sandboxed, blocks trimmed, loop controls."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **kw: json.dumps(value, ensure_ascii=False, **kw)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment
