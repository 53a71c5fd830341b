rule profile_job:
    # Layer and all-reduce times of a launch and how they slow each other down, from runs other than those predicted.
    input:
        image=IMAGE_INPUT,
    output:
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        interference=f"{RESULTS}/profile/{{job}}/interference.json",
    log:
        f"{RESULTS}/logs/profile/{{job}}.log",
    container:
        RANKS_IMAGE
    threads: cores_a_rank()  # a measurement has the machine to itself
    resources:
        mpi=lambda wildcards: mpi(JOBS[wildcards.job].ranks),
        tasks=lambda wildcards: JOBS[wildcards.job].ranks,
        nodes=lambda wildcards: nodes(JOBS[wildcards.job].ranks),
        slurm_extra=lambda wildcards: sbatch(JOBS[wildcards.job].ranks),
    params:
        launch=lambda wildcards: LAUNCH,  # holds braces
        model=lambda wildcards: flags(JOBS[wildcards.job], "model", "size", "batch"),
        device=SETTINGS.device,
        iterations=lambda wildcards: JOBS[wildcards.job].profile_iterations,
        collectives=lambda wildcards: collectives_of(JOBS[wildcards.job]),
        code=lambda wildcards: code(
            *MEASURING,
            *(COLLECTIVES if "@" in collectives_of(JOBS[wildcards.job]) else ()),
        ),
    shell:
        "{{ {params.launch}python -m gradsync measure layers {params.model} --device {params.device}"
        " --ranks {resources.tasks} --iterations {params.iterations} --output {output.workload}"
        " && python -m gradsync measure allreduce --device {params.device} --ranks {resources.tasks}"
        " --collective {params.collectives} --workload {output.workload} --output {output.points}"
        " && python -m gradsync measure interference {params.model} --device {params.device} --ranks {resources.tasks}"
        " --workload {output.workload} --output {output.interference}; }}"
        " >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule profile_model:
    # Layer times of a model on one rank, to be scaled to published totals.
    input:
        image=IMAGE_INPUT,
    output:
        f"{RESULTS}/profile/{{model}}/workload.json",
    log:
        f"{RESULTS}/logs/profile/{{model}}.log",
    threads: cores_a_rank()
    resources:
        tasks=1,
        nodes=1,
        slurm_extra=sbatch(1),
    params:
        device=SETTINGS.device,
        profile=lambda wildcards: flags(
            SETTINGS.profiles[wildcards.model], "batch", "size", "iterations"
        ),
        code=code(*MEASURING),
    shell:
        "python -m gradsync measure layers --model {wildcards.model} {params.profile} --device {params.device}"
        " --output {output} >{log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule profile_network:
    # All-reduce times by size and number of ranks.
    input:
        image=IMAGE_INPUT,
    output:
        NETWORK,
    log:
        f"{RESULTS}/logs/profile/network.log",
    container:
        RANKS_IMAGE
    threads: cores_a_rank()
    resources:
        mpi=mpi(max(SETTINGS.network.ranks)),
        tasks=max(SETTINGS.network.ranks),
        nodes=nodes(max(SETTINGS.network.ranks)),
        slurm_extra=sbatch(max(SETTINGS.network.ranks)),
    params:
        launch=lambda wildcards: LAUNCH,  # holds braces
        device=SETTINGS.device,
        sizes=flags(SETTINGS.network, "smallest", "largest"),
        ranks=" ".join(map(str, SETTINGS.network.ranks)),
        code=code(*MEASURING),
    shell:
        "{params.launch}python -m gradsync measure allreduce --device {params.device} --ranks {params.ranks} {params.sizes}"
        " --output {output} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"


rule profile_contention:
    # All-reduce times of several messages at once.
    input:
        image=IMAGE_INPUT,
    output:
        CONTENTION,
    log:
        f"{RESULTS}/logs/profile/contention.log",
    container:
        RANKS_IMAGE
    threads: cores_a_rank()
    resources:
        mpi=mpi(SETTINGS.contention.ranks),
        tasks=SETTINGS.contention.ranks,
        nodes=nodes(SETTINGS.contention.ranks),
        slurm_extra=sbatch(SETTINGS.contention.ranks),
    params:
        launch=lambda wildcards: LAUNCH,  # holds braces
        device=SETTINGS.device,
        sizes=flags(SETTINGS.contention, "lanes", "smallest", "largest"),
        code=code(*MEASURING, "costs/measured_contention.py"),
    shell:
        "{params.launch}python -m gradsync measure contention --device {params.device} --ranks {resources.tasks}"
        " {params.sizes} --output {output} 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
