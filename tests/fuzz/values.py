"""Odd values: those that shells, YAML and numbers have trouble with, and those that hypothesis draws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hostile import HOSTILE

WHOLE = [-1, 0, 1, 2, 3, 64, 1 << 16, 1 << 24, 1 << 31, 1 << 36, 1 << 40, 1 << 64, 10**30]
REAL = [-0.5, 0.5, 1e-3, 5e-324, 1e-300, 1e9, 1e12, 1e300, 1e308, float("inf"), float("-inf"), float("nan")]
KINDS = [None, True, False, [], {}, [[]], {"a": {}}, "x" * 5000, "é" * 300, "/dev/zero", "/dev/full", "nobody/here"]
# values of options: topologies, costs, requests and launches too large for anything
ARGUMENTS = [
    *("bcube:256,3", "fat_tree:256", "switch:16777216", "torus2d:4096,4096", "dense_gpu:2097152,8", "numa:99999999"),
    *(
        "a=1,b=nan",
        "a=inf,b=1",
        "a=-1,b=-1",
        "a=1e308,b=1e308",
        "alpha=1e308,bandwidth=5e-324",
        "alpha=0,bandwidth=inf",
    ),
    *("lanes=999999999", "bucket=1e308", "lanes=", "=", "a=1", "resnet50:size=999999999:batch=9", "bml@bcube:2,24"),
    *("\ud800", "9" * 5000, "plan.json", "config", "config.yaml", "1e5", "65536", "1024", "16"),
]
values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([*WHOLE, *REAL, *KINDS]),
    st.sampled_from(HOSTILE),
    st.integers(0, 20),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
words: st.SearchStrategy[str] = st.one_of(
    st.sampled_from([str(each) for each in (*WHOLE, *REAL, *KINDS)]),
    st.sampled_from(ARGUMENTS),
    st.sampled_from(HOSTILE),
    st.integers(0, 20).map(str),
    st.integers().map(str),
    st.floats(allow_nan=False).map(repr),
    st.text(max_size=20),
)
