"""Fan-out: one post to a list of 20,000 recipients at 2,000 domains, from the final dot to the last copy at the sink.
Both servers expand the list themselves from the same file.

With one host for all domains (a relay) both put 50 recipients into a transaction; with a host for each domain each domain's
recipients are a transaction of their own. That is checked.
"""

import ipaddress
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
# Addresses of the hosts, where each domain has one of its own.
FIRST_HOST = ipaddress.ip_address("127.10.0.1")
# Most connections out at a time, of both: none has to wait for another's end.
CONNECTIONS = 2_000


class Fanout:
    """One post to a list, all by one host."""

    name = "path.fanout"
    what = "stentor-kit lab sink"
    entries = (".time", ".cpu")
    smoke = {"RECIPIENTS": 2_000, "DOMAINS": 200, "TRANSACTIONS": 40}

    def run(self, bench):
        subscribers = os.path.join(bench.work, "fanout.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"reader{i:05}@d{i % DOMAINS:04}.example\n" for i in range(RECIPIENTS))
        sink, stentor, postfix = self.contestants(bench, subscribers)
        with bench.running(sink, stentor, postfix):
            rounds = bench.alternate([stentor, postfix], lambda contestant: self.once(contestant, sink))
        command = f"one post of {LENGTH} octets to a list of {RECIPIENTS} at {DOMAINS} domains, {self.what}"
        transactions = pairs(rounds, "transactions")
        bench.results.record(
            f"{self.name}.time", "s", pairs(rounds, "time"), command, Goal(ratio=4), transactions=transactions
        )
        bench.results.record(f"{self.name}.cpu", "CPU ms/recipient", pairs(rounds, "cpu"), command, Goal(ratio=5))

    def __init__(self):
        self.posts = 0

    def contestants(self, bench, subscribers):
        sink = LabSink(bench.work, free_port(), bench.binary)
        return sink, bench.stentor(sink, subscribers=subscribers), bench.postfix(sink, subscribers=subscribers)

    def transactions(self):
        return TRANSACTIONS

    def once(self, contestant, sink):
        self.posts += 1
        content = message(LENGTH, f"fanout{self.posts}")
        before = sink.counts()["transactions"]
        posted, _, end, cpu_s = measured_cpu(
            contestant, sink, RECIPIENTS, lambda: post(contestant.port, SENDER, "news@lists.example", content)
        )
        transactions = sink.counts()["transactions"] - before
        expected = self.transactions()
        if not expected <= transactions <= expected + TRANSACTIONS_SPARE:
            raise BenchError(f"{contestant.name} used {transactions} transactions, not {expected}: not comparable")
        return {"time": end - posted.dot, "cpu": cpu_s / RECIPIENTS * 1000, "transactions": transactions}


class FanoutHosts(Fanout):
    """One post to a list, each domain by a host of its own."""

    name = "path.fanout.hosts"
    what = "each with an address of its own, stentor-kit lab sink"

    def contestants(self, bench, subscribers):
        hosts = [str(FIRST_HOST + number) for number in range(DOMAINS)]
        sink = LabSink(bench.work, free_port(), bench.binary, addresses=f"{hosts[0]}-{hosts[-1]}")
        routes = {f"d{number:04}.example": f"{host}:{sink.port}" for number, host in enumerate(hosts)}
        options = {"subscribers": subscribers, "routes": routes}
        return sink, bench.stentor(sink, connections=CONNECTIONS, **options), bench.postfix(sink, processes=CONNECTIONS, **options)

    def transactions(self):
        return DOMAINS
