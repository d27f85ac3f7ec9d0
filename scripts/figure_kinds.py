"""Draw the accept lengths of one series by kind of prompt, once per language, and write the CSV."""

import functools
import sys
from pathlib import Path

from twoturn import by_kind, campaign, cells, figures, kind_dots
from twoturn.errors import run


def main() -> None:
    wanted = figures.arguments(__doc__, "cells")
    series = campaign.load(wanted.campaign, Path.cwd()).one(wanted.series)
    rows = cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas()
    data = by_kind.acceptance(rows[rows["series"] == series.name], series)
    draw = functools.partial(kind_dots.draw, published=by_kind.published_range())
    figures.write(draw, data, series, wanted.table, wanted.pictures)


if __name__ == "__main__":
    sys.exit(run(main))
