"""Messages that are summed by level, executed on real ranks: as the oracle, and as plain torch trains."""

import numpy as np
import pytest

import small_model
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.plan import Collective
from gradsync.runtime.compute import oracle_gradient
from rank_programs import level_cases

EQUAL = 1e-9


@pytest.mark.parametrize("ranks", [2, 4])
def test_executed_equals_the_oracle_and_plain_torch(on_ranks, ranks):
    results, reference = on_ranks("summed_by_level", ranks), small_model.reference(ranks)
    for name, scheme in level_cases(ranks).items():
        plan, model = small_model.of_scheme(scheme, ranks), small_model.build()
        check(plan)
        assert {op.over for op in plan.roles[0].flat if isinstance(op, Collective)} >= {"local", "node"}
        gradient = oracle_gradient(lambda rank, model=model: small_model.forward(model, rank), plan, small_model.sample)
        oracle = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)})
        for rank, result in enumerate(results):
            for device in ("", "queued "):
                executed = result[device + name]
                assert not isinstance(executed, str), f"{device}{name}, rank {rank}: {executed}"
                np.testing.assert_allclose(executed, oracle[rank]["parameter"], rtol=0, atol=EQUAL)
                for tensor in plan.tensors:
                    wanted = reference[tensor.name].reshape(-1)
                    np.testing.assert_allclose(executed[tensor.start : tensor.stop], wanted, rtol=0, atol=EQUAL)
