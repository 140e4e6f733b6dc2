"""Compares this build with an earlier one: each scenario runs alternately with both servers (`run.py --before BINARY`). Sources,
sinks and other programs are this build's. Results: target/bench/before.json, where the peer of each entry is the earlier
build; latest.json is not changed. Nothing is judged, since noise differs by scenario."""

import os

from bench import Bench
from lanes import Outcome
from measure import BenchError
from results import SHOWN, Results


def run_paired(bench, before, chosen, run_all):
    """Runs the scenarios `bench.rounds` times with each server. Returns the Outcome of all runs."""
    folder = os.path.join(bench.folder, "before")
    os.makedirs(folder, exist_ok=True)
    benches = [_bench(bench, folder, name, binary) for name, binary in (("after", bench.binary), ("before", before))]
    results = Results(os.path.join(bench.folder, "before.json"), is_partial=False)
    outcome = Outcome()
    for scenario in chosen:
        rounds = {}
        for number in range(bench.rounds):
            measured = [None, None]
            # The builds take turns to run first.
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                side_bench = benches[side]
                side_bench.results.names.clear()
                outcome.add(run_all(side_bench, [scenario]))
                entries = side_bench.results.load()
                measured[side] = {name: entries[name] for name in side_bench.results.names}
            for name in measured[0].keys() & measured[1].keys():
                rounds.setdefault(name, []).append([entries[name] for entries in measured])
        for name, both in sorted(rounds.items()):
            after = both[0][0]
            pairs = [[entry["value"] for entry in entries] for entries in both]
            results.record(
                name, after["unit"], pairs, after["command"], SHOWN, more_is_better=after["more_is_better"], peer_name="earlier build"
            )
    bench.results = results
    if not results.names:
        raise BenchError("no scenario ran with both builds")
    return outcome


def _bench(bench, folder, name, binary):
    side_bench = Bench(bench.root, binary, 1, bench.smoke, tools=bench.tools)
    side_bench.move(os.path.join(folder, name), os.path.join(folder, f"{name}.json"))
    os.makedirs(side_bench.work, exist_ok=True)
    return side_bench
