"""Compare the answers of every arm of every quality series with its reference's."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, cells, quality
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("cells", type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    series = campaign.load(wanted.campaign, Path.cwd()).plan.series
    rows = cells.load(wanted.cells).drop_columns(["chunk_times_s"]).to_pandas()
    cells.write(quality.from_cells(rows, series), wanted.output)


if __name__ == "__main__":
    sys.exit(run(main))
