"""Slow disk: both process trees may send 200 writes a second to the disk, 4 KiB messages from 200 parallel clients.
Stentor takes 20,000 messages, Postfix what it takes in a window of two minutes. Limited are the writes that a tree's own
processes submit, which are those of its syncs; `detail` has how many a second that were, by the throttle's own count, and
what the whole disk did meanwhile (the kernel's write-back and file system journal included, which nobody limits)."""

import os
import time

from measure import BenchError
from results import Goal
from sinks import SmtpSink, free_port
from sources import command_text, smtp_source, smtp_source_for

WRITES_PER_S = 200
CLIENTS = 200
MESSAGES = 20_000
LENGTH = 4096
ROUNDS_MAX = 3
WARM_UP_S = 10
# Shorter for a trial: STENTOR_BENCH_WINDOW_S=20.
WINDOW_S = float(os.environ.get("STENTOR_BENCH_WINDOW_S", "120"))
DRAIN_S_MAX = 600
# A tree over this did not meet the limit, and its figure would mean nothing.
WRITES_SPARE = 1.1


class SlowDisk:
    """Accepting at 200 device writes a second."""

    name = "queue.slow_disk"
    entries = ("",)
    smoke = {"MESSAGES": 400, "WINDOW_S": 2}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor, postfix = bench.stentor(sink, counted=True), bench.postfix(sink, counted=True)
        rounds = []
        with bench.running(sink, stentor, postfix):
            if bench.warm_ups:
                self.once(stentor, WARM_UP_S)
                self.once(postfix, WARM_UP_S)
            for number in range(min(bench.rounds, ROUNDS_MAX)):
                order = [stentor, postfix] if number % 2 == 0 else [postfix, stentor]
                measured = {contestant: self.once(contestant, WINDOW_S) for contestant in order}
                rounds.append([measured[stentor], measured[postfix]])
                for contestant in (stentor, postfix):
                    print(f"    round {number + 1}: {contestant.name} {measured[contestant]}", flush=True)
        bench.results.record(
            self.name, "messages/s", [[one["rate"] for one in both] for both in rounds],
            f"{command_text(CLIENTS, MESSAGES, LENGTH, True)}; Postfix {WINDOW_S:g} s; {WRITES_PER_S} writes/s each",
            Goal(ratio=40), more_is_better=True, rounds_in_full=rounds,
        )

    def once(self, contestant, window_s):
        group = contestant.group
        os.sync()
        before = self.counters(contestant)
        group.limit_writes(WRITES_PER_S)
        begin = time.monotonic()
        if contestant.name == "stentor":
            smtp_source(contestant.port, CLIENTS, MESSAGES, LENGTH, True)
            messages = MESSAGES
        else:
            messages = smtp_source_for(contestant.port, CLIENTS, LENGTH, window_s)
        seconds = time.monotonic() - begin
        after = self.counters(contestant)
        group.limit_writes()
        contestant.wait_drained(DRAIN_S_MAX)
        writes, syncs, octets, device, flushes = (now - then for now, then in zip(after, before))
        if writes > WRITES_SPARE * WRITES_PER_S * (seconds + 1):
            raise BenchError(f"{contestant.name} made {writes} writes in {seconds:.1f} s: the limit does not hold")
        return {
            "rate": messages / seconds,
            "messages": messages,
            "seconds": round(seconds, 2),
            "writes_per_s": round(writes / seconds, 1),
            "writes_per_sync": round(writes / max(1, syncs), 2),
            "syncs_per_message": round(syncs / max(1, messages), 4),
            "octets_per_write": round(octets / max(1, writes)),
            "device_writes_per_s": round(device / seconds, 1),
            "device_flushes_per_s": round(flushes / seconds, 1),
        }

    def counters(self, contestant):
        group = contestant.group
        return [group.writes(), contestant.sync_count.syncs(), group.written_bytes(), *group.device_writes()]
