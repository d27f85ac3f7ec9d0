"""Imports point downward, and only the client and the servers touch a network: this machine's."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "twoturn"

# A module may import from the layers above its own line of this table only.
LAYERS = """
files
errors privacy hashes texts messages
i18n
config matrix jail
sandbox
tasks
checkpoints gguf_model ledger
weights
making
sources replay
published
recipes plan
machine cells
lock
stream
metrics
client
session guard servers tokens reasons
workloads text_gate tool_templates capacity
prefix
engines.base
engines.counters
engines.*
engines
campaign
bench
lengths
exchange preflight
sending cold_texts scoring
measure progress doctor verify
stats.base
stats.ols stats.hodges_lehmann
stats.drift_curve stats.step stats.bracketed stats.prompts stats.paired
stats.pair_fit
stats.verdict
stats.stacking stats.best_of stats.planning
stats
earlier cache_check
contrasts
quality forced
claim_kinds
claims
numbers
wording
blocks by_kind
figures
forest turns prefill_curve quality_figure
block_curve kind_dots
article.turns
article.data article.view
article.lengths article.recording
article.series article.conditions
article.published article.settled article.upstream
article.blocks article.kinds article.switches article.quality
article.sections
article
page
judging.study
judging.rows
judging.design judging.tables judging.llama_bench judging.own_cells
judging
judge rounds documents
__main__
"""
LAYER = {
    module: number for number, line in enumerate(LAYERS.split("\n")) for module in line.split()
}
# Analysis reads cells and never measures; measuring never analyses.
MEASURING = {
    "stream",
    "metrics",
    "client",
    "session",
    "guard",
    "servers",
    "engines",
    "text_gate",
    *("bench", "lengths", "exchange", "preflight", "sending", "cold_texts", "scoring", "measure"),
}
ANALYSIS = {
    *("stats", "earlier", "cache_check", "contrasts", "claim_kinds", "claims", "quality"),
    *("judging", "judge", "rounds", "numbers", "wording", "i18n", "sources", "published"),
    *("figures", "forest", "turns", "prefill_curve", "quality_figure", "blocks", "by_kind"),
    *("block_curve", "kind_dots", "article", "page"),
}
NETWORK = {"httpx", "socket", "http", "urllib", "requests", "aiohttp", "ssl", "asyncio", "uv"}
MAY = {
    "client": {"httpx", "asyncio"},
    "making": {"uv"},  # fetches a package that carries weights
    "servers": {"socket", "uv"},  # free and listening ports; uv makes environments
    "privacy": {"socket"},  # the host's name, to take it out of texts
}


def layer(module: str) -> int:
    """Its line in the table, 0 where it has none. One line holds all adapters."""
    return LAYER.get(module, LAYER["engines.*"] if module.startswith("engines.") else 0)


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = file
    return found


MODULES = modules()


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    """Full names of what a module imports, relative imports resolved, wherever they stand."""
    whole = f"twoturn.{module}".split(".")
    package = whole if MODULES[module].name == "__init__.py" else whole[:-1]
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def own(module: str) -> set[str]:
    """Modules of this package that a module imports."""
    names = {name.removeprefix("twoturn.") for name in imported(module)}
    return names & set(MODULES) - {module}


def top(module: str) -> set[str]:
    return {name.split(".")[0] for name in imported(module)}


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downward(module: str) -> None:
    assert layer(module), f"give {module} its place in the table of layers"
    packages = {name.rsplit(".", 1)[0] for name in own(module) if "." in name} - {module}
    upward = {
        name
        for name in own(module) | (packages & set(MODULES))
        if layer(name) >= layer(module) and not module.startswith(f"{name}.")
    }
    assert not upward


@pytest.mark.parametrize("module", MODULES)
def test_measuring_and_analysis_do_not_know_each_other(module: str) -> None:
    first = module.split(".")[0]
    known = {name.split(".")[0] for name in own(module)}
    if first in MEASURING:
        assert not known & ANALYSIS
    if first in ANALYSIS:
        assert not known & MEASURING


@pytest.mark.parametrize("module", MODULES)
def test_the_library_does_not_know_snakemake(module: str) -> None:
    assert "snakemake" not in top(module)


@pytest.mark.parametrize("module", MODULES)
def test_the_network_is_for_two_modules(module: str) -> None:
    assert top(module) & NETWORK <= MAY.get(module, set())


def test_privacy_asks_for_the_host_name_only() -> None:
    uses = {
        node.attr
        for node in ast.walk(tree("privacy"))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "socket"
    }
    assert uses == {"gethostname"}


def test_the_guard_is_alone() -> None:
    """It runs in isolated mode, where this package cannot be found."""
    assert top("guard") <= set(sys.stdlib_module_names)


ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\blocalhost\b|::1|https?://(?!127\.0\.0\.1\b)\w")


def literals(module: str) -> Iterator[str]:
    """Texts in a module that are no docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree(module))
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize("module", MODULES)
def test_only_this_machine_is_spoken_to(module: str) -> None:
    texts = [text.replace("\\", "") for text in literals(module)]  # patterns are addresses too
    found = {match for text in texts for match in ADDRESS.findall(text)}
    names_to_hide = {"localhost"} if module == "privacy" else set()
    assert found - names_to_hide <= {"127.0.0.1"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://127.0.0.1:{port}", ["127.0.0.1"]),
        ("0.0.0.0", ["0.0.0.0"]),
        ("a::1", ["::1"]),
        ("https://example.org", ["https://e"]),
        ("version 1.2.3", []),
        ("localhosts", []),
    ],
)
def test_the_pattern_of_addresses(text: str, found: list[str]) -> None:
    assert ADDRESS.findall(text) == found


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_run_through_a_shell(module: str) -> None:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            assert "shell" not in {keyword.arg for keyword in node.keywords}
            name = ast.unparse(node.func)
            assert name not in {"os.system", "os.popen", "eval", "exec"}


def test_the_table_finds_what_points_upward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYER, "errors", 99)
    with pytest.raises(AssertionError, match="errors"):
        test_imports_point_downward("config")


def test_the_documented_layers_are_these() -> None:
    page = PACKAGE.parent / "docs" / "architecture.md"
    section = page.read_text(encoding="utf-8").split("\n## Layers\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    told = [re.findall(r"`([\w.*]+)`", line.split("|")[1]) for line in lines]
    assert told == [line.split() for line in LAYERS.splitlines() if line]


WRITES = {"write_text", "write_bytes", "write_table", "to_csv", "to_parquet", "savefig"}
# Who writes otherwise than by `files`, and where: nothing of it is a result.
WRITERS = {
    "twoturn/files.py",
    "twoturn/cells.py",  # into the passing file that `files.whole` gives
    "twoturn/making.py",  # into a passing folder
    "twoturn/engines/omlx.py",  # into a cell's folder
    "twoturn/sandbox.py",  # into the passing folder that a model's code runs in
    "twoturn/figures.py",  # into memory
    "twoturn/measure.py",  # logs, and which session has warmed up
    "scripts/example.py",  # docs/example, by hand
}


def test_every_result_takes_its_name_whole() -> None:
    """Snakemake is told that nothing under a final name is ever incomplete."""
    root = PACKAGE.parent
    found = set()
    for file in [*PACKAGE.rglob("*.py"), *(root / "scripts").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in WRITES and ast.unparse(node.func.value) != "files":
                found.add(file.relative_to(root).as_posix())
    assert found == WRITERS
    profile = (root / "profiles/default/config.yaml").read_text(encoding="utf-8")
    assert "ignore-incomplete: true" in profile
    assert "keep-incomplete: true" in profile
