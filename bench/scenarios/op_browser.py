"""The console in a real browser: the integration test that drives Chromium, and what it counted. No peer is asked."""

import json
import os

import browser
from results import Goal

COMMAND = browser.command("the_console_in_a_browser")
RESULT = browser.result("result.json")


# What each page is judged by, in each look and size: faults of all checks, rules of axe-core that are broken, texts that are
# cut off, pages longer than 4,000 pixels.
COUNTS = ("faults", "axe", "clipped", "tall")


class Browser:
    """A lab run watched live, verbs, every page in four widths, light and dark, by axe-core, by keyboard, without scripts."""

    name = "op.browser"
    entries = tuple("" if count == "faults" else f".{count}" for count in COUNTS)
    smoke = {}

    def run(self, bench):
        browser.drive(bench, COMMAND, RESULT)
        with open(RESULT) as file:
            result = json.load(file)
        for count, entry in zip(COUNTS, self.entries):
            bench.results.record(
                self.name + entry, "faults", [[result[count], 0]], " ".join(COMMAND), Goal(most=0), peer_name="the goal",
                checks=result["checks"], pages=result["pages"], longest_pixels=result["height"], what=result["what"],
                screenshots=os.path.dirname(RESULT),
            )
