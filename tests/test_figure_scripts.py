"""The scripts that write the picture of the ratios and the article, on a campaign in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from twoturn import cells, claims, contrasts, forest, i18n

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
        *("--claims", "results/claims.parquet", "--figures", "."),
    ]
    done = run(tree, "article.py", "--language", "pl", *tables, "reports/article_pl.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree.root / "reports/article_pl.md").read_text().startswith("<!-- campaign")


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
