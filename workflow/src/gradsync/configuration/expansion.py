"""Entries of `elastic` that have lists where a launch has one value: a launch for each combination."""

from __future__ import annotations

from itertools import product
from typing import Any

NAMED = ("batch", "lr", "momentum", "rho")  # what goes into a launch's name
SWEPT = ("workers", *NAMED)


def expanded(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The launches of an entry: `batch: [16, 64], lr: [0.1, 0.2]` are four, named like `batch16_lr0.1`.

    `workers` is a part of every launch's name already. What is no list of numbers is refused later, by its key.
    """
    lists = {key: entry[key] for key in SWEPT if isinstance(entry.get(key), list) and entry[key]}
    launches = []
    for values in product(*lists.values()):
        chosen = dict(zip(lists, values, strict=True))
        told = [f"{key}{value}" for key, value in chosen.items() if key in NAMED]
        name = "_".join([*([str(entry["name"])] if entry.get("name") else []), *told])
        launches.append({**entry, **chosen, **({"name": name.lower()} if told else {})})
    return launches
