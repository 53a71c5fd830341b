"""Benchmarks: how fast planning, training, collectives, the workflow and emulated links are, held against targets."""
