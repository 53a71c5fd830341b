rule plan:
    # As everything that takes seconds and measures nothing, it runs where snakemake runs, not in the queue of a cluster.
    input:
        image=IMAGE_INPUT,
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        interference=f"{RESULTS}/profile/{{job}}/interference.json",
        schemes=SETTINGS.schemes,
        contention=contention_of,
    output:
        plan=f"{RESULTS}/plans/{{job}}/{{scheme}}.json",
        prediction=f"{RESULTS}/plans/{{job}}/{{scheme}}.prediction.json",
    log:
        f"{RESULTS}/logs/plan/{{job}}/{{scheme}}.log",
    localrule: True
    threads: 1
    params:
        ranks=lambda wildcards: JOBS[wildcards.job].ranks,
        steps=lambda wildcards: words(taken(Steps, JOBS[wildcards.job])),
        several=lambda wildcards, input: (
            [f"--contention={input.contention}"] if input.contention else []
        ),
        nodes=lambda wildcards: nodes_of(JOBS[wildcards.job]),
        code=code("experiments.predict"),
    shell:
        "python -m gradsync plan --workload {input.workload:q} --allreduce {input.points:q}"
        " {params.several:q} {params.nodes:q} --interference {input.interference:q} --schemes {input.schemes:q}"
        " --schedule {wildcards.scheme:q} --ranks {params.ranks:q} {params.steps:q} --output {output.plan:q} --prediction {output.prediction:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"
