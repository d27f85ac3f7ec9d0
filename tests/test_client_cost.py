"""What the client adds to a time to the first token: the benchmark of it runs and is honest."""

from __future__ import annotations

from benchmarks import client


def test_a_long_conversation_costs_the_client_little() -> None:
    ours, bare = client.compared(1)
    for one in (ours, bare):
        assert len(one["beyond_s"]) == client.TURNS
        assert all(seconds > 0 for seconds in one["beyond_s"])  # never before the server's time
    assert bare["peak_mb"] < ours["peak_mb"] < client.AIM_MB
