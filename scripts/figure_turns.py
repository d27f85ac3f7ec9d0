"""Draw the second turn of one series, once per language, and write the data as CSV."""

import sys
from pathlib import Path

from twoturn import campaign, cells, figures, turns
from twoturn.errors import run


def main() -> None:
    wanted = figures.arguments(__doc__, "cells")
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    rows = cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas()
    data = turns.turn_data(rows, series)
    figures.write(turns.draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
