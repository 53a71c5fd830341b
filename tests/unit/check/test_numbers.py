"""Numbers that a type can't hold, operands that a kernel reads after writing, and too many of anything are found."""

from __future__ import annotations

import pytest

import tiny_plans as tiny
from gradsync.check import PlanError, check
from gradsync.errors import InputError
from gradsync.plan import Buffer, Local, Plan, Ref
from odd_plans import alone, kernel, long_and_sparse, many_groups, repeated, scaled, with_types
from plan_edits import changed, index_of, setting, with_buffers

PLAN = tiny.synchronous(2)
SPARSE = tiny.sparse(2)
HOGWILD = tiny.hogwild(2)
RING = tiny.synchronous(2, algorithm="ring")
GRADIENT, PARAMETER = Ref("gradient", 0, 13), Ref("parameter", 0, 13)


def decoding_a_piece() -> Plan:
    """Of one element rank 0 has none, and clears what it writes."""

    def edit(body):
        one = (Ref("values", 0, 1, ("world",)), Ref("indices", 0, 1, ("world",)))
        again = Local(name="again", kernel="decode_sum", after=("decode",), reads=one, writes=(GRADIENT,))
        body.insert(index_of(body, "update"), again)
        setting("update", after=("again",))(body)

    return changed(SPARSE, edit)


FAULTS = {
    # numbers
    "a sum of bytes with a scale": (scaled("add", "uint8", scale=0.5), r"needs ranges of one of the types float64"),
    "a cast of bytes": (scaled("cast", "uint8", "float64"), r"needs ranges of one of the types float64"),
    "a sum scaled by nothing": (scaled("add", "float64", scale=0.0), r"needs a scale of at least 1e-18, not 0"),
    "a cast scaled by next to nothing": (
        scaled("cast", "float64", scale=1e-30),
        r"a scale of at least 1e-18, not 1e-30",
    ),
    "a factor that float16 doesn't hold": (
        scaled("add", "float16", scale=65536.0),
        r"has arguments of up to 65536, and float16 holds 65504 at most",
    ),
    "a factor that float32 doesn't hold": (
        with_types(changed(PLAN, setting("update", arguments={"lr": 1e300})), gradient="float32", parameter="float32"),
        r"arguments of up to 1e\+300, and float32 holds 1e\+38 at most",
    ),
    "factors whose product float64 holds and float32 doesn't": (
        with_types(
            changed(PLAN, setting("update", arguments={"lr": 1e30, "scale": 1e30})),
            gradient="float32",
            parameter="float32",
        ),
        r"arguments of up to 1e\+60, and float32 holds 1e\+38 at most",
    ),
    "an update scaled by nothing": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "scale": 0.0})),
        r"needs a scale of at least",
    ),
    "an update that climbs": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "scale": -0.5})),
        r"kernel 'sgd' needs a scale above 0",
    ),
    "a shared add of nothing": (changed(HOGWILD, setting("push", scale=0.0)), r"'push': a scale of 0 adds nothing"),
    "a shared add that float16 doesn't hold": (
        with_types(
            changed(HOGWILD, setting("push", scale=7e4)), gradient="float16", parameter="float16", centre="float16"
        ),
        r"'push': a scale of 70000 adds nothing, or too much",
    ),
    "parameters that are whole numbers": (
        with_types(HOGWILD, gradient="int64", parameter="int64", centre="int64"),
        r"buffer 'gradient' holds a gradient, of floats, not of int64",
    ),
    "a buffer larger than any memory": (with_buffers(PLAN, Buffer("spare", 10**19)), r"elements: 1 to 1099511627776"),
    "indices that int32 doesn't hold": (
        long_and_sparse("int32"),
        r"'encode': kernel 'encode_exact_topk' can't count 2147483649 elements in int32",
    ),
    # kernels that would read what they have written
    "a norm in the place of what it is of": (
        alone(kernel("norm", (Ref("a", 0, 2), Ref("b", 0, 2)), (Ref("b", 0, 2),))),
        r"kernel 'norm' can't write what it reads: b\[0:2\]",
    ),
    "gradients decoded into their own message": (
        changed(tiny.sparse(1, (3,), 3), setting("decode", writes=(Ref("values", 0, 3),))),
        r"kernel 'decode_sum' can't write what it reads: values\[0:3\]",
    ),
    "a decode of no message": (decoding_a_piece(), r"'again' decodes no message, and clears what it writes"),
    "a scaled update of no tensors": (
        alone(
            kernel("sgd_scaled", (Ref("a", 0, 4),), (Ref("b", 0, 4), Ref("s", 0, 3)), arguments={"lr": 0.1}),
            buffers=(Buffer("s", 3, role="scaler"),),
        ),
        r"updates all parameters at once",
    ),
    # names and how many
    "an operation with the name of a transfer": (
        changed(RING, lambda body: body.insert(0, Local(name="message0.send0.1", kernel="join"))),
        r"'message0.send0.1' is the name of a transfer of 'message0'",
    ),
    "a buffer with the name of what is received into": (
        with_buffers(RING, Buffer("scratch:message0", 3)),
        r"'scratch:message0' is the name of what 'message0' receives into",
    ),
    "more groups than connections": (many_groups(9), r"role 'one' is in 540 groups of ranks.*: at most 512"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (repeated(10**9), "and operations, none of which is another repeat"),
        (repeated(50_001, Local(name="x", kernel="join")), "has 50001 operations of repeats and 1 others a turn"),
    ],
)
def test_repeats_of_nothing_or_without_end_are_refused_and_not_spelled_out(plan, problem):
    with pytest.raises(InputError, match=problem):
        check(plan)
