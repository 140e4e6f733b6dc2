"""The scheduler among hosts that answer anything at any time, in random small worlds (crates/sched/tests/anything): attempts per
host and recipient are bounded in each ten seconds and hour, nothing waits without a next try, none is lost, every end is as
documented. `value` is the number of worlds in which all of that held; one in which it does not is named and fails the run.
"""

import json
import subprocess

from measure import BenchError
from results import Goal

WORLDS = 100_000
RUN_S_MAX = 1_800


def worlds(bench, name, scenario, count, fault):
    """Runs so many worlds of a scenario of stentor-sim; one that does not hold fails the run, with what it said."""
    arguments = [scenario, f"seeds={count}"]
    done = subprocess.run([bench.tool("stentor-sim"), *arguments], capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{fault}: {done.stderr.strip()[-800:]}")
    seen = json.loads(done.stdout)
    command = " ".join(["stentor-sim", *arguments])
    bench.results.record(
        name, "worlds", [[seen.pop("worlds"), count]], command, Goal(ratio=1), more_is_better=True,
        peer_name="the goal", **seen,
    )


class RobustScheduler:
    """No host can make us try without a clock."""

    name = "robust.scheduler"
    entries = ("",)
    smoke = {"WORLDS": 300}

    def run(self, bench):
        worlds(bench, self.name, "robust", WORLDS, "a world does not hold")
