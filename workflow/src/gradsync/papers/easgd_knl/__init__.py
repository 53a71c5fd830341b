"""EASGD on GPU and KNL clusters, SC17.

Yang You, Aydin Buluc, James Demmel: "Scaling Deep Learning on GPU and Knights Landing clusters".
"""
