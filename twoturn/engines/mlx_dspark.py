"""mlx-dspark's server, 0.20.3: none (its mode baseline), dflash, ngram (its mode lookup).

What it reports of speculation is in lifetime counters of `/metrics` (JSON), which are read before
and after: S is the gain of `rounds`, V that of the first of `position_offered` (rounds that
had a draft), D the sum of all its positions, A `committed_tokens` less `rounds`, because each round
commits its accepted tokens and one of its own. Without a draft every token after the first is one
step. `accept_len` in the answer's `x_mlx_dspark` counts the prompt's token too and is not read, nor
are the times there. If another request was served meanwhile, all of it is null.

Block size B is n + 1 of `--max-draft n`; ngram may draft longer where a match is long
(`--lookup-long-draft`, 32). Greedy ngram answers were seen one token longer than asked for
(`overlong`). At its first start in a home, and each cell has a new one, it calibrates kernels for
its chip, about a minute on a processor; `tuned: false` switches off all of that but a look at the
memory bandwidth. Its doctor says no without a Mac; it serves all the same, but not models of the
Qwen3.5 kind (HTTP 500).
"""

from __future__ import annotations

from typing import Any

from twoturn import client
from twoturn.engines.base import Engine, Place, Settings, Telemetry, count
from twoturn.engines.counters import Counters, Reading
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer

_MODES = {"none": "baseline", "dflash": "dflash", "ngram": "lookup"}
_UNTUNED = (
    *("--no-warmup", "--no-small-m", "--no-sdpa-split", "--no-multirow-attn"),
    *("--cpu-split", "0", "--wide-gemm-min", "0"),
)


class MlxDsparkSettings(Settings):
    """`tuned` leaves kernels and their calibration to the server."""

    prefix_cache: bool = True
    tuned: bool = True


class MlxDspark(Engine):
    """`mlx-dspark serve` in its own environment."""

    name = "mlx-dspark"
    modes = ("none", "dflash", "ngram")
    Settings = MlxDsparkSettings

    def __init__(self) -> None:
        self.counters: Counters | None = None

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        program = str(place.python.with_name("mlx-dspark")) if place.python else "mlx-dspark"
        argv = [
            *(program, "serve", "--mode", _MODES[arm.speculation], "--model", model),
            *("--host", "127.0.0.1", "--port", str(place.port)),
        ]
        if arm.draft is not None:
            argv += ["--drafter", place.models[arm.draft]]
        if arm.block_size is not None:
            argv += ["--max-draft", str(arm.block_size - 1)]
        if not chosen.prefix_cache:
            argv.append("--no-prefix-cache")
        if not chosen.tuned:
            argv += _UNTUNED
        env = clean_env(place.home, place.tmp)
        return Launch([*argv, *arm.args], env, place.folder, model, settings=chosen.model_dump())

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        url, key = running.base_url, running.api_key
        self.counters = Counters(
            lambda: reading(client.get_json(url, "/metrics", 10.0, key)[1]), "requests"
        )
        _, health = client.get_json(url, "/health", 10.0, key)
        told = health if isinstance(health, dict) else {}
        said = {key: told.get(key) for key in ("mode", "target", "drafter", "max_draft")}
        wanted = _MODES[arm.speculation]
        wrong = [f"mode: asked {wanted}, the server says {said['mode']}"]
        return said, wrong if said["mode"] not in (None, wanted) else []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        gained = self.counters.gained() if self.counters else {}
        emitted = count((answer.usage or {}).get("completion_tokens"))
        cycles, rounds, committed, drafted = (
            count(gained.get(name)) for name in ("draft_rounds", "rounds", "committed", "drafted")
        )
        if not cycles or rounds is None or committed is None:
            return Telemetry(target_steps=emitted - 1 if gained and emitted else None)
        return Telemetry(
            cycles=cycles, drafted=drafted, accepted=committed - rounds, target_steps=rounds
        )


def reading(page: Any) -> Reading:
    """The counters of its `/metrics`, {} where it is no such page."""
    try:
        rounds = page.get("rounds") or {}
        offered = [float(value) for value in rounds.get("position_offered") or []]
        return {
            "requests": float(page["requests"]),
            "rounds": float(rounds.get("rounds") or 0),
            "committed": float(rounds.get("committed_tokens") or 0),
            "draft_rounds": offered[0] if offered else 0.0,
            "drafted": sum(offered),
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
