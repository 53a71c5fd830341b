"""Change plans at random and try each: `python tests/changed_plans --plans 10000 --seed 0`.

Prints what each kind of change came to, and every miss with its plan; exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "support"))

from changed_plans import bases, judge
from changed_plans.changes import changed
from changed_plans.rank_pool import Pool

KINDS = (judge.REFUSED, judge.HARMLESS, judge.MISSED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the changes (default 0)")
    parser.add_argument("--without-ranks", action="store_true", help="no real ranks: oracle and simulator alone")
    parser.add_argument("--base", action="append", help="only this base; may be given several times")
    parser.add_argument("--misses", type=Path, help="folder for the plans that were missed")
    parser.add_argument("--table", type=Path, help="CSV of changes and plans: how many were refused, harmless, missed")
    chosen = parser.parse_args()
    plans = {name: plan for name, plan in bases.every().items() if not chosen.base or name in chosen.base}
    pools = None if chosen.without_ranks else {ranks: Pool(ranks) for ranks in (1, 2, 3, 4)}
    table: Counter[tuple[str, str, str]] = Counter()
    missed, ran, reported = 0, 0, time.monotonic()
    try:
        for number in range(chosen.plans):
            chance = random.Random(f"{chosen.seed} {number}")
            name = chance.choice(list(plans))
            plan, names = changed(plans[name], chance)
            verdict = judge.judged(name, plans[name], plan, names, pools)
            ran += verdict.run
            for each in names:
                table[each, name, verdict.kind] += 1
            if verdict.kind == judge.MISSED:
                missed += 1
                print(f"MISSED {number}: {name}: {', '.join(names)}: {verdict.why}", flush=True)
                if chosen.misses and verdict.plan is not None:
                    chosen.misses.mkdir(parents=True, exist_ok=True)
                    (chosen.misses / f"{number}.json").write_text(verdict.plan.to_json())
            if time.monotonic() - reported > 30:
                reported = time.monotonic()
                print(f"{number + 1} of {chosen.plans}: {missed} missed, {ran} run on real ranks", flush=True)
    finally:
        for pool in (pools or {}).values():
            pool.close()
    for place, title in enumerate(("change", "plan")):
        total: Counter[tuple[str, str]] = Counter()
        for key, count in table.items():
            total[key[place], key[2]] += count
        print(f"\n{title:40s}" + "".join(f"{kind:>10s}" for kind in KINDS))
        for name in sorted({name for name, _ in total}):
            print(f"{name:40s}" + "".join(f"{total[name, kind]:>10d}" for kind in KINDS))
    if chosen.table:
        rows = sorted({key[:2] for key in table})
        lines = [",".join((*row, *(str(table[(*row, kind)]) for kind in KINDS))) for row in rows]
        chosen.table.write_text("\n".join([",".join(("change", "plan", *KINDS)), *lines]) + "\n")
    print(f"{chosen.plans} plans: {missed} missed, {ran} run on real ranks")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
