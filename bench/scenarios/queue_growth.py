"""What depth costs: the same relay work, accepted and delivered, on four servers that run side by side with 0, 10^4, 10^5
and 10^6 messages pending for hosts that are down. CPU of each server's control group per message, in interleaved rounds
whose order rotates. `value` is the worst of the three ratios against the empty server, by the upper end of its 95 %
confidence interval (of the mean of the rounds' ratios, Student's t)."""

import math
import statistics
import time

from deep import DeepStentor, Down, source
from results import Goal
from sinks import SmtpSink, free_port

DEPTHS = (0, 10_000, 100_000, 1_000_000)
SITES = 10_000
ROUNDS_MIN = 12
WARM_UP_ROUNDS = 6
MESSAGES = 6_000
LENGTH = 4096
SESSIONS = 20
FILL_SESSIONS = 300
GOAL = 1.10
# Student's t, two-sided 95 %, by degrees of freedom (rounds - 1).
STUDENT = {8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 19: 2.093, 29: 2.045}


class Growth:
    """CPU per relayed message with up to a million others pending."""

    name = "queue.growth"

    def run(self, bench):
        down = Down(bench.work, SITES)
        addresses = down.addresses(DEPTHS[-1])
        sink = SmtpSink(bench.work, free_port())
        servers = [DeepStentor(bench.binary, bench.work, sink.port, down, name=f"pending-{depth}") for depth in DEPTHS]
        with bench.running(down, sink, *servers):
            for server, depth in zip(servers, DEPTHS):
                if depth:
                    source(
                        bench.binary, server.port, connections=FILL_SESSIONS, messages=depth, size=400,
                        recipients=addresses,
                    )
                    server.wait_quiet(900, "all sites tried")
            # Until segments are recycled: the first pass through new ones writes zeros, which has nothing to do with depth.
            for _ in range(WARM_UP_ROUNDS):
                for server in servers:
                    self.once(bench, server, sink)
            rounds = [self.round(bench, servers, sink, number) for number in range(max(bench.rounds, ROUNDS_MIN))]
        worst, detail = 0, {}
        for at, depth in enumerate(DEPTHS[1:], 1):
            ratios = [us[at] / us[0] for us in rounds]
            upper = upper_bound(ratios)
            detail[f"pending_{depth}"] = {
                "us": statistics.median(us[at] for us in rounds), "ratio": statistics.mean(ratios), "upper": upper
            }
            worst = max(worst, upper)
        detail["empty_us"] = statistics.median(us[0] for us in rounds)
        bench.results.record(
            self.name, "ratio (upper 95 %)", [[worst, 1.0]],
            f"stentor lab source --connections {SESSIONS} --messages {MESSAGES} --size-bytes {LENGTH}, relayed to a sink",
            Goal(most=GOAL), peer_name="an empty queue", cpu_us=[[round(x, 2) for x in us] for us in rounds], **detail,
        )

    def round(self, bench, servers, sink, number):
        """CPU us per message of each server; who begins rotates."""
        shift = number % len(servers)
        order = servers[shift:] + servers[:shift]
        us = {server: self.once(bench, server, sink) for server in order}
        print(f"    round {number + 1}: {', '.join(f'{us[server]:.1f}' for server in servers)} us", flush=True)
        return [us[server] for server in servers]

    def once(self, bench, server, sink):
        total = sink.counts()["copies"] + MESSAGES
        cpu = server.group.cpu_s()
        source(
            bench.binary, server.port, connections=SESSIONS, messages=MESSAGES, size=LENGTH,
            recipients="reader@sink.example",
        )
        sink.wait(total, 300)
        time.sleep(0.5)
        return (server.group.cpu_s() - cpu) / MESSAGES * 1e6


def upper_bound(ratios):
    """The upper end of the 95 % confidence interval of their mean."""
    freedom = len(ratios) - 1
    t = STUDENT[max(known for known in STUDENT if known <= freedom)]
    return statistics.mean(ratios) + t * statistics.stdev(ratios) / math.sqrt(len(ratios))
