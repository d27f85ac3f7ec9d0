"""mlx-lm's own server, unchanged, that also says how its classic draft did.

The server does not report speculation over HTTP, but its generator marks every token that came from
the draft (`from_draft`). This counts the marks and prints one line per request to stderr:
`TWOTURN {"tokens": N, "from_draft": A}`. Run with the Python of the server's own environment, which
has mlx-lm and no twoturn: `python mlx_lm_counted.py --model …`, the arguments are the server's own.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import mlx_lm.server as server

generate = server.stream_generate


def counted(*args: Any, **kwargs: Any) -> Iterator[Any]:
    """What the server's generator yields, counted; only requests with a draft come through here."""
    tokens = from_draft = 0
    try:
        for response in generate(*args, **kwargs):
            tokens += 1
            from_draft += bool(response.from_draft)
            yield response
    finally:
        if kwargs.get("draft_model") is not None:
            said = json.dumps({"tokens": tokens, "from_draft": from_draft})
            print(f"TWOTURN {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    server.stream_generate = counted
    server.main()
