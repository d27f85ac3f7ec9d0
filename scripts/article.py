"""Write the article of a campaign in one language."""

import argparse
import os
import sys
from pathlib import Path

from twoturn import article, campaign, cells, files, weights
from twoturn.errors import run
from twoturn.plan import Series


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--language", required=True)
    parser.add_argument("--cells", required=True, type=Path)
    parser.add_argument("--contrasts", required=True, type=Path)
    parser.add_argument("--claims", required=True, type=Path)
    parser.add_argument("--scores", required=True, type=Path, help="table of quality")
    parser.add_argument("--forced", type=Path, help="table of checkpoints on the same text")
    parser.add_argument("--figures", required=True, type=Path, help="folder of the pictures")
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    loaded = campaign.load(wanted.campaign, Path.cwd())
    picture = wanted.figures / f"quality_{wanted.language}.svg"
    scored = article.Scored(
        cells.load(wanted.scores),
        tuple(cells.load(wanted.forced).to_pylist()) if wanted.forced else (),
        weights.kept(loaded.root / series.directory for series in loaded.plan.series),
        link(picture, wanted.output.parent) if picture.is_file() else None,
    )
    data = article.gather(
        loaded,
        cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas(),
        cells.load(wanted.contrasts),
        cells.load(wanted.claims),
        {
            series.name: pictures(series, wanted.figures, wanted.language, wanted.output.parent)
            for series in loaded.plan.series
        },
        scored,
    )
    text = article.render(wanted.language, data)
    files.write_text(wanted.output, text)


def pictures(series: Series, folder: Path, language: str, start: Path) -> dict[str, str]:
    """Kind → link to the picture, relative to the article; only pictures that are there."""
    files = {kind: folder / f"{kind}_{series.name}_{language}.svg" for kind in series.pictures}
    return {kind: link(file, start) for kind, file in files.items() if file.is_file()}


def link(file: Path, start: Path) -> str:
    return Path(os.path.relpath(file, start)).as_posix()


if __name__ == "__main__":
    sys.exit(run(main))
