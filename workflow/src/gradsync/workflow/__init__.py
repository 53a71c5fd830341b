"""What the Snakemake workflow asks of the package: its screen, its words, code behind a stage, killed runs."""
