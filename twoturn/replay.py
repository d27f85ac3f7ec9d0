"""A recorded conversation as turns that can be sent again. Pure: bytes in, messages out.

Read are a JSON line per message of the OpenAI chat format, a line (or a whole file) per
conversation as `{"messages": […], "tools": […]}`, a JSON list of messages, and what `opencode
export` writes (`{"info", "messages": [{"info", "parts"}]}`), as opencode's own `toModelMessages`
sends it on. What is not known is refused: a guess would be another conversation. No error holds a
word of the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from twoturn import messages
from twoturn.errors import UserError
from twoturn.messages import Messages

Sent: TypeAlias = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
TEXTS = ("name", "tool_call_id", "reasoning_content", "reasoning")
KEYS = ("role", "content", "tool_calls", *TEXTS)
INTERRUPTED = "[Tool execution was interrupted]"  # opencode's own words for such a call
SUBTASK = "The following tool was executed by the user"  # likewise
TEXT_FILES = ("text/plain", "application/x-directory")  # opencode puts them into text parts too
SILENT_PARTS = ("step-finish", "snapshot", "patch", "agent", "retry")


@dataclass(frozen=True)
class Recording:
    """Conversations as turns: what joins the history before each request, the recorded answer to
    the turn before included. `tools`: the definitions that go with every request, or none."""

    conversations: tuple[tuple[Messages, ...], ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def turns(self) -> int:
        """Requests of all conversations."""
        return sum(map(len, self.conversations))

    @property
    def extra(self) -> dict[str, Any]:
        """What a request carries beside its messages."""
        return {"tools": list(self.tools)} if self.tools else {}


def read(data: bytes, *, plain: bool = False) -> Recording:
    """The recording in a file's bytes; `plain`: tool calls, results and definitions as text.

    Raises UserError that names the line or message and what is wrong with it.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(f"byte {error.start} is not UTF-8", "write it as UTF-8") from None
    if not text.strip():
        raise _wrong("the recording is empty", "record a conversation first")
    found = [_conversation(value, where) for where, value in _values(text)]
    for said, tools in found:
        _sendable([*said, *tools])
    tools = found[0][1]
    for number, (_, others) in enumerate(found, start=1):
        if others != tools:
            raise _wrong(
                f"conversation {number} has other tools than the first",
                "put it into a file of its own",
            )
    texts = [_plain(said, tools) if plain else said for said, _ in found]
    conversations = tuple(_turns(said) for said in texts)
    if empty := [n for n, turns in enumerate(conversations, start=1) if not turns]:
        raise _wrong(
            f"conversation {empty[0]} has no answer, so no turn to send again",
            "record a message of the role assistant after one of another role",
        )
    return Recording(conversations, () if plain else tuple(tools))


def _sendable(parts: Sequence[Any]) -> None:
    try:
        _json(parts).encode()
    except UnicodeEncodeError:
        what = "the recording holds half a letter (a lone surrogate)"
        raise _wrong(what, "write it as UTF-8") from None


def _turns(said: Sequence[Sent]) -> tuple[Messages, ...]:
    """A turn for every answer that something came before; what follows the last answer is none."""
    turns: list[Messages] = []
    waiting: list[str] = []
    for one in said:
        if one["role"] == "assistant" and waiting:
            turns.append(tuple(waiting))
            waiting = []
        waiting.append(messages.of(one))
    return tuple(turns)


# Files --------------------------------------------------------------------------------------------


def _values(text: str) -> list[tuple[str, Any]]:
    """(where, JSON value) of each conversation."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, list) or (isinstance(whole, dict) and "messages" in whole):
        return [("", whole)]
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):  # other breaks may stand in a text
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise _wrong(f"line {number} is not JSON", "write one JSON object per line") from None
        if not isinstance(value, dict) or not {"role", "messages"} & set(value):
            raise _wrong(
                f"line {number} is neither a message nor a conversation",
                'a message has "role", a conversation "messages"',
            )
        lines.append((number, value))
    kinds = {"messages" in value for _, value in lines}
    if len(kinds) > 1:
        raise _wrong("messages and conversations stand in one file", "part them into two files")
    if kinds == {True}:
        return [(f"line {number}: ", value) for number, value in lines]
    return [("", [value for _, value in lines])]


def _conversation(value: Any, where: str) -> tuple[list[Sent], list[Mapping[str, Any]]]:
    """(messages, tools) of one conversation."""
    if isinstance(value, list):
        return _messages(value, where), []
    if not isinstance(value["messages"], list):
        raise _wrong(f"{where}messages is no list", "write a list of messages")
    if "info" in value or any(isinstance(m, dict) and "parts" in m for m in value["messages"]):
        return _opencode(value["messages"], where), []
    _known(value, ("messages", "tools"), f"{where}the conversation")
    tools = value.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _wrong(f"{where}tools is no list of definitions", "write them as they were sent")
    return _messages(value["messages"], where), tools


def _messages(values: Sequence[Any], where: str) -> list[Sent]:
    return [_message(one, f"{where}message {n}") for n, one in enumerate(values, start=1)]


def _message(value: Any, where: str) -> Sent:
    """A message of the OpenAI format with what it holds and nothing that is null."""
    if not isinstance(value, dict):
        raise _wrong(f"{where} is no JSON object", "write each message as an object")
    if value.get("role") not in ROLES:
        raise _wrong(f"{where} has no role that is known", f"the roles are {', '.join(ROLES)}")
    _known(value, KEYS, where)
    sent: Sent = {"role": value["role"], "content": _content(value.get("content"), where)}
    for key in TEXTS:
        if value.get(key) is not None:
            if not isinstance(value[key], str):
                raise _wrong(f"{where}: {key} is no text", "write it as text")
            sent[key] = value[key]
    if value.get("tool_calls"):
        if not isinstance(value["tool_calls"], list):
            raise _wrong(f"{where}: tool_calls is no list", "write a list of calls")
        sent["tool_calls"] = [_call(call, where) for call in value["tool_calls"]]
    if sent["content"] is None and "tool_calls" not in sent:
        raise _wrong(f"{where} has no content", "give it a text or tool calls, or remove it")
    return sent


def _content(value: Any, where: str) -> str | None:
    """A text; several text parts are joined by line breaks."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _wrong(f"{where}: content is neither text nor a list of parts", "write it as text")
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else None
            raise _wrong(f"{where} holds {_named(kind)} and not text alone", "leave it out")
        if not isinstance(part.get("text"), str):
            raise _wrong(f"{where} holds a text part without text", "leave it out")
    return "\n".join(part["text"] for part in value)


def _call(value: Any, where: str) -> Sent:
    """A tool call; its arguments as the text of JSON that the OpenAI format has them in."""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _wrong(f"{where} holds a tool call without a function's name", "name it")
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    called = {"name": function["name"], "arguments": arguments}
    return {"id": str(value.get("id", "")), "type": "function", "function": called}


# opencode -----------------------------------------------------------------------------------------


def _opencode(values: Sequence[Any], where: str) -> list[Sent]:
    """What opencode sent, as far as its export holds it: system prompt and tool definitions of the
    client are not in it, a message's own `system` is."""
    said: list[Sent] = []
    systems = set()
    for number, value in enumerate(values, start=1):
        here = f"{where}message {number}"
        info, parts = (
            (value.get("info"), value.get("parts")) if isinstance(value, dict) else (None, None)
        )
        if not isinstance(info, dict) or not isinstance(parts, list):
            raise _wrong(f"{here} has no info or no parts", "export the session anew")
        if not all(isinstance(part, dict) for part in parts):
            raise _wrong(f"{here} holds a part that is no object", "export the session anew")
        try:
            if info.get("role") == "user":
                if not isinstance(system := info.get("system"), str | None):
                    raise TypeError
                systems.add(system)
                said += _asked(parts, here)
            elif info.get("role") == "assistant":
                said += _answered(info, parts, here)
            else:
                raise _wrong(f"{here} is of neither user nor assistant", "export the session anew")
        except (KeyError, TypeError, AttributeError) as error:
            what = f"{here} lacks what opencode writes ({type(error).__name__})"
            raise _wrong(what, "export the session anew") from None
    if len(systems) > 1:
        raise _wrong(f"{where}the system prompt changes", "export a session with one")
    first = next(iter(systems), None)
    return [{"role": "system", "content": first}, *said] if first else said


def _asked(parts: Sequence[Mapping[str, Any]], where: str) -> list[Sent]:
    texts = []
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            texts += [] if part.get("ignored") else [str(part["text"])]
        elif kind == "subtask":
            texts.append(SUBTASK)
        elif kind == "compaction":
            raise _wrong(
                f"{where} compacts the session, and what was sent after that is not in the export",
                "export a session without, or cut it off before this message",
            )
        elif kind == "file" and part.get("mime") in TEXT_FILES:
            continue
        elif kind not in SILENT_PARTS:
            raise _wrong(f"{where} holds {_named(kind)}, which cannot be sent", "leave it out")
    return [{"role": "user", "content": "\n".join(texts)}] if texts else []


def _answered(
    info: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], where: str
) -> list[Sent]:
    """An answer per step, each with the results of its calls; one that failed was not sent on."""
    spoke = any(part.get("type") not in ("step-start", "reasoning") for part in parts)
    error = info.get("error")
    if error and not (spoke and error.get("name") == "MessageAbortedError"):
        return []
    said: list[Sent] = []
    for start, step in groupby(parts, key=lambda part: part.get("type") == "step-start"):
        if not start:
            said += _step(list(step), where)
    return said


def _step(parts: Sequence[Mapping[str, Any]], where: str) -> list[Sent]:
    texts: dict[str, list[str]] = {"text": [], "reasoning": []}
    calls, results = [], []
    for part in parts:
        kind = part.get("type")
        if kind in ("text", "reasoning"):
            texts[kind].append(str(part["text"]))
        elif kind == "tool":
            arguments = json.dumps(part["state"]["input"], ensure_ascii=False)
            function = {"name": part["tool"], "arguments": arguments}
            calls.append(_call({"id": part["callID"], "function": function}, where))
            content = _result(part["state"], where)
            results.append({"role": "tool", "tool_call_id": part["callID"], "content": content})
        elif kind not in SILENT_PARTS:
            raise _wrong(f"{where} holds {_named(kind)}, which cannot be sent", "leave it out")
    if not calls and not any(texts.values()):
        return []
    answer: Sent = {"role": "assistant", "content": "".join(texts["text"]) or None}
    if not calls:
        answer["content"] = answer["content"] or ""
    if texts["reasoning"]:
        answer["reasoning_content"] = "".join(texts["reasoning"])
    return [{**answer, "tool_calls": calls} if calls else answer, *results]


def _result(state: Mapping[str, Any], where: str) -> str:
    if state["status"] == "completed":
        if state.get("attachments"):
            raise _wrong(f"{where}: a tool gave an attachment, which is not text", "leave it out")
        if (state.get("time") or {}).get("compacted"):
            raise _wrong(
                f"{where}: a tool's result was cleared later on, and the export has it whole",
                "export a session without, or cut it off before this message",
            )
        return str(state["output"])
    if state["status"] == "error":
        more = state.get("metadata") or {}
        return str(more["output"] if more.get("interrupted") is True else state["error"])
    if state["status"] in ("pending", "running"):
        return INTERRUPTED
    raise _wrong(f"{where}: a tool call of an unknown state", "export the session anew")


# Tools as text ------------------------------------------------------------------------------------


def _plain(said: Sequence[Sent], tools: Sequence[Mapping[str, Any]]) -> list[Sent]:
    """Messages of system, user and assistant alone, for templates that know no tools: definitions
    in front, a call as `<tool_call>`, a result as `<tool_response>` of the user."""
    found = [_without_tools(one) for one in said]
    if tools:
        listed = "\n".join(["<tools>", *map(_json, tools), "</tools>"])
        if found and found[0]["role"] == "system":
            found[0] = {**found[0], "content": f"{found[0]['content']}\n\n{listed}"}
        else:
            found.insert(0, {"role": "system", "content": listed})
    whole: list[Sent] = []
    for one in found:  # templates may want user and assistant to take turns
        if whole and one["role"] == whole[-1]["role"] == "user":
            whole[-1] = {**one, "content": f"{whole[-1]['content']}\n{one['content']}"}
        else:
            whole.append(one)
    return whole


def _without_tools(one: Sent) -> Sent:
    content = one["content"] or ""
    if one["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [
        f"<tool_call>\n{_json(call['function'])}\n</tool_call>"
        for call in one.get("tool_calls", ())
    ]
    return {"role": one["role"], "content": "\n".join([*filter(None, [content]), *calls])}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# Errors -------------------------------------------------------------------------------------------


def _known(value: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """Refuses what would not be sent; what is empty says nothing anyway."""
    odd = [key for key, held in value.items() if key not in keys and held not in (None, [], {}, "")]
    if odd:
        raise _wrong(f"{where} holds {_named(odd[0])}, which is not known", "remove it")


def _named(kind: Any) -> str:
    """A key or type as far as it is a word of a format; anything else may be text of somebody's."""
    word = str(kind)
    plain = word.replace("_", "").replace("-", "")
    return f"'{word}'" if plain.isascii() and plain.isalnum() and len(word) < 24 else "something"


def _wrong(what: str, cure: str) -> UserError:
    return UserError(what, cure=cure)
