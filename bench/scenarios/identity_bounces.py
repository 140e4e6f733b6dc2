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
    score of each half, in its README.md, is one of samples that the rules had not seen."""

    name = "identity.bounces"
    # The second half, and the one that the rules' author has known since its first score.
    entries = ("", ".known")
    smoke = {"SAMPLES": 12}

    def run(self, bench):
        for entry, folder in zip(self.entries, (os.path.join(CORPUS, "second"), CORPUS)):
            self.score(bench, entry, folder)

    def score(self, bench, entry, folder):
        causes, misses = collections.defaultdict(lambda: [0, 0]), []
        for told, wanted, alternative, sample in [*self.messages(bench, folder), *self.replies(bench, folder)]:
            is_right = told in (wanted, alternative)
            causes[wanted.rsplit(" ", 1)[-1]][is_right] += 1
            if not is_right:
                misses.append({"sample": sample, "wanted": wanted, "read": told})
        right, wrong = (sum(count[side] for count in causes.values()) for side in (1, 0))
        rows = {cause: {"samples": sum(count), "right": count[1]} for cause, count in sorted(causes.items())}
        for miss in misses:
            print(f"    {miss['sample']}: {miss['wanted']}, read as {miss['read']}", flush=True)
        bench.results.record(
            self.name + entry, "right of all", [[right / (right + wrong), 1]], "stentor bounces --json --message held_out/*",
            Goal(ratio=RATIO_MIN), more_is_better=True, peer_name="the labels", samples=right + wrong, causes=rows, misses=misses,
        )

    def messages(self, bench, folder):
        """What was read, the label, another right label, and the sample's name. `?` in a label: it has no recipients, or no cause."""
        rows, others = table(folder, "held_out.tsv"), alternatives(folder)
        files = [os.path.join(folder, "held_out", row[0]) for row in rows]
        parsed = json.loads(output([bench.binary, "bounces", "--json", "--message", *files]))
        for (name, cause, recipients), message in zip(rows, parsed):
            reports = message["reports"]
            read = " ".join(sorted(report["recipient"].lower() for report in reports)) or "-"
            told = collections.Counter(report["cause"] for report in reports).most_common(1)
            told_cause = "?" if cause == "?" else told[0][0] if told else "-"
            read = "?" if recipients == "?" else read
            yield f"{read} {told_cause}", f"{recipients} {cause}", f"{recipients} {others.get(name, cause)}", name

    def replies(self, bench, folder):
        others = alternatives(folder)
        for host, cause, source, text in table(folder, "held_out_replies.tsv"):
            told = json.loads(output([bench.binary, "bounces", "--json", "--reply", text, "--host", host]))
            yield told["cause"], cause, others.get(source.split(" ")[0], cause), f"{source}: {text[:100]}"


def table(folder, name):
    with open(os.path.join(folder, name)) as file:
        return [line.rstrip("\n").split("\t") for line in file][:SAMPLES]


def alternatives(folder):
    """The second label of samples about which two postmasters would differ, by the sample's name."""
    path = os.path.join(folder, "notes.tsv")
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        rows = [line.split("\t") for line in file]
    return {row[0]: row[1] for row in rows if row[1] != "-"}


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{command[0]}: {done.stderr.strip()[-800:]}")
    return done.stdout
