# Images that jobs run in with `--sdm apptainer`. They are built on the submitting host: compute nodes often have no
# network. A rule whose jobs run in an image names it as an input, for `container:` alone orders nothing. The rules have
# `run:`, not `shell:`, because they run outside of every image, which lint accepts only for `run:`.


rule image_base:
    # The system below both images, from the mirror of this host's own package manager.
    input:
        "containers/base.def",
    output:
        "containers/base.sif",
    log:
        "containers/base.log",
    localrule: True
    container:
        None
    threads: 1
    resources:
        tasks=1,
        nodes=1,
    run:
        shell("python -m gradsync image base --force --output {output:q} --log {log:q}")


rule image:
    # gradsync with the CPU or the CUDA build of torch, as pinned; its %test has passed.
    input:
        base="containers/base.sif",
        definition="containers/{kind}.def",
        install="containers/install",
        environment="envs/{kind}.txt",
        pinned=lambda wildcards: [
            "envs/common.txt",
            "envs/constraints.txt",
            *(["envs/constraints-cuda.txt"] if wildcards.kind == "cuda" else []),
        ],
    output:
        "containers/{kind}.sif",
    log:
        "containers/{kind}.log",
    wildcard_constraints:
        kind="cpu|cuda",
    localrule: True
    container:
        None
    threads: 2  # packing takes both
    resources:
        tasks=1,
        nodes=1,
    run:
        shell(
            "python -m gradsync image {wildcards.kind:q} --force --base {input.base:q} --output {output:q} --log {log:q}"
        )
