rule benchmark:
    # Not part of `all`: timed alone, against its targets.
    output:
        f"{RESULTS}/benchmarks/planning.json",
    log:
        f"{RESULTS}/logs/benchmark.log",
    threads: workflow.cores or 1
    resources:
        tasks=1,
        nodes=1,
    params:
        config=CONFIG,
        code=code(*PLANNING, "measure/planning_speed.py"),
    shell:
        "python -m gradsync benchmark --config {params.config} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
