"""Turn the verdicts of all contrasts into claims."""

import argparse
import sys
from pathlib import Path

from twoturn import campaign, cells, claims, earlier, published
from twoturn.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--scores", required=True, type=Path, help="table of quality")
    parser.add_argument("contrasts", type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    root = Path.cwd()
    loaded = campaign.load(wanted.campaign, root)
    plan = loaded.plan
    on = {old.fingerprint: old.measured_on() for old in earlier.of_plan(plan, root)}
    contrasts, scores = cells.load(wanted.contrasts), cells.load(wanted.scores)
    printed = published.times_as_fast(plan.series, loaded.weights)
    told = claims.from_contrasts(
        contrasts, plan.series, published=printed, measured_on=on, scores=scores
    )
    cells.write(told, wanted.output)


if __name__ == "__main__":
    sys.exit(run(main))
