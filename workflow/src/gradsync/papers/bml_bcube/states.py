"""Fig. 4: what every server of BCube(3,2) holds before BML and after each of its steps, and how long a step takes.

The states are those of the symbolic check; a step takes the pieces of its most loaded link.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from gradsync import collectives
from gradsync.collectives import bml
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.table import Table
from gradsync.rounds import symbolic
from gradsync.topologies import NO_LINK
from gradsync.topologies.bcube import BCube

N, K = 3, 2
CUBE = BCube(N, K)
PRINTED = Path("config/papers/bml_bcube/fig4.csv")  # the texts in the figure
STATES = {
    "a": "initial state",
    "b": "after aggregation step 1",
    "c": "after aggregation step 2",
    "d": "after broadcast step 1",
    "e": "after broadcast step 2",
}
STEPS = tuple(STATES)[1:]
PUBLISHED_T_C = (6, 2, 2, 6)  # Section 3.2


def servers() -> list[str]:
    """Ids of the servers as the paper writes them, `[v1,v0]`, by rank."""
    return [f"[{','.join(map(str, digits))}]" for digits in product(range(N), repeat=K)]


def fig4(settings: Settings, results: Path) -> Table:
    """The 45 states, each with what the figure prints."""
    printed = _printed().set_index(["state", "server"])
    rows = []
    for label, state in zip(STATES, symbolic.states("bml", CUBE.shape), strict=True):
        for rank, server in enumerate(servers()):
            pieces = symbolic.patterns(state, rank)
            expected = [str(printed.loc[(label, server), f"thread_{thread}"]) for thread in range(K)]
            row = {"rung": "simulated", "state": label, "server": server}
            row |= {f"thread_{thread}": pieces[thread] for thread in range(K)}
            row |= {f"printed_{thread}": expected[thread] for thread in range(K)}
            rows.append(row | {"as_printed": int(list(pieces) == expected)})
    frame = pd.DataFrame(rows)
    cells = frame.assign(text=frame.thread_0 + " " + frame.thread_1)
    display = cells.pivot_table(index="server", columns="state", values="text", aggfunc="first").reset_index()
    display = display.rename(columns=STATES)
    matching = int(frame.as_printed.sum())
    caption = (
        "Fig. 4: what the two threads of each server of BCube(3,2) hold, from the symbolic check: pieces <e,v1,v0>, in "
        f"brackets the servers whose gradients are in them, * all. {matching} of {len(frame)} states are as printed."
    )
    return Table(frame, display, caption)


def fig4_steps(settings: Settings, results: Path) -> Table:
    """Links and times of the four steps, and their sum in the row without a step."""
    rows = []
    for step, (label, transfers) in enumerate(zip(STEPS, collectives.rounds("bml", CUBE.shape), strict=True), start=1):
        thread = transfers.first // CUBE.hosts
        levels = [set(transfers.rail[thread == each].tolist()) for each in range(K)]
        route = CUBE.route(transfers.source, transfers.destination, transfers.rail)  # (transfers, hops)
        crossed = np.broadcast_to(transfers.pieces[:, None], route.shape)[route != NO_LINK]
        load = np.bincount(route[route != NO_LINK], crossed)
        row = {"rung": "simulated", "step": step, "stage": STATES[label].removeprefix("after ")}
        row |= {f"thread_{each}_level": levels[each].pop() for each in range(K) if len(levels[each]) == 1}
        rows.append(row | {"t_c": float(load.max()), "published_t_c": PUBLISHED_T_C[step - 1]})
    frame = pd.DataFrame(rows)
    total, pieces = frame.t_c.sum(), bml.pieces(CUBE.shape)
    sums = {"stage": "together", "t_c": total, "published_t_c": sum(PUBLISHED_T_C)}
    frame = pd.concat([frame, pd.DataFrame([{"rung": "simulated", **sums}])], ignore_index=True)
    display = frame.drop(columns="rung").astype({"step": "Int64", "thread_0_level": "Int64", "thread_1_level": "Int64"})
    display = display.astype(object).where(display.notna(), "")
    caption = (
        "Fig. 4, steps of BML in BCube(3,2): the level whose links each thread uses, and the time in units of T_C, a "
        f"piece on one link; together {total:g} T_C = {total:g}/{pieces} T_F."
    )
    return Table(frame, display, caption)


def _printed() -> pd.DataFrame:
    try:
        return pd.read_csv(PRINTED, dtype=str)
    except (OSError, ValueError) as error:
        raise InputError(f"{PRINTED}: can't be read: {str(error).strip()}") from None
