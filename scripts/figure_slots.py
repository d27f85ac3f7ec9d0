"""Draw the slots of one series over time, once per language, and write the data as CSV."""

import sys
from pathlib import Path

from twoturn import campaign, cells, figures
from twoturn.errors import run


def main() -> None:
    wanted = figures.arguments(__doc__, "cells")
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    rows = cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas()
    data = figures.slot_data(rows, series)
    figures.write(figures.draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
