"""What several rule files share."""

from twoturn import forced


def modules(*names):
    """Library modules as inputs, so that an edit makes their tables again and measures nothing."""
    return [str(path) for name in names for path in sorted(Path("twoturn").glob(name))]


def braced(text):
    """Text that Snakemake formats back to itself."""
    return text.replace("{", "{{").replace("}", "}}")


# Plan and lock are inputs of all that is told: a newer plan looks for other cells.
PLANNED = [
    PLAN_FILE,
    LOCK,
    *modules("campaign.py", "config.py", "matrix.py", "plan.py"),
]
# What scored checkpoints make of the same text; "" where a campaign scores nothing, or where nothing
# is measured now and it is not there.
FORCED = forced.path(LOADED)
if ONLY_TELL and not Path(FORCED).is_file():
    FORCED = ""
# What a claim and its sentence depend on.
CLAIMS = [
    *(f"workflow/{ledger}.yaml" for ledger in ("claims", "published", "sources")),
    *modules("claims.py", "claim_kinds.py", "contrasts.py", "quality.py", "stats/*.py"),
    *modules("earlier.py", "ledger.py", "published.py", "sources.py", "weights.py"),
]
