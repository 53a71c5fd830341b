"""Table II against the rounds of its algorithms, fits against planted truths, and files with faults."""

import numpy as np
import pytest

from gradsync import collectives
from gradsync.costs import Linear, alpha_beta, line
from gradsync.costs.fitted import fit, load_points, straight_line
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.errors import InputError
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds
from gradsync.topologies.switch import Switch

ALPHA, BETA, GAMMA = 4.5e-5, 1.1e-9, 2.3e-10
POWERS = [2, 4, 8, 16, 32, 64]
TABLE_2 = {
    "binary_tree": lambda n: (2 * ALPHA * np.log2(n), (2 * BETA + GAMMA) * np.log2(n)),
    "recursive_doubling": lambda n: (ALPHA * np.log2(n), (BETA + GAMMA) * np.log2(n)),
    "halving_doubling": lambda n: (2 * ALPHA * np.log2(n), 2 * BETA - (2 * BETA + GAMMA) / n + GAMMA),
    "ring": lambda n: (2 * (n - 1) * ALPHA, 2 * (n - 1) / n * BETA + (n - 1) / n * GAMMA),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_the_formulas_are_the_papers(name):
    for n in POWERS:
        cost = alpha_beta.ALGORITHMS[name](n, ALPHA, BETA, GAMMA)
        assert (cost.a, cost.b) == pytest.approx(TABLE_2[name](n), rel=1e-12)


def of_rounds(name, n):
    """Simulated round by round on a switch."""
    speeds = Speeds(alpha=ALPHA, bandwidth=1 / BETA)
    return flow_level.cost(name, Switch(n), speeds, add_seconds_per_byte=GAMMA)


@pytest.mark.parametrize("name", TABLE_2)
def test_the_rounds_take_what_table_2_says(name):
    for n in range(2, 65) if name == "ring" else POWERS:
        cost, line = alpha_beta.ALGORITHMS[name](n, ALPHA, BETA, GAMMA), of_rounds(name, n).line
        assert (line.a, line.b) == pytest.approx((cost.a, cost.b), rel=1e-12)


def test_the_tree_of_other_numbers_has_a_level_for_the_rest():
    """ceil(log2 N) levels, up and down."""
    for n in range(2, 65):
        found, levels = of_rounds("binary_tree", n), np.ceil(np.log2(n))
        assert found.rounds == 2 * levels
        assert (found.line.a, found.line.b) == pytest.approx((2 * ALPHA * levels, (2 * BETA + GAMMA) * levels))


@pytest.mark.parametrize("name", ["recursive_doubling", "halving_doubling"])
def test_other_numbers_take_two_more_rounds_of_the_whole_message(name):
    """Those beyond a power of two hand it to others, which add it, and get the sum back."""
    for n in set(range(2, 65)) - set(POWERS):
        core = 2 ** int(np.log2(n))
        found, before = of_rounds(name, n), of_rounds(name, core)
        assert found.rounds == before.rounds + 2
        assert found.line.a == pytest.approx(before.line.a + 2 * ALPHA)
        assert found.line.b == pytest.approx(before.line.b + 2 * BETA + GAMMA)


def test_a_round_too_many_would_be_seen(monkeypatch):
    ring = collectives.get("ring")
    whole = ring.rounds
    monkeypatch.setattr(ring, "rounds", lambda shape, root: [*whole(shape, root), list(whole(shape, root))[-1]])
    cost = alpha_beta.ring(8, ALPHA, BETA, GAMMA)
    assert of_rounds("ring", 8).seconds(1000) != pytest.approx(cost.seconds(1000), rel=1e-3)


def test_the_startups_that_the_paper_measured():
    """90.52, 271.56 and 633.64 us at 2, 4 and 8 nodes: all 2(N-1) times 45.26 us."""
    for n, microseconds in {2: 90.52, 4: 271.56, 8: 633.64}.items():
        assert alpha_beta.ring(n, 45.26e-6, BETA).a * 1e6 == pytest.approx(microseconds, rel=1e-9)


def test_a_network_has_a_cost_for_every_kind():
    network = alpha_beta.network(8, ALPHA, BETA, GAMMA)
    whole, scatter, gather = (network.of(kind).seconds(8e6) for kind in ("all_reduce", "reduce_scatter", "all_gather"))
    assert scatter + gather == pytest.approx(whole, rel=1e-12)
    assert network.of("send") == Linear(ALPHA, BETA, "point to point")
    with pytest.raises(InputError, match="'gossip'"):
        network.of("gossip")
    with pytest.raises(InputError, match=r"'tree'.*binary_tree"):
        alpha_beta.network(8, ALPHA, BETA, all_reduce="tree")
    with pytest.raises(InputError, match="0 ranks"):
        alpha_beta.network(0, ALPHA, BETA)


def test_the_other_costs_around_a_measured_all_reduce():
    measured = alpha_beta.ring(8, ALPHA, BETA)
    around = alpha_beta.around(measured, 8)
    assert around.of("all_reduce") == measured
    assert around.of("send").seconds(1e6) == pytest.approx(ALPHA + BETA * 1e6, rel=1e-9)
    assert around.of("all_gather").seconds(8e6) == pytest.approx(7 * (ALPHA + BETA * 1e6), rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [(-1, 0), (0, -1), (float("nan"), 0), (0, float("inf"))])
def test_costs_that_are_no_costs_are_refused(a, b):
    with pytest.raises(InputError, match="finite and not negative"):
        Linear(a, b)


# Fits

SIZES = np.unique(np.logspace(2, 7, 40).round())
JUMP = 50_000


def planted(m):
    """A protocol that switches: two lines with a jump between them."""
    return np.where(m < JUMP, 1e-4 + 2e-9 * m, 6e-4 + 1e-9 * m)


def noisy(rng, truth, sizes, spread=0.03, times=5):
    m = np.repeat(sizes, times)
    return m, truth(m) * (1 + spread * rng.standard_normal(len(m)))


def test_planted_pieces_come_back():
    fitted = fit(SIZES, planted(SIZES))
    assert len(fitted.bounds) == 2
    assert max(SIZES[SIZES < JUMP]) <= fitted.bounds[0] <= min(SIZES[SIZES >= JUMP])
    np.testing.assert_allclose(fitted.intercepts, [1e-4, 6e-4], rtol=1e-6)
    np.testing.assert_allclose(fitted.slopes, [2e-9, 1e-9], rtol=1e-6)
    np.testing.assert_allclose(fitted.seconds(SIZES), planted(SIZES), rtol=1e-9)
    assert fitted.residual < 1e-9


def test_planted_pieces_come_back_from_noise():
    m, t = noisy(np.random.default_rng(1), planted, SIZES)
    fitted = fit(m, t)
    assert len(fitted.bounds) == 2
    np.testing.assert_allclose(fitted.seconds(SIZES), planted(SIZES), rtol=0.05)
    assert fitted.residual == pytest.approx(0.03 * np.sqrt(2 / np.pi), rel=0.2)  # mean |noise|
    assert fitted.points == len(m)


def test_one_line_asks_for_one_piece_and_order_does_not_matter():
    rng = np.random.default_rng(2)
    truth = Linear(3e-4, 1.5e-9)
    m, t = noisy(rng, truth.seconds, SIZES)
    fitted = fit(m, t)
    assert len(fitted.bounds) == 1
    order = rng.permutation(len(m))
    again = fit(m[order], t[order])
    np.testing.assert_allclose(again.seconds(SIZES), fitted.seconds(SIZES), rtol=1e-12)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    truth = Linear(3e-4, 1.5e-9)
    inside = wide = trials = 0
    for _ in range(150):
        fitted = fit(*noisy(rng, truth.seconds, SIZES[::4], times=3))
        for size in (300.0, 40_000.0, 5e6):
            low, high = fitted.interval(size)
            trials += 1
            inside += low <= truth.seconds(size) <= high
            wide += fitted.interval(size, 0.5)[1] < high
    assert 0.90 <= inside / trials <= 0.99
    assert wide == trials  # less confidence, narrower


def test_each_piece_is_as_sure_as_its_own_points_make_it():
    rng = np.random.default_rng(8)
    m, t = noisy(rng, planted, SIZES)
    fitted = fit(m, t)
    assert len(fitted.bounds) == 2
    for part, at in ((m < JUMP, 1e4), (m >= JUMP, 5e6)):
        alone = fit(m[part], t[part], pieces=1)
        assert fitted.interval(at) == pytest.approx(alone.interval(at), rel=1e-9)
    assert fitted.slope_low() == pytest.approx(alone.slope_low(), rel=1e-9)
    assert 0 < fitted.slope_low() < fitted.slopes[-1]


def test_the_least_transfer_of_a_fit_may_be_that_of_the_lower_end_of_its_interval():
    """Of one line and a long message, its slope less t s / sqrt(weighted spread); never more than without `low`."""
    m, t = noisy(np.random.default_rng(9), Linear(3e-4, 1.5e-9).seconds, SIZES)
    fitted = fit(m, t, pieces=1)
    total = 1e12  # so long that the slope is all that counts
    assert fitted.least_transfer_seconds(total) == pytest.approx(total * fitted.slopes[-1], rel=1e-6)
    assert fitted.least_transfer_seconds(total, low=True) == pytest.approx(total * fitted.slope_low(), rel=1e-6)
    for size in (100.0, 1e5, 1e7):
        low, high = fitted.interval(size)
        assert fitted.least_transfer_seconds(size, low=True) <= fitted.least_transfer_seconds(size)
        assert fitted._half(0, size) == pytest.approx((high - low) / 2)


def test_three_points_have_an_interval_and_two_have_none():
    """Weights 1/t^2. Through 2, 2, 4 s at 1, 1, 3 B the line is 1 + m: no residual, so the interval is the line."""
    assert fit([1, 1, 3], [2.0, 2.0, 4.0]).interval(2) == pytest.approx((3.0, 3.0))
    low, high = fit([1, 1, 3], [1.9, 2.1, 4.0]).interval(3)
    assert 0 < high - low < np.inf
    assert fit([1, 3], [2.0, 4.0]).interval(2) == (0.0, np.inf)


def test_whole_numbers_fit_as_well_as_others():
    """Squares of bytes that no 64-bit integer holds."""
    sizes = [2**k for k in range(30, 37)]
    times = [1 + 2e-9 * size for size in sizes]
    assert fit(sizes, times).slopes == pytest.approx([2e-9])
    assert straight_line(sizes, times) == pytest.approx((1.0, 2e-9, 1.0))


def test_what_was_not_measured_is_reported():
    fitted = fit(SIZES, planted(SIZES), source="planted")
    assert not fitted.extrapolates(SIZES[0])
    assert not fitted.extrapolates(SIZES[-1])
    assert fitted.extrapolates(SIZES[-1] + 1)
    assert fitted.extrapolates(SIZES[0] - 1)
    assert fitted.seconds(2 * SIZES[-1]) == pytest.approx(6e-4 + 2e-9 * SIZES[-1], rel=1e-6)  # the last line goes on
    assert fitted.seconds(1) == pytest.approx(planted(SIZES[0]), rel=1e-6)  # never less than the smallest
    for part in ("2 linear piece(s)", "planted", f"{SIZES[-1]:g}"):
        assert part in fitted.describe()


def test_start_up_and_transfer_of_a_fit_add_up():
    fitted = fit(SIZES, planted(SIZES))
    for size in SIZES:
        startup = fitted.startup_seconds(size)
        assert 0 <= startup <= fitted.seconds(size)
    assert fitted.startup_seconds(SIZES[-1]) == pytest.approx(6e-4, rel=1e-6)


def slower_at_length(m):
    """Long messages take more for each byte: twice the slope from a megabyte on."""
    return np.where(m < 1e6, 1e-4 + 1e-9 * m, -0.9e-3 + 2e-9 * m)


@pytest.mark.parametrize("truth", [planted, slower_at_length])
def test_no_cut_of_a_sum_takes_less_than_its_bound_and_some_cut_that_much(truth):
    cost, rng = fit(SIZES, truth(SIZES)), np.random.default_rng(4)

    def transfer(size):
        return cost.seconds(size) - cost.startup_seconds(size)

    for total in (50.0, 4e4, 9e6, 5e7):
        least = cost.least_transfer_seconds(total)
        for messages in (1, 2, 5, 40):
            for _ in range(20):
                parts = total * rng.dirichlet(np.ones(messages))
                assert transfer(parts).sum() >= least * (1 - 1e-9)
    total = 9e6  # nine messages of a megabyte are the fastest where longer ones are slower
    cuts = [messages * transfer(total / messages) for messages in range(1, 20)]
    assert min(cuts) == pytest.approx(cost.least_transfer_seconds(total), rel=0.1)
    assert Linear(2.0, 0.5).least_transfer_seconds(8.0) == 4.0


@pytest.mark.parametrize(
    ("sizes", "times"),
    [([], []), ([10], [1]), ([10, 10], [1, 2]), ([10, 20], [1, 0]), ([10, -20], [1, 2]), ([10, 20], [1, float("nan")])],
)
def test_points_that_no_line_fits_are_refused(sizes, times):
    with pytest.raises(InputError, match="cost fit here"):
        fit(sizes, times, source="here")


def written(tmp_path, text):
    path = tmp_path / "points.csv"
    path.write_text(text)
    return path


def test_points_are_read_from_a_file(tmp_path):
    path = written(tmp_path, "bytes,seconds,note\n100,0.5,x\n2e3,1,\n")
    sizes, times = load_points(path)
    assert sizes.tolist() == [100, 2000]
    assert times.tolist() == [0.5, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bytes,seconds\n100,0.5\n200,fast\n", "line 3"),
        ("bytes,seconds\n100\n", "line 2"),
        ("# made by hand\n# twice\nbytes,seconds\n100,0.5\n,\n", "line 5"),
        ("size,seconds\n100,0.5\n", "needs the columns bytes,seconds; has size,seconds"),
        ("", "needs the columns"),
    ],
    ids=["a word", "a column short", "after comments", "other columns", "empty"],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_points(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_with_nothing_but_its_columns_has_no_points(tmp_path):
    for text in ("bytes,seconds\n", "ranks,bytes,seconds\n", "collective,bytes,seconds\n"):
        assert [each.tolist() for each in load_points(written(tmp_path, text), 2)] == [[], []]


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv: can't be read"):
        load_points(tmp_path / "nowhere.csv")


def test_ranks_choose_the_points(tmp_path):
    path = written(tmp_path, "# cores: 2\nranks,bytes,seconds\n2,100,0.5\n8,100,2\n2,200,1\n")
    assert load_points(path, 2)[1].tolist() == [0.5, 1]
    assert load_points(path, 8)[0].tolist() == [100]
    with pytest.raises(InputError, match="has all-reduce times of 2, 8 ranks, not of 4: measure them with --ranks 4"):
        load_points(path, 4)
    with pytest.raises(InputError, match="of 2, 8 ranks, say which"):
        load_points(path)
    only = written(tmp_path, "ranks,bytes,seconds\n2,100,0.5\n")
    assert load_points(only)[1].tolist() == [0.5]
    bad = written(tmp_path, "ranks,bytes,seconds\n2.5,100,0.5\n")
    with pytest.raises(InputError, match="line 2: not three numbers"):
        load_points(bad)
    without = written(tmp_path, "bytes,seconds\n100,0.5\n")
    assert load_points(without, 8)[1].tolist() == [0.5]  # made by hand for the ranks at hand


def test_pieces_are_the_lines_between_their_ends():
    fitted = fit(SIZES, planted(SIZES))
    pieces = fitted.pieces()
    assert len(pieces) == len(fitted.bounds)
    assert (pieces[0]["from_bytes"], pieces[-1]["to_bytes"]) == (SIZES[0], SIZES[-1])
    for piece in pieces:
        inside = [size for size in SIZES if piece["from_bytes"] < size < piece["to_bytes"]]
        np.testing.assert_allclose(piece["a"] + piece["b"] * np.array(inside), fitted.seconds(np.array(inside)))


def test_one_straight_line_says_how_straight_it_is():
    assert straight_line([0, 10, 20], [1, 2, 3]) == pytest.approx((1.0, 0.1, 1.0))
    a, b, r_squared = straight_line([0, 1, 2], [0, 3, 0])
    assert (a, b, r_squared) == pytest.approx((1.0, 0.0, 0.0), abs=1e-12)  # a peak is no line at all


# Interference

FACTORS = Interference(
    ranks=2,
    points=(
        InterferencePoint(bytes=100, computation=1.0, communication=4.0),
        InterferencePoint(bytes=10_000, computation=2.0, communication=2.0),
    ),
)


def test_factors_lie_between_those_of_the_nearest_sizes():
    assert FACTORS.factors(1000) == pytest.approx((1.5, 3.0))  # half way on a logarithmic scale
    assert FACTORS.factors(1) == (1.0, 4.0)
    assert FACTORS.factors(1e9) == (2.0, 2.0)
    assert FACTORS.factors(10**30) == (2.0, 2.0)  # beyond 64 bits


def test_a_measured_factor_below_one_is_noise():
    found = InterferencePoint.of(8, (0.8, 0.9, 1.1), (1.0, 1.5, 2.0))
    assert (found.computation, found.communication) == (1.0, 1.5)
    assert found.computation_interval == (0.8, 1.1)  # what was measured stays to be seen


@pytest.mark.parametrize("ends", [(None, 1.5), (1.2, None), (None, None)])
def test_half_an_interval_is_none(ends):
    found = InterferencePoint.of(8, (ends[0], 1.3, ends[1]), (1.0, 1.5, 2.0))
    assert found.computation_interval is None
    assert found.communication_interval == (1.0, 2.0)


def test_factors_survive_their_file_and_belong_to_their_ranks(tmp_path):
    path = tmp_path / "interference.json"
    path.write_text(FACTORS.to_json())
    assert Interference.load(path, 2) == FACTORS
    with pytest.raises(InputError, match="between 2 ranks, the plan is for 4: measure it with --ranks 4"):
        Interference.load(path, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "points"),
        ("nonsense", "not JSON"),
        ('{"version": 9, "points": [{"bytes": 1, "computation": 1, "communication": 1}]}', "version 9"),
        ('{"points": [{"bytes": 1, "computation": 0.5, "communication": 1}]}', "computation"),
        (
            '{"points": [{"bytes": 2, "computation": 1, "communication": 1},'
            ' {"bytes": 2, "computation": 1, "communication": 1}]}',
            "ascending",
        ),
        (f'{{"points": [{{"bytes": {10**30}, "computation": 1, "communication": 1}}]}}', "68719476736"),
    ],
)
def test_a_bad_interference_is_refused(tmp_path, content, message):
    path = tmp_path / "interference.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        Interference.load(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="can't be read"):
        Interference.load(tmp_path / "nowhere.json")


# The line of measured all-reduces


def test_the_line_of_exact_times_is_found_and_sure():
    sizes, exact = [100, 1000, 10_000], [0.3, 1.2, 10.2]  # 0.2 + 0.001 m
    found = line.through(sizes, [exact] * 6)
    assert (found.a_seconds, found.b_seconds_per_byte) == pytest.approx((0.2, 0.001))
    assert found.a_interval == pytest.approx((0.2, 0.2))
    assert (found.mean_residual, found.worst_residual) == pytest.approx((0, 0), abs=1e-9)
    assert (found.sweeps, found.points, found.from_bytes, found.to_bytes) == (6, 3, 100, 10_000)
    assert line.through(sizes, [exact] * 5).a_interval is None  # too few sweeps


def test_a_line_of_two_sizes_goes_through_both():
    found = line.through([10, 20], [[1, 1.5]])
    assert (found.a_seconds, found.b_seconds_per_byte) == pytest.approx((0.5, 0.05))


def test_the_interval_of_a_line_is_students_of_the_lines_of_its_sweeps():
    """Each sweep a line of its own, of a = 0.1 .. 0.6: the mean is 0.35, its deviation 0.187 / sqrt(6), t = 2.571."""
    sizes, starts = np.array([100.0, 1000.0]), np.arange(1, 7) / 10
    found = line.through(sizes, starts[:, None] + 0.01 * sizes)
    half = 2.5706 * starts.std(ddof=1) / np.sqrt(6)
    assert found.a_interval == pytest.approx((0.35 - half, 0.35 + half), rel=1e-4)
    assert found.b_interval == pytest.approx((0.01, 0.01), rel=1e-6)


def test_residuals_of_a_line_are_relative_to_what_was_measured():
    """A third point lies twice as high as a + b m: the line is between, and its residuals are those of the formula."""
    sizes, times = np.array([10.0, 20.0, 40.0]), np.array([1.0, 2.0, 8.0])
    found = line.through(sizes, times)
    residuals = np.abs((found.a_seconds + found.b_seconds_per_byte * sizes) / times - 1)
    assert (found.mean_residual, found.worst_residual) == pytest.approx((residuals.mean(), residuals.max()))
    assert found.worst_residual > 0.1


@pytest.mark.parametrize(
    ("sizes", "times"),
    [([10, 10], [1, 1]), ([10, 20], [1, 0]), ([0, 20], [1, 1]), ([10, 20], [1, float("nan")]), ([10], [1])],
)
def test_times_that_no_line_goes_through_are_refused(sizes, times):
    with pytest.raises(InputError, match="a line needs two sizes and positive seconds"):
        line.through(sizes, [times])
