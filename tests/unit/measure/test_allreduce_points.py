"""Points of all-reduces as a profiler writes them: bandwidths, sizes, files and fits."""

import pandas as pd
import pytest

from gradsync.costs import kinds
from gradsync.costs.fitted import load_points
from gradsync.errors import InputError
from gradsync.measure import allreduce


def points(collective: str = "") -> list[allreduce.AllReducePoint]:
    sizes = [2**k for k in range(3, 20)]
    return [
        allreduce.point(ranks, size, [ranks * (1e-4 + 1e-9 * size) * noise for noise in (1, 2, 0.5)], collective)
        for ranks in (2, 4)
        for size in sizes
    ]


def test_bandwidths_are_those_of_nccl_tests():
    point = allreduce.point(4, 1000, [3.0, 1.0, 2.0])
    assert (point.seconds, point.seconds_low, point.seconds_high, point.repeats) == (2.0, None, None, 3)
    assert point.algbw_bytes_per_second == 500.0
    assert point.busbw_bytes_per_second == 750.0  # 2 (4 - 1) / 4


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("reduce_scatter", 3 / 4),
        ("all_gather", 3 / 4),
        ("all_to_all", 3 / 4),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("all_reduce@local:2", 1.0),  # 2 (2 - 1) / 2
        ("all_gather@node:2", 1 / 2),
    ],
)
def test_bandwidths_of_other_kinds_have_the_factor_of_the_kind(kind, factor):
    point = allreduce.point(4, 1000, [2.0], kind=kind)
    assert (point.algbw_bytes_per_second, point.busbw_bytes_per_second) == (500.0, pytest.approx(500.0 * factor))


def of_kind(kind: str, seconds: float) -> list[allreduce.AllReducePoint]:
    return [each._replace(kind=kind, mean_seconds=seconds) for each in points()]


def test_points_of_several_kinds_are_told_apart(tmp_path):
    """All-reduces are read as if nothing else were there; axes count if they have as many places."""
    path = tmp_path / "points.csv"
    others = {"reduce_scatter": 7.0, "all_gather": 5.0, "all_reduce@local:2": 3.0, "all_gather@node:4": 2.0}
    every = [*points(), *(point for kind, seconds in others.items() for point in of_kind(kind, seconds))]
    path.write_text(allreduce.to_csv(every, {}))
    assert list(load_points(path, 4)[1]) == [p.mean_seconds for p in points() if p.ranks == 4]
    assert set(load_points(path, 4, kind="all_gather")[1]) == {5.0}
    costs = kinds.measured(path, 4, {"node": 2, "local": 2})
    assert {kind: cost.seconds(1000) for kind, cost in costs.items()} == {
        "reduce_scatter": pytest.approx(7.0),
        "all_gather": pytest.approx(5.0),
        "all_reduce@local": pytest.approx(3.0),
    }
    assert {*kinds.halves(path, 4)} == {"reduce_scatter", "all_gather"}
    assert [fit.get("kind") for fit in allreduce.fits(every)][:5] == [None, *others]
    lines = allreduce.columns(every).splitlines()
    assert lines[-1].split()[4::5] == ["none", "all_gather@node:4"]
    with pytest.raises(InputError, match="has all-reduce times of 2, 4 ranks, not of 8"):
        kinds.measured(path, 8)


def test_points_survive_their_file(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(allreduce.to_csv(points(), {"torch": "x, y", "notes": ["4 ranks share 2 cores"]}))
    assert path.read_text().startswith('# torch: "x, y"\n# notes: ["4 ranks share 2 cores"]\nranks,bytes,seconds,')
    for ranks in (2, 4):
        sizes, times = load_points(path, ranks)
        expected = [(p.bytes, p.mean_seconds) for p in points() if p.ranks == ranks]
        assert list(zip(sizes, times, strict=True)) == expected


def test_points_of_several_collectives_are_told_apart(tmp_path):
    path = tmp_path / "points.csv"
    own = [each._replace(mean_seconds=7.0) for each in points("bml-2x2")]
    path.write_text(allreduce.to_csv([*points(), *own], {}))
    assert set(load_points(path, 4, "bml-2x2")[1]) == {7.0}
    assert list(load_points(path, 4)[1]) == [p.mean_seconds for p in points() if p.ranks == 4]
    with pytest.raises(InputError, match="has times of the backend's own, bml-2x2, not of ring-4"):
        load_points(path, 4, "ring-4")
    assert [fit.get("collective") for fit in allreduce.fits([*points(), *own])] == [None, "bml-2x2"] * 2
    assert allreduce.columns(own).splitlines()[-1].endswith("  bml-2x2")


def test_too_few_messages_leave_their_cells_empty(tmp_path):
    path = tmp_path / "points.csv"
    few, enough = (allreduce.point(2, 8, range(1, n + 1)) for n in (5, 6))
    path.write_text(allreduce.to_csv([few, enough._replace(bytes=80)], {}))
    frame = pd.read_csv(path)
    assert frame.repeats.tolist() == [5, 6]
    assert frame.seconds_low.isna().tolist() == frame.seconds_high.isna().tolist() == [True, False]
    assert (frame.seconds_low[1], frame.seconds_high[1]) == (1, 6)
    assert load_points(path, 2)[1].tolist() == [3.0, 3.5]


def test_a_fit_for_each_number_of_ranks():
    two, four = allreduce.fits(points())
    assert (two["ranks"], four["ranks"]) == (2, 4)
    assert len(four["pieces"]) == 1
    assert four["pieces"][0]["a"] == pytest.approx(4e-4 * 3.5 / 3)
    assert four["pieces"][0]["b"] == pytest.approx(4e-9 * 3.5 / 3)
    assert two["line"]["a"] == pytest.approx(2e-4 * 3.5 / 3)
    assert two["line"]["r_squared"] == pytest.approx(1.0)


def test_the_columns_that_people_know():
    lines = allreduce.columns(points()).splitlines()
    assert lines[0].split() == ["ranks", "size", "count", "type", "redop", "time", "mean", "algbw", "busbw"]
    assert lines[2].split() == ["2", "8", "2", "float", "sum", "200.0", "233.4", "0.000", "0.000"]
    assert len(lines) == 2 + len(points())


def test_sizes_hold_both_ends():
    sizes = allreduce.sizes(40, 13_000_000)
    assert (sizes[0], sizes[-1]) == (40, 13_000_000)
    assert all(size % 4 == 0 for size in sizes)
    assert allreduce.sizes(8, 8) == [8]


def test_our_own_collectives_have_twice_as_many_sizes_in_the_largest_decade():
    sizes = allreduce.sizes_in_chunks(40, 12_845_056)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (40, 12_845_056)
    last = [size for size in sizes if size >= 1_284_504]
    assert len(last) == 2 * allreduce.SIZES_PER_DECADE + 1
    assert [size for size in sizes if size <= last[0]] == allreduce.sizes(40, last[0])
    assert allreduce.sizes_in_chunks(8, 8) == [8]
    assert allreduce.sizes_in_chunks(8, 16) == allreduce.sizes(8, 16, 2 * allreduce.SIZES_PER_DECADE)


# Interference


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("seconds", "largest"), [(1e9, 10**8), (2.0, 12_500_000), (1e-9, 256 * 1024)])
def test_a_measurement_within_some_seconds_leaves_out_what_takes_too_long(monkeypatch, seconds, largest):
    """A network of 1 ms and 8 ns a byte: six messages of 12.5 MB and of each smaller size take less than 1 s."""
    calls = []

    def all_reduce_seconds(sizes, repeats, seconds_a_size, device):
        calls.append((sizes, repeats, seconds_a_size))
        return {size: [1e-3 + 8e-9 * size] * 3 for size in sizes}

    monkeypatch.setattr(allreduce, "all_reduce_seconds", all_reduce_seconds)
    measured = allreduce.within(seconds, 4096, 10**8)
    assert (min(measured), max(measured)) == (4096, largest)
    assert len(measured) == allreduce.WITHIN_SIZES
    (probes, _, of_probes), (sizes, _, of_size) = calls
    assert (probes, of_probes) == ([4096, 256 * 1024], 0.0)
    # a half for the least of each size, a half for more of them
    assert of_size * len(sizes) == seconds / 2
    least = sum(allreduce.LEAST_MESSAGES * (1e-3 + 8e-9 * size) for size in sizes)
    assert least <= seconds / 2 or largest == probes[-1]


@pytest.mark.usefixtures("alone")
def test_a_measurement_of_a_small_model_has_its_own_sizes(monkeypatch):
    monkeypatch.setattr(allreduce, "all_reduce_seconds", lambda sizes, *_, device: {size: [1e-3] for size in sizes})
    assert max(allreduce.within(2.0, 4096, 8192)) == 8192
