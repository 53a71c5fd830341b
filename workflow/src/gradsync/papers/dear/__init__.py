"""DeAR, ICDCS 2023: the claims of its abstract.

Lin Zhang, Shaohuai Shi, Xiaowen Chu, Wei Wang, Bo Li, Chengjian Liu: "DeAR: Accelerating Distributed Deep Learning with
Fine-Grained All-Reduce Pipelining".
"""
