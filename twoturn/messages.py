"""Chat messages as canonical JSON, so that whole histories can be compared and hashed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

Messages: TypeAlias = tuple[str, ...]
"""A history: each message the canonical JSON of what is sent, tool calls and all."""


def message(role: str, content: str | None, **more: Any) -> str:
    """One message of a history."""
    return of({"role": role, "content": content, **more})


def of(sent: Mapping[str, Any]) -> str:
    """A message of a history from what is sent."""
    return json.dumps(sent, sort_keys=True, ensure_ascii=False)


def as_sent(history: Messages) -> list[dict[str, Any]]:
    """A history as it goes into the body of a request."""
    return [json.loads(one) for one in history]
