"""Kill small launches at random and start them again: `python tests/kills --kills 200 --seed 0 --table kills.csv`.

Ranks, masters, launchers, Snakemake and parts of Slurm's jobs are killed, links cut and disks filled, if this machine
can have them. Prints what became of each, and all that must not be; exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "support"))

from kills import jobs, subjects
from kills.campaign import BAD, CHAIN, HANGS_SECONDS, Campaign, Table, kinds, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of victims and moments (default 0)")
    parser.add_argument("--subject", action="append", help="only this one; may be given several times")
    parser.add_argument("--table", type=Path, help="CSV: what became of the kills of each victim")
    chosen = parser.parse_args()
    table: Table = Counter()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder, ExitStack() as meanwhile:
        wanted = not chosen.subject or "slurm" in chosen.subject
        slurm = meanwhile.enter_context(jobs.at_hand(Path(folder) / "s")) if wanted else None
        chosen_subjects = subjects.every(Path(folder), chosen.subject, slurm)
        if not chosen_subjects:
            parser.error(f"nothing of {', '.join(chosen.subject)} can be killed here")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended, and Slurm
        campaigns: list[Campaign] = []
        meanwhile.callback(lambda: [each.end() for each in campaigns])
        for subject in chosen_subjects:
            campaigns.append(Campaign(subject, Path(folder), random.Random(f"{chosen.seed} {subject.name}"), say))
            say(f"{subject.name}: undisturbed in {campaigns[-1].seconds:.1f} s")
        left, turn, begun = chosen.kills, 0, time.monotonic()
        while left > 0:
            table += campaigns[turn % len(campaigns)].run(min(left, CHAIN))
            left, turn = chosen.kills - sum(table.values()), turn + 1
            if chosen.table:
                chosen.table.write_text("\n".join(lines(table)) + "\n")
            say(f"{chosen.kills - left} of {chosen.kills} kills in {time.monotonic() - begun:.0f} s")
    print("\n".join(lines(table)))
    wrong = sum(count for (_, _, kind), count in table.items() if kind in BAD)
    print(f"{sum(table.values())} kills: {wrong} lost, hung or left something behind")
    runs, late = sum(each.number for each in campaigns), max(each.late for each in campaigns)
    print(
        f"{kinds(table)['hung']} of {runs} runs hung ({HANGS_SECONDS:.0f} s beyond the time of an undisturbed one); "
        f"the longest of the others took {late:.1f} s more than that one"
    )
    return 1 if wrong else 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
