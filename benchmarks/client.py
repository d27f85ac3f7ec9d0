"""What the client adds to a time to the first token, and its memory, beside a bare socket.

    python -m benchmarks.client

A scripted server gives the first token a fixed time after a request has reached it. A conversation
of 33,000 tokens is put to it twice over: by the client as a measuring job uses it (tokenizer,
prompts, stream, figures of the row) in a process of its own, and by a few lines of the standard
library on the same bytes in another. What is beyond the server's time is sending, reading and the
machine for both, and the client's own work for the first.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVER_S = 0.3  # more than the server needs to read a body
TOKENS, TURNS, ANSWER = 33_000, 2, 32
AIM_S, AIM_MB = 0.020, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="conversations of each client")
    parser.add_argument("--child", choices=("client", "socket"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bodies", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        work = of_client if given.child == "client" else of_socket
        found = work(given.port, given.bodies, given.repeats)
        print(json.dumps({"beyond_s": found, "peak_mb": peak_mb()}))
        return
    client, bare = compared(given.repeats)
    for name, one in (("client", client), ("bare socket", bare)):
        times = [1000 * seconds for seconds in one["beyond_s"]]
        print(
            f"{name:12} beyond the server's {1000 * SERVER_S:.0f} ms: median "
            f"{statistics.median(times):.1f} ms, most {max(times):.1f} ms of {len(times)}; "
            f"peak memory {one['peak_mb']:.0f} MB"
        )
    adds_s = statistics.median(client["beyond_s"]) - statistics.median(bare["beyond_s"])
    print(f"the client itself adds {1000 * adds_s:.1f} ms (aim: under {1000 * AIM_S:.0f})")
    print(f"its peak memory is {client['peak_mb']:.0f} MB (aim: under {AIM_MB})")
    sys.exit(adds_s > AIM_S or client["peak_mb"] > AIM_MB)


def compared(repeats: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both clients saw: seconds beyond the server's, and peak memory."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        options = ["--port", str(port), "--model", "m", "--noise", "0", "--tok-s", "1000"]
        script = ROOT / "tests/servers/scripted.py"
        command = [sys.executable, str(script), *options, "--ttft-ms", str(1000 * SERVER_S)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            server.stdout.readline()  # it serves
            bodies = Path(folder) / "bodies.jsonl"
            found = [_child(kind, port, bodies, repeats) for kind in ("client", "socket")]
        finally:
            server.kill()
            server.wait()
    return found[0], found[1]


def _child(kind: str, port: int, bodies: Path, repeats: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.client", "--child", kind, "--port", str(port)]
    more = ["--bodies", str(bodies), "--repeats", str(repeats)]
    done = subprocess.run([*command, *more], cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_client(port: int, bodies: Path, repeats: int) -> list[float]:
    """The client as a measuring job has it; what it sent is left in `bodies`."""
    from twoturn import client, measure, metrics, tokens, workloads  # its memory counts
    from twoturn.config import Conversation
    from twoturn.messages import Messages, as_sent

    assert measure.run_round  # all that a job imports
    shape = {"prompts": repeats, "prompt_tokens": TOKENS, "turns": TURNS, "max_tokens": ANSWER}
    workload = Conversation.model_validate({"kind": "conversation", **shape})
    tokenizer = tokens.load(ROOT / "checkpoints/demo/target")
    assert tokenizer is not None
    text = (ROOT / workload.text).read_text(encoding="utf-8")
    timeouts = client.Timeouts.scaled(TOKENS, ANSWER)
    found = []
    with bodies.open("w", encoding="utf-8") as log:
        for dialogue in workloads.dialogues(workload, text, tokenizer, "client"):
            history: Messages = ()
            for said in dialogue.turns:
                history += said
                body = {"model": "m", "messages": as_sent(history), "max_tokens": ANSWER}
                answer = client.stream_chat(f"http://127.0.0.1:{port}", body, timeouts).answer
                row = metrics.measure(answer, metrics.Wanted("m", ANSWER, None), tokenizer.encode)
                assert row.ttft_s is not None
                found.append(row.ttft_s - SERVER_S)
                usage = {"stream": True, "stream_options": {"include_usage": True}}
                log.write(json.dumps({**body, **usage}) + "\n")
                history += workloads.goes_back(workload, answer)
    return found


def of_socket(port: int, bodies: Path, _repeats: int) -> list[float]:
    """The same bodies by a bare socket: until the first chunk with content."""
    found = []
    for line in bodies.open(encoding="utf-8"):
        body = line.rstrip("\n").encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as link:
            start_s, heard = time.perf_counter(), b""
            link.sendall(head.encode() + body)
            while b'"content": "' not in heard.replace(b'"content": ""', b""):
                heard += link.recv(65536)
            found.append(time.perf_counter() - start_s - SERVER_S)
            while link.recv(65536):
                pass
    return found


def peak_mb() -> float:
    """Of this process since its start. What Linux gives with `getrusage` outlives an exec: a child
    would be told the size of its parent."""
    if (status := Path("/proc/self/status")).is_file():
        line = next(one for one in status.read_text().splitlines() if one.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


if __name__ == "__main__":
    main()
