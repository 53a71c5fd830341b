rule plan:
    input:
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        schemes=SETTINGS.schemes,
    output:
        plan=f"{RESULTS}/plans/{{job}}/{{scheme}}.json",
        prediction=f"{RESULTS}/plans/{{job}}/{{scheme}}.prediction.json",
    log:
        f"{RESULTS}/logs/plan/{{job}}/{{scheme}}.log",
    threads: 1
    resources:
        tasks=1,
        nodes=1,
    params:
        training=lambda wildcards: JOBS[wildcards.job],
        code=code(*PLANNING),
    shell:
        "python -m gradsync plan --workload {input.workload} --allreduce {input.points} --schemes {input.schemes}"
        " --schedule {wildcards.scheme} --ranks {params.training.ranks} --lr {params.training.lr}"
        " --momentum {params.training.momentum} --output {output.plan} --prediction {output.prediction}"
        " >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
