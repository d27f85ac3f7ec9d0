"""The command `twoturn`: what can be asked of a campaign without measuring anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from twoturn import campaign, config, lock, reasons
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.plan import round_name


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="twoturn", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="print series, rounds and order, and what is missing")
    plan.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    make_lock = commands.add_parser("lock", help="write the lock of this machine as it is now")
    make_lock.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    make_lock.add_argument("--name", help="name of the lock; default: the campaign's machine")
    wanted = parser.parse_args(argv)
    try:
        if wanted.command == "plan":
            for line in plan_lines(campaign.load(wanted.campaign, Path.cwd())):
                print(line)
        else:
            print(write_lock(wanted.campaign, wanted.name, Path.cwd()))
    except UserError as error:
        print(f"twoturn: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
    return 0


def plan_lines(loaded: Loaded) -> Iterator[str]:
    """Every cell of the campaign, round by round, in measuring order."""
    for series in loaded.plan.series:
        missing = set(reasons.missing_rounds(series, loaded.root))
        yield f"{series.name}  {series.fingerprint}  ({reasons.why(series, loaded.root)})"
        for arm in series.arms:
            block = f", block size {arm.block_size}" if arm.block_size else ""
            null = ", null arm" if arm.null else ""
            yield f"  {arm.name}: {arm.checkpoint} on {arm.engine} {arm.version}{block}{null}"
        for number in series.round_numbers():
            state = "to measure" if number in missing else "there"
            yield f"  {round_name(number)}  {' '.join(series.order(number))}  {state}"
        yield f"  {round_name(series.rounds)}  {series.reference}  (control)"


def write_lock(file: str, name: str | None, root: Path) -> str:
    """Look at this machine and write its lock. Says where."""
    entry = config.load(file, root)
    target = name or entry.machine
    seen = lock.observe(entry, root)
    try:  # what other campaigns on this machine have locked stays
        known = lock.read(target, root)
    except UserError:
        known = {}
    for part in ("servers", "checkpoints"):
        seen[part] = {**known.get(part, {}), **seen[part]}
    lock.write(target, seen, root)
    return lock.path(target)


if __name__ == "__main__":
    sys.exit(main())
