# SPDX-License-Identifier: Apache-2.0
"""``python -m simulation``: plays of the whole system in virtual time, one for each seed."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from simulation import mutants, standard_library
from simulation.scheduler import Scheduler


def main() -> int:
    """Play, and print what was broken and how to see it again. Exit code 1 if anything was."""
    chosen = _parser().parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a play
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])  # noqa: S606
    clock, first = time.perf_counter, chosen.seed
    if first is None:
        first = random.SystemRandom().randrange(10**9)
    begun = clock()
    scheduler = Scheduler(0)
    standard_library.install(scheduler)
    if chosen.mutant:
        mutants.install(chosen.mutant)
    from simulation.play import Plan, in_child, shrink
    from simulation.world import World

    logging.disable()  # the journal has what happens, and the oracle hears of defects
    gc.disable()  # when it runs, and so what ends by it, is no matter of a seed
    world = World(scheduler)
    world.build()
    gc.freeze()
    print(f"the world is built in {clock() - begun:.1f} s; seeds from {first}", flush=True)
    kept = None if chosen.keep is None else tuple(map(int, filter(None, chosen.keep.split(","))))
    these = [Plan.read(each, kept) for each in chosen.seeds.split(",")] if chosen.seeds else []
    plays = len(these) or chosen.count
    begun, count, failovers, failures = clock(), 0, 0, 0
    states: Counter[str] = Counter()
    made: Counter[str] = Counter()
    met: Counter[str] = Counter()
    while count < plays if chosen.seconds is None else clock() - begun < chosen.seconds:
        plan = these[count] if these else Plan(first + count, kept)
        kept_in = chosen.save / str(plan.seed) if chosen.save else None
        outcome = in_child(world, plan, lines=chosen.verbose, keep=kept_in)
        count, failovers = count + 1, failovers + outcome.failovers
        states[outcome.state] += 1
        made.update(outcome.moves)
        met.update(outcome.troubles)
        if chosen.verbose:
            print("\n".join(outcome.lines))
            print(f"seed {plan.seed}: {outcome.state}, journal {outcome.journal}")
        if outcome.broken:
            failures += 1
            print(f"seed {plan.seed}: {'; '.join(outcome.broken[:3])}", flush=True)
            if not outcome.journal:
                print("\n".join(outcome.lines))
            if kept is None and not chosen.verbose and outcome.journal and not chosen.quick:
                fewest = shrink(world, plan, outcome.broken)
                numbers = ",".join(map(str, fewest.kept or ()))
                print(f"  again: make simulate SEED={plan.seed} KEEP={numbers}")
                print(f"  also when moves are added: {plan}", flush=True)
            if chosen.until_broken:
                break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    lasted, cpu = clock() - begun, used.ru_utime + used.ru_stime
    print(
        f"{count} plays, {failovers} failovers, {failures} broken, in {lasted:.0f} s, "
        f"{cpu:.0f} s of one processor: {failovers / cpu * 60:.0f} failovers a minute of it"
    )
    for title, counted in (("came to", states), ("moves", made), ("troubles", met)):
        print(f"{title}: " + ", ".join(f"{each} {n}" for each, n in counted.most_common()))
    world.remove()
    sys.stdout.flush()
    os._exit(1 if failures else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first; by default any")
    parser.add_argument("--seeds", help="only these: 4,1033 or 4:killed/ordered,1033")
    parser.add_argument("--count", type=int, default=1, help="how many plays")
    parser.add_argument("--seconds", type=float, help="instead: for how long")
    parser.add_argument("--keep", help="only these moves of the play, such as 1,4")
    parser.add_argument("--save", type=Path, help="a folder for the store and ledger of each play")
    parser.add_argument("--until-broken", action="store_true", help="stop at the first")
    parser.add_argument("--mutant", choices=mutants.BY_NAME, help="with this fault of the product")
    parser.add_argument("--quick", action="store_true", help="do not look for the fewest moves")
    parser.add_argument("--verbose", action="store_true", help="print each journal")
    return parser


if __name__ == "__main__":
    sys.exit(main())
