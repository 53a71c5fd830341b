"""Snakemake's screen while the workflow runs, as `gradsync.workflow.screen` words it; `profiles/default` chooses it.

Everything but the start and end of jobs, warnings and errors too, is shown as Snakemake words it. So is all of a dry
run, and of a run with `--verbose` or `--printshellcmds`.
"""

from __future__ import annotations

import logging
import sys
import time

from snakemake.logging import ColorizingTextHandler
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from gradsync.workflow.screen import Screen

SILENT = {LogEvent.WORKFLOW_STARTED, LogEvent.RESOURCES_INFO, LogEvent.JOB_STARTED, LogEvent.PROGRESS}
# Lines that Snakemake writes besides events, and that no reader needs: they are in its log file.
BOILERPLATE = (
    *("host: ", "Building DAG of jobs", "Using shell: ", "Assuming unrestricted shared filesystem", "Select jobs"),
    "Singularity containers: ignored",
)


class LogHandler(LogHandlerBase):
    """Shows a run of the workflow."""

    def __post_init__(self) -> None:
        settings = self.common_settings
        self.whole = bool(settings.dryrun or settings.verbose or settings.printshellcmds or settings.debug_dag)
        self.screen = Screen()
        self.stream = sys.stdout if settings.stdout else sys.stderr
        self.snakemake_handler = ColorizingTextHandler(nocolor=settings.nocolor, stream=self.stream)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, or leave it to the log file."""
        try:
            if self.whole or record.levelno >= logging.WARNING:
                self._as_snakemake(record)
            else:
                self._show(record)
        except Exception:
            self.handleError(record)

    def _show(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        line: str | None = None
        if event == LogEvent.RUN_INFO:
            line = self.screen.planned(record.stats)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_INFO:
            line = self.screen.started(record.jobid, record.rule_name, _job_name(record))  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_FINISHED:
            line = self.screen.ended(record.job_id)  # type: ignore[attr-defined]
        elif event not in SILENT and not record.getMessage().startswith(BOILERPLATE):
            self._as_snakemake(record)
        if line is not None:
            print(f"{time.strftime('%H:%M:%S')}  {line}", file=self.stream, flush=True)

    def _as_snakemake(self, record: logging.LogRecord) -> None:
        self.snakemake_handler.setFormatter(self.formatter)
        self.snakemake_handler.emit(record)

    @property
    def writes_to_stream(self) -> bool:
        """True: it writes to the screen."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """False: Snakemake writes its own log file."""
        return False

    @property
    def has_filter(self) -> bool:
        """False: Snakemake's own filter, which knows `--quiet`, is used."""
        return False

    @property
    def has_formatter(self) -> bool:
        """False: Snakemake's own formatter is used for what is shown as Snakemake words it."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """False: it draws no graph of rules."""
        return False


def _job_name(record: logging.LogRecord) -> str:
    """What a job makes: the message of its rule, or the rule and its wildcards."""
    words = [str(value) for value in record.wildcards.values()]  # type: ignore[attr-defined]
    return str(record.rule_msg or " ".join([record.rule_name, *words]))  # type: ignore[attr-defined]
