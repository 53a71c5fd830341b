if SETTINGS.cluster_profile:

    rule cluster_profile:
        # The cluster at hand, measured. Every rank runs this very command: links inside a node and between
        # nodes are measured in one allocation.
        input:
            image=IMAGE_INPUT,
        output:
            file=CLUSTER_FILE,
            layers=directory(f"config/clusters/{SETTINGS.cluster_profile.name}"),
        log:
            f"{RESULTS}/logs/cluster.log",
        priority: BEFORE_TABLES
        container:
            RANKS_IMAGE
        threads: cores_a_rank()
        resources:
            mpi=mpi(SETTINGS.cluster_profile.ranks),
            tasks=SETTINGS.cluster_profile.ranks,
            nodes=nodes(SETTINGS.cluster_profile.ranks),
            slurm_extra=sbatch(SETTINGS.cluster_profile.ranks),
        params:
            start=start(SETTINGS.cluster_profile.ranks),
            name=SETTINGS.cluster_profile.name,
            models=SETTINGS.cluster_profile.models,
            iterations=SETTINGS.cluster_profile.iterations,
            device=SETTINGS.device,
            # an interrupted measurement goes on from its parts, as long as the code that made them is the same
            parts=f"{RESULTS}/profile/cluster/{code('experiments.cluster')}",
            # under srun the ranks are there already
            ranks=(
                []
                if CLUSTER and SETTINGS.cluster_profile.ranks > 1
                else [f"--ranks={SETTINGS.cluster_profile.ranks}"]
            ),
        shell:
            ": >{log:q}; {params.start}python -m gradsync cluster measure {params.name:q} {params.ranks:q} --device {params.device:q}"
            " --models {params.models:q} --iterations {params.iterations:q} --parts {params.parts:q} --output {output.file:q}"
            " 2>&1 >>{log:q} | tee -a {log:q}; exit ${{PIPESTATUS[0]}}"
