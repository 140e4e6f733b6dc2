#!/usr/bin/env python3
"""Stentor beside Postfix: `python3 bench/run.py [--only path.relay] [--rounds 5]`. See bench/README.md.

Results: target/bench/latest.json. Exit code 0: all ran (goals may be missed, the table says so); 1: a goal was missed and
--strict was given, or something could not be run, whatever the reason: the others ran all the same, and the end names it.

With --smoke every scenario runs once and small, to see that it still works: results in target/bench/smoke.json, no goal
judged. As root, scenarios run in parallel, each lane in its own network namespace (lanes.py). What this machine cannot do is said as
SKIPPED and fails nothing, unless STENTOR_NO_SKIP is set.

With --before BINARY every scenario runs alternately with an earlier server and with this one (before.py).

With --peers those of scenarios.PEERS run at a small size, beside all the programs of others that they know: one that is missing is a
failure, and so is each difference (a goal of 0); figures of time are not judged.
"""

import argparse
import fnmatch
import os
import signal
import sys
import time
import traceback

from before import run_paired
from bench import Bench
from lanes import LANES, Outcome, run_beside
from measure import BenchError, CannotHere, Waits
from scenarios import PEERS, SCENARIOS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if not os.access(options.binary, os.X_OK):
        sys.exit(f"{options.binary} is missing: cargo build --release")
    chosen = choose([one for one in SCENARIOS if one in PEERS] if options.peers else SCENARIOS, options.only)
    if not chosen:
        sys.exit(f"--only {options.only}: none of {', '.join(scenario.name for scenario in SCENARIOS)}")
    bench = Bench(ROOT, os.path.abspath(options.binary), options.rounds, options.smoke, options.peers)
    if options.before:
        outcome = run_paired(bench, os.path.abspath(options.before), chosen, run_all)
    else:
        outcome = run_beside(bench, chosen, run_all, options.lanes) if options.lanes > 1 else run_all(bench, chosen)
    met = bench.results.print_table()
    if outcome.skipped:
        print(f"skipped, since this machine cannot: {', '.join(outcome.skipped)}")
    if outcome.failed:
        sys.exit(f"failed: {', '.join(outcome.failed)}")
    sys.exit(0 if met or not (options.strict or options.peers) else 1)


def run_all(bench, chosen):
    """Runs each, whatever becomes of the others. Returns their Outcome."""
    outcome = Outcome()
    may_skip = bench.smoke and not bench.peers and "STENTOR_NO_SKIP" not in os.environ
    for scenario in chosen:
        begin = time.monotonic()
        print(f"{scenario.name}: {scenario.__doc__.strip()}", flush=True)
        try:
            run_one(bench, scenario)
        except CannotHere as error:
            print(f"    *** {'SKIPPED' if may_skip else 'FAILED'}: {error} ***", flush=True)
            (outcome.skipped if may_skip else outcome.failed).append(scenario.name)
        except BenchError as error:
            print(f"    FAILED: {error}", flush=True)
            outcome.failed.append(scenario.name)
        except Exception:  # A mistake in one scenario is not to cost the results of all others.
            traceback.print_exc()
            outcome.failed.append(scenario.name)
        print(f"    {time.monotonic() - begin:.0f} s", flush=True)
    return outcome


def run_one(bench, scenario):
    if bench.smoke:
        shrink(scenario, PEERS.get(scenario, {}) if bench.peers else {})
    before = len(bench.results.names)
    scenario().run(bench)
    names = bench.results.names[before:]
    missing = [entry for entry in promised(scenario) if not fnmatch.filter(names, entry)]
    if missing:
        raise BenchError(f"no entry {', '.join(missing)}; there is {', '.join(names) or 'none'}")


def promised(scenario):
    """The entries that a run must make; `*` stands for what depends on the machine."""
    return [f"{scenario.name}{entry}" for entry in scenario.entries]


def shrink(scenario, others):
    """Gives the modules of a scenario, and of those that it is derived from, their small sizes, or `others`."""
    Waits.shorten()
    for base in scenario.__mro__:
        own = others if base is scenario else {}
        for name, size in {**vars(base).get("smoke", {}), **own}.items():
            # Those that the small sizes still make.
            if name == "entries":
                base.entries = size
                continue
            module = sys.modules[base.__module__]
            if not hasattr(module, name):
                raise BenchError(f"{base.__name__}.smoke: {module.__name__} has no {name}")
            setattr(module, name, size)


def parse():
    parser = argparse.ArgumentParser(description="Measure Stentor beside Postfix.")
    parser.add_argument("--only", default="", help="scenarios whose name begins with this, by whole parts: path.relay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a goal is missed")
    parser.add_argument("--smoke", action="store_true", help="everything once and small: does it work?")
    parser.add_argument("--peers", action="store_true", help="what is compared with programs of others, small; fails at any difference")
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--binary", default=os.path.join(target, "release", "stentor"))
    parser.add_argument("--before", help="an earlier server, measured alternately with this one")
    lanes_default = f"{LANES} with --smoke as root, else 1"
    parser.add_argument("--lanes", type=int, help=f"scenarios to run in parallel [default: {lanes_default}]; ignored with --before")
    options = parser.parse_args()
    options.lanes = options.lanes or (LANES if options.smoke and os.geteuid() == 0 else 1)
    return options


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
