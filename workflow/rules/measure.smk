"""Measuring. One job is one round of one series; its cells appear together or not at all.

The fingerprint of everything that the numbers depend on is part of the path, and there are no input
files: a measurement starts because its output is missing, and for no other reason. The order inside
a round is the job's own; between rounds it comes from unique priorities and from taking all cores.
"""

for s in PLAN.series:

    rule:
        name:
            f"measure_{s.name}"
        output:
            [f"{s.directory}/{{round}}/{arm.slug}.parquet" for arm in s.arms],
        log:
            f"logs/measure/{s.directory.removeprefix('results/cells/')}/{{round}}.log",
        wildcard_constraints:
            round="|".join(f"{number:02d}" for number in s.round_numbers()),
        priority: lambda wildcards, s=s: PLAN.priority(s, int(wildcards.round))
        threads: 1024  # scaled down to --cores: nothing else runs while a round is measured
        params:
            campaign=CAMPAIGN,
            series=s.name,
            fingerprint=s.fingerprint,
        message:
            f"Measure round {{wildcards.round}} of {s.name}, because: {braced(reasons.why(s, ROOT))}"
        shell:
            "python scripts/measure.py --campaign {params.campaign:q} --series {params.series:q} "
            "--round {wildcards.round} --fingerprint {params.fingerprint} --log {log:q}"
