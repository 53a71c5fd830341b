rule benchmark:
    # Benchmarks are not part of `all`: they are timed alone, against their targets.
    input:
        lambda wildcards: expand(
            f"{RESULTS}/benchmarks/{{what}}.json", what=benchmarked()
        ),
    localrule: True


rule benchmark_one:
    # The output of a job that misses a target is removed: its log keeps the rows.
    input:
        image=IMAGE_INPUT,
        peers=SETTINGS.peers,
    output:
        f"{RESULTS}/benchmarks/{{what}}.json",
    log:
        f"{RESULTS}/logs/benchmark/{{what}}.log",
    wildcard_constraints:
        what="planning|training|attach|collectives|loading|selection|workflow|masters",
    threads: cores_a_rank()
    resources:
        tasks=lambda wildcards: {"collectives": 4, "masters": 5}.get(wildcards.what, 2),
        nodes=1,
        slurm_extra=CLUSTER.sbatch_extra if CLUSTER else "",
    params:
        config=CONFIG,
        code=lambda wildcards: code(f"benchmarks.{wildcards.what}_speed"),
    shell:
        "python -m gradsync benchmark {wildcards.what:q} --json --config {params.config:q} 2>&1 | tee {log:q}; exit ${{PIPESTATUS[0]}}"


rule benchmark_testbed:
    # On hosts of a testbed. `testbed` reads the results of emulated launches that are there, and runs none.
    output:
        f"{RESULTS}/benchmarks/{{what}}.json",
    log:
        f"{RESULTS}/logs/benchmark/{{what}}.log",
    wildcard_constraints:
        what="testbed|slow_links",
    localrule: True  # hosts are namespaces of the machine at hand
    container:
        None
    threads: cores_a_rank()
    params:
        config=CONFIG,
        emulated=lambda wildcards: [
            (str(file), file.stat().st_mtime)
            for file in sorted(Path(RESULTS).glob("runs/emulated/*/*/result.json"))
            if wildcards.what == "testbed"
        ],
        code=lambda wildcards: code(f"benchmarks.{wildcards.what}_speed"),
    run:
        shell(
            "python -m gradsync benchmark {wildcards.what:q} --json --config {params.config:q} 2>&1 | tee {log:q}; exit ${{PIPESTATUS[0]}}"
        )
