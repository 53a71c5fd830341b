rule emulate:
    # One launch on an emulated testbed: measured, planned, run. If this machine can't, the result has the reason.
    input:
        replayed=lambda wildcards: replayed(EMULATED[wildcards.launch]),
        schemes=SETTINGS.schemes,
        peers=SETTINGS.peers,
    output:
        f"{RESULTS}/runs/emulated/{{launch}}/status.json",
    log:
        f"{RESULTS}/logs/emulate/{{launch}}.log",
    priority: BEFORE_TABLES
    localrule: True  # hosts are namespaces of the machine at hand
    container:
        None
    threads: cores_a_rank()  # a measurement has the machine to itself
    params:
        config=CONFIG,
        launch=lambda wildcards: EMULATED[wildcards.launch].model_dump(),
        code=lambda wildcards: code(
            "experiments.emulate",
            f"papers.{EMULATED[wildcards.launch].paper}.emulation",
        ),
    run:
        shell(
            ": >{log:q}; python -m gradsync emulate {wildcards.launch:q} --config {params.config:q}"
            " 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"
        )
