"""Trials by hand:

    PYTHONPATH=tests python -m machine.run --trials 5000 --seed 1 --only tables

Each difference is a line with its seed. It goes on after failures, and sums up by kind of failure.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import defaultdict

from machine.trials import COMPARISONS, try_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="machine.run", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--only", default="", help=f"of {', '.join(COMPARISONS)}; commas between them")
    parser.add_argument("--but", action="append", default=[], help="kinds that begin so are counted, but not shown")
    parser.add_argument("--trace", action="store_true", help="show where each difference was found, and the past")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(COMPARISONS)
    failures: dict[str, list[str]] = defaultdict(list)
    begun, done = time.monotonic(), 0
    for seed in range(arguments.seed, arguments.seed + arguments.trials):
        if time.monotonic() - begun > arguments.seconds:
            break
        for name in names:
            done += 1
            for why in try_seed(name, seed):
                failures[why.kind].append(f"{name} {seed}")
                if why.kind.startswith(tuple(arguments.but)):
                    continue
                print(f"{name} {seed}: {why}"[:500], flush=True)
                if arguments.trace:
                    traceback.print_exception(why)
    failed = len({each for some in failures.values() for each in some})
    print(f"\n{done} trials in {time.monotonic() - begun:.0f} s, {failed} with differences")
    for kind, which in sorted(failures.items(), key=lambda each: -len(each[1])):
        print(f"{len(which):6} {kind}  ({', '.join(list(dict.fromkeys(which))[:6])})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
