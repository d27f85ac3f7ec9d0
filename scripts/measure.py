"""Measure one round of one series (the job of workflow/rules/measure.smk)."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from twoturn import bench, campaign, measure, preflight, progress, reasons, session
from twoturn.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", required=True, help="campaign file")
    parser.add_argument("--series", required=True)
    parser.add_argument("--round", required=True, type=int)
    parser.add_argument("--fingerprint", required=True, help="what the workflow planned for")
    parser.add_argument("--log", required=True, type=Path)
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = Path.cwd()
    wanted.log.parent.mkdir(parents=True, exist_ok=True)
    with wanted.log.open("w", encoding="utf-8", buffering=1) as log:
        try:
            say = progress.aloud(
                lambda line: print(line, file=log),
                lambda line: print(f"{wanted.series}: {line}", file=sys.stderr),
            )
            return run(wanted, root, say)
        except UserError as error:
            print(f"twoturn: {error}", file=log)
            print(f"twoturn: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("twoturn: interrupted; this round is measured again next time", file=sys.stderr)
            return 130


def run(wanted: argparse.Namespace, root: Path, say: bench.Say) -> int:
    loaded = campaign.load(wanted.campaign, root)
    series = loaded.one(wanted.series)
    if wanted.round not in reasons.missing_rounds(series, root):
        raise UserError(
            f"round {wanted.round} of {series.name} is there or not planned",
            file=wanted.campaign,
            cure="to measure a round again, remove its folder and those of later rounds",
        )
    if series.fingerprint != wanted.fingerprint:
        raise UserError(
            f"{series.name} is {series.fingerprint} now and was {wanted.fingerprint} when planned",
            file=wanted.campaign,
            cure="something changed during the run; start it again",
        )
    sitting = session.current()
    machine = None
    if sitting is None:  # started by hand, without the workflow
        sitting, machine = session.begin()
        preflight.check(loaded, [series], say)
    else:
        # An interrupt unwinds the servers; a second process must never measure beside the next run.
        session.watch(sitting, lambda: os.kill(os.getpid(), signal.SIGTERM))
    begun = time.monotonic()
    with session.hold_round():
        measure.run_round(loaded, series, wanted.round, sitting, wanted.log.with_suffix(""), say)
    print(progress.line(loaded, series, wanted.round, time.monotonic() - begun), file=sys.stderr)
    if machine is not None:
        machine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
