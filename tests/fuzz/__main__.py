"""Bad input, seeded: `PYTHONPATH=workflow/src python tests/fuzz --inputs 10000 --seed 1`.

Prints, by subcommand and file, how many inputs were refused, accepted rightly or wrongly, ended in a traceback or not
at all, and how many took more than two seconds to be refused; exits with 1 if anything is wrong. Inputs that failed can
be written as files of tests/corpus, which is replayed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "support"))

from fuzz.campaign import Campaign, corpus, tried


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="(default 0)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write inputs that failed as files of the corpus")
    chosen = parser.parse_args()
    campaign = Campaign()
    with campaign.prepared():
        for case, ending in campaign.warm_up():
            print("not accepted as it stands:", case.words, ending.message, file=sys.stderr)
        for case in corpus().values():
            campaign.count(case, tried(case))
        campaign.run(chosen.inputs, chosen.seed)
    for case, ending in (*campaign.failed, *campaign.slow):
        shown = case.to_json()
        print(
            f"{case.name}: {ending.how}, {ending.seconds:.1f} s",
            shown[:1500],
            ending.message[-2500:],
            sep="\n",
            file=sys.stderr,
        )
        if chosen.keep:
            chosen.keep.mkdir(parents=True, exist_ok=True)
            file = (
                f"{case.name.replace(' ', '-').replace('.', '-')}-{hashlib.sha256(shown.encode()).hexdigest()[:8]}.json"
            )
            (chosen.keep / file).write_text(shown)
    print(campaign.table())
    return int(bool(campaign.failed))


if __name__ == "__main__":
    sys.exit(main())
