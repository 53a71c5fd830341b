"""What real ranks run in the tests; each program gets (rank, ranks) inside a process group and returns its results.

One launch runs many cases, since starting a rank takes seconds. `real_ranks.py` finds a program by its name.
"""

from rank_programs.of_attached import AUTO_CASES, AUTO_QUEUED, attached_auto, attached_beside_ddp, attached_otherwise
from rank_programs.of_attached_benchmark import attach_benchmark
from rank_programs.of_attached_scales import attached_with_a_scaler
from rank_programs.of_checkpoints import RESUMED_TURNS, resumed
from rank_programs.of_collectives import (
    MESSAGES,
    all_collectives,
    both_halves,
    cluster_teams,
    other_kinds,
    ring_benchmark,
)
from rank_programs.of_conformance import held_against_the_oracle
from rank_programs.of_evaluations import evaluated
from rank_programs.of_failures import (
    LATE,
    crashed_in_a_ring,
    killed_in_a_collective,
    killed_in_a_ring,
    killed_worker,
    limits,
    straggling,
)
from rank_programs.of_levels import level_cases, summed_by_level
from rank_programs.of_loss_scales import SCALED, loss_scales, scaled_plan
from rank_programs.of_low_rank import low_rank_schemes
from rank_programs.of_methods import METHOD_TURNS, all_methods, averaged_by_torch, method_cases
from rank_programs.of_models import quarter_models, real_models
from rank_programs.of_optimizers import DEALT, OPTIMIZED, optimized, ratios_alone, together
from rank_programs.of_phases import BROKEN_OFF, PHASE_RANKS, PHASE_TURNS, QUEUED_PHASES, phased_plans, phases
from rank_programs.of_schedules import (
    COMPOSED_RANKS,
    MICRO_BATCHES,
    all_schedules,
    composed_schemes,
    gpu_schedules,
    micro_batches,
    queued_schedules,
    shared_gpu_schedules,
    swapped,
    without_message,
)
from rank_programs.of_shared_memory import killed_part, parts_of_a_chip, raising_part
from rank_programs.of_sparse import sparse_cases, sparse_schemes, two_levels_of_sparse
from rank_programs.of_tiny_plans import HAMMER_TURNS, TINY_TURNS, all_tiny_plans, pull_of, tiny_cases
from rank_programs.of_traces import RECORDED_STEPS, recorded_beside_others

PROGRAMS = (
    *(all_schedules, composed_schemes, queued_schedules, gpu_schedules, shared_gpu_schedules, micro_batches),
    *(real_models, quarter_models, all_tiny_plans),
    *(
        all_collectives,
        both_halves,
        other_kinds,
        ring_benchmark,
        cluster_teams,
        resumed,
        evaluated,
        held_against_the_oracle,
        straggling,
    ),
    *(
        killed_worker,
        killed_in_a_ring,
        killed_in_a_collective,
        crashed_in_a_ring,
        limits,
        optimized,
        ratios_alone,
        all_methods,
        sparse_schemes,
        summed_by_level,
        two_levels_of_sparse,
        low_rank_schemes,
    ),
    *(averaged_by_torch, parts_of_a_chip, killed_part, raising_part, loss_scales, phases),
)

__all__ = [
    "AUTO_CASES",
    "AUTO_QUEUED",
    "BROKEN_OFF",
    "COMPOSED_RANKS",
    "DEALT",
    "HAMMER_TURNS",
    "LATE",
    "MESSAGES",
    "METHOD_TURNS",
    "MICRO_BATCHES",
    "OPTIMIZED",
    "PHASE_RANKS",
    "PHASE_TURNS",
    "PROGRAMS",
    "QUEUED_PHASES",
    "RECORDED_STEPS",
    "RESUMED_TURNS",
    "SCALED",
    "TINY_TURNS",
    "attach_benchmark",
    "attached_auto",
    "attached_beside_ddp",
    "attached_otherwise",
    "attached_with_a_scaler",
    "level_cases",
    "method_cases",
    "phased_plans",
    "pull_of",
    "recorded_beside_others",
    "scaled_plan",
    "sparse_cases",
    "swapped",
    "tiny_cases",
    "together",
    "without_message",
]
