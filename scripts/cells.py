"""Join all cells of a campaign into one table: rounds, warm-ups and controls."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, cells, reasons
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    root = Path.cwd()
    plan = campaign.load(wanted.campaign, root).plan
    for series in plan.series:
        if (root / series.directory).is_dir():
            reasons.write_spec(series, root)
    cells.write(cells.join(cells.of_plan(plan.series, root)), wanted.output)


if __name__ == "__main__":
    sys.exit(run(main))
