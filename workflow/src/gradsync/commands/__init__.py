"""What the words of the command line do; each returns what is printed.

Modules that a subcommand does not need are not imported: `gradsync plan` never loads torch.
"""

from gradsync.commands.configured import benchmark, claims, external, figure, table, track
from gradsync.commands.measuring import measure
from gradsync.commands.planning import draw, export, plan, simulate
from gradsync.commands.training import train

__all__ = [
    "benchmark",
    "claims",
    "draw",
    "export",
    "external",
    "figure",
    "measure",
    "plan",
    "simulate",
    "table",
    "track",
    "train",
]
