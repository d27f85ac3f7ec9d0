"""Compare every arm of every series with its reference."""

import argparse
import sys
from pathlib import Path

import pyarrow.parquet as pq

from twoturn import campaign, contrasts
from twoturn.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("cells", type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    try:
        plan = campaign.load(wanted.campaign, Path.cwd()).plan
        cells = pq.read_table(wanted.cells).to_pandas()
        pq.write_table(contrasts.from_cells(cells, plan.series), wanted.output)
    except UserError as error:
        print(f"twoturn: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
