"""What kernels take: bytes that they move, seconds a byte as measured; what nobody measured is refused, not free."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_plans as tiny
from changed_plans import bases
from gradsync import cli, compressors
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.kernels import KERNELS, Form
from gradsync.measure import kernels as measured
from gradsync.plan import Local
from gradsync.rounds.lowering import lowered
from tiny_workloads import workload

NETWORK = Network({kind: Linear(0.0, 0.0) for kind in ("all_reduce", "all_gather", "send")})
UPDATED = ("sgd", "sgd_scaled", "norm", "squares", "root_of_sum", "scaler")  # in the workload's own seconds
UNSCALED = ("sgd_unscaled", "adam_unscaled", "adamw_unscaled")  # in those of the update without a loss scale
UNMOVED = "join"


def period(plan, load, **how):
    return simulate(plan, load, NETWORK, **how).iteration_seconds()


def load_of(plan, **kernels: float):
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    names = [tensor.name for tensor in plan.tensors]
    return workload(sizes, [1.0] * len(sizes), forward=1.0, dtype="float64", names=names, kernels=kernels)


def test_what_nobody_said_a_kernel_takes_is_refused_and_not_free():
    plan = tiny.sparse(2)
    with pytest.raises(InputError, match=r"'encode' moves .* \(encode_exact_topk\), and workload 'tiny' doesn't say"):
        period(plan, load_of(plan))
    with pytest.raises(InputError, match=r"'decode' moves .* \(decode_sum\)"):
        period(plan, load_of(plan, encode_exact_topk=1.0))
    ring = lowered(tiny.synchronous(2, algorithm="ring"))
    with pytest.raises(InputError, match=r"'message0\.add0\.0' moves 72 bytes \(add\)"):
        period(ring, load_of(ring))
    assert period(ring, load_of(ring), add_seconds_per_byte=0.0) == pytest.approx(5.0)


def test_a_sparse_iteration_takes_its_encoding_and_decoding():
    """13 float64 gradients, 3 of them sent by each of 2 ranks, each with an index of 8 bytes."""
    plan = tiny.sparse(2)
    whole, sent = 13 * 8, 3 * (8 + 8)
    encode = whole + 2 * whole + sent  # gradient and residual, read; residual and message, written
    decode = 2 * sent + whole + 2 * 2 * 3 * 8  # both messages, the gradient, and an element of it for each value
    seconds = period(plan, load_of(plan, encode_exact_topk=0.5, decode_sum=0.25))
    assert seconds == pytest.approx(1.0 + 4.0 + 0.5 * encode + 0.25 * decode)
    known = {"encode_exact_topk": 0.5, "encode_exact_topk/selected": 2.0, "decode_sum": 0.25}
    more = period(plan, load_of(plan, **known))
    assert more == pytest.approx(seconds + 2.0 * sent)


@pytest.mark.parametrize("wire", ["", "float16"])
def test_casts_of_a_narrow_wire_count(wire):
    sizes = [4000, 8000]
    load = workload(sizes, [1.0, 1.0], forward=1.0, kernels={"cast": 1e-3})
    scheme = schemes.Scheme(name="single", wire=wire)  # type: ignore[arg-type]
    plan = schemes.plan(scheme, load, Linear(2.0, 1e-3), 2)
    seconds = simulate(plan, load, alpha_beta.around(Linear(2.0, 1e-3), 2)).iteration_seconds()
    sent, cast = (12.0, 0.0) if not wire else (6.0, 2 * 1e-3 * 12_000 * 1.5)
    assert seconds == pytest.approx(3.0 + 2.0 + sent + cast)


def test_shared_memory_takes_as_much_as_copies_and_sums():
    plan = tiny.hogwild(1)
    bytes_ = 13 * 8
    seconds = period(plan, load_of(plan, copy=0.5, add=0.25))
    assert seconds == pytest.approx(5.0 + 0.5 * 2 * bytes_ + 0.25 * 3 * bytes_)


def test_a_piece_takes_its_part():
    plan = bases.sharded_model(2)
    (role,) = plan.roles
    update = next(op for op in role.flat if isinstance(op, Local))
    whole = 8 * (update.reads[0].stop - update.reads[0].start)
    assert KERNELS["sgd"].moved(Form(plan, update)) == pytest.approx(5 * whole / 2)


def test_every_kernel_declares_what_it_moves_and_can_be_measured():
    for name in measured.TRIALS:
        plan, op = measured.trial(name, 1000)
        form = Form(plan, op)
        KERNELS[name].refuse(form)
        touched = sum(operand.bytes for operand in (*form.reads, *form.writes))
        assert touched <= KERNELS[name].moved(form) <= 3 * touched
    assert {*measured.TRIALS, *UPDATED, *UNSCALED, UNMOVED} == {*KERNELS}


@pytest.mark.parametrize(("per_byte", "per_selected"), [(2.0, 3.0), (2.0, 0.0), (0.5, 7.0)])
def test_moving_and_selecting_are_told_apart(per_byte, per_selected):
    name, forms = "encode_exact_topk", []
    for per_sent in (measured.FEW, measured.MANY):
        form = Form(*measured.trial(name, 1000, per_sent))
        forms.append((form, KERNELS[name].seconds(form, {name: per_byte, f"{name}/selected": per_selected})))
    found = measured.told_apart(name, *forms)
    assert found == pytest.approx({name: per_byte, f"{name}/selected": per_selected})


@given(few=st.floats(1e-9, 1e3), ratio=st.floats(1e-3, 1e9), elements=st.integers(1, 3000))
def test_noise_makes_no_kernel_take_less_than_nothing(few, ratio, elements):
    name = "encode_exact_topk"
    forms = [Form(*measured.trial(name, elements, per_sent)) for per_sent in (measured.FEW, measured.MANY)]
    found = measured.told_apart(name, (forms[0], few), (forms[1], few * ratio))
    assert min(found.values()) >= 0
    assert KERNELS[name].seconds(forms[0], found) == pytest.approx(few)


@pytest.mark.usefixtures("alone")
def test_what_kernels_take_is_measured():
    rates = measured.seconds_per_byte(20_000)
    selecting = {f"{name}/selected" for name, kernel in KERNELS.items() if kernel.selected is not None}
    assert selecting == {f"encode_{name}/selected" for name in compressors.selecting()}
    assert rates.keys() == measured.TRIALS.keys() | selecting
    assert all(0 <= seconds < 1e-3 for seconds in rates.values())
    # all of a selecting kernel's time may be told to go with what is selected
    assert all(rates[name] > 0 for name in rates.keys() - selecting if f"{name}/selected" not in selecting)
    assert rates["encode_exact_topk"] + rates["encode_exact_topk/selected"] > rates["copy"]  # more than its bytes take


def test_the_command_line_takes_what_summing_costs(capsys, tmp_path):
    load = tmp_path / "load.json"
    load.write_text(workload([4000, 8000], [1.0, 1.0], forward=1.0, kernels={}).to_json())
    common = ["--workload", str(load), "--allreduce", "alpha=0,bandwidth=1e9"]
    path = tmp_path / "plan.json"
    assert cli.main(["plan", *common, "--schedule", "ring", "--ranks", "2", "--output", str(path)]) == 0
    capsys.readouterr()
    simulated = ["simulate", *common, "--plan", str(path), "--transfers", "--json"]
    assert cli.main(simulated) == 2
    assert "doesn't say what a byte takes" in capsys.readouterr().err
    assert cli.main([*simulated, "--gamma", "-1"]) == 2
    assert "--gamma -1: must be a finite number" in capsys.readouterr().err
    seconds = []
    for gamma in ("0", "1e-3"):
        assert cli.main([*simulated, "--gamma", gamma]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["iteration_seconds"])
    # half of each message is summed; the first sum ends a second after the last gradient is there
    assert seconds[1] - seconds[0] == pytest.approx(1.0 + 1e-3 * 4000, rel=1e-3)
