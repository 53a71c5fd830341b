"""Measure what plans are made from, one thing per file: its options, its launch, and what each rank of it does."""
