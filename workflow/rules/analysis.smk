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


rule claims:
    input:
        PLANNED,
        CLAIMS,
        "scripts/claims.py",
        campaign=CAMPAIGN,
        contrasts=f"{RESULTS}/contrasts.parquet",
    output:
        f"{RESULTS}/claims.parquet",
    log:
        f"logs/{RESULTS}/claims.log",
    message:
        "Turn verdicts into claims"
    shell:
        "python scripts/claims.py --campaign {input.campaign:q} {input.contrasts:q} {output:q} 2> {log:q}"
