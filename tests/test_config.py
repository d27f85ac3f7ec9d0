"""The campaign file: every bad input is one line that names the file, the key and the cure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from twoturn import config, engines
from twoturn.errors import UserError

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "workflow" / "schemas" / "campaign.schema.json"
Data = dict[str, Any]
FIRST = "series.first"


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        config.parse(text, "c.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("c.yaml: ")
    return line.removeprefix("c.yaml: ")


def put(data: Data, path: str, value: Any) -> None:
    *parts, last = path.split(".")
    for part in parts:
        data = data.setdefault(part, {})
    data[last] = value


def test_the_base_is_valid(data: Data) -> None:
    campaign = config.parse(yaml.safe_dump(data), "c.yaml")
    assert list(campaign.series) == ["first", "second"]
    assert (campaign.machine, campaign.languages) == ("local", ["en", "pl"])
    assert config.Series.model_fields["rounds"].default == 6


@pytest.mark.parametrize("file", ["config.yaml", *sorted(p.name for p in ROOT.glob("campaigns/*"))])
def test_committed_campaigns_are_valid(file: str) -> None:
    path = ROOT / file if file == "config.yaml" else ROOT / "campaigns" / file
    assert config.load(path).series


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("sereis", {}, "sereis: unknown key; did you mean 'series'?"),
        (f"{FIRST}.workload.max_token", 9, "unknown key; did you mean 'max_tokens'?"),
        (f"{FIRST}.arms.plain.blocksize", 4, f"{FIRST}.arms.plain.blocksize: unknown key; did you"),
        ("servers.one.comand", "x", "servers.one.comand: unknown key; did you mean 'command'?"),
        ("checkpoints.small.zzz", "x", "unknown key; known keys: make, path, repo, revision"),
        (
            "checkpoints.small",
            {"make": {"from": "large", "bits": 4, "grup_size": 64}},
            "checkpoints.small.make.grup_size: unknown key; did you mean 'group_size'?",
        ),
    ],
)
def test_unknown_key(data: Data, path: str, value: Any, line: str) -> None:
    put(data, path, value)
    assert line in refused(yaml.safe_dump(data, sort_keys=False))


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            f"{FIRST}.rounds",
            5,
            f"{FIRST}: rounds: 5 is odd, and two rounds are one mirrored block; use 6",
        ),
        (f"{FIRST}.rounds", 0, f"{FIRST}.rounds: input should be greater than or equal to 1"),
        (f"{FIRST}.reference", "plian", f"{FIRST}: reference: 'plian' is not among the arms"),
        (
            f"{FIRST}.arms.Plain",
            {"checkpoint": "small", "server": "one"},
            f"{FIRST}: arms: 'plain' and 'Plain' share the file name 'plain'; rename one",
        ),
        (
            "series.second.arms.plain-NULL",
            {"checkpoint": "large", "server": "two"},
            "arms: 'plain-NULL' and 'plain-null' share the file name 'plain-null'; rename one",
        ),
        (
            "series.second.arms.plain-null",
            {"checkpoint": "large", "server": "two"},
            "arms: 'plain-null' and 'plain-null' share the file name 'plain-null'; rename one",
        ),
        (f"{FIRST}.arms", {}, f"{FIRST}.arms: dictionary should have at least 1 item"),
        ("series", {}, "series: dictionary should have at least 1 item"),
        (
            f"{FIRST}.arms.quick",
            {"checkpoint": "small", "server": "one", "speculation": "dflash"},
            f"{FIRST}.arms.quick: speculation dflash needs `draft`, a checkpoint's name",
        ),
        (f"{FIRST}.arms.plain.draft", "draft", "speculation none takes no `draft`"),
        (f"{FIRST}.arms.plain.block_size", 4, "speculation none takes no `block_size`"),
        (f"{FIRST}.arms.quick.block_size", 1, "input should be greater than or equal to 2"),
        (f"{FIRST}.arms.quick.block_size", 65, "input should be less than or equal to 64"),
        (
            f"{FIRST}.arms.quick.block_size",
            "wide",
            "input should be a valid integer, unable to parse string as an integer",
        ),
        (
            f"{FIRST}.arms.plain.server",
            "onne",
            f"{FIRST}.arms.plain.server: 'onne' is not declared; known: one, two",
        ),
        (
            f"{FIRST}.arms.plain.checkpoint",
            "zzz",
            f"{FIRST}.arms.plain.checkpoint: 'zzz' is not declared; known: draft, large, small",
        ),
        (
            f"{FIRST}.arms.quick.draft",
            "drafty",
            f"{FIRST}.arms.quick.draft: 'drafty' is not declared; known: draft, large, small",
        ),
        (
            "checkpoints.small",
            {"make": {"from": "larger", "bits": 4}},
            "checkpoints.small.make.from: 'larger' is not declared; known: draft, large, small",
        ),
        (
            f"{FIRST}.workload.turns",
            2,
            f"{FIRST}.workload.turns: unknown key; known keys: kind, kinds, max_tokens",
        ),
        (
            "series.second.workload.turns",
            1,
            "series.second.workload.turns: input should be greater than or equal to 2",
        ),
        (
            f"{FIRST}.workload.kind",
            "other",
            f"{FIRST}.workload: input tag 'other' found using 'kind' does not match",
        ),
        (f"{FIRST}.workload.temperature", float("nan"), f"{FIRST}.workload.temperature: input"),
        ("languages", ["de"], "languages: there is no catalogue of 'de'; known: en, pl; docs/"),
        ("languages", ["../pl"], "languages: there is no catalogue of '../pl'"),
        ("name", "../x", "name: '../x' is no usable name; begin with a letter"),
        ("machine", "a/b", "machine: 'a/b' is no usable name"),
        ("servers.one.install", "x.lock", "exactly one of install, executable, attach, command"),
        ("servers.one", {}, "servers.one: exactly one of install, executable, attach, command is"),
        ("servers.one.version", None, "a command needs `version`, because it cannot be probed"),
        ("servers.one.version", 1.0, "servers.one.version: input should be a valid string"),
        ("servers.one.command", [], "servers.one.command: list should have at least 1 item"),
        ("checkpoints.small.repo", "a/b", "exactly one of path, repo, make is wanted"),
        (
            "checkpoints.small",
            {"repo": "a/b"},
            "checkpoints.small: repo and revision go together: a hub checkpoint is pinned",
        ),
        (
            "checkpoints.small",
            {"repo": "a/b", "revision": "main"},
            "revision must be a full commit of 40 hex digits, not a branch",
        ),
        (
            "checkpoints.small",
            {"repo": "a/b", "revision": "0123456"},
            "revision must be a full commit of 40 hex digits, not a branch",
        ),
    ],
)
def test_bad_value(data: Data, path: str, value: Any, line: str) -> None:
    put(data, path, value)
    assert line in refused(yaml.safe_dump(data, sort_keys=False))


@pytest.mark.parametrize(
    "address",
    [
        "http://localhost:1",
        "http://10.0.0.1:1",
        "https://127.0.0.1:1",
        "http://127.0.0.1",
        "http://127.0.0.1:1/v1",
        "http://127.0.0.1:1@example.org",
        "http://127x0x0x1:1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
    ],
)
def test_attach_only_here(data: Data, address: str) -> None:
    data["servers"]["one"] = {"attach": address}
    line = refused(yaml.safe_dump(data))
    assert line == "servers.one: attach must be http://127.0.0.1:PORT, nothing else is measured"


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"attach": "http://127.0.0.1:1"},
            "servers.one: an attached server needs `version`, because it cannot be probed",
        ),
        (
            {"install": "x.lock", "api_key_env": "KEY"},
            "servers.one: `api_key_env` belongs to `attach`; what is started here has no key",
        ),
        (
            {"attach": "http://127.0.0.1:1", "version": "1", "api_key_env": "sk-1"},
            "servers.one.api_key_env: string should match pattern '^[A-Za-z_][A-Za-z0-9_]*$'",
        ),
    ],
)
def test_what_an_attached_server_needs(data: Data, entry: Data, line: str) -> None:
    data["servers"]["one"] = entry
    assert refused(yaml.safe_dump(data)) == line


def test_two_series_in_one_folder(data: Data) -> None:
    data["series"]["First"] = data["series"]["first"]
    assert refused(yaml.safe_dump(data)) == "series: two series share one folder name; rename one"


@pytest.mark.parametrize("name", ["1e3", "-x", "a b", "ą", "a/b", "a..b", "'1'", "'null '"])
def test_a_name_that_is_no_file_name(data: Data, name: str) -> None:
    arms = data["series"]["first"]["arms"]
    arms[name] = arms["plain"]
    line = refused(yaml.safe_dump(data))
    assert line.startswith(f"series.first.arms.{name}: ")
    assert "is no usable name; begin with a letter and use letters, digits, _ . -" in line


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("null", "NoneType"),
        ("off", "bool"),
        ("No", "bool"),
        ("12", "int"),
        ("1.5", "float"),
        ("2024-01-01", "date"),
        ("[a, b]", "list"),
    ],
)
def test_a_key_that_yaml_reads_otherwise(data: Data, written: str, kind: str) -> None:
    text = yaml.safe_dump(data, sort_keys=False) + f"    ? {written}\n    : {{}}\n"
    line = refused(text)
    assert f"as {kind}, not as text; choose a name that begins with a letter" in line
    assert line.startswith(f"line {text.count(chr(10)) - 1}: ")


@pytest.mark.parametrize("where", ["top", "inside"])
def test_a_doubled_key(data: Data, where: str) -> None:
    text = yaml.safe_dump(data, sort_keys=False)
    again = "servers: {}\n" if where == "top" else "x: {a: {b: 1}, a: 2}\n"
    key = "servers" if where == "top" else "a"
    line = refused(text + again)
    assert f"the key {key!r} stands twice in one place; rename or remove one" in line
    assert line.startswith(f"line {text.count(chr(10)) + 1}: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "not a campaign; it needs servers, checkpoints, series"),
        ("# nothing\n", "not a campaign; it needs servers, checkpoints, series"),
        ("[1, 2]", "not a campaign; it needs servers, checkpoints, series"),
        ("just words", "not a campaign; it needs servers, checkpoints, series"),
        ("a: [1\nb: 2\n", "line 2: not valid YAML: "),
        ("a: \tb: c\n", "line 1: not valid YAML: "),
        ("a: !!python/name:os.system x\n", "line 1: not valid YAML: could not determine a con"),
        ("a: 1\x00\n", "not valid YAML: "),
        ("a: 2026-13-01\n", "not valid YAML: month must be in 1..12"),
        ("a: " + "[" * 5000, "not valid YAML: "),
        ("machine: local\n", "servers: field required"),
    ],
)
def test_not_a_campaign(text: str, line: str) -> None:
    assert refused(text).startswith(line)


@pytest.mark.parametrize(("name", "content"), [("none.yaml", None), ("latin.yaml", b"a: \xb1\n")])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name}: cannot be read \(\w+Error\)"):
        config.load(tmp_path / name)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        config.parse(text, "c.yaml")
    except UserError as error:
        said = str(error)
    assert len(said.splitlines()) == 1  # no text as short is a campaign


@pytest.mark.parametrize("name", ["cells", "Cells"])
def test_a_campaign_name_that_is_a_folder_of_results(data: Data, name: str) -> None:
    data["name"] = name
    assert "name" in refused(yaml.safe_dump(data))


def test_a_doubled_language(data: Data) -> None:
    data["languages"] = ["en", "en"]
    assert "languages" in refused(yaml.safe_dump(data))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda entry: None, "command"),
        (lambda entry: entry.update(adapter="mine"), "mine"),
        (lambda entry: (entry.clear(), entry.update(install="x")), "one"),
    ],
)
def test_adapter_name(data: Data, change: Callable[[Data], None], name: str) -> None:
    change(data["servers"]["one"])
    server = config.parse(yaml.safe_dump(data), "c.yaml").servers["one"]
    assert server.adapter_name("one") == name


def test_the_schema_file_is_the_model() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == config.json_schema()
    assert json.loads(config.json_schema())["additionalProperties"] is False


def test_each_mode_belongs_to_an_adapter() -> None:
    known = {mode for adapter in engines.ADAPTERS.values() for mode in adapter.modes}
    assert known == set(config.SPECULATION)
    assert set(config.NEEDS_DRAFT) < known
