"""From cells to tables. Cheap, and run again whenever the code that makes a table changes."""


rule cells:
    input:
        PLANNED,
        modules("cells.py"),
        "scripts/cells.py",
        campaign=CAMPAIGN,
        cells=[
            cell
            for s in PLAN.series
            for number in s.round_numbers()
            for cell in s.cells(number)
            if not ONLY_TELL or Path(cell).is_file()
        ],
    output:
        f"{RESULTS}/cells.parquet",
    log:
        f"logs/{RESULTS}/cells.log",
    message:
        "Join all cells into one table"
    shell:
        "python scripts/cells.py --campaign {input.campaign:q} {output:q} 2> {log:q}"


rule contrasts:
    input:
        PLANNED,
        modules("contrasts.py", "stats/*.py", "earlier.py", "cells.py"),
        modules("cache_check.py", "prefix.py"),
        "scripts/contrasts.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        f"{RESULTS}/contrasts.parquet",
    log:
        f"logs/{RESULTS}/contrasts.log",
    message:
        "Compare every arm with its reference"
    shell:
        "python scripts/contrasts.py --campaign {input.campaign:q} {input.cells:q} {output:q} 2> {log:q}"


rule quality:
    input:
        PLANNED,
        modules("quality.py", "contrasts.py", "stats/*.py"),
        "scripts/quality.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        f"{RESULTS}/quality.parquet",
    log:
        f"logs/{RESULTS}/quality.log",
    message:
        "Compare the answers of every arm with its reference's, task by task"
    shell:
        "python scripts/quality.py --campaign {input.campaign:q} {input.cells:q} {output:q} 2> {log:q}"


# As a cell: its path holds the fingerprint of all that it depends on, and it has no input files.
if FORCED:

    rule forced:
        output:
            FORCED,
        log:
            f"logs/{FORCED}.log",
        threads: 1024  # it must not run beside a measurement
        params:
            campaign=CAMPAIGN,
            text=forced.TEXT,
        message:
            "Let the checkpoints read the same text"
        shell:
            "python scripts/forced.py --campaign {params.campaign:q} --text {params.text:q} "
            "{output:q} 2> {log:q}"


rule claims:
    input:
        PLANNED,
        CLAIMS,
        "scripts/claims.py",
        campaign=CAMPAIGN,
        contrasts=f"{RESULTS}/contrasts.parquet",
        scores=f"{RESULTS}/quality.parquet",
    output:
        f"{RESULTS}/claims.parquet",
    log:
        f"logs/{RESULTS}/claims.log",
    message:
        "Turn verdicts into claims"
    shell:
        "python scripts/claims.py --campaign {input.campaign:q} --scores {input.scores:q} "
        "{input.contrasts:q} {output:q} 2> {log:q}"
