"""ASC-WFBP, INFOCOM 2021.

Shaohuai Shi, Xiaowen Chu and Bo Li: "Exploiting Simultaneous Communications to Accelerate Data Parallel Distributed
Deep Learning".
"""
