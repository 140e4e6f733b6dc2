"""The rule engine in random worlds: what it decides, what it says when it explains, and a plain reading of docs/design/rules.md."""

import json
import subprocess

from measure import BenchError
from results import Goal

WORLDS = 100_000
RUN_S_MAX = 1_800


class Explain:
    """Explanations that are not the decision, or decisions that are not the page's."""

    name = "policy.explain"
    entries = ("",)
    smoke = {"WORLDS": 1_000}

    def run(self, bench):
        arguments = ["policy", f"worlds={WORLDS}"]
        done = subprocess.run([bench.tool("stentor-sim"), *arguments], capture_output=True, text=True, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"stentor-sim: {done.stderr.strip()[-800:]}")
        seen = json.loads(done.stdout)
        bench.results.record(
            self.name, "worlds that differ", [[seen.pop("differ"), 0]], " ".join(["stentor-sim", *arguments]), Goal(most=0),
            peer_name="the goal", **seen,
        )
