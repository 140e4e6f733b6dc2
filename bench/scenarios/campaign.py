"""The crash campaign: cuts of a simulated disk's power under the real queue, for a minute. `value` is the number of cuts;
nothing may be lost, each mutation must be caught, and half of the cuts lie within one write of an acknowledgement.
"""

import json
import os
import subprocess

from measure import BenchError
from results import Goal

SECONDS = 60
CUTS_GOAL = 5_000


class Campaign:
    """Nothing is lost, whenever the power goes."""

    name = "queue.campaign"

    def run(self, bench):
        binary = os.path.join(os.path.dirname(bench.binary), "stentor-campaign")
        if not os.access(binary, os.X_OK):
            raise BenchError(f"{binary} is missing: cargo build --release -p stentor-campaign")
        command = [binary, "--seconds", str(SECONDS), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            summary = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the campaign says nothing: {done.stderr[-500:]}") from None
        if done.returncode != 0 or summary["failure"]:
            raise BenchError(f"the campaign found a loss: {done.stderr[-500:]}")
        figures = summary["figures"]
        share = figures["cuts_near_acknowledgement"] / max(figures["cuts"], 1)
        if share < 0.5 or figures["mutations_caught"] != figures["mutations"]:
            raise BenchError(f"half of the cuts are to be near an acknowledgement, all mutations caught: {figures}")
        command = f"stentor-campaign --seconds {SECONDS} --json"
        bench.results.record(
            self.name, "cuts", [[figures["cuts"], CUTS_GOAL]], command, Goal(ratio=1), more_is_better=True,
            peer_name="the goal", lost=0, near_acknowledgement=share, **figures,
        )
