"""mlx-lm's server, 0.32.2: none and draft (the classic draft model).

Over HTTP it reports usage with cached tokens and nothing on speculation. `mlx_lm_counted.py` starts
the same server and prints how many tokens its generator marked `from_draft`: A. Every other token
is one verify step's own, so V = N - A, and each step is one forward pass of the target, the first
one with the last prompt token. It does not tell how many tokens were drafted in the last, shorter
block: D is null, hence accept rate and effective block size too. Block size B is n + 1 of its
`--num-draft-tokens n`.

`/health` says ok before the model is loaded, so only an answer counts as ready. Greedy text of a
warm second turn with a draft may differ from the cold one: the prompt cache that 0.32.2 stores
after a draft can hold one token less than its key says; such a row is `wrong_when_warm`. A target
whose cache cannot be trimmed (recurrent layers, as in Qwen3.5) answers nothing with a draft, so
mlx-lm is asked before (`mlx_lm_trims.py`) and the arm refused.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pydantic import Field

from twoturn.engines.base import Engine, Place, Settings, Telemetry, count
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer

COUNTED = Path(__file__).with_name("mlx_lm_counted.py")
TRIMS = Path(__file__).with_name("mlx_lm_trims.py")
TRIMS_S = 120.0  # it imports mlx-lm and reads no weights
_SAID = re.compile(r"^TWOTURN (\{.*\})$", re.MULTILINE)


class MlxLmSettings(Settings):
    """Null leaves a choice to the server."""

    prompt_cache_size: int = Field(10, ge=0)
    prefill_step_size: int | None = Field(None, ge=1)


class MlxLm(Engine):
    """`mlx_lm.server` in its own environment."""

    name = "mlx-lm"
    modes = ("none", "draft")
    Settings = MlxLmSettings

    def refusal(self, arm: Arm, target: Path, python: Path) -> str | None:
        if arm.speculation == "none":
            return None
        stuck = untrimmable(target, python)
        return (
            f"mlx-lm takes back no draft on {arm.checkpoint}: its {', '.join(stuck)} cannot be "
            "trimmed, and the server would answer nothing"
            if stuck
            else None
        )

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(arm.settings)
        model = place.models[arm.checkpoint]
        argv = [
            # -P: the modules beside the script are not for the server's Python
            *(str(place.python), "-P", str(COUNTED), "--model", model),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--prompt-cache-size", str(chosen.prompt_cache_size)),
        ]
        if arm.draft is not None:
            argv += ["--draft-model", place.models[arm.draft]]
        if arm.block_size is not None:
            argv += ["--num-draft-tokens", str(arm.block_size - 1)]
        if chosen.prefill_step_size is not None:
            argv += ["--prefill-step-size", str(chosen.prefill_step_size)]
        env = clean_env(place.home, place.tmp)
        # Without the hub's folder its list of models is an empty answer.
        (place.home / ".cache/huggingface/hub").mkdir(parents=True, exist_ok=True)
        return Launch([*argv, *arm.args], env, place.folder, model, settings=chosen.model_dump())

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        return {}, []

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        if not (said := _SAID.findall(log)):
            emitted = count((answer.usage or {}).get("completion_tokens"))
            return Telemetry(target_steps=emitted - 1 if emitted else None)
        figures = json.loads(said[-1])
        tokens, accepted = count(figures["tokens"]), count(figures["from_draft"])
        if tokens is None or accepted is None:
            return Telemetry()
        steps = tokens - accepted
        return Telemetry(cycles=steps, accepted=accepted, target_steps=steps)


def untrimmable(target: Path, python: Path) -> list[str]:
    """Kinds of cache of a checkpoint that mlx-lm cannot trim; [] too where it cannot load it, of
    which its server's own log tells more."""
    argv = [str(python), "-P", str(TRIMS), str(target)]
    with tempfile.TemporaryDirectory() as home:
        env = clean_env(Path(home), Path(home))
        try:
            ended = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=TRIMS_S)
            found: list[str] = json.loads(ended.stdout) if ended.returncode == 0 else []
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return []
    return found
