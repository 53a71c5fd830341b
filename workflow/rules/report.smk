# Tables that come from the same files are computed in one process, and figures drawn in another: most of the time of
# either is its start. Any of them is a target of its own.

for paper, declared in PAPERS.items():
    for batch in declaration.table_batches(paper, declared, PLACES[paper]):

        rule:
            name:
                f"table_{batch.name}"
            input:
                IMAGE_INPUT,
                batch.inputs,
                SETTINGS.schemes,
                SETTINGS.peers,
            output:
                expand(
                    f"{RESULTS}/tables/{paper}/{{id}}.{{ending}}",
                    id=batch.names,
                    ending=("csv", "md", "tex"),
                ),
            log:
                f"{RESULTS}/logs/table/{batch.name}.log",
            localrule: True
            threads: 1
            params:
                config=CONFIG,
                paper=paper,
                ids=batch.names,
                settings=SETTINGS.papers[paper].model_dump(),
                code=lambda wildcards, paper=paper: code(
                    f"papers.{paper}.declaration", "papers.tables"
                ),
            message:
                screen_text(f"tables of {paper}: {', '.join(batch.names)}")
            shell:
                "python -m gradsync table {params.paper:q} {params.ids:q} --config {params.config:q}"
                " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"

    for batch in declaration.figure_batches(paper, declared, PLACES[paper]):

        rule:
            name:
                f"figure_{batch.name}"
            input:
                IMAGE_INPUT,
                batch.inputs,
                schemes=SETTINGS.schemes,
                peers=SETTINGS.peers,
                style="reports/gradsync.mplstyle",
            output:
                expand(
                    f"{RESULTS}/figures/{paper}/{{id}}.{{ending}}",
                    id=batch.names,
                    ending=("svg", "pdf", "png", "csv"),
                ),
            log:
                f"{RESULTS}/logs/figure/{batch.name}.log",
            localrule: True
            threads: 1
            params:
                config=CONFIG,
                paper=paper,
                ids=batch.names,
                code=lambda wildcards, paper=paper: code(
                    f"papers.{paper}.drawing", "papers.figures"
                ),
            message:
                screen_text(f"figures of {paper}: {', '.join(batch.names)}")
            shell:
                "python -m gradsync figure {params.paper:q} {params.ids:q} --config {params.config:q}"
                " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule claims:
    input:
        IMAGE_INPUT,
        [table_file(*table) for table in all_tables()],
        [paper.published for paper in SETTINGS.papers.values()],
        # other configurations: the page names what they would decide
        sorted({str(file) for file in Path("config").glob("*.yaml")} - {CONFIG}),
    output:
        f"{RESULTS}/claims.json",
        f"{RESULTS}/claims.md",
    log:
        f"{RESULTS}/logs/claims.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        code=code("claims", *coverage.modules(PAPERS)),
    shell:
        "python -m gradsync claims --config {params.config:q} 2>&1 | tee {log:q}; exit ${{PIPESTATUS[0]}}"


rule site:
    # Pages of what is there; they link to the results, so that those come first.
    input:
        IMAGE_INPUT,
        rules.claims.output,
        f"{RESULTS}/tracked.json",
        [figure_file(*figure) for figure in all_figures()],
        sorted(str(file) for file in Path("reports/site").iterdir()),
        [str(file) for file in sorted(Path("config/papers").glob("*/published.yaml"))],
        [
            str(file)
            for file in sorted(Path("config/published-results").rglob("*"))
            if file.is_file()
        ],
        SETTINGS.schemes,
        SETTINGS.peers,
    output:
        expand(
            f"{RESULTS}/site/{{page}}",
            page=[
                "index.html",
                *(f"{paper}.html" for paper in PAPERS),
                *("ledger.html", "coverage.html", "runs.html"),
                *("style.css", "tables.js"),
            ],
        ),
    log:
        f"{RESULTS}/logs/site.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        code=code("site.write", *(f"papers.{paper}.declaration" for paper in PAPERS)),
    shell:
        "python -m gradsync site --config {params.config:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"
