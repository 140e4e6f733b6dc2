"""The suite's report page: `stentor-kit probe suite --loop` on ext4, xfs, btrfs and tmpfs made on loop files, with default options,
and pictures of the page as a browser shows it on a screen and on a phone, light and dark (Chromium, where it is installed). The
page, its JSON and CSV, those of each part, and the pictures stand in target/bench/suite. Root."""

import json
import os
import shutil
import subprocess
import tempfile
import time

from measure import BenchError, kit
from results import Goal
from scenarios.measure_probe import REAL_TIME

SECONDS_MOST = 240
# Words that make it shorter: none, its defaults.
SHORT = ()
# (name, width, height, what Chromium calls the scheme)
PICTURES = (("wide", 1280, 7000, 1), ("phone", 390, 9000, 1), ("wide-dark", 1280, 7000, 0), ("phone-dark", 390, 9000, 0))
CHROMIUM = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
).split()


class Suite:
    """The page of probe suite on four file systems, and how long it takes."""

    name = "measure.suite"
    entries = ("",)
    smoke = {"SHORT": ("--runs", "1", "--file-systems", "tmpfs"), "PICTURES": PICTURES[:1]}

    def run(self, bench):
        out = os.path.join(bench.folder, "suite")
        shutil.rmtree(out, ignore_errors=True)
        program = [kit(bench.binary), "probe"]
        words = ["suite", "--loop", "--loop-dir", bench.work, "--out", out, "--plot", "--quiet", *SHORT]
        began = time.monotonic()
        done = subprocess.run([*REAL_TIME, *program, *words], capture_output=True, text=True)
        seconds = time.monotonic() - began
        if done.returncode:
            raise BenchError(f"probe suite: {done.stderr[-500:]}")
        check_nothing_left(bench.work)
        with open(os.path.join(out, "probe-suite.json")) as file:
            report = json.load(file)
        for note in report["notes"]:
            print(f"    {note}", flush=True)
        page = os.path.join(out, "probe-suite.html")
        pictures = [picture(page, out, *how) for how in PICTURES]
        bench.results.record(
            self.name, "s", [[seconds, SECONDS_MOST]], f"stentor-kit probe {' '.join(words)}", Goal(most=SECONDS_MOST),
            peer_name="the goal", notes=report["notes"], page=page,
            pictures=[path for path in pictures if path],
        )


def check_nothing_left(folder):
    with open("/proc/self/mounts") as mounts:
        left = [line for line in mounts if "stentor-loop-" in line and folder in line]
    left += [name for name in os.listdir(folder) if name.startswith("stentor-loop-")]
    if left:
        raise BenchError(f"left behind: {left}")


def picture(page, out, name, width, height, scheme):
    """None where there is no Chromium: the page is then looked at by other means."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        print("    chromium is missing: no picture of the page (apt-get install chromium)", flush=True)
        return None
    path = os.path.join(out, f"page-{name}.png")
    with tempfile.TemporaryDirectory() as profile:
        argv = [program, *CHROMIUM, f"--user-data-dir={profile}", f"--screenshot={path}"]
        argv += [f"--blink-settings=preferredColorScheme={scheme}"]
        argv += [f"--window-size={width},{height}", f"file://{page}"]
        subprocess.run(argv, capture_output=True, timeout=120, check=False)
    if not os.path.exists(path):
        raise BenchError(f"no picture of {page} at {width} pixels")
    print(f"    {path}", flush=True)
    return path
