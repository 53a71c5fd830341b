"""The most of everything that is taken, with the reason: options, configurations and files are held to the same.

What depends on a machine (its memory, its disk, its cores) is looked up where it is needed.
"""

from __future__ import annotations

# Ranks and what they compute
MOST_RANKS = 65_536  # hosts of a BCube of 16 ports and 4 levels, the largest that a paper speaks of
MOST_COUNT = 1_000_000_000  # samples, epochs, iterations: 32 bits hold them
MOST_LENGTH = 65_536  # pixels of a side, or tokens: more is a slip of the keyboard
MOST_ACCUMULATED = 1024  # micro-batches per step: each is operations of the plan
MOST_PERIOD = 2000  # iterations between two synchronisations, the longest period of DiLoCo's paper: each is in the plan
MOST_SEED = (1 << 64) - 1  # torch's generator takes 64 bits
MOST_GPUS_A_NODE = 1024
MOST_MEGABYTES = 1_000_000_000  # of a node: a petabyte
MOST_MINUTES = 100_000_000  # of a job: two centuries, which is what Slurm can count

# Messages that are measured
LEAST_MESSAGE = 4  # bytes: an element
MOST_MESSAGE = 1 << 36  # bytes, 64 GiB: every rank holds one, and its sum
LEAST_LANES = 2  # of messages: on one lane there is no contention
MOST_MEASURED_LANES = 16  # each has threads and connections of its own on every rank
LEAST_MEASURED_SECONDS = 1e-12  # no clock resolves as much; less makes fits divide by nothing
MOST_MEASURED_SECONDS = 1e9  # 30 years
MOST_SHORTLISTED = 16  # schemes in one launch: each has a copy of the model on every rank
MOST_SELECTIONS = 1000  # rounds, and selections in each: the paper has 100

# Simulation
LEAST_TURNS = 2  # a period lies between two
MOST_TURNS = 10_000  # iterations: a trace holds every operation of each
MOST_HOSTS = 1 << 20  # of a topology: 16 times what a paper speaks of; their rounds take at most 2 GB, and minutes
MOST_TRANSFERS = 10**10  # of a collective; alike rounds are timed once, so this many take seconds to minutes

# Plans
MOST_OPERATIONS = 1_000_000  # of a role in a turn: a plan is checked and simulated one by one
MOST_REPEATED = 50_000  # of them that come from repeats: a short file asks for many
