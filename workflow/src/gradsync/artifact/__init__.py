"""One archive of the results of a configuration, by which another person checks a run of their own.

`archive.py` writes and reads it, `promises.py` says of each file what a fresh run of the same commit must give again,
`check.py` holds a run against it, and `tour.py` lists what can be made, by which command, and what can't.
"""

from gradsync.artifact.archive import write
from gradsync.artifact.check import check

__all__ = ["check", "write"]
