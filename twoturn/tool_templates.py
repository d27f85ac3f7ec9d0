"""Whether a chat template says what a recording holds. Pure.

A template that knows no tools drops calls, results or definitions without a word; a server would
then be timed on another conversation than the one that was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twoturn.messages import Messages, as_sent
from twoturn.replay import Recording
from twoturn.tokens import ChatTokenizer

MARK = "twoturnmark"


def fault(recording: Recording, tokenizer: ChatTokenizer) -> str | None:
    """What is wrong with the first turn that the template does not say, or None. Holds no text of
    the recording."""
    for number, turns in enumerate(recording.conversations, start=1):
        of = f" of conversation {number}" if len(recording.conversations) > 1 else ""
        history: Messages = ()
        for turn, said in enumerate(turns, start=1):
            if what := _of_turn(history, said, recording, tokenizer, first=turn == 1):
                return f"turn {turn}{of}: {what}"
            history += said
    return None


def _of_turn(
    history: Messages, said: Messages, recording: Recording, tokenizer: ChatTokenizer, first: bool
) -> str | None:
    marked = [_marked(one, f"{MARK}{n}x") for n, one in enumerate(as_sent(said))]
    tools = [_marked_tool(tool, n) for n, tool in enumerate(recording.tools)]
    try:
        tokenizer.render(as_sent(history + said), recording.tools)
        text = tokenizer.render([*as_sent(history), *marked], tools)
    except Exception as error:  # whatever a template raises; its words may be the recording's
        return f"the chat template cannot render it ({type(error).__name__})"
    if first and any(f"{MARK}-tool{n}x" not in text for n in range(len(tools))):
        return "the chat template leaves the definitions of tools out"
    wanted = (n for n, one in enumerate(marked) if one["role"] == "tool" or "tool_calls" in one)
    if any(f"{MARK}{n}x" not in text for n in wanted):
        return "the chat template leaves a tool call or its result out"
    return None


def _marked(message: dict[str, Any], mark: str) -> dict[str, Any]:
    """The message with a word that has to show: in its call's name, or as its result."""
    if message["role"] == "tool":
        return {**message, "content": mark}
    if not message.get("tool_calls"):
        return message
    calls: Sequence[dict[str, Any]] = message["tool_calls"]
    named = [{**call, "function": {**call["function"], "name": mark}} for call in calls]
    return {**message, "tool_calls": named}


def _marked_tool(tool: Any, number: int) -> dict[str, Any]:
    function = tool.get("function")
    name = f"{MARK}-tool{number}x"
    if isinstance(function, dict):
        return {**tool, "function": {**function, "name": name}}
    return {**tool, "name": name}
