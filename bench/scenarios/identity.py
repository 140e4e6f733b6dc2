"""DKIM: signatures a second on all processors, with the canonical header and its hash, beside OpenSSL's bare signatures. And a
post of which each copy is its own: return path, unsubscribe link, signature."""

import json
import os
import re
import subprocess
import tempfile

from bench import measured_cpu
from measure import BenchError
from results import Goal
from sinks import LabSink, free_port
from sources import SENDER, message, post, smtp_source

SECONDS = 5
RUN_S_MAX = 120
RECIPIENTS = 20_000
DOMAINS = 2_000
LENGTH = 4096
# Goals: octets of the journal for each recipient, memory beyond that of shared copies.
JOURNAL_BYTES = 64
MEMORY_MIB = 64
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


class Personal:
    """One post to a list of which each copy has its own return path; with an unsubscribe link and an RSA signature, too."""

    name = "identity.personal"
    entries = (".signed", ".verp", ".postfix", ".journal", ".memory")
    smoke = {"RECIPIENTS": 500, "DOMAINS": 50, "SECONDS": 1}

    def __init__(self):
        self.posts = 0

    def run(self, bench):
        subscribers = os.path.join(bench.work, "personal.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"reader{i:05}@d{i % DOMAINS:04}.example\n" for i in range(RECIPIENTS))
        sink = LabSink(bench.work, free_port(), bench.binary)
        shared = bench.stentor(sink, subscribers=subscribers, name="shared")
        verp = bench.stentor(sink, subscribers=subscribers, name="verp", list_keys='verp = "tagged"')
        signed = bench.stentor(
            sink, subscribers=subscribers, name="signed", list_keys='verp = "tagged"\none_click = true',
            http_keys='link_base = "https://lists.example"', more=dkim_section(bench),
        )
        postfix = bench.postfix(sink, subscribers=subscribers)
        # A transaction for each recipient, as Mailman makes them.
        postfix.more_main = "default_destination_recipient_limit = 1\nsmtp_destination_recipient_limit = 1\n"
        servers = [shared, verp, signed, postfix]
        straight, signatures = [], []
        with bench.running(sink, *servers):
            rounds = bench.alternate(servers, lambda contestant: self.once(contestant, sink, straight))
        # What the processors sign when they do nothing else.
        signatures = [Signing().ours(bench, "rsa") for _ in rounds]
        straight = straight[-len(rounds):]
        command = f"one post of {LENGTH} octets to a list of {RECIPIENTS} at {DOMAINS} domains, stentor-kit lab sink"

        def record(entry, unit, pairs, goal, peer, **more):
            bench.results.record(self.name + entry, unit, pairs, command, goal, peer_name=peer, **more)

        rates = [{name: RECIPIENTS / row["time"] for name, row in zip(("shared", "verp", "signed", "postfix"), four)} for four in rounds]
        allowed = [1 / (1 / rate["verp"] + 1 / per_s) for rate, per_s in zip(rates, signatures)]
        both = "what unsigned copies and bare signatures take, one after the other"
        record(".signed", "copies/s", [[rate["signed"], limit] for rate, limit in zip(rates, allowed)], Goal(ratio=0.9), both, more_is_better=True, rates=rates)
        record(".verp", "copies/s", [[rate["verp"], limit] for rate, limit in zip(rates, straight)], Goal(ratio=0.7), "the source straight into the sink", more_is_better=True)
        record(".postfix", "copies/s", [[rate["verp"], rate["postfix"]] for rate in rates], Goal(ratio=8), "postfix", more_is_better=True)
        octets = [[four[2]["journal"], JOURNAL_BYTES] for four in rounds]
        record(".journal", "octets/recipient", octets, Goal(most=JOURNAL_BYTES), "the goal")
        record(".memory", "MiB", [[four[2]["peak"], four[0]["peak"]] for four in rounds], Goal(added=MEMORY_MIB), "shared copies")

    def once(self, contestant, sink, straight):
        self.posts += 1
        content = message(LENGTH, f"personal{self.posts}")
        is_ours = contestant.name != "postfix"
        if contestant.name == "verp":
            straight.append(RECIPIENTS / smtp_source(sink.port, 20, RECIPIENTS, LENGTH, True))
        before = contestant.status()["journal_bytes"] if is_ours else 0
        posted, _, end, cpu_s = measured_cpu(
            contestant, sink, RECIPIENTS, lambda: post(contestant.port, SENDER, "news@lists.example", content)
        )
        found = {"time": end - posted.dot, "cpu": cpu_s / RECIPIENTS * 1000}
        if is_ours:
            written = contestant.status()["journal_bytes"] - before - LENGTH
            found |= {"journal": written / RECIPIENTS, "peak": contestant.group.memory_peak_kib() / 1024}
        return found


def dkim_section(bench):
    """A new RSA key for the list's domain; returns its section of the configuration."""
    command = [bench.binary, "dkim", "new", "lists.example", "--rsa", "--dir", tempfile.mkdtemp(dir=bench.work)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{command[0]}: {done.stderr.strip()[-800:]}")
    return done.stderr.split("\n", 1)[1]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    if done.returncode:
        raise BenchError(f"{command[0]}: {done.stderr.strip()[-800:]}")
    return done.stdout
