"""A list with a million members in the registry: from MAIL to the 250 of a post, first with all members in force, then after one joined
since, and after a restart. Delivery is off (queue-only), so that only acceptance is measured."""

import os
import subprocess
import time

from measure import BenchError
from results import SHOWN, Goal
from sinks import LabSink, free_port
from sources import SENDER, message, post

MEMBERS = 1_000_000
ROUNDS = 5
LENGTH = 4096
SECONDS_GOAL = 1
IMPORT_S_MAX = 1200
SECTION = """
[lists.big]
address = "big@lists.example"
owner = "owner@elsewhere.example"
post = "anyone"
"""


class ListsMillion:
    """Posts to a million members of the registry."""

    name = "lists.million"
    entries = (".seconds", ".joined", ".restarted", ".import")
    smoke = {"MEMBERS": 5_000, "ROUNDS": 2}

    def run(self, bench):
        people = os.path.join(bench.work, "people.txt")
        with open(people, "w") as file:
            file.writelines(f"reader.{i:07}@d{i % 20_000:05}.example\n" for i in range(MEMBERS))
        sink = LabSink(bench.work, free_port(), bench.binary)
        stentor = bench.stentor(sink, more=SECTION)
        with bench.running(sink, stentor):
            stentor.operate("queue-only", "--all")
            begin = time.monotonic()
            argv = [stentor.binary, "member", "import", "big", people, "--config", stentor.configuration]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=IMPORT_S_MAX)
            if done.returncode != 0:
                raise BenchError(f"the import failed: {done.stderr.strip()}")
            imported = time.monotonic() - begin
            # The first post reads all members; those after it are what is measured.
            first = accepted(stentor, "first")
            plain = [accepted(stentor, f"plain{number}") for number in range(ROUNDS)]
            joined = []
            for number in range(ROUNDS):
                stentor.operate("member", "add", "big", f"late{number}@late.example")
                joined.append(accepted(stentor, f"joined{number}"))
            pending = stentor.status()["recipients"]["pending"]
            wanted = (2 * ROUNDS + 1) * MEMBERS + sum(range(1, ROUNDS + 1))
            if pending != wanted:
                raise BenchError(f"{pending} recipients are pending instead of {wanted}")
            stentor.crash()
            stentor.restart()
            restarted = [accepted(stentor, "restarted")]
        command = f"posts to {MEMBERS} members in the registry, MAIL to 250"
        for name, seconds in (("seconds", plain), ("joined", joined), ("restarted", restarted)):
            rounds = [[one, SECONDS_GOAL] for one in seconds]
            bench.results.record(
                f"{self.name}.{name}", "s", rounds, command, Goal(most=SECONDS_GOAL), peer_name="the goal", first_s=first
            )
        bench.results.record(f"{self.name}.import", "s", [[imported, 0]], command, SHOWN, peer_name="-")


def accepted(stentor, name):
    """Seconds from the connection to the 250."""
    begin = time.monotonic()
    posted = post(stentor.port, SENDER, "big@lists.example", message(LENGTH, name))
    return posted.answer - begin
