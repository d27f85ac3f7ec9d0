"""Draw speed against quality, once per language, and write the data as CSV."""

import argparse
import sys
from functools import partial
from pathlib import Path

from twoturn import campaign, cells, figures, quality_figure
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--contrasts", required=True, type=Path)
    parser.add_argument("--scores", required=True, type=Path)
    parser.add_argument("--table", required=True, type=Path, help="the data as CSV")
    parser.add_argument("pictures", nargs="+", type=Path, help="…_LANGUAGE.svg")
    wanted = parser.parse_args()
    series = campaign.load(wanted.campaign, Path.cwd()).plan.series
    contrasts, scores = cells.load(wanted.contrasts), cells.load(wanted.scores)
    data = quality_figure.data(contrasts, scores, series)
    figures.write_told(partial(quality_figure.draw, data), data, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
