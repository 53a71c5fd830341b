"""`gradsync.attach` in a loop of one's own: what DDP trains in the same loop, on two ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attached_models as attached

RANKS = 2
PAIRS = [
    pytest.param(case, scheme, id=f"{case}-{scheme}") for case, how in attached.CASES.items() for scheme in how.schemes
]


@pytest.mark.parametrize(("case", "scheme"), PAIRS)
def test_it_trains_what_ddp_trains(on_ranks, case, scheme):
    """Sums over two ranks are the same in either order: to the bit, if torch's optimizer applies them.

    A plan's own kernels add weight decay after the momentum, which rounds otherwise.
    """
    for result in on_ranks("attached_beside_ddp", RANKS):
        state, losses = result[case, scheme]
        reference, expected = result[case, "ddp"]
        assert state.keys() == reference.keys()
        for name, value in reference.items():
            if "running" in name and result is not on_ranks("attached_beside_ddp", RANKS)[0]:
                continue  # DDP leaves every rank its own after the last forward
            if scheme not in attached.UPDATING:
                np.testing.assert_array_equal(state[name], value, err_msg=name)
            else:
                close = {"rtol": 1e-9, "atol": 1e-14} if value.dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-6}
                np.testing.assert_allclose(state[name], value, **close, err_msg=name)
        if scheme not in attached.UPDATING:
            assert losses == expected
    moved = attached.build(attached.CASES[case]).state_dict()
    assert any(np.abs(state[name] - moved[name].numpy()).max() > 1e-3 for name in state if "weight" in name)


@pytest.mark.parametrize("case", attached.CASES)
def test_ranks_end_with_the_same_model(on_ranks, case):
    first, second = on_ranks("attached_beside_ddp", RANKS)
    for scheme in attached.CASES[case].schemes:
        for name, value in first[case, scheme][0].items():
            np.testing.assert_array_equal(value, second[case, scheme][0][name], err_msg=f"{scheme} {name}")


@pytest.fixture
def otherwise(on_ranks):
    return on_ranks("attached_otherwise", RANKS)


def test_a_model_that_differs_between_ranks_is_named_on_all(on_ranks):
    for result in on_ranks("attached_beside_ddp", RANKS):
        size, frozen = result["unlike", ""]
        assert "'weight' [3, 3] float32 on rank 0, 'weight' [4, 3] float32 on rank 1" in size
        assert "'body.bias' [16] float32 on rank 0, 'body.bias' [16] float32, frozen on rank 1" in frozen


@pytest.mark.deep
def test_a_rank_whose_forward_raised_goes_on(otherwise, on_ranks):
    losses, _ = otherwise[0]["after a forward that raised"]
    assert losses == on_ranks("attached_beside_ddp", RANKS)[0]["plain", "mgwfbp"][1][:5]


@pytest.mark.deep
def test_training_goes_on_from_a_checkpoint(otherwise):
    assert [told["resumed"] for told in otherwise] == [[True, True]] * RANKS


@pytest.mark.deep
def test_buffers_that_forward_replaces_are_rank_0s_on_all(otherwise):
    for first, second in zip(*(told["replaced"] for told in otherwise), strict=True):
        assert {*first} == {"now", "before", "of_features"}
        assert np.abs(first["now"] - first["before"]).max() > 1e-3
        for name, value in first.items():
            np.testing.assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.deep
def test_a_scheme_is_planned_for_the_optimizer_at_hand(otherwise):
    """Adam, which the plan applies itself, trains what torch's does on the mean gradient."""
    assert otherwise[0]["planned"] == otherwise[1]["planned"]
    assert "measured between the ranks" in otherwise[0]["measured"]
    model = attached.build(attached.CASES["plain"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5):
        optimizer.zero_grad()
        for rank in range(RANKS):
            images, labels = attached.sample(rank, step, torch.float32)
            (torch.nn.functional.cross_entropy(model(images), labels) / RANKS).backward()
        optimizer.step()
    _, state = otherwise[0]["adam"]
    for name, value in attached.state(model).items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
