"""gradsync: which gradient communication scheme is fastest on this cluster, for this model, by how much, and why."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gradsync")
except PackageNotFoundError:  # run from the source tree without an install
    __version__ = "0+source"
