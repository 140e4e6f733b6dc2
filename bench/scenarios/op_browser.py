"""The console in a real browser: the integration test that drives Chromium, and what it counted. No peer is asked."""

import json
import os
import shutil
import subprocess

from measure import BenchError, CannotHere
from results import Goal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The selection of `make test`, whose dependencies are built.
COMMAND = [
    "cargo", "test", "--workspace", "--features", "stentor-kit/engines", "--test", "all", "the_console_in_a_browser",
]
RESULT = os.path.join(ROOT, "target", "browser", "result.json")


# What each page is judged by, in each look and size: faults of all checks, rules of axe-core that are broken, texts that are
# cut off, pages longer than 4,000 pixels.
COUNTS = ("faults", "axe", "clipped", "tall")


class Browser:
    """A lab run watched live, verbs, every page in four widths, light and dark, by axe-core, by keyboard, without scripts."""

    name = "op.browser"
    entries = tuple("" if count == "faults" else f".{count}" for count in COUNTS)
    smoke = {}

    def run(self, bench):
        # It has one size: a smoke run takes what the integration tests, which `make test` runs before it, have left.
        if not (bench.smoke and os.path.exists(RESULT)):
            self.drive(bench)
        with open(RESULT) as file:
            result = json.load(file)
        for count, entry in zip(COUNTS, self.entries):
            bench.results.record(
                self.name + entry, "faults", [[result[count], 0]], " ".join(COMMAND), Goal(most=0), peer_name="the goal",
                checks=result["checks"], pages=result["pages"], longest_pixels=result["height"], what=result["what"],
                screenshots=os.path.dirname(RESULT),
            )

    def drive(self, bench):
        for program in ("node", "chromium"):
            if not shutil.which(program):
                raise CannotHere(f"{program} is missing: testing/install.sh installs it")
        if os.path.exists(RESULT):
            os.remove(RESULT)
        # Skipping would count nothing and look well.
        environment = {**os.environ, "STENTOR_BIN": bench.binary, "STENTOR_NO_SKIP": "1"}
        done = subprocess.run(COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
        if not os.path.exists(RESULT):
            raise BenchError(f"{' '.join(COMMAND)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
