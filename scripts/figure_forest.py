"""Draw the ratios of one series with their intervals, once per language, and write them as CSV."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, cells, figures, forest
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--series", required=True)
    parser.add_argument("--contrasts", required=True, type=Path)
    parser.add_argument("--table", required=True, type=Path, help="the data as CSV")
    parser.add_argument("pictures", nargs="+", type=Path, help="…_LANGUAGE.svg")
    wanted = parser.parse_args()
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    data = forest.forest_data(cells.load(wanted.contrasts), series)
    figures.write(forest.draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
