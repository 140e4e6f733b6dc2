#!/usr/bin/env python3
"""Stentor beside Postfix: `python3 bench/run.py [--only path.relay] [--rounds 5]`. See bench/README.md.

Results: target/bench/latest.json. Exit code 0: all ran (goals may be missed, the table says so); 1: a goal was missed and
--strict was given; 2: something could not be run.
"""

import argparse
import os
import signal
import sys
import time
import traceback

from bench import Bench
from measure import BenchError
from scenarios import SCENARIOS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not os.access(options.binary, os.X_OK):
        sys.exit(f"{options.binary} is missing: cargo build --release")
    bench = Bench(ROOT, options.binary, options.rounds)
    chosen = choose(SCENARIOS, options.only)
    if not chosen:
        sys.exit(f"--only {options.only}: none of {', '.join(scenario.name for scenario in SCENARIOS)}")
    failed = []
    for scenario in chosen:
        begin = time.monotonic()
        print(f"{scenario.name}: {scenario.__doc__.strip()}", flush=True)
        try:
            scenario().run(bench)
        except BenchError as error:
            print(f"    FAILED: {error}", flush=True)
            failed.append(scenario.name)
        except OSError:
            traceback.print_exc()
            failed.append(scenario.name)
        print(f"    {time.monotonic() - begin:.0f} s", flush=True)
    met = bench.results.print_table()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    sys.exit(0 if met or not options.strict else 1)


def parse():
    parser = argparse.ArgumentParser(description="Measure Stentor beside Postfix.")
    parser.add_argument("--only", default="", help="scenarios whose name begins with this, by whole parts: path.relay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a goal is missed")
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--binary", default=os.path.join(target, "release", "stentor"))
    return parser.parse_args()


def choose(scenarios, only):
    """`path` chooses all of `path.*`; `path.relay.cpu` chooses the scenario that measures it: that of the longest name."""
    if not only:
        return list(scenarios)
    # Some are chosen by a second name too, that of the work that they are a part of.
    names = {scenario: (scenario.name, *getattr(scenario, "also", ())) for scenario in scenarios}
    below = [scenario for scenario in scenarios if any(f"{name}.".startswith(f"{only}.") for name in names[scenario])]
    above = [scenario for scenario in scenarios if f"{only}.".startswith(f"{scenario.name}.")]
    return below or sorted(above, key=lambda scenario: len(scenario.name))[-1:]


if __name__ == "__main__":
    main()
