"""The same mail to two servers while ours is killed with -9 at random moments. The second server is down for the first half of the
kills: its copies are pending then. Counted are messages that were acknowledged and are at one of the servers only, or at none;
those that were not acknowledged must be at both or at none as well."""

import random
import smtplib
import threading
import time

from measure import BenchError
from recorder import Recorder
from results import Goal

KILLS = 200
CLIENTS = 4
SEED = 20_261_123
# Between a start and the next kill.
LIFE_S = (0.02, 0.4)
DRAIN_S_MAX = 300

RULE = """
[[rules]]
recipient = "*"
do = "copy 127.0.0.1:{port}"
[retry]
host_min_s = 0.2
host_max_s = 1
"""


class Clients:
    """Post messages, each with a name of its own, and remember those that were acknowledged."""

    def __init__(self, port):
        self.port, self.lock, self.is_over = port, threading.Lock(), False
        self.number, self.acknowledged = 0, set()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(CLIENTS)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(30)

    def run(self):
        while not self.is_over:
            try:
                with smtplib.SMTP("127.0.0.1", self.port, timeout=10) as smtp:
                    while not self.is_over:
                        self.one(smtp)
            except (OSError, smtplib.SMTPException):
                time.sleep(0.01)

    def one(self, smtp):
        with self.lock:
            self.number += 1
            name = f"m{self.number}"
        smtp.sendmail("ann@source.example", [f"{name}@copied.example"], f"Subject: {name}\r\n\r\nx\r\n")
        with self.lock:
            self.acknowledged.add(name)


def names(recorder):
    """Names of the messages that came, as often as they came."""
    return [to.partition("@")[0] for _, to, _ in recorder.take()]


class Copies:
    """Messages at one server that are not at the other, over kills at random moments."""

    name = "policy.copies"
    entries = ("",)
    smoke = {"KILLS": 4}

    def run(self, bench):
        chance = random.Random(SEED)
        first, second = Recorder(), Recorder()
        server = bench.stentor(first, name="copies", more=RULE.format(port=second.port))
        clients, is_second_up = Clients(server.port), False
        with bench.running(first, server):
            clients.start()
            try:
                for kill in range(KILLS):
                    if kill == KILLS // 2:
                        second.start()
                        is_second_up = True
                    time.sleep(chance.uniform(*LIFE_S))
                    server.crash()
                    server.restart()
                clients.stop()
                server.operate("flush")
                server.wait_drained(DRAIN_S_MAX)
            finally:
                clients.is_over = True
                if is_second_up:
                    second.stop()
        self.judge(bench, clients, names(first), names(second))

    def judge(self, bench, clients, first, second):
        if len(clients.acknowledged) < KILLS:
            raise BenchError(f"only {len(clients.acknowledged)} messages were acknowledged")
        at_one = set(first) ^ set(second)
        lost = clients.acknowledged - (set(first) & set(second))
        command = f"{KILLS} x kill -9, {len(clients.acknowledged)} messages acknowledged"
        seen = {"acknowledged": len(clients.acknowledged), "sent": clients.number, "first": len(first), "second": len(second)}
        wrong = sorted(at_one | lost)
        # A kill between a host's 250 and its record (RFC 1047): told, not judged.
        seen["doubled"] = len(first) + len(second) - len(set(first)) - len(set(second))
        bench.results.record(
            self.name, "messages not at both", [[len(wrong), 0]], command, Goal(most=0), peer_name="the goal", named=wrong[:10], **seen
        )
        print(f"    {seen}", flush=True)
