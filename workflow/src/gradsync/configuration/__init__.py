"""What a run is told: the configuration of a workflow, its schemes, its variants of stock DDP."""
