"""What of a conversation its chat template keeps where it was. Pure.

A server can reuse a processed prompt only where the next prompt begins with the same tokens. Some
templates change what came before: they take thinking out of earlier answers, or write the time.
Then no engine can reuse anything from that place on, and none is to blame.

    share = tokens that both begin with ÷ tokens that the server holds after the turn before

The server holds the prompt and the answer. Where the answer does not go back as it came, the part
in question is the prompt alone: what happens to the answer is the workload's own doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from twoturn import workloads
from twoturn.config import Conversation
from twoturn.messages import Messages, as_sent
from twoturn.stream import Answer, TokenChunk
from twoturn.tokens import ChatTokenizer, Tools

LATER = timedelta(minutes=1, seconds=1, microseconds=111_111)
"""About a turn; nothing but a date stays the same."""

KEPT = 0.95
"""A share below it is no prefix any more: what a second turn costs is then its template's doing."""


@dataclass(frozen=True)
class Turn:
    """A request and the moment of its sending; templates know the time of day alone. `tools`: the
    definitions that go with it."""

    history: Messages
    at: datetime
    tools: Tools = ()


def share(tokenizer: ChatTokenizer, before: Turn, answer: str | None, after: Turn) -> float:
    """Of 1: how much of `before` and its `answer` the prompt of `after` still begins with.

    answer: as the model wrote it, if it goes back so; of one with thinking the thinking, since the
    marks around it are the server's affair.
    """
    held = tokenizer.encode(_prompt(tokenizer, before) + (answer or ""))
    asked = tokenizer.encode(_prompt(tokenizer, after))
    return common(held, asked) / len(held)


def expected(workload: Conversation, text: str, tokenizer: ChatTokenizer) -> float:
    """The share of a first turn with a piece of the text as its answer, a minute before the second:
    a template that writes the time of day is found, one that writes the date keeps a prefix."""
    dialogue, *_ = workloads.dialogues(workload, text, tokenizer, "preflight")
    written = tokenizer.cut(text, workload.max_tokens)
    answer = Answer(200, "clean", 0.0, chunks=(TokenChunk(0.0, written, "content", None),))
    first, second, *_ = dialogue.turns
    now = datetime.now(UTC)
    whole = (*first, *workloads.goes_back(workload, answer), *second)
    before, after = Turn(first, now), Turn(whole, now + LATER)
    return share(tokenizer, before, workloads.unchanged(workload, answer), after)


def tells_time(tokenizer: ChatTokenizer) -> bool:
    """Whether the template makes another prompt of the same messages a little later."""
    now, asked = datetime.now(), [{"role": "user", "content": "0"}]
    return tokenizer.render(asked, at=now) != tokenizer.render(asked, at=now + LATER)


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements two sequences begin with together."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _prompt(tokenizer: ChatTokenizer, turn: Turn) -> str:
    """With the time in the zone of this machine, which is its servers' too."""
    return tokenizer.render(as_sent(turn.history), turn.tools, turn.at.astimezone())
