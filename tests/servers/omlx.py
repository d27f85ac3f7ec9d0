"""An oMLX that answers as 0.5.3 was recorded to: `python omlx.py --fake-version V serve …`.

Words, times and the prefix cache are those of `scripted.py`; what is oMLX's own is here: settings
read from two files of which unknown keys vanish, a key for the API and a cookie for the admin
pages, a model that is loaded at its first request, and figures of speculation in log lines alone.
"""

from __future__ import annotations

import json
import re
import sys
import time
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import scripted

COOKIE = "omlx_admin_session"
LATER = {"hot_cache_write_through": (0, 6, 3), "dflash_block_size": (0, 6, 0)}
BLOCK = 16


def log(name: str, line: str) -> None:
    print(f"2026-01-01 00:00:00,000 - omlx.{name} - INFO - {line}", flush=True)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Omlx(scripted.Model):
    """State of the server: its settings as it took them, and which model is loaded."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        base = Path(given.base_path)
        self.settings = json.loads((base / "settings.json").read_text())
        told = json.loads((base / "model_settings.json").read_text())["models"]
        version = numbers(given.fake_version)
        self.taken(self.settings["cache"], version)
        self.models = {name: self.taken(dict(one), version) for name, one in told.items()}
        self.key = self.settings["auth"]["api_key"]
        self.settings["auth"]["secret_key"] = "made at start"
        (base / "settings.json").write_text(json.dumps(self.settings))
        self.found = sorted(one.name for one in Path(given.model_dir).iterdir() if one.is_dir())
        self.loaded: list[str] = []

    @staticmethod
    def taken(section: dict[str, Any], version: tuple[int, ...]) -> dict[str, Any]:
        for name, first in LATER.items():
            if version < first:
                section.pop(name, None)
            elif name == "hot_cache_write_through" and "enabled" in section:
                section.setdefault(name, False)
        return section

    def mode(self, name: str) -> str:
        one = self.models.get(name, {})
        kinds = [kind for kind in ("mtp", "dflash") if one.get(f"{kind}_enabled")]
        return kinds[0] if kinds and not self.given.fake_silent else "none"

    def load(self, name: str) -> None:
        if name in self.loaded:
            return
        log("engine_pool", f"Loading model: {name}")
        mode = self.mode(name)
        if mode == "dflash":
            draft = self.models[name]["dflash_draft_model"]
            log("engine_pool", f"DFlash enabled for {name}, draft={draft}")
            log("engine.dflash", f"DFlashEngine loaded: target={name}, draft={draft}, max_ctx=…")
        if mode == "mtp":
            log(
                "utils.model_loading", f"Native MTP patch applied for {name} (model_type=x, active)"
            )
        self.loaded.append(name)

    def say(self, name: str, tokens: int) -> None:
        """The lines of one answer; accept length is `--accept-length`, as far as it goes."""
        mode = self.mode(name)
        cycles = max(1, round(tokens / self.given.accept_length))
        if mode == "dflash":
            share = 100 * (tokens - cycles) / tokens
            fallback = ", fallback=AR" if self.given.fake_fallback else ""
            line = f"{tokens} tokens, 9.9 tok/s, acceptance={share:.1f}%, cycles={cycles}{fallback}"
            log("engine.dflash", f"DFlash generation complete: {line}")
            print(
                "2026-01-01 00:00:00 [dflash] prefix-cache-stats [lookup] entries=0/4", flush=True
            )
        if mode == "mtp":
            drafted = cycles * self.models[name].get("mtp_num_draft_tokens", 3)
            accepted = min(drafted, max(0, tokens - cycles - 1))
            line = (
                f"MTP[0] finish=length tokens={tokens} cycles={cycles} "
                f"tok/cycle={tokens / cycles:.2f} accept={accepted}/{drafted} (1.0%) "
                f"depth[d1={accepted}/{drafted}] emits[init=2,draft=1,bonus=1,verify=0] "
                "timing[backbone=1.0ms mtp=1.0ms sample=1.0ms cache=1.0ms]"
            )
            log("patches.mlx_lm_mtp.batch_generator", line)
        log("server", f"Chat completion: {tokens} tokens in 0.10s (9.9 tok/s), prompt: 9")


class Handler(scripted.Handler):
    """API with the key, admin pages with the cookie; benchmarks leave a trace."""

    model: Omlx

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(200, {"status": "healthy"})
        elif self.path.startswith("/admin/"):
            self.admin()
        elif not self.has_key():
            self.fail(401, "API key required")
        elif self.path == "/api/status":
            kernels = {"qwen35_prefill": {"available": False, "import_error": "no _ext"}}
            version = self.model.given.fake_version
            self.reply(200, {"status": "ok", "version": version, "custom_kernels": kernels})
        else:
            self.fail(404, "Not Found")

    def do_POST(self) -> None:
        arrived_s = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if "bench" in self.path:
            (Path(self.model.given.base_path).parent / "uploaded").touch()
            self.fail(404, "Not Found")
        elif self.path == "/admin/api/login":
            right = body.get("api_key") == self.model.key
            self.send_response(200 if right else 401)
            if right:
                self.send_header("Set-Cookie", f"{COOKIE}=session-of-{self.model.key}; HttpOnly")
            self.end_headers()
            self.wfile.write(json.dumps({"success": right}).encode())
        elif not self.has_key():
            self.fail(401, "API key required")
        elif body.get("model") not in self.model.found:
            self.fail(404, f"Model '{body.get('model')}' not found")
        else:
            self.model.given.model = body["model"]
            self.model.load(body["model"])
            self.complete(body, arrived_s)

    def complete(self, body: dict[str, Any], arrived_s: float) -> None:
        super().complete(body, arrived_s)
        if self.model.given.fake_leak:
            log("server", f"this build tells its key: {self.model.key}")
        self.model.say(body["model"], int(body.get("max_tokens", 16)))

    def has_key(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.model.key}"

    def admin(self) -> None:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        model = self.model
        if cookie is None or cookie.value != f"session-of-{model.key}":
            self.reply(401, {"detail": "Admin authentication required"})
        elif self.path == "/admin/api/global-settings":
            self.reply(200, {**model.settings, "auth": {"api_key": model.key}})
        elif self.path == "/admin/api/models":
            rows = [{"id": name, "settings": model.models.get(name)} for name in model.found]
            self.reply(200, {"models": rows})
        elif self.path == "/admin/api/stats":
            self.reply(200, self.stats())
        else:
            self.fail(404, "Not Found")

    def stats(self) -> dict[str, Any]:
        model, size = self.model, self.model.settings["cache"]["hot_cache_max_size"]
        scale = {"M": 2**20, "G": 2**30}
        used = 0 if size == "0" else int(size[:-2]) * scale[size[-2]]
        rows = [
            {"id": name, "block_size": 2048, "hot_cache_max_bytes": used}
            for name in model.loaded
            if model.mode(name) != "dflash"
        ]
        return {
            "api_key": model.key,
            "engines": {"mlx-lm": {"version": "0.31.3", "commit": "ab1806e8", "url": "…"}},
            "runtime_cache": {"models": rows},
        }


def main() -> None:
    parser = scripted.options()
    parser.add_argument("command", nargs="?")
    parser.add_argument("--version", action="store_true")
    for name in ("base-path", "model-dir", "host", "sse-keepalive-mode", "log-level"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--no-hf-cache", action="store_true")
    parser.add_argument("--fake-version", default="0.5.3")
    parser.add_argument("--fake-silent", action="store_true", help="speculation is never loaded")
    parser.add_argument("--fake-fallback", action="store_true", help="DFlash gives up")
    parser.add_argument("--fake-leak", action="store_true", help="its log tells its key")
    given = parser.parse_args(["--port", "0", "--model", "", *sys.argv[1:]])
    if given.version:
        print(given.fake_version)
        return
    given.prompt_cache = True
    handler = type("BoundHandler", (Handler,), {"model": Omlx(given)})
    with scripted.Server(("127.0.0.1", given.port), handler) as server:
        server.serve_forever(poll_interval=3600)


if __name__ == "__main__":
    sys.exit(main())
