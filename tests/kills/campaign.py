"""Kill a command at random moments, start it again each time, and compare what it comes to with an undisturbed run.

A chain is one output: its command is killed several times, and at last left alone. A run counts as hung when it goes on
for more than `HANGS_SECONDS` beyond the time of the undisturbed one, which the same campaign measures, whatever else
the machine does. Tests, on whose cores other tests run, give it more time (`patient`).
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import waiting
from kills import victims
from kills.jobs import FORGOTTEN, REFUSED, STEP, SUBMITTER, Jobs
from kills.subjects import DISK_BYTES, Subject, every
from small_disk import fill, mounted

KINDS = ("resumed", "anew", "killed again", "lived on", "finished before", "lost", "hung", "left behind")
BAD = KINDS[5:]
HANGS_SECONDS = 30.0  # beyond an undisturbed run's time
UNDISTURBED_SECONDS = 600.0  # which that one may take, on any machine
ENDS_SECONDS = 30.0  # in which all that a killed run has started ends
CHAIN = 5  # kills of one output, at most
DRAWS = 3  # of moments, until one kill has hit
CACHES = "torchinductor_"  # torch's own, of the user
GOES_ON, FULL = "going on from the checkpoint", "no space left"
Table = Counter[tuple[str, str, str]]
"""By (subject, victim, kind): kills."""


class Campaign:
    """All kills of one subject. `say` gets a line for everything that must not be."""

    def __init__(self, subject: Subject, place: Path, chance: random.Random, say: Callable[[str], None] = print):
        self.subject, self.place, self.chance, self.say = subject, place, chance, say
        self.temporary = place / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.number, self.late = 0, 0.0
        self.hangs_seconds, self.ends_seconds = HANGS_SECONDS, ENDS_SECONDS
        self.seconds, self.wanted = self._undisturbed()
        self.known = self._about()  # what others have left

    def run(self, kills: int, chain: int = 0) -> Table:
        """Kill `kills` times, in chains of a given length, or of random ones; gives what became of each."""
        table: Table = Counter()
        while kills > 0:
            length = min(kills, chain or self.chance.randint(1, CHAIN))
            for victim, kind in self._chain(length):
                table[self.subject.name, victim, kind] += 1
                kills -= 1  # a chain ends early if the command was faster than its killer
        return table

    def _undisturbed(self) -> tuple[float, dict[str, Any]]:
        with ExitStack() as disks:
            self._fresh(disks)
            process, log = self._start()
            while process.poll() is None and self._checkpoint() is None:
                time.sleep(0.05)
            self.trains = time.monotonic()
            if process.wait(UNDISTURBED_SECONDS):
                raise RuntimeError(f"{self.subject.name} fails undisturbed: {log.read_text()}")
            self.trains = time.monotonic() - self.trains  # seconds after the first checkpoint
            return time.monotonic() - self.begun, self.subject.outcome()

    def _fresh(self, disks: ExitStack) -> None:
        self.subject.clear()
        if self.subject.name == "disk":
            disks.enter_context(mounted(self.subject.folder, DISK_BYTES))

    def _start(self) -> tuple[subprocess.Popen[bytes], Path]:
        self.number += 1
        self.mark = f"{self.place}/{self.subject.name}/{self.number}"
        log = self.place / f"{self.subject.name}.{self.number}.log"
        variables = {victims.MARK: self.mark, "TMPDIR": str(self.temporary)}
        variables |= {"SBATCH_OUTPUT": str(log), "SBATCH_OPEN_MODE": "append"}  # the output of a job goes there, too
        self.begun = time.monotonic()
        with log.open("ab") as file:
            process = subprocess.Popen(
                self.subject.command,
                cwd=self.subject.working,
                env=self.subject.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        return process, log

    def _chain(self, length: int) -> Iterator[tuple[str, str]]:
        with ExitStack() as disks:
            self._fresh(disks)
            waiting = ""  # the victim of the last kill: the next run shows what became of it
            for _ in range(length):
                victim = self.chance.choice(self.subject.victims)
                process, log = self._start()
                problem = self._disturb(process, log, victim)
                kind = problem or (self._beside() if victim == SUBMITTER and process.returncode else "")
                if waiting:  # now its log is whole: a job whose submitter was killed has ended
                    yield waiting, self._went_on(log, killed=True)
                waiting = victim
                if kind in BAD:
                    self.say(f"{kind}: {self.subject.name}, {victim}, run {self.number}: {log.read_text()[-2000:]}")
                    self.end()
                if kind:
                    yield victim, kind
                    waiting = ""
                if kind in BAD:
                    return
                if not kind and process.returncode == 0:
                    yield victim, "finished before"
                    waiting = ""
                    break
            yield from self._last(waiting)

    def _last(self, waiting: str) -> Iterator[tuple[str, str]]:
        """The run that is left alone. Without a victim, the last one was through, and this one repeats it."""
        process, log = self._start()
        if not self._waited(process):
            self.say(f"hung: {self.subject.name}, run {self.number}: {log.read_text()[-2000:]}")
            yield waiting or "none", "hung"
            return
        same = process.returncode == 0 and self._same()
        if not same:
            status = process.returncode
            self.say(f"lost: {self.subject.name}, run {self.number}, status {status}: {log.read_text()[-2000:]}")
        clean = [sys.executable, "-m", "gradsync", "testbed", "clean"]
        if victims.networks():
            subprocess.run(clean, env=self.subject.environment, check=True, stdout=subprocess.DEVNULL)
        about = self._settled()
        if about:
            self.say(f"left behind: {self.subject.name}, run {self.number}: {about}")
        if waiting or not same or about:
            kind = "lost" if not same else "left behind" if about else self._went_on(log, killed=False)
            yield waiting or "none", kind

    def _same(self) -> bool:
        """Whether the output is that of an undisturbed run."""
        try:
            return self.subject.outcome() == self.wanted
        except (OSError, ValueError) as error:
            self.say(str(error))
            return False

    def _left(self) -> float:
        """Seconds that the latest run has left until it counts as hung."""
        return max(0.0, self.begun + self.seconds + self.hangs_seconds - time.monotonic())

    def _waited(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the latest run ends; if it hangs, end it and return False."""
        try:
            process.wait(self._left())
        except subprocess.TimeoutExpired:
            self.end()
            process.wait()
            return False
        self.late = max(self.late, time.monotonic() - self.begun - self.seconds)
        return True

    def end(self) -> None:
        """End the latest run, with all that it has started."""
        victims.end_all(self.mark)
        if self.subject.jobs:
            self.subject.jobs.cancel()

    def _about(self) -> set[str]:
        """What lies about besides the output."""
        temporary = {str(path) for path in self.temporary.iterdir() if not path.name.startswith(CACHES)}
        jobs = self.subject.jobs.left() if self.subject.jobs else []
        return {*victims.in_memory(), *victims.networks(), *temporary, *jobs}

    def _settled(self) -> list[str]:
        """What still lies about or lives after all that the latest run has started had time to end."""
        deadline = time.monotonic() + self.ends_seconds
        while True:
            about = [*sorted(self._about() - self.known), *(each.command for each in victims.of(self.mark))]
            if not about or time.monotonic() > deadline:
                return about
            time.sleep(0.05)

    def _went_on(self, log: Path, *, killed: bool) -> str:
        messages = log.read_text(errors="replace")
        if GOES_ON in messages:
            return "resumed"
        return "killed again" if killed else "anew"

    def _disturb(self, process: subprocess.Popen[bytes], log: Path, victim: str) -> str:
        """Kill at a random moment of the run, or fill its disk; gives what must not be, or nothing."""
        whole, share = self.chance.choice((True, False)), self.chance.random()
        whole = whole and victim != STEP  # before ranks have met, the others wait 120 s for one that Slurm misses too
        known = self._checkpoint()
        # half of the kills fall into training
        while not whole and self._checkpoint() in (known, None) and process.poll() is None:
            if not self._left():
                return "hung"
            time.sleep(0.005)
        moment = time.monotonic() + share * (self.seconds if whole else self.trains)
        while time.monotonic() < moment and process.poll() is None:
            time.sleep(0.005)
        if victim == "disk":
            return self._filled(process, log)
        while process.poll() is None and not self._strike(victim, process.pid):
            if not self._left():
                return "hung"
            time.sleep(0.005)
        if victim == SUBMITTER:
            process.wait()
            return ""  # its job goes on
        if victim == FORGOTTEN:
            self._forgotten(process)
        return self._ended(process)

    def _checkpoint(self) -> int | None:
        """The time at which the last checkpoint was written."""
        try:
            return (self.subject.folder / "checkpoint" / "latest.json").stat().st_mtime_ns
        except OSError:
            return None

    def _strike(self, victim: str, launcher: int) -> bool:
        if self.subject.jobs and victim != SUBMITTER:
            return self.subject.jobs.strike(victim, self.mark)
        return victims.strike(victim, launcher, self.mark)

    def _forgotten(self, process: subprocess.Popen[bytes]) -> None:
        """Slurm looks only every minute or so whether a batch script is there: once all of it has ended, cancel it."""
        while self._left() and process.poll() is None:
            if not any(each.job for each in victims.of(self.mark)):
                assert isinstance(self.subject.jobs, Jobs)
                self.subject.jobs.cancel()
                return
            time.sleep(0.05)

    def _beside(self) -> str:
        """Start the same command while the job of a killed submitter may live: one of the two is refused, by name."""
        first, until = self.mark, self._left() + time.monotonic()
        process, beside = self._start()
        if problem := self._ended(process):
            return problem
        while victims.of(first):
            if time.monotonic() > until:
                self.mark = first
                return "hung"
            time.sleep(0.05)
        refused = REFUSED in beside.read_text()
        if not self._same() or (process.returncode and not refused):
            self.say(f"beside it: {beside.read_text()[-2000:]}")
            return "lost"
        return "lived on" if refused else "anew"

    def _filled(self, process: subprocess.Popen[bytes], log: Path) -> str:
        filling = None
        try:
            if process.poll() is None and self.subject.folder.is_dir():
                filling = fill(self.subject.folder)
            problem = self._ended(process)
        finally:
            if filling is not None:
                filling.unlink()
        if not problem and process.returncode and FULL not in log.read_text():
            return "lost"  # and nobody knows why
        return problem

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for all of the run to end; if it doesn't, say whether the command hangs or has left something behind."""
        if not self._waited(process):
            return "hung"
        deadline = time.monotonic() + self.ends_seconds
        while left := victims.of(self.mark):
            if time.monotonic() > deadline:
                self.say(f"these live on: {[each.command for each in left]}")
                return "left behind"
            time.sleep(0.05)
        return ""


def kinds(table: Table) -> Counter[str]:
    """The number of kills by what became of them."""
    counts: Counter[str] = Counter()
    for (_, _, kind), count in table.items():
        counts[kind] += count
    return counts


def patient(campaign: Campaign) -> Campaign:
    """The campaign, with as much time as any test has before something counts as hung, or as left behind."""
    campaign.hangs_seconds = campaign.ends_seconds = waiting.HANGS_SECONDS
    return campaign


def killed(place: Path, names: list[str], kills: int, seed: int, jobs: Jobs | None = None) -> None:
    """Kill each of these subjects `kills` times, in one chain; raises AssertionError with all that must not be."""
    for subject in every(place, names, jobs):
        messages: list[str] = []
        campaign = patient(Campaign(subject, place, random.Random(f"{seed} {subject.name}"), messages.append))
        table: Table = Counter()
        counts: Counter[str] = Counter()
        for _ in range(DRAWS):  # runs that are faster than the undisturbed one was may end before they are killed
            table += campaign.run(kills, kills)
            counts = kinds(table)
            if counts.total() > counts["finished before"]:
                break
        print("\n".join(lines(table)))  # shown if a test fails
        assert not {kind: counts[kind] for kind in BAD if counts[kind]}, messages
        assert sum(counts.values()) >= kills
        assert sum(counts[kind] for kind in KINDS[:4]) > 0


def lines(table: Table) -> list[str]:
    """The table as CSV, one line per subject and victim."""
    rows = sorted({key[:2] for key in table})
    rows_of_csv = [",".join(("subject", "killed", "kills", *KINDS))]
    for row in rows:
        counts = [table[(*row, kind)] for kind in KINDS]
        rows_of_csv.append(",".join((*row, str(sum(counts)), *map(str, counts))))
    return rows_of_csv
