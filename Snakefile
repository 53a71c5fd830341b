"""gradsync: every table and figure of the papers, from runs on the machine or cluster at hand.

snakemake --cores 2                                  the quick configuration
snakemake --cores 2 --configfile config/NAME.yaml    another one
"""

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"


# The image of every rule, with `--sdm apptainer`.
container: IMAGE


include: "workflow/rules/containers.smk"
include: "workflow/rules/external.smk"
include: "workflow/rules/profile.smk"
include: "workflow/rules/cluster.smk"
include: "workflow/rules/testbed.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/counted.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/elastic.smk"
include: "workflow/rules/emulate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/track.smk"
include: "workflow/rules/benchmark.smk"


onstart:
    refuse_cluster()


onerror:
    explain_failures(log)


onsuccess:
    if Path(f"{RESULTS}/claims.md").is_file():
        # how many claims there are, and how they were decided
        print(Path(f"{RESULTS}/claims.md").read_text().split("\n\n")[0])
    made = {
        "Verdicts": f"{RESULTS}/claims.md",
        "tables": f"{RESULTS}/tables",
        "figures": f"{RESULTS}/figures",
        "report": f"{RESULTS}/site/index.html",
    }
    there = [
        f"{what}: {path}" for what, path in made.items() if Path(path).exists()
    ]
    if there:
        print("   ".join(there), flush=True)


rule all:
    default_target: True
    input:
        rules.claims.output,
        rules.track.output,
        rules.site.output,
        CLUSTER_FILE,
        # of a launch whose folder was deleted nothing else here is older
        all_runs(),
        [table_file(*table) for table in all_tables()],
        [figure_file(*figure) for figure in all_figures()],
    localrule: True
