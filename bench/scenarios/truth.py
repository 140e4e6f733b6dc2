"""What the operator is told: views of random worlds compared with each pending recipient's own answer (crates/sched/tests/world), and
every command, page and metric of a real server asked why mail waits, for twelve causes that hosts of the lab give."""

import json
import os
import subprocess

from measure import BenchError
from results import Goal
from scenarios.robust_scheduler import worlds

WORLDS = 2_000
RUN_S_MAX = 1_800


class Sums:
    """All views add up to the pending recipients, by site, message, list and cause."""

    name = "truth.sums"
    entries = ("",)
    smoke = {"WORLDS": 20}

    def run(self, bench):
        worlds(bench, self.name, "truth", WORLDS, "views disagree")


class Causes:
    """Every view names the cause for which mail waits."""

    name = "truth.causes"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        environment = {**os.environ, "STENTOR_BIN": bench.binary}
        done = subprocess.run([bench.tool("stentor-truth")], capture_output=True, text=True, env=environment, timeout=RUN_S_MAX)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the suite says nothing: {done.stderr[-800:]}") from None
        bench.results.record(
            self.name, "wrong answers", [[len(found["wrong"]), 0]], "stentor-truth", Goal(most=0), peer_name="the goal", **found
        )
