"""Relay: 4 KiB messages from 20 parallel clients to one sink, a session each and with sessions kept open."""

from bench import measured_cpu, pairs
from results import Goal
from sinks import SmtpSink, free_port
from sources import command_text, smtp_source

SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096


class Relay:
    """A session for each message."""

    name = "path.relay"
    entries = (".accepted", ".delivered", ".cpu")
    smoke = {"MESSAGES": 200}
    kept = False
    rate_goal = Goal(ratio=4)
    cpu_goal = Goal(ratio=5)

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor, postfix = bench.stentor(sink), bench.postfix(sink)
        with bench.running(sink, stentor, postfix):
            rounds = bench.alternate([stentor, postfix], lambda contestant: self.once(contestant, sink))
        command = command_text(SESSIONS, MESSAGES, LENGTH, self.kept)
        for field, unit, goal, more in (
            ("accepted", "messages/s", self.rate_goal, True),
            ("delivered", "messages/s", self.rate_goal, True),
            ("cpu", "CPU ms/message", self.cpu_goal, False),
        ):
            bench.results.record(f"{self.name}.{field}", unit, pairs(rounds, field), command, goal, more_is_better=more)

    def once(self, contestant, sink):
        accepted_s, delivered_s, _, cpu_s = measured_cpu(
            contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, SESSIONS, MESSAGES, LENGTH, self.kept)
        )
        return {"accepted": MESSAGES / accepted_s, "delivered": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1000}


class RelayReuse(Relay):
    """The clients keep their sessions."""

    name = "path.relay_reuse"
    also = ("path.relay",)
    kept = True
    rate_goal = Goal(ratio=5)
    cpu_goal = Goal(ratio=7)
