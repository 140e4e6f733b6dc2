"""Relay with one milter that answers at once and an idle set of rules on content, beside the same server without either, and beside
Postfix with the same milter; and without a milter and with rules that no message waits for, which must cost nothing."""

import subprocess

from bench import measured_cpu, pairs
from measure import BenchError, wait_until
from results import Goal
from sinks import SmtpSink, free_port
from sources import RECIPIENT, SENDER, command_text, smtp_source

SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096
RULES = 50
START_S_MAX = 20


def idle_rules(is_asked):
    """Rules on content that none of the messages meets; `is_asked`: they wait for it all the same."""
    other = "" if is_asked else 'recipient = "nobody@elsewhere.example"\n'
    kinds = (
        'subject = "offer {n}"', 'body = "/wonder drug {n}[0-9]+/"', 'charset = "x-{n}"', 'attachment = "*.x{n}"', 'header = "X-Mailer: bulk{n}"',
    )
    rules = (f'[[rules]]\n{other}{kinds[n % len(kinds)].format(n=n)}\ndo = "reject"\n' for n in range(RULES))
    return "".join(rules)


class QuickMilter:
    """`stentor-quick-milter`, which is told everything; `fault`: what it does with messages of a bad sender."""

    def __init__(self, bench, fault=None):
        self.fault = fault
        self.program, self.port, self.process = bench.tool("stentor-quick-milter"), free_port(), None

    def start(self):
        self.process = subprocess.Popen([self.program, f"127.0.0.1:{self.port}", *([self.fault] if self.fault else [])], stdin=subprocess.DEVNULL)
        wait_until(self.listens, START_S_MAX, "the milter listening")

    def listens(self):
        if self.process.poll() is not None:
            raise BenchError("stentor-quick-milter has exited")
        # Its own sockets only: a connection made to see would be one that the milter serves.
        with open("/proc/net/tcp") as sockets:
            return any(line.split()[1].endswith(f":{self.port:04X}") and line.split()[3] == "0A" for line in sockets.readlines()[1:])

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait(20)

    def for_stentor(self):
        return f'[[milters]]\nname = "quick"\naddress = "inet:127.0.0.1:{self.port}"\n'

    def for_postfix(self):
        return f"smtpd_milters = inet:127.0.0.1:{self.port}\n"


class Relay:
    """Messages per second from `smtp-source` until the last copy has come, of four configurations."""

    name = "filters.relay"
    entries = (".filtered", ".postfix", ".unused")
    smoke = {"MESSAGES": 200}

    def run(self, bench):
        sink, milter = SmtpSink(bench.work, free_port()), QuickMilter(bench)
        filtered = bench.stentor(sink, name="milter-and-rules", more=milter.for_stentor() + idle_rules(True))
        unused = bench.stentor(sink, name="rules-for-others", more=idle_rules(False))
        plain = bench.stentor(sink, name="without")
        postfix = bench.postfix(sink)
        postfix.more_main = milter.for_postfix()
        contestants = [filtered, unused, plain, postfix]
        with bench.running(sink, milter, *contestants):
            rounds = bench.alternate(contestants, lambda contestant: self.once(contestant, sink))
        for entry, ours, peer, goal, peer_name in (
            (".filtered", 0, 2, Goal(ratio=0.7), "without"),
            (".postfix", 0, 3, Goal(ratio=5), "postfix with the same milter"),
            (".unused", 1, 2, Goal(ratio=0.95), "without"),
        ):
            both = [[measured[ours], measured[peer]] for measured in rounds]
            cpu = [[round(ms, 3) for ms in pair] for pair in pairs(both, "cpu")]
            bench.results.record(
                self.name + entry, "messages/s", pairs(both, "delivered"), f"{command_text(SESSIONS, MESSAGES, LENGTH, True)} -f {SENDER} -t {RECIPIENT}",
                goal, more_is_better=True, peer_name=peer_name, cpu_ms_per_message=cpu, rules=RULES,
            )

    def once(self, contestant, sink):
        accepted_s, delivered_s, _, cpu_s = measured_cpu(
            contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, SESSIONS, MESSAGES, LENGTH, True)
        )
        return {"accepted": MESSAGES / accepted_s, "delivered": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1000}
