"""Measures LLM serving configurations on this machine and writes the article about them.

    snakemake --cores 1 reports/article_en.md
    snakemake -n reports/article_en.md         what would be measured, and why
    snakemake --configfile campaigns/x.yaml --cores 1

A campaign (config.yaml) and the lock of a machine (locks/) make a plan; every cell of the plan is a
file; rules only start scripts. Read on in workflow/rules/: checkpoints, measure, analysis, report.
"""

import os
import shlex
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.17")  # functions for priority

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))
# Scripts use this Python and the code of this clone, whatever is installed or activated.
shell.prefix(
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    f"PYTHONPATH={shlex.quote(str(ROOT))}; "
)

from twoturn import campaign, preflight, reasons, session
from twoturn.errors import UserError

if not workflow.configfiles:

    configfile: "config.yaml"


if workflow.config_settings.config:
    sys.exit(
        "twoturn: --config is not read: a campaign is one file, so write it there."
    )
if len(workflow.configfiles) != 1:
    sys.exit("twoturn: one campaign at a time: give exactly one --configfile.")
if Path.cwd() != ROOT:
    sys.exit("twoturn: run snakemake in the folder that holds the Snakefile.")

CAMPAIGN = os.path.relpath(workflow.configfiles[0])
try:
    LOADED = campaign.load(CAMPAIGN, ROOT)
except UserError as error:
    sys.exit(f"twoturn: {error}")
PLAN = LOADED.plan
PLAN_FILE = str(campaign.plan_file(LOADED))
LOCK = f"locks/{PLAN.machine}.json"
RESULTS = f"results/{PLAN.name}" if PLAN.name else "results"
REPORTS = f"reports/{PLAN.name}" if PLAN.name else "reports"
ONLY_TELL = os.environ.get("TWOTURN_TELL") == "1"  # `make tell`: nothing is measured


wildcard_constraints:
    round=r"\d+",
    language="|".join(PLAN.languages),


rule all:
    default_target: True
    input:
        expand(
            f"{REPORTS}/article_{{language}}.{{kind}}",
            language=PLAN.languages,
            kind=["md", "html"],
        ),


include: "workflow/rules/common.smk"
include: "workflow/rules/checkpoints.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/report.smk"


# The machine is ours until this process ends; a killed run gives it back by itself. Telling
# disturbs no measurement, so it waits for none.
onstart:
    global MACHINE
    if ONLY_TELL:
        return
    missing = [s for s in PLAN.series if reasons.missing_rounds(s, ROOT)]
    try:
        _, MACHINE = session.begin()
        preflight.check(LOADED, missing, lambda line: print(line, file=sys.stderr))
    except UserError as error:
        sys.exit(f"twoturn: {error}")


onsuccess:
    for language in PLAN.languages:
        for kind in ("md", "html"):
            if Path(f"{REPORTS}/article_{language}.{kind}").is_file():
                print(
                    f"Article: {REPORTS}/article_{language}.{kind}", file=sys.stderr
                )


onerror:
    print("What is measured stays; run the same command to go on.", file=sys.stderr)
