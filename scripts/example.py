"""The example in docs/example: a measured campaign, told again from its own cells.

    python scripts/example.py --freeze                 keep what the default campaign measured here
    python scripts/example.py --into FOLDER            tell docs/example again, into FOLDER

Beside campaign and cells lie the lock and the recipes of the measurement (frozen.json), so that a
newer server or checkpoint in the repository does not change what the example was measured with.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

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
    told = {"lock": loaded.lock, "recipes": loaded.recipes}
    (folder / "frozen.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def thaw(folder: Path) -> Loaded:
    """The campaign of a frozen folder, planned with what it was measured with."""
    file = str(folder / "config.yaml")
    root = Path.cwd()
    told = json.loads((folder / "frozen.json").read_text())
    entry = config.load(file, root)
    planned = plan.make(entry, told["lock"], told["recipes"])
    here = weights.of_campaign(entry, root)
    return Loaded(file, root, entry, told["lock"], told["recipes"], planned, here)


def tell(folder: Path, into: Path) -> None:
    """Both articles and all figures, from the cells in `folder`."""
    loaded = thaw(folder)
    joined = cells.with_later_columns(pq.read_table(folder / "cells.parquet"), version=1)
    rows = joined.drop_columns(["chunk_times_s"]).to_pandas()
    compared = contrasts.from_cells(rows, loaded.plan.series)
    claimed = claims.from_contrasts(compared, loaded.plan.series)
    (into / "figures").mkdir(parents=True, exist_ok=True)
    for series in loaded.plan.series:
        mine = rows[rows["series"] == series.name]
        of_series = contrasts.of_series(compared.to_pylist(), series)
        drawn = {
            "slots": (figures.draw, figures.slot_data(rows, series)),
            "forest": (forest.draw, forest.forest_data(compared, series)),
            "turns": (turns.draw, turns.turn_data(rows, series)),
            "blocks": (block_curve.draw, blocks.curve(mine, of_series, series)),
            "kinds": (kind_dots.draw, by_kind.acceptance(mine, series)),
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
        told = article.gather(loaded, rows, compared, claimed, links)
        text = article.render(language, told)
        (into / f"article_{language}.md").write_text(text, encoding="utf-8")


def picture(kind: str, series: plan.Series, language: str) -> str:
    return f"figures/{kind}_{series.name}_{language}.svg"


if __name__ == "__main__":
    sys.exit(run(main))
