"""Files of other programs: profiles of PyTorch and Chakra traces, read into workloads, and plans written as Chakra.

`recording.py` is what all readers give: operators, annotations, collectives and gradients of one rank on one clock.
`passes.py` finds the iterations in it, `ranks.py` puts several ranks on one clock, `summary.py` makes the workload.
"""
