"""BML, NeurIPS 2018.

Songtao Wang et al.: "BML: A High-performance, Low-cost Gradient Synchronization Algorithm for DML Training".
"""
