"""A real dflash-mlx server, on a toy of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toys import TOKENS, dflash_arm, two_turns

pytestmark = pytest.mark.slow


def test_speculation_is_told_of_each_request(tmp_path: Path) -> None:
    first, second = two_turns(dflash_arm("dflash-mlx"), tmp_path)
    for usage, columns in (first, second):
        assert usage["completion_tokens"] == TOKENS
        assert columns["verify_cycles"] > 0
        # a cycle emits its anchor and what it accepted
        assert columns["verify_cycles"] + columns["accepted_tokens"] == TOKENS
        assert columns["drafted_tokens"] is None
    assert first[0]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second[0]["prompt_tokens_details"]["cached_tokens"] > 0
