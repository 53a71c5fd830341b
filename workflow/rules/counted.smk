# Launches that are not profiled (profile_iterations: 0): planned from operations counted on the model, at the rates of
# `estimate` in the configuration. They have no predictions.
COUNTED = [job for job, training in JOBS.items() if not training.profile_iterations]
MODELS = sorted(
    set().union(
        *(declaration.counted_models(PAPERS[paper], PLACES[paper]) for paper in PAPERS)
    )
)


rule count:
    # Workloads of these launches, and of one sample of each model that a paper scales to what its testbed computes, in
    # one process: its start takes longer than the counting.
    input:
        image=IMAGE_INPUT,
    output:
        expand(
            f"{RESULTS}/counted/{{name}}/workload.json",
            name=[*COUNTED, *ELASTIC, *MODELS],
        ),
    log:
        f"{RESULTS}/logs/counted.log",
    localrule: True
    threads: 1
    params:
        config=CONFIG,
        names=[*COUNTED, *ELASTIC, *MODELS],
        launches=[words(taken(Compute, JOBS[job])) for job in COUNTED]
        + [words(taken(Compute, launch)) for launch in ELASTIC.values()],
        teraflops=SETTINGS.estimate.teraflops,
        code=code("measure.operations"),
    shell:
        "python -m gradsync count {params.names:q} --config {params.config:q} >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule plan_counted:
    input:
        image=IMAGE_INPUT,
        workload=f"{RESULTS}/counted/{{job}}/workload.json",
        schemes=SETTINGS.schemes,
    output:
        plan=f"{RESULTS}/plans/{{job}}/{{scheme}}.json",
    log:
        f"{RESULTS}/logs/plan/{{job}}/{{scheme}}.log",
    wildcard_constraints:
        job="|".join(COUNTED) or "none",
    localrule: True
    threads: 1
    params:
        ranks=lambda wildcards: JOBS[wildcards.job].ranks,
        steps=lambda wildcards: words(taken(Steps, JOBS[wildcards.job])),
        links=f"alpha=0,bandwidth={SETTINGS.estimate.gigabits * 1e9 / 8:g}",
        nodes=lambda wildcards: nodes_of(JOBS[wildcards.job]),
        code=code("experiments.predict"),
    shell:
        "python -m gradsync plan --workload {input.workload:q} --allreduce {params.links:q} {params.nodes:q}"
        " --schemes {input.schemes:q} --schedule {wildcards.scheme:q} --ranks {params.ranks:q} {params.steps:q} --unpredicted --output {output.plan:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


ruleorder: plan_counted > plan
