# Whether this machine can hold an emulated network, and what its links measure: `snakemake testbed_check`.


rule testbed_check:
    output:
        f"{RESULTS}/testbed.json",
    log:
        f"{RESULTS}/logs/testbed.log",
    localrule: True
    container:
        None
    threads: 1
    params:
        code=code("testbed.check"),
    run:
        shell(
            "python -m gradsync testbed check --output {output:q} 2>&1 | tee {log:q}; exit ${{PIPESTATUS[0]}}"
        )
