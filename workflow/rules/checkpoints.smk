"""Checkpoints that are made here, for whoever wants them beforehand.

Measuring jobs have no input files, so they cannot depend on these rules: they make what is missing
themselves, by the same call. What lies here already is kept unless its recipe changed.
"""

from twoturn import checkpoints

for made in sorted(
    name
    for name, entry in LOADED.campaign.checkpoints.items()
    if entry.make is not None
):

    rule:
        name:
            f"make_{made}"
        output:
            f"{checkpoints.made_folder(made, Path())}/config.json",
            f"{checkpoints.made_folder(made, Path())}/made.json",
        log:
            f"logs/checkpoints/{made}.log",
        params:
            campaign=CAMPAIGN,
            name=made,
        message:
            f"Make the checkpoint {made}"
        shell:
            "python scripts/make_checkpoint.py --campaign {params.campaign:q} "
            "--name {params.name:q} 2> {log:q}"
