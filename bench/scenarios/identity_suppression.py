"""The suppressions in memory: what ten million of them take, and how long a look-up of one recipient takes."""

import json
import subprocess

from measure import BenchError
from results import Goal

ENTRIES = 10_000_000
MIB_MAX = 200
NS_MAX = 1_000


class Suppression:
    """An index of ten million addresses, looked up for those in it and for others."""

    name = "identity.suppression"
    entries = (".memory", ".look_up")
    smoke = {"ENTRIES": 100_000}

    def run(self, bench):
        command = [bench.tool("stentor-sim"), "suppressions", f"entries={ENTRIES}"]
        rounds = []
        for _ in range(bench.rounds):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise BenchError(f"{' '.join(command)}: {done.stderr[-500:]}")
            rounds.append(json.loads(done.stdout))
        shown = f"stentor-sim suppressions entries={ENTRIES}"
        bench.results.record(
            f"{self.name}.memory", "MiB", [[figures["mib"], MIB_MAX] for figures in rounds], shown, Goal(most=MIB_MAX), peer_name="the goal",
        )
        slowest = [[max(figures["absent_ns"], figures["present_ns"]), NS_MAX] for figures in rounds]
        bench.results.record(f"{self.name}.look_up", "ns", slowest, shown, Goal(most=NS_MAX), peer_name="the goal", look_ups=rounds)
