"""Compaction: what cleaning adds to a commit. 20 clients relay 4 KiB messages, first with a queue that holds nothing old, then
beside stragglers: one message in eight goes to a host that is down, so that each segment keeps a few live messages, which
cleaning must move to give its space back. Latency from the end of data to its 250; the disk's use is checked against its
bound at the end."""

import os
import subprocess

from measure import BenchError, kit, median
from results import Goal
from sinks import SmtpSink, free_port
from sources import SENDER, lab_report

CLIENTS = 20
LENGTH = 4096
MESSAGES = 16_000
# Goes into the queue and stays there: MESSAGES / STRAGGLER_PART of them a turn.
STRAGGLER_PART = 8
ROUNDS_MAX = 3
DRAIN_S_MAX = 120
MIB = 1024 * 1024
SEGMENT_BYTES = 16 * MIB
# docs/design/journal-format.md, Disk use: in use beside live x 1.5, ready ones included, and octets of state per message.
SEGMENTS_BESIDE = 6
STATE_BYTES_PER_MESSAGE = 3 * 256
# What a commit may take longer at its 99th percentile: docs/design/journal-format.md, Cleaning.
ADDED_MS_MAX = 5
PERCENTILES = ("p50", "p99", "p999", "max")


class Compaction:
    """Commits beside cleaning."""

    name = "queue.compaction"
    entries = ("",)
    smoke = {"MESSAGES": 800}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        quiet = bench.stentor(sink, name="stentor-quiet", dead_route="down.example")
        cleaning = bench.stentor(sink, name="stentor-cleaning", dead_route="down.example")
        rounds = []
        with bench.running(sink, quiet, cleaning):
            for number in range(1 - bench.warm_ups, min(bench.rounds, ROUNDS_MAX) + 1):
                order = [quiet, cleaning] if number % 2 == 0 else [cleaning, quiet]
                measured = {server: self.once(bench, server, server is cleaning) for server in order}
                if number:
                    rounds.append([measured[cleaning], measured[quiet]])
                    print(f"    round {number}: cleaning {measured[cleaning]}\n             quiet {measured[quiet]}", flush=True)
        if not rounds[-1][0]["moved_mib"] and not bench.smoke:
            raise BenchError("nothing was moved: cleaning was not measured")
        bench.results.record(
            self.name, "ms at p99", [[one["p99"] for one in both] for both in rounds],
            f"stentor-kit lab source --connections {CLIENTS} --messages {MESSAGES} --size {LENGTH}; 1 in {STRAGGLER_PART} stays",
            Goal(added=ADDED_MS_MAX), peer_name="stentor without anything to clean",
            distribution={side: {p: median([both[at][p] for both in rounds]) for p in PERCENTILES}
                          for at, side in enumerate(("cleaning", "quiet"))},
            rounds_in_full=rounds,
        )

    def once(self, bench, server, with_stragglers):
        os.sync()
        before = server.status()
        recipients = ["reader@sink.example"] * STRAGGLER_PART
        if with_stragglers:
            recipients[0] = "reader@down.example"
        argv = [
            kit(bench.binary), "lab", "source", f"127.0.0.1:{server.port}", "--connections", str(CLIENTS), "--messages",
            str(MESSAGES), "--size", str(LENGTH), "--from", SENDER, "--json", "--quiet",
        ]
        for recipient in recipients:
            argv += ["--to", recipient]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        report = lab_report(done.stdout) if done.returncode == 0 else {}
        if not report or report["report"]["accepted"] != MESSAGES:
            raise BenchError(f"{' '.join(argv)}: {done.stdout[-500:]} {done.stderr[-500:]}")
        stragglers = before["recipients"]["pending"] + (MESSAGES // STRAGGLER_PART if with_stragglers else 0)
        server.wait_pending(stragglers, DRAIN_S_MAX)
        # Cleaning and checkpoints go on by themselves until the disk's use is within its bound.
        server.wait_settled(DRAIN_S_MAX)
        after = server.status()
        used = disk_bytes(server.folder)
        live = after["content_bytes"]
        bound = 1.5 * live + SEGMENTS_BESIDE * SEGMENT_BYTES + STATE_BYTES_PER_MESSAGE * after["recipients"]["pending"]
        if used > bound:
            raise BenchError(f"{used / MIB:.0f} MiB on the disk for {live / MIB:.0f} MiB live: over {bound / MIB:.0f} MiB")
        moved = (after["journal_bytes_moved"] - before["journal_bytes_moved"]) / MIB
        return {
            **{name: report["final_us"][name] / 1000 for name in PERCENTILES},
            "messages_per_s": round(report["report"]["accepted_per_s"]),
            "moved_mib": round(moved, 1),
            "unprepared": after["journal_unprepared"] - before["journal_unprepared"],
            "disk_mib": round(used / MIB),
            "live_mib": round(live / MIB),
        }


def disk_bytes(folder):
    journal = os.path.join(folder, "data", "journal")
    return sum(os.stat(os.path.join(journal, name)).st_blocks * 512 for name in os.listdir(journal))
