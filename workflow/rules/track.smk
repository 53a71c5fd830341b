rule track:
    # One process imports all results after all jobs: nothing races for the database, and no timed loop ever logs.
    input:
        IMAGE_INPUT,
        all_runs(),
        [figure_file(*figure) for figure in all_figures()],
    output:
        f"{RESULTS}/tracked.json",
    log:
        f"{RESULTS}/logs/track.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        mlflow=SETTINGS.mlflow.model_dump(),
        code=code("record.tracking"),
    shell:
        "python -m gradsync track --config {params.config:q} --json >{output:q} 2>{log:q} || {{ cat {log:q} >&2; exit 1; }}"
