"""The command `twoturn`: what can be asked without measuring anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from twoturn import campaign, config, doctor, documents, lock, matrix, reasons, verify
from twoturn.campaign import Loaded
from twoturn.errors import UserError
from twoturn.plan import round_name


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="twoturn", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="print series, rounds and order, and what is missing")
    plan.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    look = commands.add_parser(
        "doctor", help="say what is here, what is missing, and how to get it"
    )
    look.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    check = commands.add_parser("verify", help="check what is measured against the plan")
    check.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    quoted = commands.add_parser("sources", help="say what quoted documents advise for each arm")
    quoted.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    quoted.add_argument("--check", type=Path, metavar="FOLDER", help="look for quotes in copies")
    make_lock = commands.add_parser("lock", help="write the lock of this machine as it is now")
    make_lock.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    make_lock.add_argument("--name", help="name of the lock; default: the campaign's machine")
    rounds = commands.add_parser("rounds", help="say how many rounds an effect needs")
    rounds.add_argument("campaign", nargs="?", default="config.yaml", help="campaign file")
    rounds.add_argument("--effect", required=True, help="difference to be seen, such as 5%%")
    _judge_arguments(commands.add_parser("judge", help="judge measurements made elsewhere"))
    wanted = parser.parse_args(argv)
    try:
        if wanted.command == "plan":
            lines = plan_lines(campaign.load(wanted.campaign, Path.cwd()))
        elif wanted.command == "doctor":
            lines = doctor.lines(wanted.campaign, Path.cwd())
        elif wanted.command == "verify":
            lines = verify.lines(campaign.load(wanted.campaign, Path.cwd()))
        elif wanted.command == "sources":
            lines = documents.lines(campaign.load(wanted.campaign, Path.cwd()), wanted.check)
        elif wanted.command == "lock":
            lines = iter([write_lock(wanted.campaign, wanted.name, Path.cwd())])
        elif wanted.command == "rounds":
            lines = rounds_lines(wanted.campaign, wanted.effect, Path.cwd())
        else:
            lines = judge_lines(wanted)
        for line in lines:
            print(line)
    except UserError as error:
        print(f"twoturn: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
    return 0


def plan_lines(loaded: Loaded) -> Iterator[str]:
    """Every cell of the campaign, round by round, in measuring order."""
    if unknown := lock.unknown(loaded.lock):
        name = loaded.campaign.machine
        yield (
            f"not locked yet: {', '.join(unknown)}; `make lock MACHINE={name} "
            f"CAMPAIGN={loaded.file}` on the machine finds them, and every fingerprint is then new"
        )
    for series in loaded.plan.series:
        missing = set(reasons.missing_rounds(series, loaded.root))
        yield f"{series.name}  {series.fingerprint}  ({reasons.why(series, loaded.root)})"
        for arm in series.arms:
            asked = matrix.block(arm)
            block = f", block size {asked}" if asked else ""
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


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (found and name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value.strip()


def _assignments(text: str) -> dict[str, str]:
    found = [_assignment(part) for part in text.split(",")]
    if len(dict(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} names one thing twice")
    return dict(found)


def _judge_arguments(judge: argparse.ArgumentParser) -> None:
    add = judge.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help=".csv, .tsv, .parquet, .json, .jsonl")
    add("--reference", metavar="ARM", help="what the others are compared with")
    add("--arm", action="append", default=[], help="compare this one; default: all others")
    add("--null-arm", metavar="ARM", help="second copy of the reference; default: REFERENCE-null")
    add("--metric", help="what the values are, where the file does not say it")
    add("--columns", type=_assignments, default={}, metavar="ROLE=NAME,…", help="names of columns")
    add(
        "--pairs", type=_assignments, default={}, metavar="ARM=NAME,…", help="a column for each arm"
    )
    add("--where", type=_assignment, action="append", default=[], metavar="NAME=VALUE")
    add("--in-order", action="store_true", help="rows stand in the order of measuring")
    add("--estimator", choices=("pair-fit", "hodges-lehmann", "paired-median"), default="pair-fit")
    add("--lang", choices=("en", "pl"), default="en")
    add("--json", action="store_true", help="for a program")


def judge_lines(wanted: argparse.Namespace) -> Iterator[str]:
    """What the runs in the files can carry, and the verdicts."""
    from twoturn import judge  # statistics take a second to load, which `plan` need not wait for
    from twoturn.judging.tables import Wanted

    how = Wanted(wanted.columns, wanted.pairs, tuple(wanted.where), wanted.metric, wanted.in_order)
    judgements = [
        judge.judge(
            study,
            arms=wanted.arm,
            reference=wanted.reference,
            null_arm=wanted.null_arm,
            estimator=wanted.estimator,
        )
        for study in judge.read(wanted.files, how, wanted.reference)
    ]
    if wanted.json:
        yield judge.as_json(judgements, wanted.lang)
        return
    for number, judgement in enumerate(judgements):
        yield from [""] * (number > 0)
        yield from judge.lines(judgement, wanted.lang)


def rounds_lines(file: str, effect: str, root: Path) -> Iterator[str]:
    """How many rounds the effect needs, by the noise of the campaign's own results."""
    from twoturn import rounds  # likewise

    yield from rounds.lines(campaign.load(file, root), rounds.effect_of(effect))


if __name__ == "__main__":
    sys.exit(main())
