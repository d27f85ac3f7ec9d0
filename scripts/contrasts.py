"""Compare every arm of every series with its reference, as planned or as it was measured before."""

import argparse
import sys
from pathlib import Path

import pyarrow as pa

from twoturn import campaign, cells, contrasts, earlier
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("cells", type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    root = Path.cwd()
    plan = campaign.load(wanted.campaign, root).plan
    tables = [contrasts.from_cells(cells.load(wanted.cells).to_pandas(), plan.series)]
    for old in earlier.of_plan(plan, root):
        tables.append(contrasts.from_cells(cells.join(old.files()).to_pandas(), [old]))
    cells.write(pa.concat_tables(tables), wanted.output)


if __name__ == "__main__":
    sys.exit(run(main))
