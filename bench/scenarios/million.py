"""A million subscribers: from the final dot to the 250, then kill -9 in mid-delivery, restart, and everyone is served.
The peak memory is that of the server's process, the greater of both lives. The list is loaded before RCPT is answered,
so it is not in the time of the post. There is no peer: the goal stands in its place."""

import os
import time

from measure import BenchError, wait_until
from results import Goal
from sinks import LabSink, free_port
from sources import SENDER, message, post

SUBSCRIBERS = 1_000_000
GREAT_DOMAINS = 10
SMALL_DOMAINS = 20_000
LENGTH = 4096
ROUNDS_MAX = 3
KILL_AFTER = 200_000
SERVED_S_MAX = 300
SECONDS_GOAL = 1
MEMORY_MIB_GOAL = 300


class Million:
    """One post to a million."""

    name = "path.million"
    entries = (".seconds", ".memory_mib")
    smoke = {"SUBSCRIBERS": 20_000, "GREAT_DOMAINS": 2, "SMALL_DOMAINS": 200, "KILL_AFTER": 1_000}

    def run(self, bench):
        subscribers = os.path.join(bench.work, "million.subscribers")
        with open(subscribers, "w") as file:
            file.writelines(f"{address(i)}\n" for i in range(SUBSCRIBERS))
        lives = []
        for number in range(min(bench.rounds, ROUNDS_MAX)):
            sink = LabSink(bench.work, free_port(), bench.binary, record="compact")
            stentor = bench.stentor(sink, subscribers=subscribers)
            with bench.running(sink, stentor):
                lives.append(self.live_twice(stentor, sink, number))
                print(f"    round {number + 1}: {lives[-1]}", flush=True)
        command = f"one post to {SUBSCRIBERS} subscribers, kill -9 after {KILL_AFTER} copies, restart"
        for field, unit, goal in (("seconds", "s", SECONDS_GOAL), ("memory_mib", "MiB", MEMORY_MIB_GOAL)):
            rounds = [[life[field], goal] for life in lives]
            bench.results.record(
                f"path.million.{field}", unit, rounds, command, Goal(most=goal), peer_name="the goal", lives=lives
            )

    def live_twice(self, stentor, sink, number):
        os.sync()
        posted = post(stentor.port, SENDER, "news@lists.example", message(LENGTH, f"million{number}"))
        killed_at = sink.wait(KILL_AFTER, SERVED_S_MAX)
        memory_kib = stentor.group.memory_peak_kib()
        stentor.crash()
        if sink.counts()["copies"] >= SUBSCRIBERS:
            raise BenchError("all was delivered before the kill")
        begin = time.monotonic()
        stentor.restart()
        restart_s = time.monotonic() - begin
        served = wait_until(lambda: everyone(sink), SERVED_S_MAX, f"all served ({sink.counts()})")
        stentor.wait_drained()
        return {
            "seconds": posted.answer - posted.dot,
            "memory_mib": max(memory_kib, stentor.group.memory_peak_kib()) / 1024,
            "memory_before_kill_mib": memory_kib / 1024,
            "killed_after_s": killed_at - posted.dot,
            "restart_s": restart_s,
            "served_s": served - posted.dot,
            "repeated": sink.counts()["duplicates"],
        }


def everyone(sink):
    counts = sink.counts()
    return counts["copies"] - counts["duplicates"] >= SUBSCRIBERS


def address(i):
    """Half of the subscribers are with ten great providers, the others at 20,000 domains."""
    if i % 2:
        return f"reader.{i:07}@provider{i // 2 % GREAT_DOMAINS}.example"
    return f"reader.{i:07}@d{i // 2 % SMALL_DOMAINS:05}.example"
