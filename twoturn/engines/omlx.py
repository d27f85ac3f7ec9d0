"""oMLX, 0.5.3 to 0.7, found on the machine (`executable: omlx`): none, mtp and dflash.

It is configured by two files, which are written into the cell's folder before the start:
`base/settings.json` (cache, scheduler, sampling, key) and `base/model_settings.json` (speculation).
No flag of the cache is used: 0.5.3 obeys them and does not show them. What it ignores without a
word (a key of a later version, a draft that it cannot load) is found by reading everything back
from its admin pages, which want a cookie that the key buys; the size of the memory cache is that
of `runtime_cache`, the one that is really in use. `/admin/api/bench` is never called: it uploads.

A model is loaded at its first request, which is the one that proves readiness, before any clock
runs. Each cell has its own home, base and SSD cache folder, so a restart is a cold start; DFlash's
private cache cannot be emptied in another way.

Figures of speculation are in log lines alone (0.6.3 and later have those of DFlash as JSON too,
the same ones). Requests have no number in them, so one request runs at a time, and what was written
since it was sent is its own. All three modes call themselves `batched`: the lines are the proof.

- DFlash, `DFlash generation complete: N tokens, …, acceptance=P%, cycles=V`. P is the share of the
  *output* that was drafted, A = P·N; how many were drafted is told nowhere: D, and with it accept
  rate and effective block size, is null. N = A + V in every line seen; where that agrees with P,
  it gives A without the rounding of P. Its tokens a second count the prompt's time. `fallback=AR`
  means that it did not run. A round is one pass of the target: S = V.
- MTP, `MTP[id] … tokens=N cycles=V tok/cycle=… accept=A/D … depth[d1=A1/D1,…]`. A and D are sums
  over depths, taken from there, because `accept` counts whole cycles in some versions. Its own
  tok/cycle is N/V with two tokens of the beginning in it: 48/20 = 2.40 where 1 + 27/20 = 2.35. It
  stays in the log. What the last cycle accepts past the end of the answer counts too. Passes
  outside of the cycles are not told: S is null. At most B - 1 tokens of `block_size` B are drafted
  (`mtp_num_draft_tokens`); a controller picks 1 to B - 1 in each cycle.

Times in `usage` have steps of 0.01 s. Its decode rate divides all tokens by the time since the
first chunk, which may hold many (burst decode, blocks of DFlash): it overstates.

From which version: `hot_cache_write_through` 0.6.3, `block_size` of dflash 0.6.0; before 0.6.2
DFlash decodes greedily whatever the temperature. 0.5.3 ends DFlash answers with `stop` at
max_tokens too. Adaptive verification of DFlash starts with small blocks from 32768 tokens of prompt
on.

Held against recorded answers of 0.5.3 with toy models on a Linux CPU (tests/captures/omlx). What is
said of 0.6 and 0.7 was read in its public source or told by others; none was run on a Mac yet.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from twoturn import client, servers
from twoturn.engines.base import Engine, Place, Settings, Telemetry, asked, count, rate
from twoturn.plan import Arm
from twoturn.servers import Launch, Running, clean_env
from twoturn.stream import Answer

PACKAGES = ("omlx", "mlx", "mlx-lm", "mlx-vlm", "dflash-mlx")
PATIENCE_S = 10.0
_DFLASH = re.compile(
    r"DFlash generation complete: (?P<tokens>\d+) tokens, .*?acceptance=(?P<share>[\d.]+)%, "
    r"cycles=(?P<cycles>\d+)(?P<fallback>, fallback=AR)?"
)
_MTP = re.compile(r"MTP\[[^\]]+\] finish=\S+ .*?\bcycles=(?P<cycles>\d+) .*$", re.MULTILINE)
_ACCEPT = re.compile(r" accept=(\d+)/(\d+)")
_DEPTHS = re.compile(r"depth\[([^\]]*)\]")
_DEPTH = re.compile(r"d[1-9]\d*=(\d+)/(\d+)")
_LOADED = {
    "dflash": re.compile(r"DFlashEngine loaded: "),
    "mtp": re.compile(r"(Native MTP patch applied|Speculative backend selected) for .*, active\)"),
}


class OmlxSettings(Settings):
    """Names are oMLX's own. Sizes are texts such as "24GB", "0" is off; null leaves a choice to the
    server."""

    prefix_cache: bool = True
    hot_cache_max_size: str = Field("0", pattern=r"^(0|[1-9]\d*[MG]B)$")
    hot_cache_write_through: bool = False
    ssd_cache_max_size: str = Field("auto", pattern=r"^(auto|[1-9]\d*[MG]B)$")
    sse_keepalive_mode: Literal["off", "comment", "chunk"] = "off"
    burst_decode_mode: Literal["off", "light", "balanced", "aggressive"] = "balanced"
    chunked_prefill: bool = False
    max_context_window: int = Field(262144, ge=1)
    top_p: float = Field(0.95, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    dflash_verify_mode: Literal["dflash", "adaptive", "ddtree", "off"] | None = None


class Omlx(Engine):
    """`omlx serve` as it is installed on this machine."""

    name = "omlx"
    modes = ("none", "mtp", "dflash")
    origins = ("executable",)
    mtp_head = "target"
    adaptive: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "dflash": {"dflash_verify_mode": "adaptive"}
    }
    since: ClassVar[Mapping[str, str]] = {
        "hot_cache_write_through": "0.6.3",
        "dflash.block_size": "0.6.0",
        "dflash.temperature": "0.6.2",
    }
    Settings = OmlxSettings

    def launch(self, arm: Arm, place: Place) -> Launch:
        chosen = self.Settings.model_validate(asked(self, arm))
        key = secrets.token_urlsafe(24)
        base, ssd = place.folder / "base", place.folder / "ssd"
        base.mkdir(mode=0o700)
        ssd.mkdir()
        _write(base / "settings.json", _server_file(chosen, place, ssd, key))
        models = {arm.checkpoint: _model_file(chosen, arm, place)}
        _write(base / "model_settings.json", {"version": 1, "models": models})
        argv = [
            *(str(place.executable), "serve", "--base-path", "base", "--model-dir", "models"),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *(
                "--no-hf-cache",
                "--sse-keepalive-mode",
                chosen.sse_keepalive_mode,
                "--log-level",
                "info",
            ),
        ]
        # Lines that are still in a buffer when the answer ends would be the next request's.
        env = {**clean_env(place.home, place.tmp), "PYTHONUNBUFFERED": "1"}
        return Launch(
            [*argv, *arm.args],
            env,
            place.folder,
            arm.checkpoint,
            settings=chosen.model_dump(),
            api_key=key,
        )

    def read_back(self, running: Running, arm: Arm) -> tuple[dict[str, Any], list[str]]:
        pages, missing = _pages(running)
        if missing:
            return {}, [f"its settings cannot be read back ({missing})"]
        log = running.log_file.read_text(encoding="utf-8", errors="replace")
        said = {
            **_settings_said(pages, arm),
            "loaded_as": next((m for m, line in _LOADED.items() if line.search(log)), None),
            "version": pages["status"].get("version"),
            **_beside(Path(*running.launch.argv[:1])),
            "engines": {
                name: {"version": one.get("version"), "commit": one.get("commit")}
                for name, one in _objects(pages["stats"].get("engines")).items()
            },
            "custom_kernels": {
                name: one.get("available")
                for name, one in _objects(pages["status"].get("custom_kernels")).items()
            },
        }
        wanted = _wanted(self.Settings.model_validate(asked(self, arm)), arm)
        if said["loaded_as"] is not None:  # a line at load may be missing: each request is proved
            wanted["loaded_as"] = arm.speculation
        if said["hot_cache_bytes"] is None and wanted.get("hot_cache_bytes") == 0:
            del wanted["hot_cache_bytes"]
        return said, [
            f"{key}: asked {_shown(value)}, the server says {_shown(said.get(key))}"
            for key, value in wanted.items()
            if said.get(key) != value
        ]

    def telemetry(self, answer: Answer, log: str) -> Telemetry:
        usage = answer.usage or {}
        emitted = count(usage.get("completion_tokens"))
        cycles, drafted, accepted, steps = _speculated(log)
        if cycles is None and emitted:
            steps = emitted - 1
        return Telemetry(
            decode_tok_s=rate(usage.get("generation_tokens_per_second")),
            ttft_s=rate(usage.get("time_to_first_token")),
            cycles=cycles,
            drafted=drafted,
            accepted=accepted,
            target_steps=steps,
        )


# --- before the start -----------------------------------------------------------------------------


def _server_file(chosen: OmlxSettings, place: Place, ssd: Path, key: str) -> dict[str, Any]:
    """settings.json. Sections and keys that are left out take the server's defaults."""
    cache = {
        "enabled": chosen.prefix_cache,
        "hot_cache_only": False,
        "ssd_cache_dir": str(ssd),
        "ssd_cache_max_size": chosen.ssd_cache_max_size,
        "hot_cache_max_size": chosen.hot_cache_max_size,
    }
    if chosen.hot_cache_write_through:
        cache["hot_cache_write_through"] = True
    return {
        "version": "1.0",
        "server": {
            "host": "127.0.0.1",
            "port": place.port,
            "log_level": "info",
            "sse_keepalive_mode": chosen.sse_keepalive_mode,
            "burst_decode_mode": chosen.burst_decode_mode,
        },
        "model": {"model_dirs": [str(place.folder / "models")], "model_fallback": False},
        "scheduler": {"max_concurrent_requests": 1, "chunked_prefill": chosen.chunked_prefill},
        "cache": cache,
        "auth": {"api_key": key, "skip_api_key_verification": False},
        "huggingface": {"hf_cache_enabled": False},
        "sampling": {
            "max_context_window": chosen.max_context_window,
            "top_p": chosen.top_p,
            "top_k": chosen.top_k,
        },
        "idle_timeout": {"idle_timeout_seconds": None},
    }


def _model_file(chosen: OmlxSettings, arm: Arm, place: Place) -> dict[str, Any]:
    """The target's part of model_settings.json."""
    told = {
        "is_default": True,
        "max_context_window": chosen.max_context_window,
        **_speculation(chosen, arm),
    }
    if arm.draft is not None:
        told["dflash_draft_model"] = str(place.folder / place.models[arm.draft])
    return told


def _speculation(chosen: OmlxSettings, arm: Arm) -> dict[str, Any]:
    """The target's switches of speculation, as they are written and as they are read back.

    Never two kinds at once: oMLX would drop all settings of the model.
    """
    told: dict[str, Any] = {
        f"{mode}_enabled": arm.speculation == mode for mode in ("mtp", "dflash")
    }
    if arm.speculation == "mtp" and arm.block_size is not None:
        told["mtp_num_draft_tokens"] = arm.block_size - 1
    if arm.speculation == "dflash":
        told["dflash_in_memory_cache"] = chosen.prefix_cache  # DFlash has a cache of its own
        optional = {
            "dflash_block_size": arm.block_size,
            "dflash_verify_mode": chosen.dflash_verify_mode,
        }
        told |= {key: value for key, value in optional.items() if value is not None}
    return told


def _write(file: Path, value: Mapping[str, Any]) -> None:
    file.touch(mode=0o600)
    file.write_text(json.dumps(value, indent=1), encoding="utf-8")


# --- after it -------------------------------------------------------------------------------------


def _pages(running: Running) -> tuple[dict[str, dict[str, Any]], str | None]:
    """What the server tells of itself, page by page, or which page it refuses."""
    url, login = running.base_url, "/admin/api/login"
    status, cookies = client.log_in(url, login, {"api_key": running.api_key}, PATIENCE_S)
    if not cookies:
        return {}, f"HTTP {status} at {login}"
    pages = {}
    for name, path in (
        ("status", "/api/status"),
        ("global", "/admin/api/global-settings"),
        ("models", "/admin/api/models"),
        ("stats", "/admin/api/stats"),
    ):
        status, page = client.get_json(url, path, PATIENCE_S, running.api_key, cookies)
        if status != 200 or not isinstance(page, dict):
            return {}, f"HTTP {status} at {path}"
        pages[name] = page
    return pages, None


def _wanted(chosen: OmlxSettings, arm: Arm) -> dict[str, Any]:
    """What the server has to say of itself, in the words of `_settings_said`."""
    wanted: dict[str, Any] = {
        **{"sse_keepalive_mode": chosen.sse_keepalive_mode, "max_concurrent_requests": 1},
        **chosen.model_dump(exclude={"dflash_verify_mode"}),
        **_speculation(chosen, arm),
    }
    if arm.speculation != "dflash":  # which does not use this cache
        wanted["hot_cache_bytes"] = _bytes(chosen.hot_cache_max_size)
    if not chosen.hot_cache_write_through:
        del wanted["hot_cache_write_through"]  # early versions have no word for "off"
    if chosen.ssd_cache_max_size == "auto":
        del wanted["ssd_cache_max_size"]  # the server says what it made of it
    if not chosen.prefix_cache:
        for size in ("hot_cache_max_size", "ssd_cache_max_size", "hot_cache_bytes"):
            wanted.pop(size, None)
    return wanted


def _settings_said(pages: Mapping[str, dict[str, Any]], arm: Arm) -> dict[str, Any]:
    """The pages' settings under the names that a campaign uses; None where there is none.

    Nothing is taken over whole: a page holds the key.
    """
    whole = pages["global"]
    server, cache, sampling = (_object(whole.get(k)) for k in ("server", "cache", "sampling"))
    scheduler = _object(whole.get("scheduler"))
    model = _object(_of_model(pages["models"].get("models"), arm.checkpoint).get("settings"))
    runtime = _object(pages["stats"].get("runtime_cache"))
    in_use = _of_model(runtime.get("models"), arm.checkpoint)
    return {
        **{key: server.get(key) for key in ("sse_keepalive_mode", "burst_decode_mode")},
        **{key: scheduler.get(key) for key in ("max_concurrent_requests", "chunked_prefill")},
        "prefix_cache": cache.get("enabled"),
        **{
            key: cache.get(key)
            for key in ("hot_cache_max_size", "hot_cache_write_through", "ssd_cache_max_size")
        },
        **{key: sampling.get(key) for key in ("max_context_window", "top_p", "top_k")},
        **{
            key: model.get(key)
            for key in (
                *("mtp_enabled", "mtp_num_draft_tokens"),
                *("dflash_enabled", "dflash_block_size", "dflash_verify_mode"),
                "dflash_in_memory_cache",
            )
        },
        "hot_cache_bytes": count(in_use.get("hot_cache_max_bytes")),
        "cache_block_tokens": count(in_use.get("block_size")),
    }


def _beside(executable: Path) -> dict[str, Any]:
    """Versions and Metal kernels of the Python that the server's start line names. Empty and null
    where it has no such line, as in the app for macOS, or was started by others."""
    try:
        with executable.open("rb") as stream:
            line = stream.readline(1000).decode("utf-8", "replace").strip()
    except OSError:
        line = ""
    python = Path(line.removeprefix("#!").split(" ")[0])
    if not line.startswith("#!") or not python.name.startswith("python"):
        return {"packages": {}, "metallib_sha256": None}
    found = servers.installed(python.parent.parent)
    return {
        "packages": {name: found[name] for name in PACKAGES if name in found},
        "metallib_sha256": servers.metallib_sha256(python),
    }


def _of_model(models: Any, name: str) -> dict[str, Any]:
    found = (one for one in models if _object(one).get("id") == name) if models else ()
    return _object(next(iter(found), None))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    return {name: _object(one) for name, one in _object(value).items()}


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _bytes(size: str) -> int:
    """Bytes of "24GB" or "0", by powers of 1024 as oMLX counts."""
    return 0 if size == "0" else int(size[:-2]) * {"M": 2**20, "G": 2**30}[size[-2]]


# --- a request ------------------------------------------------------------------------------------

Counts = tuple[int | None, int | None, int | None, int | None]


def _speculated(log: str) -> Counts:
    """(cycles, drafted, accepted, target steps) by the last line on a request; None if none ran."""
    if lines := list(_DFLASH.finditer(log)):
        return _of_dflash(lines[-1])
    if lines := list(_MTP.finditer(log)):
        return _of_mtp(lines[-1])
    return None, None, None, None


def _of_dflash(line: re.Match[str]) -> Counts:
    tokens, cycles, share = int(line["tokens"]), int(line["cycles"]), float(line["share"])
    if line["fallback"] or not cycles:
        return None, None, None, None
    accepted = round(share / 100 * tokens)
    if tokens and abs(100 * (tokens - cycles) / tokens - share) <= 0.05:
        accepted = tokens - cycles
    return cycles, None, accepted, cycles


def _of_mtp(line: re.Match[str]) -> Counts:
    depths = _DEPTHS.search(line[0])
    pairs = _DEPTH.findall(depths[1]) if depths else _ACCEPT.findall(line[0])
    if not pairs:
        return int(line["cycles"]), None, None, None
    accepted, drafted = (sum(int(pair[side]) for pair in pairs) for side in (0, 1))
    return int(line["cycles"]), drafted, accepted, None
