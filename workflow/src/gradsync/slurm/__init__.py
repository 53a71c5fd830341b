"""Slurm: a local one to try and to test, what ended a job, checks before submission, ranks of a job step."""
