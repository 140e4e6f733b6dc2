"""Hostile receivers: every one of docs/design/hostile-receivers.md with one message and with fifty, with one
host and with two, over SMTP and LMTP; then what each costs in CPU time, and a healthy site beside them.
"""

import json
import os
import subprocess

from measure import BenchError
from results import Goal

RECEIVERS_GOAL = 150
CPU_MS_GOAL = 50
LOG_BYTES_GOAL = 16 << 10
FIRST_GOAL, LATER_GOAL = 4, 2
# A tenth is what two equal runs differ by.
HEALTHY_GOAL = 0.9


class Hostile:
    """Nothing that a receiver does hurts."""

    name = "robust.hostile"
    entries = ("", ".failed", ".first_10_s", ".later_10_s", ".log", ".cpu", ".healthy")
    # The program has a size of its own for it.
    smoke = {}

    def run(self, bench):
        smoke = bench.smoke
        binary = os.path.join(os.path.dirname(bench.binary), "stentor-hostile")
        if not os.access(binary, os.X_OK):
            raise BenchError(f"{binary} is missing: cargo build --release -p stentor-server-tests --bin stentor-hostile")
        command = [binary] + (["--smoke"] if smoke else [])
        environment = {**os.environ, "STENTOR_BIN": bench.binary}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        try:
            found = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the suite says nothing: {done.stderr[-800:]}") from None
        command = "stentor-hostile" + (" --smoke" if smoke else "")

        def record(name, unit, value, goal, least=False, **detail):
            goals = Goal(ratio=1) if least else Goal(most=goal)
            bench.results.record(
                f"{self.name}{name}", unit, [[value, goal]], command, goals, more_is_better=least, peer_name="the goal", **detail
            )

        record("", "receivers", found["receivers"], RECEIVERS_GOAL, least=True, cases=found["cases"])
        record(".failed", "cases", found["failed"], 0, failures=found["failures"])
        record(".first_10_s", "connections", found["connections_first_10_s"], FIRST_GOAL)
        record(".later_10_s", "connections", found["connections_later_10_s"], LATER_GOAL)
        record(".log", "bytes/message", found["log_bytes_per_message"], LOG_BYTES_GOAL)
        record(".cpu", "ms", found["cpu_ms_max"], CPU_MS_GOAL, worst=found["cpu_worst"])
        bench.results.record(
            f"{self.name}.healthy", "ms", found["healthy_ms"], command, Goal(ratio=HEALTHY_GOAL), peer_name="without them"
        )
