"""Fan-out: one post to a list of 20,000 recipients at 2,000 domains, from the final dot to the last copy at the sink.
Both servers expand the list themselves from the same file; both put 50 recipients into a transaction, which is checked.
"""

import os

from bench import measured_cpu, pairs
from measure import BenchError
from results import Goal
from sinks import LabSink, free_port
from sources import SENDER, message, post

RECIPIENTS = 20_000
DOMAINS = 2_000
LENGTH = 4096
TRANSACTIONS = RECIPIENTS // 50
# A server that shares a list out over its connections may leave a short transaction on each.
TRANSACTIONS_SPARE = 20


class Fanout:
    """One post to a list."""

    name = "path.fanout"
    entries = (".time", ".cpu")
    smoke = {"RECIPIENTS": 2_000, "DOMAINS": 200, "TRANSACTIONS": 40}

    def run(self, bench):
        subscribers = os.path.join(bench.work, "fanout.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"reader{i:05}@d{i % DOMAINS:04}.example\n" for i in range(RECIPIENTS))
        sink = LabSink(bench.work, free_port(), bench.binary)
        stentor = bench.stentor(sink, subscribers=subscribers)
        postfix = bench.postfix(sink, subscribers=subscribers)
        with bench.running(sink, stentor, postfix):
            rounds = bench.alternate([stentor, postfix], lambda contestant: self.once(contestant, sink))
        command = f"one post of {LENGTH} octets to a list of {RECIPIENTS} at {DOMAINS} domains, stentor-kit lab sink"
        transactions = pairs(rounds, "transactions")
        bench.results.record(
            "path.fanout.time", "s", pairs(rounds, "time"), command, Goal(ratio=4), transactions=transactions
        )
        bench.results.record("path.fanout.cpu", "CPU ms/recipient", pairs(rounds, "cpu"), command, Goal(ratio=5))

    def __init__(self):
        self.posts = 0

    def once(self, contestant, sink):
        self.posts += 1
        content = message(LENGTH, f"fanout{self.posts}")
        before = sink.counts()["transactions"]
        posted, _, end, cpu_s = measured_cpu(
            contestant, sink, RECIPIENTS, lambda: post(contestant.port, SENDER, "news@lists.example", content)
        )
        transactions = sink.counts()["transactions"] - before
        if not TRANSACTIONS <= transactions <= TRANSACTIONS + TRANSACTIONS_SPARE:
            raise BenchError(f"{contestant.name} used {transactions} transactions, not {TRANSACTIONS}: not comparable")
        return {"time": end - posted.dot, "cpu": cpu_s / RECIPIENTS * 1000, "transactions": transactions}
