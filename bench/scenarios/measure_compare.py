"""`stentor-kit lab compare`: Stentor and Postfix through one command, with syncs as shipped and switched off.

The command makes the rounds, drops the first and takes the medians; here its table becomes entries. With
STENTOR_BENCH_QUEUES (directories, separated by colons) the work is done on each of them: that is the table of
docs/kit/storage.md.
"""

import json
import os
import subprocess

from measure import BenchError, kit
from results import Goal

MESSAGES = 3000


class Compare:
    """Relay per file system, syncs on and off."""

    name = "measure.compare"
    entries = tuple(f".*.sync_{sync}.{figure}" for sync in ("on", "off") for figure in ("accepted", "delivered", "cpu"))
    smoke = {"MESSAGES": 50}

    def run(self, bench):
        queues = os.environ.get("STENTOR_BENCH_QUEUES", bench.work).split(":")
        argv = [kit(bench.binary), "lab", "compare", "stentor", "postfix", "--stentor", bench.binary, "--json", "--quiet"]
        argv += ["--messages", str(MESSAGES), "--runs", str(bench.rounds), "--sync", "both", "--sessions", "each"]
        argv += [word for queue in queues for word in ("--queue", queue)]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"{' '.join(argv)}: {done.stderr[-500:]}")
        report = json.loads(done.stdout)
        for warning in report["warnings"]:
            print(f"    {warning}", flush=True)
        rows = {(row["directory"], row["sync"], row["contestant"]): row for row in report["tables"]["rates"]}
        for directory, sync, contestant in rows:
            if contestant == "stentor":
                both = [rows[directory, sync, who] for who in ("stentor", "postfix")]
                self.record(bench, f"{both[0]['file_system']}.sync_{sync}", both, " ".join(argv[1:]))

    def record(self, bench, place, both, command):
        for field, column, unit, more in (
            ("accepted", "accepted_per_s", "messages/s", True),
            ("delivered", "delivered_per_s", "messages/s", True),
            ("cpu", "cpu_ms", "CPU ms/message", False),
        ):
            if any(row[column] is None for row in both):
                raise BenchError(f"{place}: {column} is missing: {both}")
            rounds = [[row[column][part] for row in both] for part in ("min", "median", "max")]
            name = f"{self.name}.{place}.{field}"
            bench.results.record(name, unit, rounds, command, Goal(ratio=1), more_is_better=more)
