"""The scripts that write the picture of the ratios and the article, on a campaign in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from twoturn import cells, claims, contrasts, forest, i18n, quality, turns

from .conftest import Tree


def run(tree: Tree, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(i18n.ROOT / "scripts" / script), "--campaign", tree.file]
    return subprocess.run(
        [*command, *arguments],
        cwd=tree.root,
        env={**os.environ, "PYTHONPATH": str(i18n.ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def results(tree: Tree) -> Path:
    """A campaign of which nothing is measured, with the tables that say so."""
    series = tree.load().plan.series
    empty = cells.JOINED.empty_table()
    found = contrasts.from_cells(empty.drop_columns(["chunk_times_s"]).to_pandas(), series)
    folder = tree.root / "results"
    folder.mkdir()
    pq.write_table(empty, folder / "cells.parquet")
    pq.write_table(found, folder / "contrasts.parquet")
    pq.write_table(claims.from_contrasts(found, series), folder / "claims.parquet")
    pq.write_table(quality.SCHEMA.empty_table(), folder / "quality.parquet")
    return folder


def test_the_scripts_write_pictures_data_and_article(tree: Tree, results: Path) -> None:
    pictures = [f"forest_second_{language}.svg" for language in ("en", "pl")]
    done = run(
        tree,
        "figure_forest.py",
        *("--series", "second", "--contrasts", "results/contrasts.parquet", "--table", "out.csv"),
        *pictures,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all((tree.root / picture).read_text().startswith("<?xml") for picture in pictures)
    table = pd.read_csv(tree.root / "out.csv")
    assert list(table.columns) == forest.COLUMNS
    assert set(table["verdict"]) == {"not_measured"}
    tables = [
        *("--cells", "results/cells.parquet", "--contrasts", "results/contrasts.parquet"),
        *("--claims", "results/claims.parquet", "--scores", "results/quality.parquet"),
        *("--figures", "."),
    ]
    done = run(tree, "article.py", "--language", "pl", *tables, "reports/article_pl.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree.root / "reports/article_pl.md").read_text().startswith("<!-- campaign")


def test_the_second_turn_and_the_page(tree: Tree, results: Path) -> None:
    pictures = [f"turns_second_{language}.svg" for language in ("en", "pl")]
    done = run(
        tree,
        "figure_turns.py",
        *("--series", "second", "--cells", "results/cells.parquet", "--table", "turns.csv"),
        *pictures,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(pd.read_csv(tree.root / "turns.csv").columns) == turns.COLUMNS
    article = tree.root / "article_pl.md"
    article.write_text("<!-- a: b -->\n\n# Title\n\n![Text](turns_second_pl.svg)\n")
    script = [sys.executable, str(i18n.ROOT / "scripts/page.py"), "--language", "pl"]
    done = page_of(script, tree, "article_pl.md", "article_pl.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "data:image/svg+xml;base64," in (tree.root / "article_pl.html").read_text()
    for link in ("gone.svg", "../project/../../etc/hostname"):
        article.write_text(f"# Title\n\n![Text]({link})\n")
        done = page_of(script, tree, "article_pl.md", "other.html")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert f"{link}: there is no such picture beside the article" in done.stderr
        assert not (tree.root / "other.html").exists()


def page_of(script: list[str], tree: Tree, *files: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(i18n.ROOT)}
    return subprocess.run([*script, *files], cwd=tree.root, env=env, capture_output=True, text=True)


def test_a_series_that_is_not_there_is_one_line(tree: Tree, results: Path) -> None:
    done = run(
        tree,
        "figure_forest.py",
        *("--series", "third", "--contrasts", "results/contrasts.parquet", "--table", "out.csv"),
        "forest_third_en.svg",
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no series third" in done.stderr
