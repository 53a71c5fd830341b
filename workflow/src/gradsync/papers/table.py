"""A table of a paper."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd


class Table(NamedTuple):
    """`frame` is every row (long form, read by claims and figures), `display` what people read, under `caption`."""

    frame: pd.DataFrame
    display: pd.DataFrame
    caption: str
