"""Make everything that measuring a campaign needs from the network, and measure nothing."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, measure
from twoturn.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    wanted = parser.parse_args()
    try:
        loaded = campaign.load(wanted.campaign, Path.cwd())
        measure.preflight(loaded, loaded.plan.series, print)
    except UserError as error:
        print(f"twoturn: {error}", file=sys.stderr)
        return 1
    print("Everything is here.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
