"""What the client sends: dialogues cut from a text with the target's own tokenizer.

A change of what is cut from the same text raises `GENERATOR` in `plan`.

Every dialogue begins with a nonce, new in every round and the same for all arms of a round, so that
no cache that outlives a server can make a cold prompt warm.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from twoturn import config, replay, tasks
from twoturn.config import Chat, Conversation
from twoturn.errors import UserError
from twoturn.messages import Messages, as_sent, message
from twoturn.stream import Answer
from twoturn.texts import prompt_name, sections
from twoturn.tokens import ChatTokenizer

FILLERS = (".", "\n", "x")  # one token each in any vocabulary, at least one of them after any text
CHARACTERS_PER_TOKEN = 4  # where no tokenizer is known; elsewhere a first guess
NUMBERS = 1000  # words of the warm-up before a recording
AFTER = 64  # characters behind a cut that may have a say in where it falls


@dataclass(frozen=True)
class Dialogue:
    """One chat or conversation. `turns`: what joins the history before each request.
    `prompt_tokens` counts the first prompt as the server will see it, None where no tokenizer is
    known. `new`: no earlier request of the cell can have left its beginning in a cache."""

    prompt_id: str
    turns: tuple[Messages, ...]
    prompt_tokens: int | None
    new: bool = True


def dialogues(
    workload: config.Workload, text: str, tokenizer: ChatTokenizer | None, nonce_key: str
) -> list[Dialogue]:
    """The dialogues of one cell. Texts depend on the seed alone, nonces on `nonce_key` too; a
    recording and tasks are sent as they are."""
    if isinstance(workload, config.Quality):
        return [_task(task, tokenizer) for task in tasks.parse(text, workload.text)]
    if isinstance(workload, config.Replay):
        return _recorded(replay.read(text.encode(), plain=workload.tools == "plain"), tokenizer)
    if isinstance(workload, config.Prefill):
        return [
            _of_length(workload, length, text, tokenizer, nonce_key) for length in workload.lengths
        ]
    kinds = workload.kinds if isinstance(workload, Chat) else None
    wanted = [(kind, index) for kind in kinds or (None,) for index in range(workload.prompts)]
    return [
        _dialogue(
            workload,
            _shuffled(workload.seed, sections(text, kind), kind, index),
            tokenizer,
            prompt_name(index + 1, kind),
            nonce(workload.seed, nonce_key, place),
        )
        for place, (kind, index) in enumerate(wanted)
    ]


def _task(task: tasks.Task, tokenizer: ChatTokenizer | None) -> Dialogue:
    """A task as it stands, without a nonce: what a cache holds of it changes no score."""
    said = {"role": "user", "content": task.prompt}
    count = tokenizer.count([said]) if tokenizer else None
    return Dialogue(task.prompt_id, ((message(**said),),), count, new=False)


def _shuffled(seed: int, found: Sequence[str], kind: str | None, index: int) -> list[str]:
    """The sections in the order in which a prompt is cut from them. Those of a kind are few and
    begin with what is asked for, so each prompt begins with another one."""
    shuffled = list(found)
    random.Random(f"{seed}/{index}" if kind is None else f"{seed}/{kind}").shuffle(shuffled)
    first = index % len(shuffled) if kind else 0
    return shuffled[first:] + shuffled[:first]


def _dialogue(
    workload: Chat | Conversation,
    ordered: Sequence[str],
    tokenizer: ChatTokenizer | None,
    prompt_id: str,
    start: str,
) -> Dialogue:
    source = _Source("\n\n".join(ordered), tokenizer)
    first = source.first(start, workload.prompt_tokens)
    each = workload.turn_tokens if workload.kind == "conversation" else 0
    later = [source.next(each) for _ in range(workload.turns - 1)]
    count = tokenizer.count([{"role": "user", "content": first}]) if tokenizer else None
    turns = tuple((message("user", text),) for text in (first, *later))
    return Dialogue(prompt_id, turns, count)


def _of_length(
    workload: config.Prefill,
    length: int,
    text: str,
    tokenizer: ChatTokenizer | None,
    nonce_key: str,
) -> Dialogue:
    """A prompt that is told apart by its length, so that other lengths may come and go."""
    told = {"prompt_tokens": length, "max_tokens": workload.max_tokens, "seed": workload.seed}
    return _dialogue(
        Chat.model_validate({"kind": "chat", **told}),
        _shuffled(workload.seed, sections(text), None, length),
        tokenizer,
        at_length(length),
        nonce(workload.seed, nonce_key, length),
    )


def at_length(length: int) -> str:
    """The `prompt_id` of a prompt of some length."""
    return f"n{length}"


def _recorded(recording: replay.Recording, tokenizer: ChatTokenizer | None) -> list[Dialogue]:
    """Conversations of one client begin alike, so of those only the first is new to a server."""
    return [
        Dialogue(
            prompt_name(index + 1),
            turns,
            tokenizer.count(as_sent(turns[0]), recording.tools) if tokenizer else None,
            new=index == 0,
        )
        for index, turns in enumerate(recording.conversations)
    ]


def alike(
    workload: config.Workload, text: str, tokenizer: ChatTokenizer | None, nonce_key: str
) -> Dialogue:
    """A first prompt of the same shape and text under another nonce: what warms a server up before
    it is measured, and the decoy after it. Of several lengths it has the shortest; of a recording
    nothing may be in a cache, so numbers are sent."""
    shape = workload.model_dump(include=set(Chat.model_fields) - {"kind", "prompts"})
    if isinstance(workload, config.Prefill):
        shape["prompt_tokens"] = workload.lengths[0]
    if isinstance(workload, config.Replay):
        text = " ".join(map(str, range(NUMBERS)))
    dialogue, *_ = dialogues(Chat(kind="chat", **shape), text, tokenizer, nonce_key)
    return dialogue


def extra(workload: config.Workload, text: str) -> dict[str, Any]:
    """What every request of a workload carries beside its messages."""
    if isinstance(workload, config.Replay):
        return replay.read(text.encode(), plain=workload.tools == "plain").extra
    return {}


def goes_back(workload: config.Workload, answer: Answer) -> Messages:
    """What of an answer joins the history before the next turn; a recording has its own answers."""
    if isinstance(workload, config.Replay):
        return ()
    history = workload.history if isinstance(workload, Conversation) else "exact"
    if history == "altered":
        return (message("assistant", without_first_word(answer.text)),)
    if history == "thinking_stripped":
        return (message("assistant", without_thinking(answer.text)),)
    return _as_it_came(answer)


def unchanged(workload: config.Workload, answer: Answer) -> str | None:
    """What the history holds as the model wrote it, up to the marks around its thinking; None where
    the workload itself changes the answer."""
    if goes_back(workload, answer) != _as_it_came(answer):
        return None
    return answer.reasoning or answer.text


def _as_it_came(answer: Answer) -> Messages:
    """Thinking goes into `reasoning_content`, the field that chat templates read it from (Qwen3,
    DeepSeek, GLM); a template may leave it out all the same."""
    thought = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    return (message("assistant", answer.text, **thought),)


def without_first_word(text: str) -> str:
    """The smallest change at the place where a client's changes cost most: the beginning, as when
    thinking is taken out or blanks are trimmed."""
    return "".join(text.split(maxsplit=1)[1:])


def without_thinking(text: str) -> str:
    """An answer as chat templates keep it in a history, where the server did not part it from its
    thinking: what follows the last `</think>`, nothing of a thought that was cut off."""
    _, closed, answer = text.rpartition("</think>")
    return answer.lstrip() if closed else text.partition("<think>")[0]


def nonce(seed: int, key: str, index: int) -> str:
    """A short line that makes a prompt new from its first token on."""
    digits = hashlib.sha256(f"{seed}/{key}/{index}".encode()).hexdigest()[:15]
    return f"{int(digits, 16) % 10**8:08d}. "


class _Source:
    """A text that is read piece by piece, in tokens."""

    def __init__(self, text: str, tokenizer: ChatTokenizer | None) -> None:
        self.text, self.tokenizer = text, tokenizer

    def first(self, start: str, tokens: int) -> str:
        """`start` and as much text that the whole rendered prompt has `tokens` tokens."""
        if (tokenizer := self.tokenizer) is None:
            return start + self.next(tokens)

        @cache
        def count(piece: str) -> int:  # of a long prompt it takes a second
            return tokenizer.count([{"role": "user", "content": start + piece}])

        if (wanted := tokens - count("")) < 1:
            raise UserError(
                f"a prompt of {tokens} tokens is shorter than the chat template alone",
                key="workload.prompt_tokens",
                cure=f"ask for more than {tokens - wanted}",
            )
        piece = self._peek(wanted)
        for _ in range(8):  # pieces grow and shrink a little where tokens meet
            if (off := tokens - count(piece)) == 0:
                break
            wanted = max(1, wanted + off)
            piece = self._peek(wanted)
        while count(piece) > tokens:  # a letter of several tokens does not fit in
            piece = piece[:-1]
        self._drop(piece)
        while (now := count(piece)) < tokens:
            grown = (piece + mark for mark in FILLERS)
            if (longer := next((one for one in grown if now < count(one) <= tokens), None)) is None:
                break
            piece = longer
        return start + piece

    def next(self, tokens: int) -> str:
        piece = self._peek(tokens)
        self._drop(piece)
        return piece

    def _peek(self, tokens: int) -> str:
        while len(self.text) < 16 * tokens:  # a long prompt may need the text more than once
            self.text += "\n\n" + self.text
        size = tokens * CHARACTERS_PER_TOKEN
        if self.tokenizer is None:
            return self.text[:size]
        while True:  # the last tokens of a text depend on what follows them
            piece = self.tokenizer.cut(self.text[: size + AFTER], tokens)
            if len(piece) <= size or size >= 16 * tokens:
                return piece
            size *= 2

    def _drop(self, piece: str) -> None:
        self.text = self.text[len(piece) :]
