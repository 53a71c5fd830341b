"""The configuration of a workflow, its schemes, its variants of stock DDP."""
