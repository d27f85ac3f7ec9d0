"""From cells to tables. Cheap, and run again whenever the code that makes a table changes."""

ANALYSIS = [CAMPAIGN, LOCK, "twoturn/cells.py", "twoturn/plan.py"]


rule cells:
    input:
        ANALYSIS,
        "scripts/cells.py",
        cells=[c for s in PLAN.series for n in s.round_numbers() for c in s.cells(n)],
    output:
        f"{RESULTS}/cells.parquet",
    log:
        f"logs/{RESULTS}/cells.log",
    message:
        "Join all cells into one table"
    shell:
        "{PYTHON:q} scripts/cells.py --campaign {CAMPAIGN:q} {output:q} 2> {log:q}"
