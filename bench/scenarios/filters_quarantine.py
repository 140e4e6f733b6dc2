"""The quarantine: a crash campaign in which operators release, delete and let expire; and a corpus of markup in a real browser."""

import json
import subprocess

import browser
from measure import BenchError
from results import Goal

COMMAND = browser.command("kept_messages_in_a_browser")
RESULT = browser.result("quarantine.json")
SECONDS = 60
CUTS_MIN = 5_000


class Quarantine:
    """Nothing leaves by itself, nothing is lost, a release is delivered once; no markup of a kept message is carried out."""

    name = "filters.quarantine"
    entries = (".crash", ".browser")
    smoke = {"SECONDS": 0, "CUTS_MIN": 50}

    def run(self, bench):
        self.crash(bench)
        self.browser(bench)

    def crash(self, bench):
        words = ["--seconds", str(SECONDS)] if SECONDS else ["--seed", "1", "--cut", "50"]
        command = [bench.tool("stentor-campaign"), *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        try:
            summary = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the campaign says nothing: {done.stderr[-500:]}") from None
        figures = summary["figures"]
        # Its faults are a fault of this; one that has cut or released nothing has shown nothing.
        faults = int(done.returncode != 0 or bool(summary["failure"]))
        if not bench.smoke and (figures["cuts"] < CUTS_MIN or not figures["released"]):
            raise BenchError(f"the campaign is too small to say anything: {figures}")
        faults += 0 if bench.smoke else figures["mutations"] - figures["mutations_caught"]
        bench.results.record(
            self.name + ".crash", "faults", [[faults, 0]], " ".join(["stentor-campaign", *words, "--json"]), Goal(most=0), peer_name="the goal",
            failure=summary["failure"], **figures,
        )

    def browser(self, bench):
        browser.drive(bench, COMMAND, RESULT)
        with open(RESULT) as file:
            seen = json.load(file)
        if not (seen["caught_scripts"] and seen["caught_requests"]):
            raise BenchError(f"a page that does carry out markup was not found out: {seen}")
        faults = seen["scripts"] + seen["requests"] + seen["markup"] + seen["faults"]
        bench.results.record(
            self.name + ".browser", "faults", [[faults, 0]], " ".join(COMMAND), Goal(most=0), peer_name="the goal", **seen,
        )
