"""Fits against planted truths, and files of points, with faults and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradsync.costs import Linear
from gradsync.costs.fitted import fit, load_points, straight_line
from gradsync.errors import InputError

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


@given(times=st.lists(st.floats(1e-5, 1.0), min_size=2, max_size=16), apart=st.floats(1.2, 4.0))
@example(times=[1.2e-3, 0.15e-3, 1.2e-3, 1.2e-3], apart=1.37)  # one line through them is below 0 at the first size
@example(times=[1.0, 1.0, 1.0, 1.0, 0.03, 1.0, 1.0, 1.0], apart=2.0)  # and of two, where the second piece begins
def test_no_message_takes_less_than_nothing_however_disturbed_its_times_were(times, apart):
    sizes = 4096 * apart ** np.arange(len(times))
    fitted = fit(sizes, times)
    assert (fitted.slopes >= 0).all()
    assert (fitted.seconds(np.geomspace(1, 2 * sizes[-1], 1000)) > 0).all()


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
