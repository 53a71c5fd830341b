"""BML: Wang et al., "BML: A high-performance, low-cost gradient synchronization algorithm", NeurIPS 2018."""
