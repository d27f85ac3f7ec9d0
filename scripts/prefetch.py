"""Make everything that measuring a campaign needs from the network, and measure nothing."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, preflight
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    wanted = parser.parse_args()
    loaded = campaign.load(wanted.campaign, Path.cwd())
    preflight.check(loaded, loaded.plan.series, print)
    print("Everything is here.")


if __name__ == "__main__":
    sys.exit(run(main))
