"""MG-WFBP, INFOCOM 2019.

Shaohuai Shi, Xiaowen Chu and Bo Li: "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms".
"""
