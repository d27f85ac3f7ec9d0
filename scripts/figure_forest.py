"""Draw the ratios of one series with their intervals, once per language, and write them as CSV."""

import sys
from pathlib import Path

from twoturn import campaign, cells, figures, forest
from twoturn.errors import run


def main() -> None:
    wanted = figures.arguments(__doc__, "contrasts")
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    data = forest.forest_data(cells.load(wanted.contrasts), series)
    figures.write(forest.draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
