"""Relay compared with its limit, the source straight into the sink: throughput, CPU per message, one processor and all, and
resident memory after a burst.

No server can reach the limit: its run has the same source and sink on the same processors, and no server between them."""

import contextlib
import os
import time

from bench import measured_cpu
from measure import resident_mib, wait_until
from results import SHOWN, Goal
from scenarios import filters_relay, queue_growth, tls_relay
from sinks import SmtpSink, free_port
from sources import command_text, smtp_source

SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096
# Shares of the limit and CPU ms per message, with a session each and with sessions kept.
SHARE = {False: 0.70, True: 0.65}
CPU_MS = {False: 0.080, True: 0.045}

CLIENTS = (20, 200, 2_000)
SCALE_MESSAGES = 8_000

BURST = 100_000
BURST_SESSIONS = 100
BURST_LENGTH = 1024
IDLE_S = 5
LATER_S = 60
MEMORY_RATIO = 1.2


class Relay:
    """Delivered messages per second beside the source straight into the sink."""

    name = "speed.relay"
    entries = (".each", ".kept", ".each_cpu", ".kept_cpu")
    smoke = {"MESSAGES": 200}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor = bench.stentor(sink)
        with bench.running(sink, stentor):
            for kept in (False, True):
                self.measure(bench, stentor, sink, kept)

    def measure(self, bench, stentor, sink, kept):
        limits = []

        def once(contestant):
            limits.append(MESSAGES / smtp_source(sink.port, SESSIONS, MESSAGES, LENGTH, kept))
            _, delivered_s, _, cpu_s = measured_cpu(
                contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, SESSIONS, MESSAGES, LENGTH, kept)
            )
            return {"delivered": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1000}

        rounds = [measured for measured, in bench.alternate([stentor], once)]
        limits = limits[-len(rounds):]
        name = f"{self.name}.{'kept' if kept else 'each'}"
        command = command_text(SESSIONS, MESSAGES, LENGTH, kept)
        bench.results.record(
            name, "messages/s", [[measured["delivered"], limit] for measured, limit in zip(rounds, limits)], command,
            Goal(ratio=SHARE[kept]), more_is_better=True, peer_name="the source straight into the sink",
        )
        bench.results.record(
            f"{name}_cpu", "CPU ms/message", [[measured["cpu"], CPU_MS[kept]] for measured in rounds], command,
            Goal(most=CPU_MS[kept]), peer_name="the goal",
        )


class Scale:
    """Delivered messages per second with ever more clients, on one core and on all."""

    name = "speed.scale"
    entries = ("",)
    smoke = {"CLIENTS": (5,), "SCALE_MESSAGES": 100}

    def run(self, bench):
        rows = {}
        for cores in sorted({1, os.cpu_count()}):
            with on_cores(cores):
                sink = SmtpSink(bench.work, free_port())
                stentor = bench.stentor(sink, name=f"cores-{cores}")
                with bench.running(sink, stentor):
                    for clients in CLIENTS:
                        for kept in (False, True):
                            name = f"{cores} cores, {clients} clients, {'kept' if kept else 'a session each'}"
                            rows[name] = self.row(bench, stentor, sink, clients, kept)
                            print(f"    {name}: {rows[name]}", flush=True)
        rates = [row["delivered"] for row in rows.values()]
        bench.results.record(
            self.name, "messages/s", [[max(rates), min(rates)]], f"smtp-source -s {CLIENTS} -m {SCALE_MESSAGES} -l {LENGTH}",
            SHOWN, more_is_better=True, peer_name="the slowest row", rows=rows,
        )

    def row(self, bench, stentor, sink, clients, kept):
        def once(contestant):
            _, delivered_s, _, cpu_s = measured_cpu(
                contestant, sink, SCALE_MESSAGES, lambda: smtp_source(contestant.port, clients, SCALE_MESSAGES, LENGTH, kept)
            )
            return {"delivered": SCALE_MESSAGES / delivered_s, "cpu_ms": cpu_s / SCALE_MESSAGES * 1000}

        rounds = [measured for measured, in bench.alternate([stentor], once, 1 if bench.smoke else 3)]
        return {field: sorted(row[field] for row in rounds)[len(rounds) // 2] for field in rounds[0]}


@contextlib.contextmanager
def on_cores(cores):
    """Processes started within use only the first `cores` processors."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


class Memory:
    """Resident memory a minute after a burst of queued messages has been released and delivered, beside idle."""

    name = "speed.memory"
    entries = ("",)
    smoke = {"BURST": 300, "BURST_SESSIONS": 5, "IDLE_S": 0.2, "LATER_S": 1}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor = bench.stentor(sink)
        with bench.running(sink, stentor):
            # Warm-up: allocations that each thread makes once do not count.
            smtp_source(stentor.port, BURST_SESSIONS, BURST // 50, BURST_LENGTH, False)
            sink.wait(BURST // 50, 300)
            time.sleep(IDLE_S)
            idle = resident_mib(stentor.process.pid)
            stentor.operate("queue-only", "--all")
            smtp_source(stentor.port, BURST_SESSIONS, BURST, BURST_LENGTH, False)
            queued = resident_mib(stentor.process.pid)
            stentor.operate("queue-only", "--all", "--end")
            peak = 0

            def is_delivered():
                nonlocal peak
                peak = max(peak, resident_mib(stentor.process.pid))
                return stentor.queue_is_empty()

            wait_until(is_delivered, 300, "the burst delivered")
            series = []
            for _ in range(6):
                time.sleep(LATER_S / 6)
                series.append(resident_mib(stentor.process.pid))
        bench.results.record(
            self.name, "MiB", [[series[-1], idle]], f"{command_text(BURST_SESSIONS, BURST, BURST_LENGTH, False)}, queue-only, then released",
            Goal(ratio=1 / MEMORY_RATIO), peer_name="idle", queued_mib=queued, peak_mib=peak, later_mib=series,
        )


class Tls(tls_relay.Relay):
    """The work of tls.relay."""

    name = "speed.tls"


class Milter(filters_relay.Relay):
    """The work of filters.relay."""

    name = "speed.milter"


class Growth(queue_growth.Growth):
    """The work of queue.growth, with a narrower goal."""

    name = "speed.growth"
    goal = 1.05
