"""What logging and the history cost: the same work with both off, and with each; per message relayed, and per recipient of
a fan-out. The peer is Stentor without either."""

import os

from bench import measured_cpu, pairs
from contestants.stentor import Stentor
from results import Goal
from sinks import LabSink, SmtpSink, free_port
from sources import SENDER, command_text, message, post, smtp_source

SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096
RECIPIENTS = 20_000
DOMAINS = 2_000

VARIANTS = {
    "buffered": {"log": "buffer", "history": False},
    "by_line": {"log": "line", "history": False},
    "history": {"log": "off", "history": True},
    # As it is shipped.
    "both": {"log": "buffer", "history": True},
    "by_line_history": {"log": "line", "history": True},
}
OFF = {"log": "off", "history": False}


class LogCost:
    """Off, buffered, a line at a time; with and without history."""

    name = "op.log_cost"
    entries = tuple(f".{variant}.{figure}" for variant in VARIANTS for figure in ("cpu", "rate", "fanout_cpu"))
    smoke = {"MESSAGES": 100, "RECIPIENTS": 400, "DOMAINS": 40}

    def run(self, bench):
        self.posts = 0
        subscribers = os.path.join(bench.work, "log_cost.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"reader{i:05}@d{i % DOMAINS:04}.example\n" for i in range(RECIPIENTS))
        for variant, options in VARIANTS.items():
            self.relay(bench, variant, options)
            self.fanout(bench, variant, options, subscribers)

    def relay(self, bench, variant, options):
        sink = SmtpSink(bench.work, free_port())
        ours, off = self.contestants(bench, sink, variant, options)
        with bench.running(sink, ours, off):
            rounds = bench.alternate([ours, off], lambda contestant: self.relay_once(contestant, sink))
        command = command_text(SESSIONS, MESSAGES, LENGTH, True)
        record = bench.results.record
        name = f"{self.name}.{variant}"
        # A share of a message's whole cost.
        record(f"{name}.cpu", "CPU us/message", pairs(rounds, "cpu"), command, Goal(ratio=0.85), peer_name="off")
        rate = pairs(rounds, "rate")
        record(f"{name}.rate", "messages/s", rate, command, Goal(ratio=0.85), more_is_better=True, peer_name="off")

    def relay_once(self, contestant, sink):
        accepted_s, delivered_s, _, cpu_s = measured_cpu(
            contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, SESSIONS, MESSAGES, LENGTH, True)
        )
        return {"rate": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1e6}

    def fanout(self, bench, variant, options, subscribers):
        sink = LabSink(bench.work, free_port(), bench.binary)
        ours, off = self.contestants(bench, sink, variant, options, subscribers=subscribers)
        with bench.running(sink, ours, off):
            rounds = bench.alternate([ours, off], lambda contestant: self.fanout_once(contestant, sink))
        command = f"one post of {LENGTH} octets to a list of {RECIPIENTS} at {DOMAINS} domains, stentor-kit lab sink"
        name = f"{self.name}.{variant}.fanout_cpu"
        cpu = pairs(rounds, "cpu")
        bench.results.record(name, "CPU us/recipient", cpu, command, Goal(ratio=0.8), peer_name="off")

    def fanout_once(self, contestant, sink):
        self.posts += 1
        content = message(LENGTH, f"log{self.posts}")
        _, _, _, cpu_s = measured_cpu(
            contestant, sink, RECIPIENTS, lambda: post(contestant.port, SENDER, "news@lists.example", content)
        )
        return {"cpu": cpu_s / RECIPIENTS * 1e6}

    def contestants(self, bench, sink, variant, options, **more):
        sink_port = sink.port
        return [
            Stentor(bench.binary, bench.work, sink_port, name=name, **choice, **more)
            for name, choice in ((f"stentor-{variant}", options), ("stentor-off", OFF))
        ]
