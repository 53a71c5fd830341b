"""MG-WFBP: Shi, Chu and Li, "Efficient Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019."""
