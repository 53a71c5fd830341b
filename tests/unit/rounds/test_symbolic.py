"""Every collective leaves each contribution once on every rank; broken ones are refused with the place; Fig. 4."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsync import collectives
from gradsync.collectives import Round
from gradsync.errors import InputError, RunError
from gradsync.rounds import symbolic

SHAPES = {
    "bml": [(3, 3), (2, 2, 2), (4, 4), (2, 2, 2, 2), (3, 3, 3)],
    "hierarchical": [(3, 2), (2, 3, 4), (4, 1, 3), (1, 5), (2, 2, 2, 2)],
    "torus2d": [(3, 4), (5, 2), (1, 6), (6, 1), (4, 4)],
}


@pytest.mark.parametrize("name", collectives.names())
def test_every_collective_sums(name):
    for shape in [*((n,) for n in range(1, 21)), *SHAPES.get(name, [])]:
        symbolic.verify(name, shape)


HALVES = ("reduce_scatter", "all_gather")


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", collectives.names())
def test_a_collective_that_is_made_of_two_others_is_each_of_them(name, kind):
    for shape in [*((n,) for n in range(1, 21)), (130,), *SHAPES.get(name, [])]:
        if collectives.halves(name, shape):
            symbolic.verify(name, shape, kind=kind)
        else:
            with pytest.raises(
                InputError, match=f"{name}' has no {kind} on .*.* there are those of native, .*ps_p2p, ring"
            ):
                symbolic.verify(name, shape, kind=kind)


def test_which_collectives_are_made_of_two_others():
    of_eight, of_six = (
        [name for name in collectives.names() if collectives.halves(name, (ranks,))] for ranks in (8, 6)
    )
    assert of_eight == ["halving_doubling", "ps_p2p", "ring"]
    assert of_six == ["ps_p2p", "ring"]


@pytest.mark.parametrize("name", ["ps_central", "ps_tensor"])
def test_any_rank_may_be_the_server(name):
    for root in range(5):
        symbolic.verify(name, (5,), root)
        push, pull = collectives.rounds(name, (5,), root)
        assert set(push.destination) == set(pull.source) == {root}


OTHERS = [(name, kind) for kind in ("reduce", "broadcast", "all_to_all") for name in collectives.names(kind)]


@pytest.mark.parametrize(("name", "kind"), OTHERS)
def test_every_other_collective_does_what_its_kind_says_from_whichever_root(name, kind):
    for ranks in (*range(1, 12), 66):  # 66: more than a word has bits
        for root in {0, ranks // 2, ranks - 1}:
            symbolic.verify(name, (ranks,), root, kind=kind)
    if getattr(collectives.get(name), "CHUNKED", False):
        for chunks in (1, 2, 9):
            symbolic.verify(name, (5,), 3, kind=kind, chunks=chunks)


def test_which_collectives_there_are_of_each_kind():
    of_kind = {kind: collectives.names(kind) for kind in ("reduce", "broadcast", "all_to_all")}
    rooted = ["binary_tree", "chain", "ps_central", "ps_tensor", "shared_tree"]
    assert of_kind == {"reduce": rooted, "broadcast": rooted, "all_to_all": ["pairwise"]}
    with pytest.raises(InputError, match=r"'pairwise' has no all_reduce on 3 ranks; there are those of native, binary"):
        symbolic.verify("pairwise", (3,))
    with pytest.raises(InputError, match=r"'ring' has no all_to_all on 3 ranks; there are those of native, pairwise$"):
        symbolic.verify("ring", (3,), kind="all_to_all")


def test_256_servers_and_more_ranks_than_a_word_has_bits():
    symbolic.verify("bml", (4, 4, 4, 4))
    symbolic.verify("ring", (130,))


# Fig. 4: what server [i, j] of BCube(3,2) holds after 0 to 4 steps, thread 0 and thread 1
FIGURE_4 = (
    ("<0,*,*>([{i},{j}])", "<1,*,*>([{i},{j}])"),
    ("<0,*,{j}>([{i},*])", "<1,{i},*>([*,{j}])"),
    ("<0,{i},{j}>([*,*])", "<1,{i},{j}>([*,*])"),
    ("<0,*,{j}>([*,*])", "<1,{i},*>([*,*])"),
    ("<0,*,*>([*,*])", "<1,*,*>([*,*])"),
)


def test_the_45_server_states_of_the_papers_figure():
    states = list(symbolic.states("bml", (3, 3)))
    assert len(states) == len(FIGURE_4)
    for state, texts in zip(states, FIGURE_4, strict=True):
        for i, j in itertools.product(range(3), repeat=2):
            assert symbolic.patterns(state, 3 * i + j) == tuple(text.format(i=i, j=j) for text in texts)


def test_states_are_what_is_there_and_stay_as_they_were():
    first, *_, last = symbolic.states("ring", (3,))
    assert [first.contributors(rank, 0) for rank in range(3)] == [[0], [1], [2]]
    assert last.contributors(2, 1) == [0, 1, 2]


def test_what_is_no_pattern_is_not_written_as_one():
    state = list(symbolic.states("bml", (3, 3)))[1]
    state.bits[4, 0] = 0b111 << 6  # of another thread's range: servers 6, 7, 8 instead of 3, 4, 5
    state.bits[4, 3] = 0b111 << 6
    with pytest.raises(ValueError, match="rank 4, thread 0"):
        symbolic.patterns(state, 4)


# Broken collectives


def broken(monkeypatch, name: str, change: Callable[[int, Round], Round | None]) -> None:
    """`change` is given number (from 1) and round, and gives another, or None for none."""
    module = collectives.get(name)
    whole = module.rounds

    def rounds(shape, root=0, **how):
        changed = (change(number, step) for number, step in enumerate(whole(shape, root, **how), start=1))
        return (step for step in changed if step is not None)

    monkeypatch.setattr(module, "rounds", rounds)


def edited(step: Round, at: int, **values: int) -> Round:
    """The round with other values in transfer `at`."""
    changed = {key: np.array(getattr(step, key)) for key in values}
    for key, value in values.items():
        changed[key][at] = value
    return step._replace(**changed)


def arrays(step: Round) -> dict[str, np.ndarray]:
    return {key: each for key, each in step._asdict().items() if isinstance(each, np.ndarray)}


def without(step: Round, at: int) -> Round:
    return step._replace(**{key: np.delete(each, at) for key, each in arrays(step).items()})


def twice(step: Round, at: int) -> Round:
    return step._replace(**{key: np.append(each, each[at]) for key, each in arrays(step).items()})


# collective, shape, what is wrong with a round, and the message
BROKEN = {
    "a round dropped": (
        "ring",
        (4,),
        lambda number, step: None if number == 2 else step,
        "after round 5, the last, rank 0 lacks the contribution of ranks 1, 2 in piece 0 "
        "(16 incomplete piece(s) in all)",
    ),
    "a sum sent twice": (
        "ring",
        (4,),
        lambda number, step: twice(step, 1) if number == 2 else step,
        "round 2: rank 2 adds the contribution of ranks 0, 1 to piece 3 a second time, from rank 1",
    ),
    "an own contribution sent back": (
        "recursive_doubling",
        (4,),
        lambda number, step: edited(step, 1, destination=0) if number == 2 else step,
        "round 2: rank 0 adds the contribution of ranks 0, 1 to piece 0 a second time, from rank 1",
    ),
    "a wrong piece": (
        "ring",
        (4,),
        lambda number, step: edited(step, 0, first=2) if number == 1 else step,
        "round 2: rank 1 adds the contribution of rank 0 to piece 2 a second time, from rank 0",
    ),
    "two copies of one piece": (
        "ps_p2p",
        (4,),
        lambda number, step: edited(step, 0, first=2) if number == 2 else step,
        "round 2: ranks 0 and 2 both replace piece 2 of rank 1: which of them comes last is left to chance",
    ),
    "a transfer beyond the pieces": (
        "ring",
        (4,),
        lambda number, step: edited(step, 0, first=4) if number == 3 else step,
        "round 3: rank 0 sends 1 piece(s) from piece 4 on to rank 1: there are pieces 0 to 3",
    ),
    "a transfer of nothing": (
        "ring",
        (4,),
        lambda number, step: edited(step, 0, pieces=0) if number == 3 else step,
        "round 3: rank 0 sends 0 piece(s) from piece 1 on to rank 1: there are pieces 0 to 3",
    ),
    "a rank too many": (
        "ring",
        (4,),
        lambda number, step: edited(step, 3, destination=4) if number == 1 else step,
        "round 1: rank 3 sends 1 piece(s) from piece 2 on to rank 4: there are ranks 0 to 3",
    ),
    "a rank below 0": (
        "ring",
        (4,),
        lambda number, step: edited(step, 3, source=-1) if number == 1 else step,
        "round 1: rank -1 sends 1 piece(s) from piece 2 on to rank 0: there are ranks 0 to 3",
    ),
    "a rank that sends to itself": (
        "ring",
        (4,),
        lambda number, step: edited(step, 2, destination=2) if number == 6 else step,
        "round 6: rank 2 sends 1 piece(s) from piece 0 on to rank 2: a rank doesn't send to itself",
    ),
    "a copy of a part": (
        "bml",
        (3, 3),
        lambda number, step: edited(step, 0, pieces=2) if number == 4 else step,
        "after round 4, the last, rank 1 lacks the contribution of ranks 0, 2, 3, 4, 5 and 3 more in piece 2 "
        "(1 incomplete piece(s) in all)",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_collective_is_refused_with_the_place(monkeypatch, fault):
    name, shape, change, text = BROKEN[fault]
    broken(monkeypatch, name, change)
    with pytest.raises(RunError) as caught:
        symbolic.verify(name, shape)
    assert str(caught.value) == f"collective {name!r} on {' x '.join(map(str, shape))} ranks: {text}"


@settings(max_examples=60)
@given(data=st.data())
def test_no_transfer_is_dispensable_none_may_come_twice_and_each_piece_counts(data):
    """Whichever transfer of whichever collective is left out, doubled or moved by a piece: it is found."""
    name = data.draw(st.sampled_from(collectives.names()))
    shape = data.draw(st.sampled_from([(n,) for n in range(2, 9)] + SHAPES.get(name, [])))
    whole = list(collectives.rounds(name, shape))
    number = data.draw(st.integers(0, len(whole) - 1))
    at = data.draw(st.integers(0, len(whole[number].source) - 1))
    change = data.draw(st.sampled_from([without, twice, lambda step, i: edited(step, i, first=step.first[i] + 1)]))
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, name, lambda n, step: change(step, at) if n == number + 1 else step)
        with pytest.raises(RunError):
            symbolic.verify(name, shape)


@settings(max_examples=40)
@given(data=st.data())
def test_no_transfer_of_a_half_is_dispensable(data):
    """What is left out, doubled or moved by a piece is found in a reduce-scatter and in an all-gather too."""
    kind, name = data.draw(st.sampled_from(HALVES)), data.draw(st.sampled_from(["ps_p2p", "ring", "halving_doubling"]))
    shape = (data.draw(st.sampled_from([2, 4, 8] if name == "halving_doubling" else [*range(2, 9)])),)
    whole = list(collectives.rounds(name, shape))
    of_kind = [number for number, step in enumerate(whole) if step.adds == (kind == "reduce_scatter")]
    number = data.draw(st.sampled_from(of_kind))
    at = data.draw(st.integers(0, len(whole[number].source) - 1))
    change = data.draw(st.sampled_from([without, lambda step, i: edited(step, i, first=step.first[i] + 1)]))
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, name, lambda n, step: change(step, at) if n == number + 1 else step)
        with pytest.raises(RunError):
            symbolic.verify(name, shape, kind=kind)


@settings(max_examples=80)
@given(data=st.data())
def test_no_transfer_of_the_other_kinds_is_dispensable(data):
    """Left out, from another rank, from or to a wrong piece: it is found, whatever the root."""
    name, kind = data.draw(st.sampled_from(OTHERS))
    ranks = data.draw(st.integers(3, 8))
    root = data.draw(st.integers(0, ranks - 1))
    whole = list(collectives.get(name).rounds((ranks,), root))
    adds = kind == "reduce"
    number = data.draw(st.sampled_from([i for i, step in enumerate(whole) if step.adds == adds]))
    at = data.draw(st.integers(0, len(whole[number].source) - 1))
    changes = [without, lambda step, i: edited(step, i, first=step.first[i] + 1)]
    if kind == "all_to_all":
        changes.append(lambda step, i: edited(step, i, into=(step.into[i] + 1) % ranks))
        changes.append(lambda step, i: edited(step, i, first=(step.first[i] + 1) % ranks))
    change = data.draw(st.sampled_from(changes))
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, name, lambda n, step: change(step, at) if n == number + 1 else step)
        with pytest.raises(RunError):
            symbolic.verify(name, (ranks,), root, kind=kind)


BROKEN_OTHERS = {
    "a broadcast that leaves one out": (
        ("binary_tree", "broadcast", 1),
        lambda number, step: without(step, 0) if number == 4 else step,
        "after round 2, the last: rank 2 has nothing in place of piece 0 (1 such piece(s) in all)",
    ),
    "a reduce that forgets one": (
        ("ps_central", "reduce", 2),
        lambda number, step: without(step, 1) if number == 1 else step,
        "after round 1, the last, rank 2 lacks the contribution of rank 1 in piece 0 (1 incomplete piece(s) in all)",
    ),
    "an exchange with the wrong piece": (
        ("pairwise", "all_to_all", 0),
        lambda number, step: edited(step, 0, first=3) if number == 1 else step,
        "after round 2, the last: rank 1 has piece 3 of rank 0 in place of piece 0 (1 such piece(s) in all)",
    ),
    "an exchange into one place": (
        ("pairwise", "all_to_all", 0),
        lambda number, step: edited(step, 0, into=2) if number == 1 else step,
        "round 1: ranks 0 and 2 both replace piece 2 of rank 1: which of them comes last is left to chance",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_OTHERS)
def test_a_broken_one_of_another_kind_is_refused_with_the_place(monkeypatch, fault):
    (name, kind, root), change, text = BROKEN_OTHERS[fault]
    broken(monkeypatch, name, change)
    with pytest.raises(RunError) as caught:
        symbolic.verify(name, (4,), root, kind=kind)
    assert str(caught.value) == f"collective {name!r} on 4 ranks: {text}"


def test_an_all_gather_that_brings_another_piece_is_refused_with_rank_and_piece(monkeypatch):
    broken(monkeypatch, "ring", lambda n, step: without(step, 1) if n == 4 else step)
    with pytest.raises(RunError) as caught:
        symbolic.verify("ring", (4,), kind="all_gather")
    assert str(caught.value) == (
        "collective 'ring' on 4 ranks: after round 3, the last: rank 0 has nothing in place of piece 1 "
        "(3 such piece(s) in all)"
    )


def test_what_is_too_large_or_declares_something_else_is_refused(monkeypatch):
    with pytest.raises(InputError, match=r"'bml' on 16 x 16 x 16 x 16 ranks: too large.*262144 pieces.*GiB"):
        symbolic.verify("bml", (16,) * 4)
    with pytest.raises(InputError, match="needs levels of one size"):
        symbolic.verify("bml", (3, 2))
    monkeypatch.setattr(collectives.get("ring"), "POSTCONDITION", "gather")
    with pytest.raises(InputError, match="'ring' declares the postcondition 'gather'"):
        symbolic.verify("ring", (3,))
