"""Which timed rows of this paper's tables a configuration makes: Fig. 5(b), and Fig. 6 to 8 by their launches."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration.settings import Settings
from gradsync.papers.coverage import Row, cores, enough, trained
from gradsync.papers.mgwfbp.emulation import as_on_its_testbed

NEVER: dict[tuple[str, str], str] = {}
OF_LAUNCHES = ("fig6", "fig7", "fig8")


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if table == "fig5b":
        yield from _of_networks(rung, settings)
    elif table in OF_LAUNCHES and rung == "emulated":
        for launch in filter(enough, as_on_its_testbed(settings)):
            for scheme in launch.schemes:
                yield Row({"model": launch.model, "nodes": launch.ranks, "scheme": scheme})
    elif table in OF_LAUNCHES and rung == "measured":
        for job in settings.of("mgwfbp"):
            # speed-ups are over one rank, exposed communication is over none: the references
            for scheme in trained(job, settings) if enough(job) and job.references else ():
                yield Row({"model": job.model, "nodes": job.ranks, "scheme": scheme}, cores(job.ranks, settings))


def _of_networks(rung: str, settings: Settings) -> Iterator[Row]:
    if rung == "emulated":
        yield from (Row({"nodes": launch.ranks}) for launch in as_on_its_testbed(settings))
    elif rung == "measured":
        yield from (Row({"nodes": n}, cores(n, settings)) for n in settings.network.ranks)
