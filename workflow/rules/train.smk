rule train:
    # One launch runs all schemes and peers in turn, in one allocation, so that they can be compared: separate jobs would
    # land on other nodes. An interrupted run goes on from its checkpoint, which lies in the folder of the output.
    input:
        image=IMAGE_INPUT,
        plans=lambda wildcards: expand(
            f"{RESULTS}/plans/{wildcards.job}/{{scheme}}.json",
            scheme=schemes_of(JOBS[wildcards.job]),
        ),
        peers=SETTINGS.peers,
    output:
        f"{RESULTS}/runs/train/{{job}}/schemes.json",
    log:
        f"{RESULTS}/logs/train/{{job}}.log",
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
        training=lambda wildcards: words(JOBS[wildcards.job].options(SETTINGS.device)),
        plans=lambda wildcards, input: [f"--plan={plan}" for plan in input.plans],
        stock=lambda wildcards: [
            f"--peer={name}" for name in peers_of(JOBS[wildcards.job])
        ],
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        code=code("experiments.train"),
    shell:
        ": >{log:q}; {params.launch}python -m gradsync train {params.training:q} --ranks {resources.tasks} {params.plans:q}"
        " --peers {input.peers:q} {params.stock:q} --output {params.folder:q}"
        " 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"
