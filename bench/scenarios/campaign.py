"""The crash campaign: cuts of a simulated disk's power under the real queue, for a minute. `value` is the number of cuts;
nothing may be lost, each mutation must be caught, and half of the cuts lie within one write of an acknowledgement.
"""

import json
import subprocess

from measure import BenchError
from results import Goal

WORDS = ("--seconds", "60")
CUTS_GOAL = 5_000


class Campaign:
    """Nothing is lost, whenever the power goes."""

    name = "queue.campaign"
    entries = ("",)
    smoke = {"WORDS": ("--seed", "1", "--cut", "50")}

    def run(self, bench):
        command = [bench.tool("stentor-campaign"), *WORDS, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            summary = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the campaign says nothing: {done.stderr[-500:]}") from None
        if done.returncode != 0 or summary["failure"]:
            raise BenchError(f"the campaign found a loss: {done.stderr[-500:]}")
        figures = summary["figures"]
        share = figures["cuts_near_acknowledgement"] / max(figures["cuts"], 1)
        if not bench.smoke and (share < 0.5 or figures["mutations_caught"] != figures["mutations"]):
            raise BenchError(f"half of the cuts are to be near an acknowledgement, all mutations caught: {figures}")
        command = f"stentor-campaign {' '.join(WORDS)} --json"
        bench.results.record(
            self.name, "cuts", [[figures["cuts"], CUTS_GOAL]], command, Goal(ratio=1), more_is_better=True,
            peer_name="the goal", lost=0, near_acknowledgement=share, **figures,
        )
