"""Top-k sparsification on public clouds, 2020.

Shaohuai Shi et al.: "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters".
"""
