"""Quoted documents: the ledger and its faults, quotes against copies, guidance for arms."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from twoturn import claim_kinds, config, engines, ledger, sources, weights
from twoturn.__main__ import main
from twoturn.errors import UserError
from twoturn.sources import Advice, Sources
from twoturn.weights import Weights

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "workflow" / "sources.yaml").read_text(encoding="utf-8")


def changed(*path: str, to: Any) -> str:
    """The ledger with one place changed."""
    data = yaml.safe_load(TEXT)
    here = data
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = to
    return yaml.safe_dump(data, allow_unicode=True)


def parse(text: str) -> Sources:
    return ledger.parse(Sources, text, "workflow/sources.yaml")


@pytest.mark.parametrize(
    ("path", "to", "line"),
    [
        (
            ("sources", "dflash-paper", "qoutes"),
            {},
            "sources.dflash-paper.qoutes: unknown key; did you mean 'quotes'?",
        ),
        (
            ("sources", "dflash-paper", "measured", "temprature"),
            [0],
            "sources.dflash-paper.measured.temprature: unknown key; did you mean 'temperature'?",
        ),
        (
            ("sources", "dflash-paper", "kind"),
            "rumour",
            "sources.dflash-paper.kind: input should be 'paper', 'model card', 'readme', 'package'"
            ", 'issue' or 'article'",
        ),
        (
            ("sources", "dflash-paper", "quotes", "up_scaling"),
            {"words": "x", "about": "something"},
            "sources.dflash-paper.quotes.up_scaling: copy or reported_by: it was seen, or another "
            "tells it",
        ),
        (
            ("sources", "dflash-paper", "quotes", "up_scaling"),
            {"copy": "x.txt", "about": "something"},
            "sources.dflash-paper.quotes.up_scaling: what was seen is quoted: it needs `words`",
        ),
        (
            ("sources", "dflash-paper", "quotes", "up_scaling", "about"),
            "block 8",
            "sources.dflash-paper.quotes.up_scaling.about: it is translated, so it holds words and "
            "no digits",
        ),
        (
            ("sources", "dflash-card", "quotes", "default", "reported_by"),
            "nobody",
            "sources.dflash-card.quotes.default.reported_by: there is no source 'nobody'",
        ),
        (
            ("rules", "card_default", "rests_on"),
            ["dflash-card/other"],
            "rules.card_default.rests_on: there is no quote 'dflash-card/other'",
        ),
        (
            ("rules", "card_default", "at_most"),
            8,
            "rules.card_default: exactly one of at_most, exactly",
        ),
        (
            ("rules", "quantised_on_mlx", "when", "runtime"),
            "cuda",
            "rules.quantised_on_mlx.when.runtime: no runtime 'cuda'",
        ),
        (
            ("sources", "dflash-card", "values"),
            [{"metric": "accept_length", "model": "m", "block_size": 8, "value": 1, "copy": "x"}],
            "sources.dflash-card.values.0: copy and line go together",
        ),
    ],
)
def test_a_fault_of_the_ledger_is_one_line(path: tuple[str, ...], to: Any, line: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(changed(*path, to=to))
    assert str(caught.value) == f"workflow/sources.yaml: {line}"


def test_every_runtime_is_of_adapters_that_there_are() -> None:
    """A server whose runtime nobody knows is in no list, so guidance about it is not known."""
    placed = [name for names in sources.load().runtimes.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(engines.ADAPTERS) - set(placed) == {"command", "attached"}
    assert set(placed) <= set(engines.ADAPTERS)


def test_a_source_that_is_not_there_is_told() -> None:
    sources.require(["dflash-paper"], "kinds.best_block.cites")
    with pytest.raises(UserError, match=r"no source 'rumour' in workflow/sources\.yaml; known: "):
        sources.require(["rumour"], "kinds.best_block.cites")


# Quotes against copies ----------------------------------------------------------------------------

SMALL = """
runtimes: {mlx: [mlx-vlm]}
rules: {}
sources:
  paper:
    kind: paper
    title: A paper
    quotes:
      seen: {words: "blocks may\\nshrink", about: shrinking, copy: paper.txt}
      gone: {words: blocks may grow, about: growing, copy: paper.txt}
      other: {words: anything, about: other things, copy: elsewhere.txt}
    values:
      - {metric: accept_length, model: m, block_size: 8, value: 5.1, copy: t.csv, line: "8,5.1"}
"""


def test_quotes_are_looked_for_in_copies(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "paper.txt").write_text("It says that blocks\n   may shrink, so.\n")
    (tmp_path / "t.csv").write_text("4,3.2\n8,5.1,x\n")
    found = {one.what: one.found for one in sources.check(tmp_path, parse(SMALL))}
    assert found == {"seen": True, "gone": False, "other": None, "8,5.1": True}


def test_a_folder_of_copies_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder; name one that holds the copies"):
        sources.check(tmp_path / "x")


def test_figures_that_disagree_are_a_conflict() -> None:
    (one,) = sources.conflicts()
    assert (one.task, one.block_size) == ("HumanEval", 8)
    assert one.told == (("published-article", 5.35), ("dflash-card", 5.09))
    assert sources.conflicts(parse(SMALL)) == []


# Guidance for arms --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arm:
    speculation: str = "dflash"
    block_size: Any = 5
    adapter: str = "omlx"
    checkpoint: str = "target"
    draft: str | None = "draft"


FOUR, PLAIN = Weights(bits=(4,)), Weights(bits=())
DRAFT = Weights(bits=(), trained_block=16, model="Qwen3.6-35B-A3B-DFlash")


class Campaign:
    """A machine's facts and the weights of two checkpoints."""

    def __init__(
        self,
        accelerator: str | None = "metal",
        target: Weights = FOUR,
        draft: Weights = DRAFT,
    ) -> None:
        self.facts = {"accelerator": accelerator}
        self.weights = {"target": target, "draft": draft}


def told(arm: Arm, campaign: Campaign) -> dict[str, tuple[bool | None, bool | None]]:
    return {one.rule: (one.applies, one.respected) for one in sources.guidance(arm, campaign)}


QUANTISED = "quantised_on_mlx"


@pytest.mark.parametrize(("block", "kept"), [(2, True), (5, True), (6, False), (16, False)])
def test_quantised_weights_on_a_mac_have_small_blocks(block: int, kept: bool) -> None:
    found = told(Arm(block_size=block), Campaign())
    assert found[QUANTISED] == (True, kept)
    assert found["trained_block"] == (True, True)
    assert found["card_default"] == (True, False)


@pytest.mark.parametrize(
    ("arm", "campaign"),
    [
        (Arm(), Campaign(target=PLAIN)),
        (Arm(adapter="vllm"), Campaign()),
        (Arm(), Campaign(accelerator="cpu")),
        (Arm(speculation="mtp", draft=None), Campaign()),
        (Arm(speculation="none", block_size=None, draft=None), Campaign()),
    ],
)
def test_a_rule_that_is_not_about_an_arm_is_left_out(arm: Arm, campaign: Campaign) -> None:
    assert QUANTISED not in told(arm, campaign)


@pytest.mark.parametrize(
    ("arm", "campaign", "answer"),
    [
        (Arm(), Campaign(target=Weights()), (None, True)),
        (Arm(), Campaign(target=Weights(), draft=Weights(bits=(4,))), (True, True)),
        (Arm(adapter="command"), Campaign(), (None, True)),
        (Arm(), Campaign(accelerator=None), (None, True)),
        (Arm(block_size=None), Campaign(), (True, None)),
        (Arm(block_size="adaptive"), Campaign(), (True, None)),
    ],
)
def test_what_is_not_known_is_no_answer(arm: Arm, campaign: Campaign, answer: Any) -> None:
    assert told(arm, campaign)[QUANTISED] == answer


def test_a_draft_quantised_alone_is_enough() -> None:
    campaign = Campaign(target=PLAIN, draft=Weights(bits=(4,), trained_block=8))
    assert told(Arm(block_size=8), campaign)[QUANTISED] == (True, False)


def test_a_block_larger_than_trained_is_not_followed() -> None:
    campaign = Campaign(draft=Weights(trained_block=8))
    assert told(Arm(block_size=16), campaign)["trained_block"] == (True, False)
    assert told(Arm(block_size=8), campaign)["trained_block"] == (True, True)
    assert told(Arm(), Campaign(draft=Weights()))["trained_block"] == (True, None)


def test_the_default_of_the_card_is_against_the_rule_for_quantised_weights() -> None:
    found = sources.guidance(Arm(), Campaign())
    assert sources.contradictions(found) == [(QUANTISED, "card_default")]
    assert Advice("dflash-readme", QUANTISED, True, True) in found
    plain = sources.guidance(Arm(), Campaign(target=PLAIN))
    assert sources.contradictions(plain) == []


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "bits"),
    [
        ({}, ()),
        ({"quantization": {"bits": 4, "group_size": 64}}, (4,)),
        ({"quantization_config": {"bits": 8}}, (8,)),
        ({"quantization": {"bits": 4, "model.layers.0.mlp.gate": {"bits": 8}}}, (4, 8)),
        ({"quantization_config": {"quant_method": "fp8"}}, None),
        ({"quantization": {"bits": True}}, None),
    ],
)
def test_bits_come_from_the_config(told: dict[str, Any], bits: tuple[int, ...] | None) -> None:
    assert weights.of_config(told).bits == bits


@pytest.mark.parametrize(
    ("told", "block"),
    [
        ({"dflash_config": {"block_size": 8}}, 8),
        ({"dflash_config": {"mask_token_id": 3}, "block_size": 16}, 16),
        ({"architectures": ["DFlashDraftModel"], "block_size": 10}, 10),
        ({"block_size": 16}, None),
        ({"dflash_config": {}}, None),
        ({"dflash_config": "none", "block_size": "8"}, None),
    ],
)
def test_the_trained_block_stands_in_either_place(told: dict[str, Any], block: int | None) -> None:
    """Block size lost in config: some drafts keep it inside `dflash_config`."""
    assert weights.of_config(told).trained_block == block


def test_weights_of_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "config.json").write_text(json.dumps({"architectures": []}))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("[")
    (tmp_path / "packed").mkdir()  # its GGUF file may be of any precision
    (tmp_path / "packed" / "config.json").write_text("{}")
    (tmp_path / "packed" / "Some-Q4_K_M.gguf").touch()
    text = """
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints:
  real: {path: real}
  broken: {path: broken}
  packed: {path: packed}
  padded: {make: {from: packed, layers: 24}}
  named-4bit: {path: elsewhere/Some-4bit}
  hub: {repo: org/Some-8bit, revision: 0123456789012345678901234567890123456789}
  six: {make: {from: real, bits: 6}}
  deep: {make: {from: six, layers: 24}}
  file: {make: {from: real, gguf: q8_0}}
  wheel: {make: {package: p, version: "1", sha256: "%s", file: x.gguf}}
series:
  one:
    workload: {kind: chat, prompts: 1}
    reference: a
    arms: {a: {checkpoint: real, server: mlx-vlm}}
""" % ("0" * 64)
    found = weights.of_campaign(config.parse(text, "c.yaml"), tmp_path)
    real = Weights(bits=(), model="real")
    assert found["real"] == real
    assert found["broken"] == Weights(model="broken")
    assert found["packed"] == Weights(model="packed")
    assert found["padded"].bits == ()
    assert found["named-4bit"] == Weights(model="Some-4bit")
    assert found["hub"] == Weights(model="Some-8bit")
    assert [found[name].bits for name in ("six", "deep", "file")] == [(6,), (6,), (8,)]
    assert found["wheel"] == Weights()


# The command --------------------------------------------------------------------------------------


def test_the_command_tells_documents_quotes_and_guidance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "dflash-paper-v2.txt").write_text(
        "DFlash models trained with larger block sizes generalize well to smaller\n"
        "inference-time block sizes. However, the reverse does not\nhold. In practice, large "
        "blocks can increase verification cost under compute-bound settings "
        "(e.g., large batch sizes)"
    )
    assert main(["sources", "--check", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "  up_scaling: found in dflash-paper-v2.txt" in told
    assert "  quantised: no copy here: METADATA" in told
    assert "conflict: accept_length of Qwen3.6-35B-A3B on HumanEval at block size 8: 5.35 " in told
    assert (
        "  two_turns/dflash: block size at most trained (dflash-paper, trained_block): followed"
        in told
    )
    (tmp_path / "dflash-paper-v2.txt").write_text("something else")
    assert main(["sources", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "twoturn: workflow/sources.yaml: sources.dflash-paper: down_scaling: not in "
        "dflash-paper-v2.txt; quote the words as they stand, or name the copy that holds them\n"
    )


def test_a_claim_cites_what_the_ledger_has() -> None:
    text = claim_kinds.FILE.read_text(encoding="utf-8")
    assert claim_kinds.load().kinds["best_block"].cites[0] in sources.load().sources
    broken = text.replace("cites: [dflash-readme,", "cites: [rumour,")
    with pytest.raises(UserError) as caught:
        claim_kinds.parse(broken, "workflow/claims.yaml")
    assert str(caught.value).startswith(
        "workflow/claims.yaml: kinds.best_block.cites: no source 'rumour' in workflow/sources.yaml;"
    )
