"""Write the article of a campaign in one language."""

import argparse
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

from twoturn import article, campaign
from twoturn.errors import run
from twoturn.plan import Plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--language", required=True)
    parser.add_argument("--cells", required=True, type=Path)
    parser.add_argument("--contrasts", required=True, type=Path)
    parser.add_argument("--claims", required=True, type=Path)
    parser.add_argument("--figures", required=True, type=Path, help="folder of the pictures")
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    loaded = campaign.load(wanted.campaign, Path.cwd())
    data = article.gather(
        loaded,
        pq.read_table(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas(),
        pq.read_table(wanted.contrasts),
        pq.read_table(wanted.claims),
        {
            kind: pictures(kind, loaded.plan, wanted.figures, wanted.language, wanted.output.parent)
            for kind in article.PICTURES
        },
    )
    text = article.render(wanted.language, data)
    wanted.output.parent.mkdir(parents=True, exist_ok=True)
    wanted.output.write_text(text, encoding="utf-8")


def pictures(kind: str, plan: Plan, folder: Path, language: str, start: Path) -> dict[str, str]:
    """Series → link to its picture, relative to the article; only pictures that are there."""
    files = {series.name: folder / f"{kind}_{series.name}_{language}.svg" for series in plan.series}
    return {
        name: Path(os.path.relpath(file, start)).as_posix()
        for name, file in files.items()
        if file.is_file()
    }


if __name__ == "__main__":
    sys.exit(run(main))
