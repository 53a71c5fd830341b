# Launches that are not profiled (profile_iterations: 0): planned from operations counted on the model, at the rates of
# `estimate` in the configuration. Nothing is predicted of them.
COUNTED = [job for job, training in JOBS.items() if not training.profile_iterations]


rule counted:
    input:
        image=IMAGE_INPUT,
    output:
        workload=counted_file("{job}"),
    log:
        f"{RESULTS}/logs/counted/{{job}}.log",
    localrule: True
    threads: 1
    params:
        model=lambda wildcards: flags(JOBS[wildcards.job], "model", "size", "batch"),
        teraflops=SETTINGS.estimate.teraflops,
        code=code("commands.measuring"),
    shell:
        "python -m gradsync measure operations {params.model:q} --teraflops {params.teraflops:q} --output {output.workload:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule counted_model:
    # Of one sample, at 1e12 operations a second, to be scaled to what a testbed computes.
    input:
        image=IMAGE_INPUT,
    output:
        counted_file("{model}"),
    log:
        f"{RESULTS}/logs/counted/{{model}}.log",
    wildcard_constraints:
        model="[a-z0-9_]+",
    localrule: True
    threads: 1
    params:
        code=code("commands.measuring"),
    shell:
        "python -m gradsync measure operations --model {wildcards.model:q} --batch 1 --teraflops 1 --output {output:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule plan_counted:
    input:
        image=IMAGE_INPUT,
        workload=rules.counted.output.workload,
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
        training=lambda wildcards: flags(
            JOBS[wildcards.job],
            *("ranks", "lr", "momentum", "accumulate", "clip_norm"),
            *("precision", "statistics"),
        ),
        links=f"alpha=0,bandwidth={SETTINGS.estimate.gigabits * 1e9 / 8:g}",
        nodes=[f"--ranks-a-node={RANKS_A_NODE}"] if RANKS_A_NODE else [],
        code=code("commands.planning"),
    shell:
        "python -m gradsync plan --workload {input.workload:q} --allreduce {params.links:q} {params.nodes:q}"
        " --schemes {input.schemes:q} --schedule {wildcards.scheme:q} {params.training:q} --output {output.plan:q}"
        " >{log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


ruleorder: plan_counted > plan
