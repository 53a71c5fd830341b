rule train:
    # One launch runs all schemes in turn, so that they can be compared. Ranks take their rendezvous from the environment.
    input:
        plans=lambda wildcards: expand(
            f"{RESULTS}/plans/{wildcards.job}/{{scheme}}.json",
            scheme=chosen(JOBS[wildcards.job]),
        ),
    output:
        f"{RESULTS}/runs/train/{{job}}/schemes.json",
    log:
        f"{RESULTS}/logs/train/{{job}}.log",
    threads: workflow.cores or 1  # a measurement has the machine to itself
    resources:
        tasks=lambda wildcards: JOBS[wildcards.job].ranks,
        nodes=1,
    params:
        training=lambda wildcards: JOBS[wildcards.job],
        plans=lambda wildcards, input: " ".join(
            f"--plan {plan}" for plan in input.plans
        ),
        folder=lambda wildcards, output: Path(output[0]).parent,
        seed=SETTINGS.seed,
        code=code(*RUNNING),
    shell:
        "python -m gradsync train --model {params.training.model} --data {params.training.data}"
        " --ranks {resources.tasks} --batch {params.training.batch} --epochs {params.training.epochs}"
        " --block {params.training.block} --seed {params.seed} {params.plans} --output {params.folder}"
        " 2>&1 | tee {log}; exit ${{PIPESTATUS[0]}}"
