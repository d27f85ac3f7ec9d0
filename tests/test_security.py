"""Nothing gets in or out: what a campaign, a server or an archive may try."""

from __future__ import annotations

import ast
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import parsed
from tests.test_engines import PLAIN
from tests.test_making import unpack, wheel
from twoturn import config, engines, making
from twoturn.engines import ADAPTERS, Place
from twoturn.engines.command import Command
from twoturn.errors import UserError

__all__ = ["wheel"]  # a fixture
ROOT = Path(__file__).parents[1]
Data = dict[str, Any]

# --- the code itself ------------------------------------------------------------------------------

FORBIDDEN = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "yaml.unsafe_load"),
    *("yaml.full_load", "tempfile.mktemp", "zipfile.ZipFile.extractall", "os.chmod"),
}


def calls() -> Iterator[tuple[str, ast.Call]]:
    """(place and name, call) of every call in the product."""
    for folder in ("twoturn", "scripts"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}", node


def test_no_shell_and_nothing_that_runs_what_it_reads() -> None:
    found = [place for place, _ in calls() if place.split(" ", 1)[1] in FORBIDDEN]
    found += [
        place
        for place, call in calls()
        for keyword in call.keywords
        if keyword.arg == "shell"
        and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
    ]
    assert found == []


def test_yaml_is_read_safely() -> None:
    loads = [call for place, call in calls() if place.endswith("yaml.load")]
    loaders = {ast.unparse(keyword.value) for call in loads for keyword in call.keywords}
    assert loaders == {"_Loader"}
    assert issubclass(config._Loader, yaml.SafeLoader)
    with pytest.raises(UserError, match="not valid YAML"):
        config.read_yaml("x: !!python/object/apply:os.getcwd []", "c.yaml")


# --- campaigns ------------------------------------------------------------------------------------

WAYS_OUT = (
    "../x",
    "/etc/x",
    "a/../../x",
    "..",
    "~/x",
    "a\x00b",
    "a\nb",
    "-x",
    ".x",
    "a b",
    "ą",
    "",
)


@pytest.mark.parametrize("name", WAYS_OUT)
@pytest.mark.parametrize("part", ["series", "checkpoints", "servers", "name", "machine", "arms"])
def test_no_name_leads_out(data: Data, part: str, name: str) -> None:
    if part in ("name", "machine"):
        data[part] = name
    elif part == "arms":
        data["series"]["first"]["arms"][name] = data["series"]["first"]["arms"]["plain"]
    else:
        data[part][name] = next(iter(data[part].values()))
    with pytest.raises(UserError):
        parsed(data)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "..", "~/x"])
@pytest.mark.parametrize("key", ["text", "install"])
def test_no_file_outside_is_read(data: Data, key: str, path: str) -> None:
    if key == "text":
        data["series"]["first"]["workload"]["text"] = path
    else:
        data["servers"]["one"] = {"install": path}
    with pytest.raises(
        UserError, match="leads out of the project's folder; put the file inside it"
    ):
        parsed(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("package", "x\n--index-url http://127.0.0.2/"),
        ("package", "x @ http://127.0.0.2/x.whl"),
        ("package", "--index-url"),
        ("package", "../x"),
        ("version", "1.0\n-r /etc/passwd"),
        ("version", "1.0 --no-deps"),
        ("version", "$(id)"),
        ("sha256", "0" * 63),
    ],
)
def test_a_package_is_a_name_and_a_version(data: Data, key: str, value: str) -> None:
    made = {"package": "x", "version": "1.0", "sha256": "0" * 64, "file": "x.gguf"}
    data["checkpoints"]["small"] = {"make": made}
    parsed(data)
    data["checkpoints"]["small"] = {"make": {**made, key: value}}
    with pytest.raises(UserError):
        parsed(data)


def bomb(depth: int) -> str:
    """Aliases of aliases: ten to the power of `depth` words in a few lines."""
    lines = [f"x0: &x0 [{', '.join(['word'] * 10)}]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join(lines)


def test_aliases_of_aliases_are_one_short_line(data: Data) -> None:
    with pytest.raises(UserError) as caught:
        config.parse(f"{bomb(9)}\n{yaml.safe_dump(data)}", "campaign.yaml")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("depth", [1, 8])
def test_aliases_in_settings_are_refused_by_their_type(data: Data, depth: int) -> None:
    value: Any = ["word"] * 10
    for _ in range(depth):
        value = [value] * 10
    data["series"]["first"]["arms"]["plain"]["settings"] = {"model": value}
    with pytest.raises(UserError) as caught:
        engines.check(parsed(data), "campaign.yaml")
    assert len(str(caught.value)) < 400


# --- servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(ADAPTERS) - {"attached"}))
def test_every_server_is_started_offline_by_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "HF_TOKEN", "API_KEY"):
        monkeypatch.setenv(variable, "http://127.0.0.2:9")
    folder = tmp_path / "cell"
    model = tmp_path / "demo"
    for path in (folder / "models", folder / "home", folder / "tmp", model):
        path.mkdir(parents=True)
    for file in ("model.gguf", "config.json"):
        (model / file).write_text("{}")
    (folder / "models/demo").symlink_to(model)
    place = Place(
        tmp_path, folder, 4321, Path("/env/bin/python"), folder / "tmp",
        {"demo": "models/demo"}, Path("/opt/program"),
    )  # fmt: skip
    engine = Command(["{python}", "x", "{model}"]) if name == "command" else ADAPTERS[name]()
    mode = "none" if "none" in engine.modes else sorted(engine.modes)[0]
    arm = replace(PLAIN, server=name, adapter=name, speculation=mode)
    if mode != "none":
        place = replace(place, models={"demo": "models/demo", "head": "models/demo"})
        arm = replace(arm, draft="head")
    launch = engine.launch(arm, place)
    assert all(isinstance(word, str) for word in launch.argv)
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        assert launch.env[variable] == "1"
    assert launch.env["HOME"] == str(folder / "home")
    assert not [
        key for key in launch.env if "proxy" in key.lower() or key in ("HF_TOKEN", "API_KEY")
    ]
    assert "0.0.0.0" not in launch.argv
    assert launch.attach is None


# --- archives -------------------------------------------------------------------------------------


def names_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("inside", ["../../../escaped.txt", "/tmp/escaped-by-a-wheel.txt"])
def test_a_wheel_writes_nothing_outside_its_folder(
    wheel: Path, tmp_path: Path, inside: str
) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(inside, b"got out")
    with pytest.raises(UserError):
        unpack(wheel, tmp_path / "made")
    assert not Path("/tmp/escaped-by-a-wheel.txt").exists()
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("file", ["/etc/passwd", "../wanted.txt", "a/../../wanted.txt"])
def test_no_file_outside_a_package_is_taken(tmp_path: Path, file: str) -> None:
    with pytest.raises(UserError, match="is no path inside a package"):
        making.unpack("x", "1.0", hashlib.sha256().hexdigest(), file, tmp_path)
