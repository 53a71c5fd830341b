"""Transforms of plans: what a step of training may have besides its update, each made of one plan into another.

An update (`updates/`) plans the plain step. Each of these functions adds one thing to whatever plan it gets, or refuses
a plan for which it makes no sense:

    accumulation.accumulate(plan, micro_batches)
    narrow_wire.narrow(plan, wire)
    statistics.broadcast(plan, elements)
    loss_scaling.scale_loss(plan)
    clipping.clip(plan, norm)

They look at what operations do, not at what they are called, so that no update repeats them. In whatever order they are
applied, the plan does the same: only its list of buffers has another order.
"""
