"""Draw the sweeps of block sizes of one series, once per language, and write them as CSV."""

import sys
from pathlib import Path

from twoturn import block_curve, blocks, campaign, cells, contrasts, figures
from twoturn.errors import run


def main() -> None:
    wanted = figures.arguments(__doc__, "cells", "contrasts")
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    rows = cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas()
    compared = contrasts.of_series(cells.load(wanted.contrasts).to_pylist(), series)
    data = blocks.curve(rows[rows["series"] == series.name], compared, series)
    figures.write(block_curve.draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
