"""`stentor doctor mail`: seeded faults found, and findings for good domains, in a lab with its own DNS."""

import json
import os
import subprocess

from measure import BenchError
from results import Goal

RUN_S_MAX = 300
FAULTS_GOAL = 40


class Doctor:
    """Each fault is one change to a good domain, and must be the only finding."""

    name = "identity.doctor"
    entries = ("", ".missed", ".wrong")
    # All of it takes seconds.
    smoke = {}

    def run(self, bench):
        environment = {**os.environ, "STENTOR_BIN": bench.binary}
        command = [bench.tool("stentor-identity")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"stentor-identity: {done.stderr.strip()[-800:]}")
        found = json.loads(done.stdout)
        missed, wrong = found["missed"], found["wrong"]

        def record(entry, unit, value, goal, limit):
            bench.results.record(
                self.name + entry, unit, [[value, goal]], "stentor-identity", limit, more_is_better=not entry, peer_name="the goal",
                **found,
            )

        record("", "faults found", found["faults"] - len(missed), FAULTS_GOAL, Goal(ratio=1))
        record(".missed", "faults", len(missed), 0, Goal(most=0))
        record(".wrong", "findings", len(wrong), 0, Goal(most=0))
