"""What messages cost by a file of measured points: halves and axes as measured, the others as they follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradsync.configuration.scheme import Scheme
from gradsync.costs.half import Half
from gradsync.experiments.costs import Known, costs, on_axes
from gradsync.measure import allreduce
from gradsync.plan import Axis
from tiny_workloads import workload

RANKS = 4
AXES = (Axis("node", 2), Axis("local", 2))
ON_LOCAL = {"reduce_scatter@local:2": 2.0, "all_gather@local:2": 3.0, "all_reduce@local:2": 4.0}


@pytest.fixture
def known(tmp_path: Path):
    """known(kind=seconds, ...): options with a file of all-reduces of 16 s and of those kinds, whatever their size."""

    def made(**seconds: float) -> Known:
        path = tmp_path / "points.csv"
        path.write_text(
            allreduce.to_csv(
                [
                    allreduce.point(RANKS, size, [taken], kind=kind)
                    for kind, taken in {"": 16.0, **seconds}.items()
                    for size in (100, 1000, 10_000)
                ],
                {},
            )
        )
        (tmp_path / "load.json").write_text(workload([400], [1.0]).to_json())
        return Known(workload=str(tmp_path / "load.json"), allreduce=str(path))

    return made


def test_measured_halves_and_axes_are_taken_and_the_rest_follows(known):
    options = known(reduce_scatter=5.0, broadcast=1.5, **ON_LOCAL)
    _, alone = costs(options, RANKS, Scheme(name="pipelined"))
    of = {kind: alone.network.of(kind) for kind in ("all_reduce", "reduce_scatter", "all_gather", "broadcast")}
    assert {kind: cost.seconds(1000) for kind, cost in of.items()} == pytest.approx(
        {"all_reduce": 16.0, "reduce_scatter": 5.0, "all_gather": 8.0, "broadcast": 1.5}
    )
    assert isinstance(of["all_gather"], Half)
    assert alone.all_reduce.halves.keys() == {"reduce_scatter"}  # what planners are given
    on_mesh = on_axes(alone, options.allreduce, AXES, RANKS, ["all_reduce@node", "all_gather@local"])
    for kind, seconds in (("reduce_scatter", 2.0), ("all_gather", 3.0), ("all_reduce", 4.0)):
        assert on_mesh.network.of(f"{kind}@local").seconds(1000) == pytest.approx(seconds)
    assert on_mesh.network.of("all_reduce@node").seconds(1000) < 16.0  # a ring of two on the links of four
    assert on_mesh.warnings == ["messages over node are timed as rings on the same links"]


SENT = ("all_gather@node", "reduce_scatter@local", "all_gather@local")


def test_axes_of_other_sizes_are_not_taken(known):
    options = known(**ON_LOCAL)
    _, alone = costs(options, RANKS, Scheme(name="pipelined"))
    (note,) = on_axes(alone, options.allreduce, (Axis("node", 1), Axis("local", 4)), RANKS, SENT).warnings
    assert note == "messages over node, local are timed as rings on the same links"


def test_a_file_of_all_reduces_alone_gives_what_it_gave(known):
    options = known()
    _, alone = costs(options, RANKS, Scheme(name="pipelined"))
    assert alone.all_reduce.halves == {}
    assert alone.network.of("reduce_scatter").seconds(1000) == pytest.approx(8.0)
