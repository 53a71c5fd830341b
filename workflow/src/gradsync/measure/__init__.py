"""Profilers: what the machine at hand does, measured."""
