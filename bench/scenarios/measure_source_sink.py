"""The measuring kit's own load against Postfix's: `stentor-kit lab source` and `smtp-source` into the same sink, by turns.

Equal work: as many messages of as many octets over as many connections, a command at a time as smtp-source does it. With
PIPELINING, which smtp-source cannot, stands beside. CPU is that of the source process (user and system), from its end.

Two sinks: Postfix's, which costs twice what either source does and so decides the rate of both; and our own, which costs a third
of that and lets a faster source be faster. What the sink took per message stands with each figure (`sink_cpu_us`).
"""

import os
import subprocess
import time

from bench import pairs
from measure import BenchError, kit
from results import Goal
from sinks import LabSink, SmtpSink, free_port
from sources import RECIPIENT, SENDER, smtp_source_argv

SESSIONS = 20
LENGTH = 4096
# (name, sessions kept, messages): about a second each.
LOADS = (("each", False, 5_000), ("kept", True, 20_000))
# Of two processes that wait for each other, rates scatter with all else that runs.
ROUNDS_MIN = 9


class Source:
    """A source as a contestant: it runs once and ends."""

    def __init__(self, name, argv):
        self.name = name
        self.argv = argv

    def run(self, sink, messages):
        total = sink.counts()["copies"] + messages
        sink_before = cpu_s(sink.process.pid)
        begin = time.monotonic()
        with subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as source:
            errors = source.stderr.read()
            _, status, used = os.wait4(source.pid, 0)
            elapsed = time.monotonic() - begin
            source.returncode = os.waitstatus_to_exitcode(status)
        if source.returncode != 0:
            raise BenchError(f"{' '.join(self.argv)}: {errors.decode(errors='replace')[-500:]}")
        sink.wait(total, 30)
        if sink.counts()["copies"] != total:
            raise BenchError(f"{self.name}: {sink.counts()['copies'] - total} messages too many")
        sink_us = (cpu_s(sink.process.pid) - sink_before) / messages * 1e6
        return {"rate": messages / elapsed, "cpu": (used.ru_utime + used.ru_stime) / messages * 1e6, "sink_cpu": sink_us}

    def wait_drained(self):
        """It holds nothing."""


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lab_source(binary, port, messages, kept, pipelining):
    argv = [kit(binary), "lab", "source", f"127.0.0.1:{port}", "--connections", str(SESSIONS), "--messages", str(messages)]
    argv += ["--size", str(LENGTH), "--from", SENDER, "--to", RECIPIENT, "--pipelining", pipelining, "--quiet"]
    return Source(f"lab source ({pipelining})", argv if kept else [*argv, "--session-each"])


class SourceSink:
    """Sources; the sinks are in measure_sink."""

    name = "measure.source_sink"
    entries = tuple(
        f".source.{load}{way}.{figure}"
        for load, *_ in LOADS
        for way in ("", ".pipelined", ".lab_sink", ".lab_sink.pipelined")
        for figure in ("rate", "cpu")
    )
    smoke = {"LOADS": (("each", False, 100), ("kept", True, 200)), "ROUNDS_MIN": 1}

    def run(self, bench):
        for load, kept, messages in LOADS:
            self.into(bench, SmtpSink(bench.work, free_port()), f"{load}", "smtp-sink", kept, messages)
            sink = LabSink(bench.work, free_port(), bench.binary)
            self.into(bench, sink, f"{load}.lab_sink", "lab sink", kept, messages)

    def into(self, bench, sink, load, sink_name, kept, messages):
        sources = [
            lab_source(bench.binary, sink.port, messages, kept, "off"),
            Source("smtp-source", smtp_source_argv(sink.port, SESSIONS, messages, LENGTH, kept)),
            lab_source(bench.binary, sink.port, messages, kept, "offered"),
        ]
        with bench.running(sink):
            rounds = bench.alternate(sources, lambda source: source.run(sink, messages), max(bench.rounds, ROUNDS_MIN))
        command = f"{' '.join(sources[0].argv[1:])}, into {sink_name}"
        sink_us = sorted(one["sink_cpu"] for figures in rounds for one in figures[:2])
        for suffix, ours in (("", 0), (".pipelined", 2)):
            both = [[figures[ours], figures[1]] for figures in rounds]
            for field, unit, more in (("rate", "messages/s", True), ("cpu", "CPU us/message", False)):
                bench.results.record(
                    f"{self.name}.source.{load}{suffix}.{field}", unit, pairs(both, field), command, Goal(ratio=1),
                    more_is_better=more, peer_name="smtp-source", sink_cpu_us=sink_us[len(sink_us) // 2],
                )
