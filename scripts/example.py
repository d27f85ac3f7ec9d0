"""The example in docs/example: a measured campaign, told again from its own cells.

    python scripts/example.py --freeze                 keep what the default campaign measured here
    python scripts/example.py --into FOLDER            tell docs/example again, into FOLDER

Beside campaign and cells lie the lock, the recipes and the counted weights of the measurement
(frozen.json), so that a newer server or checkpoint in the repository does not change what the
example was measured with.
"""

import argparse
import functools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from twoturn import (
    article,
    block_curve,
    blocks,
    by_kind,
    campaign,
    cells,
    claims,
    config,
    contrasts,
    figures,
    forest,
    kind_dots,
    plan,
    prefill_curve,
    published,
    quality,
    turns,
    weights,
)
from twoturn.campaign import Loaded
from twoturn.errors import UserError, run

EXAMPLE = Path("docs/example")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--freeze", action="store_true")
    wanted.add_argument("--into", type=Path)
    chosen = parser.parse_args()
    if chosen.freeze:
        freeze("config.yaml", EXAMPLE)
    tell(EXAMPLE, chosen.into or EXAMPLE)


def freeze(file: str, folder: Path) -> None:
    """Copy a campaign, its joined cells, and what they were measured with. Raises UserError."""
    loaded = campaign.load(file, Path.cwd())
    joined = Path("results/cells.parquet")
    if not joined.is_file():
        raise UserError("there are no cells", file=str(joined), cure="`make article` first")
    known = set(pq.read_table(joined, columns=["fingerprint"])["fingerprint"].to_pylist())
    if missing := {series.name for series in loaded.plan.series if series.fingerprint not in known}:
        raise UserError(
            f"not measured as planned now: {', '.join(sorted(missing))}",
            file=str(joined),
            cure="`make article` first",
        )
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / "config.yaml")
    shutil.copyfile(joined, folder / "cells.parquet")
    sizes = weights.kept(loaded.root / series.directory for series in loaded.plan.series)
    told = {"lock": loaded.lock, "recipes": loaded.recipes, "sizes": sizes}
    (folder / "frozen.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def thaw(folder: Path) -> Loaded:
    """The campaign of a frozen folder, planned with what it was measured with."""
    file = str(folder / "config.yaml")
    root = Path.cwd()
    entry, told = config.load(file, root), frozen(folder)
    planned = plan.make(entry, told["lock"], told["recipes"])
    here = weights.of_campaign(entry, root)
    return Loaded(file, root, entry, told["lock"], told["recipes"], planned, here)


def frozen(folder: Path) -> dict[str, Any]:
    """What `freeze` wrote beside the cells."""
    told: dict[str, Any] = json.loads((folder / "frozen.json").read_text())
    return told


def tell(folder: Path, into: Path) -> None:
    """Both articles and all figures, from the cells in `folder`."""
    loaded = thaw(folder)
    joined = cells.with_later_columns(pq.read_table(folder / "cells.parquet"), version=1)
    rows = joined.drop_columns(["chunk_times_s"]).to_pandas()
    compared = contrasts.from_cells(rows, loaded.plan.series)
    scores = quality.from_cells(rows, loaded.plan.series)
    printed = published.times_as_fast(loaded.plan.series, loaded.weights)
    claimed = claims.from_contrasts(compared, loaded.plan.series, published=printed, scores=scores)
    scored = article.Scored(scores, sizes=frozen(folder).get("sizes", {}))
    by_kinds = functools.partial(kind_dots.draw, published=by_kind.published_range())
    (into / "figures").mkdir(parents=True, exist_ok=True)
    for series in loaded.plan.series:
        mine = rows[rows["series"] == series.name]
        of_series = contrasts.of_series(compared.to_pylist(), series)
        drawn: dict[str, tuple[figures.Draw, pd.DataFrame]] = {
            "slots": (figures.draw, figures.slot_data(rows, series)),
            "forest": (forest.draw, forest.forest_data(compared, series)),
            "turns": (turns.draw, turns.turn_data(rows, series)),
            "blocks": (block_curve.draw, blocks.curve(mine, of_series, series)),
            "kinds": (by_kinds, by_kind.acceptance(mine, series)),
            "prefill": (prefill_curve.draw, prefill_curve.curve_data(rows, series)),
        }
        for kind in series.pictures:
            pictures = [into / picture(kind, series, one) for one in loaded.plan.languages]
            table = into / f"figures/{kind}_{series.name}.csv"
            figures.write(*drawn[kind], series, table, pictures)
    for language in loaded.plan.languages:
        links = {
            one.name: {kind: picture(kind, one, language) for kind in one.pictures}
            for one in loaded.plan.series
        }
        told = article.gather(loaded, rows, compared, claimed, links, scored)
        text = article.render(language, told)
        (into / f"article_{language}.md").write_text(text, encoding="utf-8")


def picture(kind: str, series: plan.Series, language: str) -> str:
    return f"figures/{kind}_{series.name}_{language}.svg"


if __name__ == "__main__":
    sys.exit(run(main))
