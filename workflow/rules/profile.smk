rule profile_job:
    # Layer and all-reduce times of a launch and how they slow each other down, from runs other than those predicted.
    output:
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        interference=f"{RESULTS}/profile/{{job}}/interference.json",
    log:
        f"{RESULTS}/logs/profile/{{job}}.log",
    threads: workflow.cores or 1  # a measurement has the machine to itself
    resources:
        tasks=lambda wildcards: JOBS[wildcards.job].ranks,
        nodes=1,
    params:
        model=lambda wildcards: flags(JOBS[wildcards.job], "model", "size", "batch"),
        iterations=lambda wildcards: JOBS[wildcards.job].profile_iterations,
        code=code(*MEASURING),
    shell:
        "{{ python -m gradsync measure layers {params.model} --ranks {resources.tasks} --iterations {params.iterations}"
        " --output {output.workload}"
        " && python -m gradsync measure allreduce --ranks {resources.tasks}"
        " --workload {output.workload} --output {output.points}"
        " && python -m gradsync measure interference {params.model} --ranks {resources.tasks}"
        " --workload {output.workload} --output {output.interference}; }}"
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
        profile=lambda wildcards: flags(
            SETTINGS.profiles[wildcards.model], "batch", "size", "iterations"
        ),
        code=code(*MEASURING),
    shell:
        "python -m gradsync measure layers --model {wildcards.model} {params.profile}"
        " --output {output} >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule profile_network:
    # All-reduce times by size and number of ranks.
    output:
        NETWORK,
    log:
        f"{RESULTS}/logs/profile/network.log",
    threads: workflow.cores or 1
    resources:
        tasks=max(SETTINGS.network.ranks),
        nodes=1,
    params:
        sizes=flags(SETTINGS.network, "smallest", "largest"),
        ranks=" ".join(map(str, SETTINGS.network.ranks)),
        code=code(*MEASURING),
    shell:
        "python -m gradsync measure allreduce --ranks {params.ranks} {params.sizes}"
        " --output {output} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
