"""Make one checkpoint of a campaign (the rules of workflow/rules/checkpoints.smk)."""

import argparse
import sys
from pathlib import Path

from twoturn import config, making
from twoturn.errors import UserError, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--name", required=True, help="the checkpoint's name in the campaign")
    wanted = parser.parse_args()
    root = Path.cwd()
    campaign = config.load(wanted.campaign)
    if wanted.name not in campaign.checkpoints or not campaign.checkpoints[wanted.name].make:
        raise UserError(
            f"no checkpoint {wanted.name!r} is made here",
            file=wanted.campaign,
            key="checkpoints",
            cure="give it `make`",
        )
    making.ensure(
        wanted.name, campaign, root, wanted.campaign, lambda line: print(line, file=sys.stderr)
    )


if __name__ == "__main__":
    sys.exit(run(main))
