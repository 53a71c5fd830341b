for paper_file in SETTINGS.papers:

    include: f"papers/{Path(paper_file).stem}.smk"


rule table:
    input:
        IMAGE_INPUT,
        lambda wildcards: PAPERS[wildcards.paper].inputs,
        lambda wildcards: PAPERS[wildcards.paper].tables.get(wildcards.id, []),
        SETTINGS.schemes,
    output:
        multiext(f"{RESULTS}/tables/{{paper}}/{{id}}", ".csv", ".md", ".tex"),
    log:
        f"{RESULTS}/logs/table/{{paper}}/{{id}}.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        settings=lambda wildcards: PAPERS[wildcards.paper].settings,
        code=lambda wildcards: code(f"papers.{wildcards.paper}", "render.tables"),
    shell:
        "python -m gradsync table {wildcards.paper:q} {wildcards.id:q} --config {params.config:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule figure:
    input:
        IMAGE_INPUT,
        lambda wildcards: [
            table_file(wildcards.paper, id)
            for id in PAPERS[wildcards.paper].figures.get(wildcards.id, [])
        ],
        schemes=SETTINGS.schemes,
        style="reports/gradsync.mplstyle",
    output:
        multiext(f"{RESULTS}/figures/{{paper}}/{{id}}", ".svg", ".pdf", ".png", ".csv"),
    log:
        f"{RESULTS}/logs/figure/{{paper}}/{{id}}.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        code=lambda wildcards: code(f"render.{wildcards.paper}", "render.figures"),
    shell:
        "python -m gradsync figure {wildcards.paper:q} {wildcards.id:q} --config {params.config:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule claims:
    input:
        IMAGE_INPUT,
        [table_file(*table) for table in all_tables()],
        SETTINGS.papers,
    output:
        f"{RESULTS}/claims.json",
        f"{RESULTS}/claims.md",
    log:
        f"{RESULTS}/logs/claims.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        code=code("claims"),
    shell:
        "python -m gradsync claims --config {params.config:q} 2>&1 | tee {log:q}; exit ${{PIPESTATUS[0]}}"
