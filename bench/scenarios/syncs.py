"""Syncs: how many per accepted message, how many octets are written for one received, and what waiting for company adds
to the answer. The first two are counted until all is delivered, so completions are in. Octets written are those of the
queue files, or of the journal once its segments are recycled; octets received are those between DATA and the dot. The
log, which is not synced, stands beside (`log`, the same ratio).
"""

import subprocess

from bench import measured_cpu, pairs
from measure import BenchError, kit, median
from results import Goal
from sinks import SmtpSink, free_port
from sources import RECIPIENT, SENDER, command_text, lab_report, octets_of_message, smtp_source

LENGTH = 4096
# (parallel clients, messages). Postfix is slow under 200 clients; the figure is per message.
LOADS = ((20, 2000), (200, 4000))
LONE_MESSAGES = 500
MESSAGES_PER_BATCH_MIN = 8
# Enough to go round Stentor's segments: a new one is written through once, later ones are recycled, as they are in any
# server that has run for a minute.
SEGMENT_MESSAGES = 30_000
# A round of answers is the median of several short turns, both servers by turns, so that noise meets both alike.
LATENCY_MESSAGES = 4000
LATENCY_TURNS = 5


class Syncs:
    """Counts, octets and answers."""

    name = "path.syncs"
    entries = (".20", ".200", ".bytes", ".bytes.alone", ".latency.20", ".latency.200")
    smoke = {
        "LOADS": ((20, 200),), "entries": (".20", ".bytes", ".bytes.alone", ".latency.20"), "LONE_MESSAGES": 20, "SEGMENT_MESSAGES": 400, "LATENCY_MESSAGES": 400,
        "LATENCY_TURNS": 1,
    }

    def run(self, bench):
        self.octets = octets_of_message(LENGTH)
        self.count(bench)
        for clients, _ in LOADS:
            self.answer(bench, clients)

    def count(self, bench):
        sink = SmtpSink(bench.work, free_port())
        stentor, postfix = bench.stentor(sink, counted=True), bench.postfix(sink, counted=True)
        with bench.running(sink, stentor, postfix):
            self.load(stentor, sink, LOADS[-1][0], SEGMENT_MESSAGES)
            for clients, messages in LOADS:
                rounds = bench.alternate([stentor, postfix], lambda c: self.load(c, sink, clients, messages))
                command = command_text(clients, messages, LENGTH, True) + ", syncs counted by perf"
                bench.results.record(
                    f"path.syncs.{clients}", "syncs/message", pairs(rounds, "syncs"), command, Goal(most=0.5),
                    by_status=[ours["by_status"] for ours, _ in rounds], batch=[ours["batch"] for ours, _ in rounds],
                )
            per_batch = median([ours["batch"] for ours, _ in rounds])
            if per_batch < MESSAGES_PER_BATCH_MIN:
                print(f"    only {per_batch:.1f} messages share a batch: octets are not comparable")
            octets = "octets written/received"
            detail = {"batch": per_batch, "log": pairs(rounds, "log")}
            bench.results.record("path.syncs.bytes", octets, pairs(rounds, "bytes"), command, Goal(most=1.5), **detail)
            rounds = bench.alternate([stentor, postfix], lambda c: self.load(c, sink, 1, LONE_MESSAGES))
            command = command_text(1, LONE_MESSAGES, LENGTH, True)
            name = "path.syncs.bytes.alone"
            bench.results.record(name, octets, pairs(rounds, "bytes"), command, Goal(most=2.1), log=pairs(rounds, "log"))

    def load(self, contestant, sink, clients, messages):
        before = self.counters(contestant)
        measured_cpu(
            contestant, sink, messages, lambda: smtp_source(contestant.port, clients, messages, LENGTH, True)
        )
        after = self.counters(contestant)
        syncs, written, log, journal_syncs, batches = (now - then for now, then in zip(after, before))
        return {
            "syncs": syncs / messages,
            "bytes": written / (messages * self.octets),
            "log": log / (messages * self.octets),
            "by_status": journal_syncs / messages,
            "batch": messages / batches if batches else 0,
        }

    def counters(self, contestant):
        status = contestant.status() if contestant.name == "stentor" else {}
        own = [status.get("journal_syncs", 0), status.get("journal_batches", 0)]
        return [contestant.sync_count.syncs(), contestant.synced_bytes(), contestant.log_bytes(), *own]

    def answer(self, bench, clients):
        """The median from the end of data to its 250, with the commit delay as shipped and with none."""
        sink = SmtpSink(bench.work, free_port())
        shipped = bench.stentor(sink, name="stentor")
        hasty = bench.stentor(sink, name="stentor-hasty", commit_delay_us=0)
        with bench.running(sink, shipped, hasty):
            turns = bench.alternate(
                [shipped, hasty], lambda c: self.median_answer(bench, c, sink, clients), bench.rounds * LATENCY_TURNS
            )
        answers = pairs(turns, "answer")
        rounds = [
            [median([pair[side] for pair in answers[first : first + LATENCY_TURNS]]) for side in (0, 1)]
            for first in range(0, len(answers), LATENCY_TURNS)
        ]
        bench.results.record(
            f"path.syncs.latency.{clients}", "ms", rounds,
            f"stentor-kit lab source --connections {clients} --messages {LATENCY_MESSAGES} --size {LENGTH}",
            Goal(added=1), peer_name="stentor with commit_delay_us = 0",
        )

    def median_answer(self, bench, contestant, sink, clients):
        argv = [
            kit(bench.binary), "lab", "source", f"127.0.0.1:{contestant.port}", "--connections", str(clients), "--messages",
            str(LATENCY_MESSAGES), "--size", str(LENGTH), "--from", SENDER, "--to", RECIPIENT, "--json", "--quiet",
        ]
        total = sink.counts()["copies"] + LATENCY_MESSAGES
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        report = lab_report(done.stdout) if done.returncode == 0 else {}
        if not report or report["report"]["accepted"] != LATENCY_MESSAGES:
            raise BenchError(f"{' '.join(argv)}: {done.stdout[-500:]} {done.stderr[-500:]}")
        sink.wait(total, 120)
        return {"answer": report["final_us"]["p50"] / 1000}
