"""DKIM: signatures a second on all processors, with the canonical header and its hash, beside OpenSSL's bare signatures."""

import json
import os
import re
import subprocess

from measure import BenchError
from results import Goal

SECONDS = 5
RUN_S_MAX = 120
# Name of the entry, what `stentor-sim` and `openssl speed` call the algorithm, and how OpenSSL's line of results begins.
ALGORITHMS = ((".rsa", "rsa", "rsa2048", r"^rsa +2048 bits"), (".ed25519", "ed25519", "ed25519", r"^ *253 bits EdDSA"))


class Signing:
    """Both programs by turns, for as long; each uses all processors."""

    name = "identity.signing"
    entries = tuple(entry for entry, *_ in ALGORITHMS)
    smoke = {"SECONDS": 1}

    def run(self, bench):
        for entry, ours, theirs, begin in ALGORITHMS:
            rounds = []
            for number in range(bench.rounds):
                turns = [lambda: self.ours(bench, ours), lambda: self.openssl(theirs, begin)]
                first = number % 2
                measured = {side: turns[side]() for side in (first, 1 - first)}
                rounds.append([measured[0], measured[1]])
            bench.results.record(
                self.name + entry, "signatures/s", rounds, f"stentor-sim signing algorithm={ours} seconds={SECONDS}",
                Goal(ratio=0.9), more_is_better=True, peer_name=f"openssl speed -multi {os.cpu_count()} {theirs}",
            )

    def ours(self, bench, algorithm):
        command = [bench.tool("stentor-sim"), "signing", f"algorithm={algorithm}", f"seconds={SECONDS}"]
        return json.loads(output(command))["per_s"]

    def openssl(self, algorithm, begin):
        text = output(["openssl", "speed", "-multi", str(os.cpu_count()), "-seconds", str(SECONDS), algorithm])
        lines = [line for line in text.splitlines() if re.match(begin, line)]
        if not lines:
            raise BenchError(f"openssl speed: no line of {algorithm}: {text[-400:]}")
        return float(lines[-1].split()[-2])


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{command[0]}: {done.stderr.strip()[-800:]}")
    return done.stdout
