"""Draw the ratios of one series with their intervals, once per language, and write them as CSV."""

import argparse
import sys
from pathlib import Path

import pyarrow.parquet as pq

from twoturn import campaign, forest
from twoturn.errors import UserError, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--series", required=True)
    parser.add_argument("--contrasts", required=True, type=Path)
    parser.add_argument("--table", required=True, type=Path, help="the data as CSV")
    parser.add_argument("pictures", nargs="+", type=Path, help="…_LANGUAGE.svg")
    wanted = parser.parse_args()
    plan = campaign.load(wanted.campaign, Path.cwd()).plan
    if wanted.series not in [series.name for series in plan.series]:
        raise UserError(f"no series {wanted.series}", file=wanted.campaign)
    series = plan.one(wanted.series)
    data = forest.forest_data(pq.read_table(wanted.contrasts), series)
    drawn = {
        file: forest.draw(data, series, file.stem.rpartition("_")[2]) for file in wanted.pictures
    }
    data.to_csv(wanted.table, index=False, lineterminator="\n")
    for file, picture in drawn.items():
        file.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(main))
