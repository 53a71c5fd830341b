rule benchmark:
    # Not part of `all`: timed alone, against its targets.
    input:
        expand(
            f"{RESULTS}/benchmarks/{{what}}.json",
            what=["planning", "training", "collectives", "workflow"],
        ),
    localrule: True


rule benchmark_one:
    input:
        image=IMAGE_INPUT,
        peers=SETTINGS.peers,
    output:
        f"{RESULTS}/benchmarks/{{what}}.json",
    log:
        f"{RESULTS}/logs/benchmark/{{what}}.log",
    wildcard_constraints:
        what="planning|training|collectives|workflow",
    threads: cores_a_rank()
    resources:
        tasks=lambda wildcards: 4 if wildcards.what == "collectives" else 2,
        nodes=1,
        slurm_extra=CLUSTER.sbatch_extra if CLUSTER else "",
    params:
        config=CONFIG,
        code=lambda wildcards: code(
            *PLANNING,
            f"measure/{wildcards.what}_speed.py",
            *(RUNNING if wildcards.what in ("training", "collectives") else ()),
            *(
                ("measure/collective_scaling.py",)
                if wildcards.what == "collectives"
                else ()
            ),
        ),
    shell:
        "python -m gradsync benchmark {wildcards.what} --config {params.config} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
