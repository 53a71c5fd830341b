rule table:
    input:
        IMAGE_INPUT,
        lambda wildcards: TABLE_INPUTS.get(wildcards.id, []),
        SETTINGS.schemes,
        SETTINGS.cluster,
    output:
        multiext(f"{RESULTS}/tables/mgwfbp/{{id}}", ".csv", ".md", ".tex"),
    log:
        f"{RESULTS}/logs/table/{{id}}.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        figure9=SETTINGS.figure9,
        code=code(*PLANNING, "papers", "measure/third_party.py", "render/tables.py"),
    shell:
        "python -m gradsync table mgwfbp {wildcards.id} --config {params.config} >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule figure:
    input:
        IMAGE_INPUT,
        lambda wildcards: [
            table_file(id) for id in FIGURE_TABLES.get(wildcards.id, [wildcards.id])
        ],
        schemes=SETTINGS.schemes,
        style="reports/gradsync.mplstyle",
    output:
        multiext(f"{RESULTS}/figures/mgwfbp/{{id}}", ".svg", ".pdf", ".png", ".csv"),
    log:
        f"{RESULTS}/logs/figure/{{id}}.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        code=code(*PLANNING, "papers", "render", "trace.py"),
    shell:
        "python -m gradsync figure mgwfbp {wildcards.id} --config {params.config} >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule claims:
    input:
        IMAGE_INPUT,
        expand(f"{RESULTS}/tables/mgwfbp/{{id}}.csv", id=TABLES),
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
        code=code("claims.py", "expressions.py", "published.py"),
    shell:
        "python -m gradsync claims --config {params.config} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
