rule profile_job:
    # Layer and message times of a launch and their interference, from runs other than those that are predicted.
    input:
        image=IMAGE_INPUT,
    output:
        workload=f"{RESULTS}/profile/{{job}}/workload.json",
        points=f"{RESULTS}/profile/{{job}}/allreduce.csv",
        interference=f"{RESULTS}/profile/{{job}}/interference.json",
    log:
        f"{RESULTS}/logs/profile/{{job}}.log",
    priority: BEFORE_TABLES
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
        compute=lambda wildcards: words(taken(Compute, JOBS[wildcards.job])),
        device=SETTINGS.device,
        iterations=lambda wildcards: JOBS[wildcards.job].profile_iterations,
        collectives=lambda wildcards: collectives_of(JOBS[wildcards.job]),
        kinds=lambda wildcards: kinds_of(JOBS[wildcards.job]),
        folder=lambda wildcards, output: str(Path(output.workload).parent),
        code=code("experiments.profile.launch"),
    shell:
        "{params.launch}python -m gradsync measure launch {params.compute:q} --device {params.device:q} --ranks {resources.tasks}"
        " --iterations {params.iterations:q} --collective {params.collectives:q} {params.kinds:q} --output {params.folder:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule profile_model:
    # Layer times of a model on one rank, which papers scale to published totals.
    input:
        image=IMAGE_INPUT,
    output:
        f"{RESULTS}/profile/{{model}}/workload.json",
    log:
        f"{RESULTS}/logs/profile/{{model}}.log",
    priority: BEFORE_TABLES
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
        code=code("experiments.profile.layers"),
    shell:
        "python -m gradsync measure layers --model {wildcards.model:q} {params.profile:q} --device {params.device:q}"
        " --output {output:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule profile_network:
    # All-reduce times by size and number of ranks.
    input:
        image=IMAGE_INPUT,
    output:
        NETWORK,
    log:
        f"{RESULTS}/logs/profile/network.log",
    priority: BEFORE_TABLES
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
        ranks=SETTINGS.network.ranks,
        code=code("experiments.profile.allreduce"),
    shell:
        ": >{log:q}; {params.launch}python -m gradsync measure allreduce --device {params.device:q} --ranks {params.ranks:q} {params.sizes:q}"
        " --output {output:q} 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"


rule profile_contention:
    # All-reduce times of contending messages.
    input:
        image=IMAGE_INPUT,
    output:
        CONTENTION,
    log:
        f"{RESULTS}/logs/profile/contention.log",
    priority: BEFORE_TABLES
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
        code=code("experiments.profile.contention"),
    shell:
        ": >{log:q}; {params.launch}python -m gradsync measure contention --device {params.device:q} --ranks {resources.tasks}"
        " {params.sizes:q} --output {output:q} 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"


rule profile_selection:
    # What compressors take to select from vectors of many lengths.
    input:
        image=IMAGE_INPUT,
    output:
        SELECTION,
    log:
        f"{RESULTS}/logs/profile/selection.log",
    priority: BEFORE_TABLES
    threads: cores_a_rank()
    resources:
        tasks=1,
        nodes=1,
        slurm_extra=sbatch(1),
    params:
        device=SETTINGS.device,
        elements=SETTINGS.selection.elements,
        rounds=flags(SETTINGS.selection, "rounds", "iterations"),
        code=code("experiments.profile.topk"),
    shell:
        "python -m gradsync measure topk --device {params.device:q} --elements {params.elements:q} --density 0.001"
        " {params.rounds:q} --output {output:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule profile_loading:
    # What a training waits for photographs, without the data cache and from each level of it. They are runs.
    input:
        image=IMAGE_INPUT,
    output:
        LOADING,
    log:
        f"{RESULTS}/logs/loading/{SETTINGS.loading.job}.log",
    priority: BEFORE_TABLES
    threads: cores_a_rank()
    resources:
        tasks=1,
        nodes=1,
        slurm_extra=sbatch(1),
    params:
        device=SETTINGS.device,
        loading=flags(
            SETTINGS.loading,
            "model",
            "size",
            "batch",
            "data_folder",
            "photographs",
            "blocks",
            "iterations",
        ),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        code=code("experiments.profile.loading"),
    shell:
        "python -m gradsync measure loading {params.loading:q} --device {params.device:q} --output {params.folder:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule profile_ratios:
    # What the ratios of LARS and LAMB take on every rank, and dealt to ranks and gathered.
    input:
        image=IMAGE_INPUT,
        workload=f"{RESULTS}/counted/{{dealt}}/workload.json",
    output:
        f"{RESULTS}/profile/ratios/{{dealt}}-{{ranks}}.json",
    log:
        f"{RESULTS}/logs/profile/ratios-{{dealt}}-{{ranks}}.log",
    wildcard_constraints:
        dealt="[a-z0-9_]+",
        ranks="[0-9]+",
    priority: BEFORE_TABLES
    container:
        RANKS_IMAGE
    threads: cores_a_rank()
    resources:
        mpi=lambda wildcards: mpi(int(wildcards.ranks)),
        tasks=lambda wildcards: int(wildcards.ranks),
        nodes=lambda wildcards: nodes(int(wildcards.ranks)),
        slurm_extra=lambda wildcards: sbatch(int(wildcards.ranks)),
    params:
        launch=lambda wildcards: LAUNCH,  # holds braces
        device=SETTINGS.device,
        rounds=lambda wildcards: flags(SETTINGS.ratios, "rounds", "iterations"),
        code=code("experiments.profile.ratios"),
    shell:
        "{params.launch}python -m gradsync measure ratios --workload {input.workload:q} --device {params.device:q} --ranks {resources.tasks}"
        " {params.rounds:q} --output {output:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"
