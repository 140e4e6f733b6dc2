"""A host that worked a moment ago restarts: sites of one host and of two, which are all out for a time and end sessions in one way
meanwhile (`restarting.WAYS`), with mail that comes before, in and at the end of the outage. All cases at once, clocks as shipped.
`value` is the worst case's seconds from the host's return to the last copy, less the outage; `.probes` the connections that a host
got within its outage, beyond one in two seconds.
"""

import threading
import time

from measure import BenchError, wait_until
from restarting import WAYS, Restarting
from results import Goal
from sources import SENDER, message, post

OUTAGES_S = (0.3, 3, 10)
HOSTS = (1, 2)
MESSAGES = 6
WARM_UP = 3
# Between the last good session and the outage.
IDLE_S = 2
BACK_S = 2
WAIT_S = 60
# The first one comes a second after the failure; sessions that end at MAIL have one beside.
PROBES_AT_FIRST = 4


class Case:
    """One site."""

    def __init__(self, way, outage_s, hosts):
        self.name = f"{way}-{str(outage_s).replace('.', '-')}-{hosts}".replace("_", "-")
        self.outage_s = outage_s
        self.hosts = [Restarting(way) for _ in range(hosts)]
        self.late_s = self.probes = None

    def taken(self):
        return sorted(at for host in self.hosts for at in host.taken)

    def send(self, port, count, text):
        for number in range(count):
            post(port, SENDER, f"reader{number}@{self.name}.example", message(1000, f"{text}-{number}-{self.name}"))

    def run(self, port, barrier):
        self.send(port, WARM_UP, "warm")
        wait_until(lambda: len(self.taken()) == WARM_UP, WAIT_S, f"{self.name}: the host works")
        barrier.wait()
        time.sleep(IDLE_S)
        for host in self.hosts:
            host.go_out()
        begin = time.monotonic()
        for number in range(MESSAGES):
            self.send(port, 1, f"out{number}")
            time.sleep(max(0, begin + (number + 1) * self.outage_s / MESSAGES - time.monotonic()))
        for host in self.hosts:
            host.come_back()
        back = time.monotonic()
        wait_until(lambda: len(self.taken()) >= WARM_UP + MESSAGES, WAIT_S, f"{self.name}: all copies")
        self.late_s = self.taken()[-1] - back - self.outage_s
        self.probes = max(len(host.tried) for host in self.hosts) - (back - begin) / 2


class Nowhere:
    """Where mail without a route would go."""

    port = 9


class Restart:
    """Back within the outage and two seconds."""

    name = "field.restart"
    entries = ("", ".probes")
    smoke = {"OUTAGES_S": (0.3,), "IDLE_S": 0.5}

    def run(self, bench):
        cases = [Case(way, outage_s, hosts) for way in WAYS for outage_s in OUTAGES_S for hosts in HOSTS]
        routes = {f"{case.name}.example": '", "'.join(f"127.0.0.1:{host.address[1]}" for host in case.hosts) for case in cases}
        server = bench.stentor(Nowhere, name="restart", routes=routes)
        faults, barrier = [], threading.Barrier(len(cases))

        def one(case):
            try:
                case.run(server.port, barrier)
            except (BenchError, OSError, threading.BrokenBarrierError) as error:
                barrier.abort()
                faults.append(f"{case.name}: {error}")

        with bench.running(server):
            threads = [threading.Thread(target=one, args=(case,)) for case in cases]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for case in cases:
            for host in case.hosts:
                host.stop()
        if faults:
            raise BenchError("; ".join(faults[:5]))
        command = f"{len(cases)} sites, {MESSAGES} messages each, out for {', '.join(map(str, OUTAGES_S))} s"
        worst = max(cases, key=lambda case: case.late_s)
        each = {case.name: round(case.late_s + case.outage_s, 2) for case in cases}
        bench.results.record(
            self.name, "s", [[worst.late_s, BACK_S]], command, Goal(most=BACK_S), peer_name="the goal", worst=worst.name, back_s=each,
        )
        most = max(cases, key=lambda case: case.probes)
        bench.results.record(
            f"{self.name}.probes", "connections", [[most.probes, PROBES_AT_FIRST]], command, Goal(most=PROBES_AT_FIRST),
            peer_name="the goal", worst=most.name,
        )
