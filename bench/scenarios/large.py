"""Large bodies: what they add to others' commits. 5 clients hand in small messages, alone and beside 20 that stream 20 MiB
each; resident memory is bounded."""

import os
import subprocess

from measure import BenchError, kit
from results import Goal
from sinks import SmtpSink, free_port
from sources import SENDER, lab_report

SMALL_CLIENTS = 5
SMALL_LENGTH = 4096
SECONDS = 5
LARGE_CLIENTS = 20
LARGE_LENGTH = 20 * 1024 * 1024
ROUNDS_MAX = 3
DRAIN_S_MAX = 300
# Bodies on their way in and out, the batch, the cache of small bodies, and what a server takes anyway.
MEMORY_MIB_MAX = 256
ADDED_MS_MAX = 10
PERCENTILES = ("p50", "p99", "max")


class Large:
    """Small messages beside large ones."""

    name = "queue.large"
    entries = ("",)
    smoke = {"SECONDS": 1, "LARGE_CLIENTS": 4, "LARGE_LENGTH": 1024 * 1024}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        server = bench.stentor(sink)
        rounds = []
        with bench.running(sink, server):
            if bench.warm_ups:
                self.once(bench, server, False)
            for number in range(min(bench.rounds, ROUNDS_MAX)):
                beside, alone = self.once(bench, server, True), self.once(bench, server, False)
                rounds.append([beside, alone])
                print(f"    round {number + 1}: beside {beside}; alone {alone}", flush=True)
            status = server.status()
            memory_mib = server.group.memory_peak_kib() / 1024
        if memory_mib > MEMORY_MIB_MAX:
            raise BenchError(f"{memory_mib:.0f} MiB resident, {MEMORY_MIB_MAX} allowed")
        bench.results.record(
            self.name, "ms at p50", [[one["p50"] for one in both] for both in rounds],
            f"{SMALL_CLIENTS} clients with {SMALL_LENGTH} octets beside {LARGE_CLIENTS} with {LARGE_LENGTH}",
            Goal(added=ADDED_MS_MAX), peer_name="stentor without large messages",
            memory_mib=round(memory_mib, 1), streamed_bytes_peak=status["streamed_bytes_peak"], rounds_in_full=rounds,
        )

    def once(self, bench, server, with_large):
        os.sync()
        streaming = None
        if with_large:
            streaming = self.source(bench, server, LARGE_CLIENTS, LARGE_LENGTH)
        report = finished(self.source(bench, server, SMALL_CLIENTS, SMALL_LENGTH))
        found = {name: report["final_us"][name] / 1000 for name in PERCENTILES}
        found["messages_per_s"] = round(report["report"]["accepted_per_s"])
        if streaming:
            # The large ones must have gone on for as long as the small ones were measured.
            large = finished(streaming)
            found["large_mib_per_s"] = round(large["report"]["accepted_per_s"] * LARGE_LENGTH / 1024 / 1024)
        server.wait_drained(DRAIN_S_MAX)
        return found

    def source(self, bench, server, clients, length):
        argv = [
            kit(bench.binary), "lab", "source", f"127.0.0.1:{server.port}", "--connections", str(clients), "--messages",
            "10000000", "--seconds", str(SECONDS), "--size", str(length), "--from", SENDER, "--json", "--quiet",
        ]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(source):
    output, errors = source.communicate(timeout=300)
    report = lab_report(output) if source.returncode == 0 else {}
    if not report or report["report"]["errors"]:
        raise BenchError(f"lab source: {output[-500:]} {errors[-500:]}")
    return report
