"""Nothing tells whose machine it was."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from twoturn import privacy

ROOT = Path("/srv/projects/thing")


@pytest.fixture(autouse=True)
def _somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ada")
    monkeypatch.setattr(privacy, "_user", lambda: "lovelace")
    monkeypatch.setattr(socket, "gethostname", lambda: "engine-1.local")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/projects/thing/results/x", "./results/x"),
        ("loading /data/people/ada/models/x", "loading ~/models/x"),
        ("'/Users/grace/x' and /home/alan/y", "'~/x' and ~/y"),
        ('{"path": "/home/alan"}', '{"path": "~"}'),
        ("by lovelace on engine-1.local.", "by <user> on <host>."),
        ("loveslace lovelaces", "loveslace lovelaces"),
        ("nothing to hide", "nothing to hide"),
        ("", ""),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert privacy.redact(text, ROOT) == shown


def test_the_place_behind_a_link_is_hidden_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    text = f"{tmp_path}/real/a {tmp_path}/link/b"
    assert privacy.redact(text, tmp_path / "link") == "./a ./b"


def test_keys_are_hidden() -> None:
    assert privacy.redact("Bearer sk-1 sk-1", ROOT, ("sk-1",)) == "Bearer <key> <key>"


def test_no_key_is_no_secret() -> None:
    assert privacy.redact("abc", ROOT, ("",)) == "abc"


@pytest.mark.parametrize("path", ["/srv/projects/things/x", "/data/people/adam/x"])
def test_another_path_stays_whole(path: str) -> None:
    assert privacy.redact(path, ROOT) == path


@pytest.mark.parametrize("name", [*sorted(privacy.GENERIC), "ann"])
def test_common_and_short_names_are_words(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(privacy, "_user", lambda: name)
    assert privacy.redact(f"the {name} of it", ROOT) == f"the {name} of it"


def test_no_user_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(privacy.getpass, "getuser", nobody)
    assert privacy.redact("x", ROOT) == "x"


def test_redact_all() -> None:
    value = {"a": ["/srv/projects/thing/x", 1, None], "b": ("lovelace", {"c": True})}
    assert privacy.redact_all(value, ROOT) == {"a": ["./x", 1, None], "b": ["<user>", {"c": True}]}


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    here = Path.cwd()
    text = f"{here}/x {Path.home()}/y {os.sep}"
    shown = privacy.redact(text, here)
    assert str(here) not in shown
    assert shown.startswith("./x ")
