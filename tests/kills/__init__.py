"""Runs that are killed at random and started again: `python tests/kills --kills 200 --seed 0`."""
