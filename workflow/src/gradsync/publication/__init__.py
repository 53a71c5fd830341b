"""Dated results of long configurations: small tables with provenance, kept beside the configurations.

`make.py` makes an entry from a folder of results, `entry.py` reads entries; the report shows them beside the run at
hand.
"""

from gradsync.publication.entry import FOLDER, Entry, PublishedTable, entries, load
from gradsync.publication.make import publish

__all__ = ["FOLDER", "Entry", "PublishedTable", "entries", "load", "publish"]
