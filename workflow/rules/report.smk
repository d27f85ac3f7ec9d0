"""From tables to the figures, the article and its page, one per language."""

FIGURES = [
    *CLAIMS,
    *modules(
        "figures.py",
        "forest.py",
        "turns.py",
        "blocks.py",
        "block_curve.py",
        "by_kind.py",
        "texts.py",
    ),
    *modules(
        "kind_dots.py",
        "prefill_curve.py",
        "quality_figure.py",
        "wording.py",
        "matrix.py",
        "i18n.py",
        "numbers.py",
    ),
]
PICTURES = [
    f"{REPORTS}/figures/{kind}_{s.name}_{{language}}.svg"
    for s in PLAN.series
    for kind in s.pictures
]
if not all(s.workload.timed for s in PLAN.series):
    PICTURES.append(f"{REPORTS}/figures/quality_{{language}}.svg")


rule slots_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_slots.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/slots_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/slots.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/slots_{{series}}.csv",
    log:
        f"logs/{REPORTS}/slots_{{series}}.log",
    message:
        "Draw the slots of {wildcards.series} over time"
    shell:
        "python scripts/figure_slots.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--cells {input.cells:q} --table {output.table:q} {output.pictures:q} 2> {log:q}"


rule forest_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_forest.py",
        campaign=CAMPAIGN,
        contrasts=f"{RESULTS}/contrasts.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/forest_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/forest.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/forest_{{series}}.csv",
    log:
        f"logs/{REPORTS}/forest_{{series}}.log",
    message:
        "Draw the ratios of {wildcards.series} with their intervals"
    shell:
        "python scripts/figure_forest.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--contrasts {input.contrasts:q} --table {output.table:q} {output.pictures:q} 2> {log:q}"


rule turns_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_turns.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/turns_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/turns.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/turns_{{series}}.csv",
    log:
        f"logs/{REPORTS}/turns_{{series}}.log",
    message:
        "Draw the second turn of {wildcards.series}"
    shell:
        "python scripts/figure_turns.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--cells {input.cells:q} --table {output.table:q} {output.pictures:q} 2> {log:q}"


rule blocks_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_blocks.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
        contrasts=f"{RESULTS}/contrasts.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/blocks_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/blocks.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/blocks_{{series}}.csv",
    log:
        f"logs/{REPORTS}/blocks_{{series}}.log",
    message:
        "Draw the block sizes of {wildcards.series}"
    shell:
        "python scripts/figure_blocks.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--cells {input.cells:q} --contrasts {input.contrasts:q} --table {output.table:q} "
        "{output.pictures:q} 2> {log:q}"


rule kinds_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_kinds.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/kinds_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/kinds.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/kinds_{{series}}.csv",
    log:
        f"logs/{REPORTS}/kinds_{{series}}.log",
    message:
        "Draw the accept lengths of {wildcards.series} by kind of prompt"
    shell:
        "python scripts/figure_kinds.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--cells {input.cells:q} --table {output.table:q} {output.pictures:q} 2> {log:q}"


rule prefill_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_prefill.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/prefill_{{series}}_{language}.svg",
                category="figures",
                caption="../captions/prefill.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/prefill_{{series}}.csv",
    log:
        f"logs/{REPORTS}/prefill_{{series}}.log",
    message:
        "Draw the prefill speed of {wildcards.series} by the length of the prompt"
    shell:
        "python scripts/figure_prefill.py --campaign {input.campaign:q} --series {wildcards.series:q} "
        "--cells {input.cells:q} --table {output.table:q} {output.pictures:q} 2> {log:q}"


rule quality_figure:
    input:
        PLANNED,
        FIGURES,
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/figure_quality.py",
        campaign=CAMPAIGN,
        contrasts=f"{RESULTS}/contrasts.parquet",
        scores=f"{RESULTS}/quality.parquet",
    output:
        pictures=[
            report(
                f"{REPORTS}/figures/quality_{language}.svg",
                category="figures",
                caption="../captions/quality.rst",
            )
            for language in PLAN.languages
        ],
        table=f"{REPORTS}/figures/quality.csv",
    log:
        f"logs/{REPORTS}/quality_figure.log",
    message:
        "Draw speed against quality"
    shell:
        "python scripts/figure_quality.py --campaign {input.campaign:q} "
        "--contrasts {input.contrasts:q} --scores {input.scores:q} --table {output.table:q} "
        "{output.pictures:q} 2> {log:q}"


rule article:
    input:
        PLANNED,
        CLAIMS,
        modules(
            "article/*.py",
            "wording.py",
            "i18n.py",
            "numbers.py",
            "blocks.py",
            "quality_figure.py",
        ),
        modules("by_kind.py", "cache_check.py", "prefix.py", "privacy.py", "texts.py"),
        sorted(str(path) for path in Path("workflow/templates").glob("*.md.j2")),
        sorted(str(path) for path in Path("workflow/locale").rglob("*.po")),
        "scripts/article.py",
        campaign=CAMPAIGN,
        cells=f"{RESULTS}/cells.parquet",
        contrasts=f"{RESULTS}/contrasts.parquet",
        claims=f"{RESULTS}/claims.parquet",
        scores=f"{RESULTS}/quality.parquet",
        forced=FORCED or [],
        figures=PICTURES,
    output:
        f"{REPORTS}/article_{{language}}.md",
    log:
        f"logs/{REPORTS}/article_{{language}}.log",
    params:
        figures=lambda wildcards, input: str(Path(input.figures[0]).parent),
        forced=f"--forced {FORCED}" if FORCED else "",
    message:
        "Write the article ({wildcards.language})"
    shell:
        "python scripts/article.py --campaign {input.campaign:q} --language {wildcards.language} "
        "--cells {input.cells:q} --contrasts {input.contrasts:q} --claims {input.claims:q} "
        "--scores {input.scores:q} {params.forced} --figures {params.figures:q} {output:q} 2> {log:q}"


rule page:
    input:
        modules("page.py", "i18n.py", "numbers.py"),
        "workflow/templates/page.html.j2",
        "workflow/templates/page.css",
        "scripts/page.py",
        article=f"{REPORTS}/article_{{language}}.md",
        figures=PICTURES,
    output:
        report(
            f"{REPORTS}/article_{{language}}.html",
            category="articles",
            caption="../captions/article.rst",
        ),
    log:
        f"logs/{REPORTS}/page_{{language}}.log",
    message:
        "Make the page of the article ({wildcards.language})"
    shell:
        "python scripts/page.py --language {wildcards.language} {input.article:q} {output:q} 2> {log:q}"
