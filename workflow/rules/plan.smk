rule plan:
    # Like all that takes seconds and measures nothing: where snakemake runs, not in the queue of a cluster.
    input:
        image=IMAGE_INPUT,
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        interference=f"{RESULTS}/profile/{{job}}/interference.json",
        schemes=SETTINGS.schemes,
        contention=at_once,
    output:
        plan=f"{RESULTS}/plans/{{job}}/{{scheme}}.json",
        prediction=f"{RESULTS}/plans/{{job}}/{{scheme}}.prediction.json",
    log:
        f"{RESULTS}/logs/plan/{{job}}/{{scheme}}.log",
    localrule: True
    threads: 1
    params:
        training=lambda wildcards: flags(
            JOBS[wildcards.job],
            *("ranks", "lr", "momentum", "accumulate", "clip_norm"),
            *("precision", "statistics"),
        ),
        several=lambda wildcards, input: (
            f"--contention {input.contention}" if input.contention else ""
        ),
        nodes=f"--ranks-a-node {RANKS_A_NODE}" if RANKS_A_NODE else "",
        code=code(*PLANNING),
    shell:
        "python -m gradsync plan --workload {input.workload} --allreduce {input.points}"
        " {params.several} {params.nodes} --interference {input.interference} --schemes {input.schemes}"
        " --schedule {wildcards.scheme} {params.training} --output {output.plan} --prediction {output.prediction}"
        " >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
