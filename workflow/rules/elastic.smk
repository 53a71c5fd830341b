# Launches of methods that have masters, workers or a centre: one command trains by all plans of an entry of `elastic`, a
# launch each, since blocks that took turns would make asynchronous workers' values fresh. An entry with a `testbed` has
# its ranks on emulated hosts of the machine at hand.


rule plan_elastic:
    # Planned from counted operations: what such a method sends does not depend on times.
    input:
        image=IMAGE_INPUT,
        workload=f"{RESULTS}/counted/{{elastic}}/workload.json",
        schemes=SETTINGS.schemes,
    output:
        f"{RESULTS}/plans/elastic/{{elastic}}/{{scheme}}.json",
    log:
        f"{RESULTS}/logs/plan/elastic/{{elastic}}/{{scheme}}.log",
    localrule: True
    threads: 1
    params:
        ranks=lambda wildcards: SCHEMES[wildcards.scheme].ranks(
            ELASTIC[wildcards.elastic].workers
        ),
        steps=lambda wildcards: ELASTIC[wildcards.elastic].steps(
            SCHEMES[wildcards.scheme].open_options
        ),
        parts=lambda wildcards: ELASTIC[wildcards.elastic].parts(
            SCHEMES[wildcards.scheme]
        ),
        code=code("experiments.predict"),
    shell:
        "python -m gradsync plan --unpredicted --workload {input.workload:q} --allreduce alpha=0,bandwidth=1e9"
        " --schemes {input.schemes:q} --schedule {wildcards.scheme:q} --ranks {params.ranks:q} {params.steps:q} {params.parts:q}"
        " --output {output:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule train_elastic:
    # An interrupted run goes on after the methods that are done, and from the checkpoint of the one that is not.
    input:
        image=IMAGE_INPUT,
        plans=lambda wildcards: expand(
            f"{RESULTS}/plans/elastic/{wildcards.elastic}/{{scheme}}.json",
            scheme=ELASTIC[wildcards.elastic].methods,
        ),
    output:
        f"{RESULTS}/runs/elastic/{{elastic}}/schemes.json",
    log:
        f"{RESULTS}/logs/elastic/{{elastic}}.log",
    wildcard_constraints:
        elastic=named(ELASTIC.keys() - ELASTIC_EMULATED.keys()),
    priority: BEFORE_TABLES
    container:
        RANKS_IMAGE
    threads: cores_a_rank()  # a measurement has the machine to itself
    resources:
        mpi=lambda wildcards: mpi(elastic_ranks(wildcards)),
        tasks=lambda wildcards: elastic_ranks(wildcards),
        nodes=lambda wildcards: nodes(elastic_ranks(wildcards)),
        slurm_extra=lambda wildcards: sbatch(elastic_ranks(wildcards)),
    params:
        launch=lambda wildcards: LAUNCH,  # holds braces
        training=lambda wildcards: words(
            ELASTIC[wildcards.elastic].options(SETTINGS.device)
        ),
        plans=lambda wildcards, input: [f"--plan={plan}" for plan in input.plans],
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        code=code("experiments.elastic"),
    shell:
        ": >{log:q}; {params.launch}python -m gradsync elastic {params.training:q} {params.plans:q} --output {params.folder:q}"
        " 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"


rule emulate_elastic:
    # The same between hosts that are emulated. Interrupted, it goes on as above.
    input:
        plans=lambda wildcards: expand(
            f"{RESULTS}/plans/elastic/{wildcards.elastic}/{{scheme}}.json",
            scheme=ELASTIC[wildcards.elastic].methods,
        ),
    output:
        f"{RESULTS}/runs/elastic/{{elastic}}/schemes.json",
    log:
        f"{RESULTS}/logs/elastic/{{elastic}}.log",
    wildcard_constraints:
        elastic=named(ELASTIC_EMULATED),
    priority: BEFORE_TABLES
    localrule: True  # hosts are namespaces of the machine at hand
    container:
        None
    threads: cores_a_rank()  # a measurement has the machine to itself
    params:
        training=lambda wildcards: words(
            ELASTIC[wildcards.elastic].options(SETTINGS.device)
        ),
        hosts=lambda wildcards: words(ELASTIC[wildcards.elastic].hosts),
        plans=lambda wildcards, input: [f"--plan={plan}" for plan in input.plans],
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        code=code("experiments.elastic"),
    run:
        shell(
            ": >{log:q}; python -m gradsync elastic {params.training:q} {params.hosts:q} {params.plans:q}"
            " --output {params.folder:q} 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"
        )
