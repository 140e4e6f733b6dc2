"""Bounces: recipients and causes beside the labels of the samples that the rules' author had not read (crates/bounces/tests/corpus)."""

import collections
import json
import os
import subprocess

from measure import BenchError
from results import Goal

CORPUS = os.path.join(os.path.dirname(__file__), "..", "..", "crates", "bounces", "tests", "corpus")
# Samples of each table; None: all.
SAMPLES = None
RATIO_MIN = 0.97
RUN_S_MAX = 120


class Bounces:
    """`stentor bounces --message` over the held-out messages, and `--reply` over the held-out replies; each sample's label is a row of
    a table. A sample is right if its recipients and its cause are; `detail` has every miss, and a table by cause. Only the first
    score, in the corpus's README.md, is one of samples that the rules had not seen."""

    name = "identity.bounces"
    entries = ("",)
    smoke = {"SAMPLES": 12}

    def run(self, bench):
        causes, misses = collections.defaultdict(lambda: [0, 0]), []
        for told, wanted, sample in [*self.messages(bench), *self.replies(bench)]:
            cause = wanted.rsplit(" ", 1)[-1]
            causes[cause][told == wanted] += 1
            if told != wanted:
                misses.append({"sample": sample, "wanted": wanted, "read": told})
        right, wrong = (sum(count[side] for count in causes.values()) for side in (1, 0))
        rows = {cause: {"samples": sum(count), "right": count[1]} for cause, count in sorted(causes.items())}
        for miss in misses:
            print(f"    {miss['sample']}: {miss['wanted']}, read as {miss['read']}", flush=True)
        bench.results.record(
            self.name, "right of all", [[right / (right + wrong), 1]], "stentor bounces --json --message held_out/*",
            Goal(ratio=RATIO_MIN), more_is_better=True, peer_name="the labels", samples=right + wrong, causes=rows, misses=misses,
        )

    def messages(self, bench):
        """What was read, what the label says, and the sample's name. `?` in a label: it has no recipients, or no cause."""
        rows = table("held_out.tsv")
        files = [os.path.join(CORPUS, "held_out", row[0]) for row in rows]
        parsed = json.loads(output([bench.binary, "bounces", "--json", "--message", *files]))
        for (name, cause, recipients), message in zip(rows, parsed):
            reports = message["reports"]
            read = " ".join(sorted(report["recipient"].lower() for report in reports)) or "-"
            told = collections.Counter(report["cause"] for report in reports).most_common(1)
            told_cause = "?" if cause == "?" else told[0][0] if told else "-"
            yield f"{'?' if recipients == '?' else read} {told_cause}", f"{recipients} {cause}", name

    def replies(self, bench):
        for host, cause, source, text in table("held_out_replies.tsv"):
            told = json.loads(output([bench.binary, "bounces", "--json", "--reply", text, "--host", host]))
            yield told["cause"], cause, f"{source}: {text[:100]}"


def table(name):
    with open(os.path.join(CORPUS, name)) as file:
        return [line.rstrip("\n").split("\t") for line in file][:SAMPLES]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{command[0]}: {done.stderr.strip()[-800:]}")
    return done.stdout
