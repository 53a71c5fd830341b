rule profile_job:
    # Layer and all-reduce times of a launch, from runs other than the ones that they predict.
    output:
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
    log:
        f"{RESULTS}/logs/profile/{{job}}.log",
    threads: workflow.cores or 1  # a measurement has the machine to itself
    resources:
        tasks=lambda wildcards: JOBS[wildcards.job].ranks,
        nodes=1,
    params:
        training=lambda wildcards: JOBS[wildcards.job],
        code=code(*MEASURING),
    shell:
        "{{ python -m gradsync measure layers --model {params.training.model} --ranks {resources.tasks}"
        " --batch {params.training.batch} --output {output.workload}"
        " && python -m gradsync measure allreduce --ranks {resources.tasks}"
        " --workload {output.workload} --output {output.points}; }}"
        " >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule profile_model:
    # Layer times of a model on one rank, to be scaled to published totals.
    output:
        f"{RESULTS}/profile/{{model}}/workload.json",
    log:
        f"{RESULTS}/logs/profile/{{model}}.log",
    threads: workflow.cores or 1
    resources:
        tasks=1,
        nodes=1,
    params:
        profile=lambda wildcards: SETTINGS.profiles[wildcards.model],
        code=code(*MEASURING),
    shell:
        "python -m gradsync measure layers --model {wildcards.model} --batch {params.profile.batch}"
        " --iterations {params.profile.iterations} --output {output} >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
