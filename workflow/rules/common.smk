"""What several rule files share."""


def modules(*names):
    """Library modules as inputs, so that an edit makes their tables again and measures nothing."""
    return [str(path) for name in names for path in sorted(Path("twoturn").glob(name))]


def braced(text):
    """Text that Snakemake formats back to itself."""
    return text.replace("{", "{{").replace("}", "}}")


# Plan and lock are inputs of all that is told: a newer plan looks for other cells.
PLANNED = [PLAN_FILE, LOCK, *modules("campaign.py", "config.py", "plan.py")]
# What a claim and its sentence depend on.
CLAIMS = [
    *(f"workflow/{ledger}.yaml" for ledger in ("claims", "published", "sources")),
    *modules("claims.py", "claim_kinds.py", "contrasts.py", "stats/*.py", "earlier.py"),
    *modules("ledger.py", "published.py", "sources.py", "weights.py"),
]
