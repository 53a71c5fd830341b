"""Which timed rows of this paper's tables a configuration makes: Fig. 5(b), and Fig. 6 to 8 by their launches."""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.configuration.settings import Settings
from gradsync.papers.coverage import Row, cores, has_interval, scheme_names
from gradsync.papers.mgwfbp.emulation import on_paper_links

NEVER: dict[tuple[str, str], str] = {}
LAUNCH_TABLES = ("fig6", "fig7", "fig8")


def rows(table: str, rung: str, settings: Settings) -> Iterator[Row]:
    """Rows of this rung that have values and an interval of them."""
    if table == "fig5b":
        yield from _of_networks(rung, settings)
    elif table in LAUNCH_TABLES and rung == "emulated":
        for launch in filter(has_interval, on_paper_links(settings)):
            for scheme in launch.schemes:
                yield Row({"model": launch.model, "nodes": launch.ranks, "scheme": scheme})
    elif table in LAUNCH_TABLES and rung == "measured":
        for job in settings.of("mgwfbp"):
            # speed-ups need the reference of one rank, exposed communication that without communication
            for scheme in scheme_names(job, settings) if has_interval(job) and job.references else ():
                yield Row({"model": job.model, "nodes": job.ranks, "scheme": scheme}, cores(job.ranks, settings))


def _of_networks(rung: str, settings: Settings) -> Iterator[Row]:
    if rung == "emulated":
        yield from (Row({"nodes": launch.ranks}) for launch in on_paper_links(settings))
    elif rung == "measured":
        yield from (Row({"nodes": n}, cores(n, settings)) for n in settings.network.ranks)
