"""The documentation says what the code does: columns, keys, defaults, examples and messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from twoturn import cells, claims, config, contrasts, engines, machine, metrics, quality
from twoturn.errors import UserError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))}
SCHEMA: dict[str, Any] = json.loads(
    (ROOT / "workflow" / "schemas" / "campaign.schema.json").read_text(encoding="utf-8")
)
DEFS: dict[str, Any] = SCHEMA["$defs"]
KINDS = {name: entry for name, entry in DEFS.items() if "kind" in entry["properties"]}
SHARED = set.intersection(*(set(entry["properties"]) for entry in KINDS.values()))
OBJECTS: dict[str, Any] = {
    "Campaign": SCHEMA,
    "Workload": {
        **KINDS["Chat"],
        "properties": {k: KINDS["Chat"]["properties"][k] for k in SHARED},
    },
    **{name: entry for name, entry in DEFS.items() if name not in KINDS},
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MISTAKE = re.compile(r"```diff\n(.*?)```\n```text\n(.*?)\n```", re.DOTALL)


def section(page: str, title: str) -> str:
    _, found, rest = PAGES[page].partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title}"
    return rest.split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The tables of a text: their cells, row by row, headings left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = {number for number, row in enumerate(table) if set(row[0]) == {"-"}}
    return [row for n, row in enumerate(table) if n not in rules and n + 1 not in rules]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


# --- docs/data.md ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "schema"),
    [
        ("Columns of a cell", cells.SCHEMA),
        ("Columns of contrasts", contrasts.SCHEMA),
        ("Columns of quality", quality.SCHEMA),
        ("Columns of claims", claims.SCHEMA),
    ],
)
def test_every_column_is_told_and_no_other(title: str, schema: pa.Schema) -> None:
    table = rows(section("data.md", title))
    assert [row[0] for row in table] == [f"`{name}`" for name in schema.names]
    never = {row[0].strip("`") for row in table if row[1] == "never"}
    assert never == {field.name for field in schema if not field.nullable}
    assert all(meaning for _, _, meaning in table)


def test_every_status_of_a_stream_is_told() -> None:
    told = {row[0].strip("`") for row in rows(section("data.md", "Status of a row"))}
    assert set(metrics.STATUSES) <= told


def test_the_state_of_the_machine_is_told() -> None:
    text = section("data.md", "Metadata of a cell").partition("State of the machine:")[2]
    assert {key for row in rows(text) for key in quoted(row[0])} == set(machine.state())


def test_the_table_of_every_figure_is_told() -> None:
    rules = (ROOT / "workflow" / "rules" / "report.smk").read_text(encoding="utf-8")
    written = re.findall(r"figures/(\w+?)(?:_\{\{series\}\})?\.csv", rules)
    told = re.findall(r"figures/(\w+?)(?:_<series>)?\.csv", PAGES["data.md"])
    assert written
    assert sorted(told) == sorted(written)


# --- docs/campaign.md -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
def test_every_key_is_told_with_its_default_and_no_other(name: str) -> None:
    text, _, _ = section("campaign.md", name).partition("\n### ")
    every_key_is_told(text, OBJECTS[name], set(OBJECTS[name]["properties"]))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_workload_tells_what_the_others_have_not(name: str) -> None:
    _, found, rest = section("campaign.md", "Workload").partition(f"\n### {name}\n")
    assert found, name
    text, _, _ = rest.partition("\n### ")
    every_key_is_told(text, KINDS[name], set(KINDS[name]["properties"]) - SHARED)


def every_key_is_told(text: str, entry: dict[str, Any], keys: set[str]) -> None:
    table = rows(text)
    assert sorted(key for row in table for key in quoted(row[0])) == sorted(keys)
    for key, default, meaning in table:
        assert default == told_default(entry, key.strip("`")), key
        assert meaning


def told_default(entry: dict[str, Any], key: str) -> str:
    """How a default is written in the documentation."""
    if key in entry.get("required", []):
        return "required"
    if "default" not in entry["properties"][key]:
        return "empty"
    value = entry["properties"][key]["default"]
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def test_every_adapter_is_told_with_its_modes_and_settings() -> None:
    told: dict[str, dict[str, str]] = {}
    modes: dict[str, list[str]] = {}
    name = ""
    for adapter, some, setting, default in rows(section("campaign.md", "Settings of an arm")):
        if adapter:
            name = adapter.strip("`")
            modes[name] = list(config.SPECULATION) if some == "all" else quoted(some)
        told.setdefault(name, {})[setting.strip("`")] = default
    known = {
        name: {key: field.default for key, field in adapter.Settings.model_fields.items()}
        for name, adapter in engines.ADAPTERS.items()
    }
    assert {name: list(adapter.modes) for name, adapter in engines.ADAPTERS.items()} == modes
    assert {name: set(some) for name, some in told.items()} == {
        name: set(some) for name, some in known.items()
    }
    for name, some in known.items():
        for key, value in some.items():
            assert value is None or told[name][key] == f"`{json.dumps(value)}`"


def test_every_adapter_has_its_rows_on_the_page_of_servers() -> None:
    page = PAGES["servers.md"].partition("\n## ")[0]
    told = {row[0].strip("`"): row for row in rows(page)}
    assert list(told) == list(engines.ADAPTERS)
    for name, adapter in engines.ADAPTERS.items():
        modes = config.SPECULATION if told[name][2] == "all" else quoted(told[name][2])
        assert tuple(modes) == adapter.modes
    run = rows(section("servers.md", "What was really run"))
    assert [row[0].strip("`") for row in run] == list(engines.ADAPTERS)


def test_adapters_without_an_environment_of_their_own_are_named() -> None:
    text = PAGES["own-machine.md"].partition("`install` needs an adapter:")[2].partition(".\n")[0]
    without = {name for name, one in engines.ADAPTERS.items() if "install" not in one.origins}
    assert set(quoted(text)) == without


EXAMPLE = blocks("campaign.md", "yaml")[-1]
MISTAKES = MISTAKE.findall(PAGES["campaign.md"])


def changed(text: str, diff: str) -> str:
    """The text after a diff without context: its `-` lines stand there once."""
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] == mark) for mark in "-+")
    assert text.count(old) == 1
    return text.replace(old, new)


def checked(text: str, file: str) -> None:
    engines.check(config.parse(text, file), file)


@pytest.mark.parametrize(("diff", "line"), MISTAKES)
def test_a_mistake_is_answered_as_told(diff: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(changed(EXAMPLE, diff), "mine.yaml")
    assert str(caught.value) == line


def test_there_are_mistakes() -> None:
    assert len(MISTAKES) >= 10


CAMPAIGNS = [(page, text) for page in PAGES for text in blocks(page, "yaml") if "series:" in text]


@pytest.mark.parametrize(("page", "text"), CAMPAIGNS, ids=[page for page, _ in CAMPAIGNS])
def test_an_example_is_a_campaign(page: str, text: str) -> None:
    checked(text, page)


def test_there_are_examples() -> None:
    assert {"campaign.md", "own-machine.md"} <= {page for page, _ in CAMPAIGNS}


# --- all pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in LINK.findall(PAGES[page]):
        if target.startswith("https://github.com/"):
            assert page == "related.md"
            continue
        file, _, anchor = target.partition("#")
        there = DOCS / file if file else DOCS / page
        assert there.is_file(), target
        titles = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
        known = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in known, target


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {f"docs/{page}" for page in PAGES} <= set(LINK.findall(readme))


def test_the_citation_is_of_this_version() -> None:
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for key in ("version", "license"):
        assert f'\n{key} = "{told[key]}"\n' in project
    assert f'\nname = "{told["title"]}"\n' in project
