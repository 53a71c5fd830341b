"""What the words of the command line do; each returns what is printed.

Modules that a subcommand does not need are not imported: `gradsync plan` never loads torch.
"""

from gradsync.commands.checking import check
from gradsync.commands.cluster import cluster
from gradsync.commands.collective import collective
from gradsync.commands.configured import benchmark, claims, count, estimate, external, figure, table, track
from gradsync.commands.drawing import draw, export
from gradsync.commands.emulating import emulate
from gradsync.commands.images import image
from gradsync.commands.measuring import measure
from gradsync.commands.planning import plan, simulate
from gradsync.commands.slurm import slurm
from gradsync.commands.testbed import testbed
from gradsync.commands.training import train

__all__ = [
    "benchmark",
    "check",
    "claims",
    "cluster",
    "collective",
    "count",
    "draw",
    "emulate",
    "estimate",
    "export",
    "external",
    "figure",
    "image",
    "measure",
    "plan",
    "simulate",
    "slurm",
    "table",
    "testbed",
    "track",
    "train",
]
