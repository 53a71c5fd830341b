rule external:
    # A check on demand of the numbers carried over from third-party logs against these logs. No job depends on it.
    input:
        image=IMAGE_INPUT,
        carried=[str(carried.LAYERS), str(carried.ALLREDUCES)],
    output:
        f"{RESULTS}/external/status.json",
    log:
        f"{RESULTS}/logs/external.log",
    localrule: True
    threads: 1
    resources:
        tasks=1,
        nodes=1,
    params:
        config=CONFIG,
        folder=lambda wildcards: SETTINGS.external_data
        or os.environ.get("GRADSYNC_EXTERNAL_DATA", ""),
        code=code("measure.third_party"),
    shell:
        "python -m gradsync external --config {params.config:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"
