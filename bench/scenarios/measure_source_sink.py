"""The measuring kit's own load against Postfix's: `stentor lab source` and `smtp-source` into the same `smtp-sink`, by turns.

Equal work: as many messages of as many octets over as many connections, a command at a time as smtp-source does it. With
PIPELINING, which smtp-source cannot, stands beside. CPU is that of the source process (user and system), from its end.
"""

import os
import subprocess
import time

from bench import pairs
from measure import BenchError
from results import Goal
from sinks import SmtpSink, free_port
from sources import RECIPIENT, SENDER, smtp_source_argv

SESSIONS = 20
LENGTH = 4096
# (name, sessions kept, messages): a second or more each.
LOADS = (("each", False, 10_000), ("kept", True, 40_000))


class Source:
    """A source as a contestant: it runs once and ends."""

    def __init__(self, name, argv):
        self.name = name
        self.argv = argv

    def run(self, sink, messages):
        total = sink.counts()["copies"] + messages
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
        return {"rate": messages / elapsed, "cpu": (used.ru_utime + used.ru_stime) / messages * 1e6}

    def wait_drained(self):
        """It holds nothing."""


def lab_source(binary, port, messages, kept, pipelining):
    argv = [binary, "lab", "source", f"127.0.0.1:{port}", "--connections", str(SESSIONS), "--messages", str(messages)]
    argv += ["--size", str(LENGTH), "--from", SENDER, "--to", RECIPIENT, "--pipelining", pipelining, "--quiet"]
    return Source(f"lab source ({pipelining})", argv if kept else [*argv, "--session-each"])


class SourceSink:
    """Sources; the sinks are in measure_sink."""

    name = "measure.source_sink"

    def run(self, bench):
        for load, kept, messages in LOADS:
            sink = SmtpSink(bench.work, free_port())
            sources = [
                lab_source(bench.binary, sink.port, messages, kept, "off"),
                Source("smtp-source", smtp_source_argv(sink.port, SESSIONS, messages, LENGTH, kept)),
                lab_source(bench.binary, sink.port, messages, kept, "offered"),
            ]
            with bench.running(sink):
                rounds = bench.alternate(sources, lambda source: source.run(sink, messages))
            command = f"{' '.join(sources[0].argv[1:])}, into smtp-sink"
            for suffix, ours in (("", 0), (".pipelined", 2)):
                both = [[figures[ours], figures[1]] for figures in rounds]
                for field, unit, more in (("rate", "messages/s", True), ("cpu", "CPU us/message", False)):
                    name = f"{self.name}.source.{load}{suffix}.{field}"
                    bench.results.record(
                        name, unit, pairs(both, field), command, Goal(ratio=1), more_is_better=more, peer_name="smtp-source"
                    )
