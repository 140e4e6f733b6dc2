"""What depth costs: the same relay work, accepted and delivered, on four servers that run side by side with 0, 10^4, 10^5
and 10^6 messages pending for hosts that are down. CPU of each server's control group per message. `value` is the worst of
the three ratios against the empty server, by the upper end of its 95 % confidence interval.

- Many short turns: each round every server takes one, who begins rotates and every other round goes backwards, so that what
  the machine does otherwise meets all four alike. The servers live through all rounds.
- A turn's CPU is all that the server has used since the end of its last one: a checkpoint, or segments that are made ready, may
  go on while the others work, and come once in dozens of turns. What the empty server uses when nothing happens (its
  clocks) is taken off all of them; otherwise waiting for the others would make the ratios smaller.
- The ratio is that of the sums over all rounds, its interval that of a ratio of paired means (Cochran's ratio estimator,
  Student's t). The mean of the rounds' ratios is too high by the square of the noise of the denominator (4 % where
  rounds vary by 20 %), their median or geometric mean too low, since they pass over what is dear but seldom.
- The empty server has relayed WORN messages from as many sessions as filled the others before it is measured: an allocator whose
  pages are worn costs some 2 % more than a fresh one, with or without mail that waits.
"""

import math
import statistics
import time

from deep import DeepStentor, Down, source
from results import Goal
from sinks import SmtpSink, free_port

DEPTHS = (0, 10_000, 100_000, 1_000_000)
SITES = 10_000
ROUNDS_MIN = 96
MESSAGES = 2_000
LENGTH = 4096
SESSIONS = 20
FILL_SESSIONS = 300
WORN = 100_000
# Until segments are recycled (the first pass through new ones writes zeros) and the deepest has written checkpoints.
WARM_UP_MESSAGES = 60_000
SETTLE_S = 0.1
IDLE_S = 3.0
# Student's t, two-sided 95 %, by degrees of freedom (rounds - 1).
STUDENT = {1: 12.706, 8: 2.306, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023, 59: 2.001, 95: 1.985, 199: 1.972}


class Growth:
    """CPU per relayed message with up to a million others pending."""

    name = "queue.growth"
    entries = ("",)
    # Most, by the upper end of the interval.
    goal = 1.10
    smoke = {
        "DEPTHS": (0, 10, 100, 1_000), "SITES": 50, "ROUNDS_MIN": 2, "MESSAGES": 100, "FILL_SESSIONS": 10, "WORN": 100,
        "WARM_UP_MESSAGES": 100, "IDLE_S": 0.2,
    }

    def run(self, bench):
        down = Down(bench.work, SITES)
        addresses = down.addresses(DEPTHS[-1])
        sink = SmtpSink(bench.work, free_port())
        servers = [DeepStentor(bench.binary, bench.work, sink.port, down, name=f"pending-{depth}") for depth in DEPTHS]
        with bench.running(down, sink, *servers):
            for server, depth in zip(servers, DEPTHS):
                self.fill(bench, server, depth, addresses, sink)
            for server in servers * 2:
                self.relay(bench, server, sink, WARM_UP_MESSAGES // 2)
            self.idle = self.idle_share(servers[0])
            self.before = {server: Reading(server) for server in servers}
            begin = dict(self.before)
            rounds = [self.round(bench, servers, sink, number) for number in range(max(bench.rounds, ROUNDS_MIN))]
            messages = len(rounds) * MESSAGES
            threads = [self.before[server].threads_us(begin[server], messages) for server in servers]
        empty = [us[0] for us in rounds]
        worst, detail = 0, {"empty_us": statistics.mean(empty), "empty_threads_us": threads[0]}
        for at, depth in enumerate(DEPTHS[1:], 1):
            ratio, upper = ratio_of_means([us[at] for us in rounds], empty)
            mean = statistics.mean(us[at] for us in rounds)
            detail[f"pending_{depth}"] = {"us": mean, "ratio": ratio, "upper": upper, "threads_us": threads[at]}
            print(f"    {depth} pending: {mean:.1f} us, {ratio:.3f} of the empty server's, at most {upper:.3f}; {threads[at]}")
            worst = max(worst, upper)
        bench.results.record(
            self.name, "ratio (upper 95 %)", [[worst, 1.0]],
            f"stentor-kit lab source --connections {SESSIONS} --messages {MESSAGES} --size {LENGTH}, relayed to a sink",
            Goal(most=self.goal), peer_name="an empty queue", cpu_us=[[round(x, 2) for x in us] for us in rounds], **detail,
        )

    def fill(self, bench, server, depth, addresses, sink):
        if depth == 0:
            self.relay(bench, server, sink, WORN, FILL_SESSIONS, 400)
            return
        source(bench.binary, server.port, connections=FILL_SESSIONS, messages=depth, size=400, recipients=addresses)
        server.wait_quiet(900, "all sites tried")

    def idle_share(self, server):
        """CPU seconds per second while nothing happens."""
        time.sleep(IDLE_S)
        begin, cpu = time.monotonic(), server.group.cpu_s()
        time.sleep(IDLE_S)
        return (server.group.cpu_s() - cpu) / (time.monotonic() - begin)

    def round(self, bench, servers, sink, number):
        """CPU us per message of each server."""
        shift = number // 2 % len(servers)
        order = servers[shift:] + servers[:shift]
        us = {}
        for server in order if number % 2 == 0 else reversed(order):
            self.relay(bench, server, sink, MESSAGES)
            last, self.before[server] = self.before[server], Reading(server)
            us[server] = self.before[server].cpu_us(last, self.idle) / MESSAGES
        if number % 8 == 7:
            print(f"    round {number + 1}: {', '.join(f'{us[server]:.1f}' for server in servers)} us", flush=True)
        return [us[server] for server in servers]

    def relay(self, bench, server, sink, messages, sessions=SESSIONS, length=LENGTH):
        total = sink.counts()["copies"] + messages
        source(
            bench.binary, server.port, connections=sessions, messages=messages, size=length,
            recipients="reader@sink.example",
        )
        sink.wait(total, 300)
        time.sleep(SETTLE_S)


class Reading:
    """What a server has used by now."""

    def __init__(self, server):
        self.cpu_s, self.at, self.threads = server.group.cpu_s(), time.monotonic(), server.group.threads_cpu_s()

    def cpu_us(self, before, idle):
        """Since `before`, less what nothing takes."""
        return (self.cpu_s - before.cpu_s - idle * (self.at - before.at)) * 1e6

    def threads_us(self, before, messages):
        """{thread: us per message} since `before`."""
        return {
            name: round((used - before.threads.get(name, 0)) * 1e6 / messages, 2) for name, used in self.threads.items()
        }


def ratio_of_means(ours, theirs):
    """(the ratio of their means, the upper end of its 95 % confidence interval), paired by round."""
    count, mean = len(ours), statistics.mean(theirs)
    ratio = statistics.mean(ours) / mean
    deviation = math.sqrt(sum((our - ratio * their) ** 2 for our, their in zip(ours, theirs)) / (count - 1))
    t = STUDENT[max(known for known in STUDENT if known <= count - 1)]
    return ratio, ratio + t * deviation / math.sqrt(count) / mean
