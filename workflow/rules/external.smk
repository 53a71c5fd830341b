rule external:
    # Third-party logs: from a folder, else one attempt to fetch them. What depends on them says when they are missing.
    # On the submitting host: compute nodes often have no network.
    input:
        image=IMAGE_INPUT,
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
