"""`stentor-kit lab sink` beside Postfix's smtp-sink, both fed by smtp-source; its models, its stores, and 60,000 connections.

CPU is that of a control group around the sink, which runs for the time of one figure and is warmed up before. A figure
that is shown and has nothing to reach has the goal "ratio >= 0".
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

from measure import BenchError, Group, kit, wait_until
from results import SHOWN, Goal
from sinks import free_port

SESSIONS = 20
LENGTH = 4096
# {name: (arguments of smtp-source, messages)}
CASES = {
    "each": ([], 8_000),
    "kept": (["-d"], 40_000),
    "each_50": (["-r", "50"], 3_000),
    "kept_50": (["-d", "-r", "50"], 3_000),
}
# More threads than sessions, so that none waits.
MODELS = {
    "event_2": ["--model", "event", "--threads", "2"],
    "pool": ["--model", "pool", "--threads", "32"],
    "thread": ["--model", "thread"],
}
STORES = {
    "flat.none": ["flat", "none"],
    "flat.file": ["flat", "file"],
    "flat.file+dir": ["flat", "file+dir"],
    "hashed.none": ["hashed", "none"],
    "hashed.file": ["hashed", "file"],
    "hashed.file+dir": ["hashed", "file+dir"],
    "journal.none": ["journal", "none"],
    "journal.file": ["journal", "file"],
}
STORE_MESSAGES = 4_000
HELD = 60_000
HELD_MESSAGES = 20_000
HELD_S = 5
WARM_UP_MESSAGES_MIN = 200
PAUSE_S = 0.2


@contextlib.contextmanager
def serving(bench, argv, port):
    """A sink in a control group of its own; gives (group, process)."""
    group = Group(f"sink-{port}", bench.work)
    process = None
    try:
        process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=group.enter
        )
        wait_until(lambda: listens(process, port), 30, f"{argv[0]} on port {port}")
        yield group, process
    finally:
        if process:
            process.send_signal(signal.SIGINT if argv[1:2] == ["lab"] else signal.SIGTERM)
            process.wait(60)
        group.remove()


def listens(process, port):
    if process.poll() is not None:
        raise BenchError(f"the sink has exited: {process.stderr.read()[-500:]}")
    # Without connecting, which some sinks count.
    with open("/proc/net/tcp") as sockets:
        return bool(re.search(rf": 0100007F:{port:04X} 00000000:0000 0A ", sockets.read()))


def lab_sink(bench, port, *options):
    return [kit(bench.binary), "lab", "sink", f"127.0.0.1:{port}", "--record", "counters", *options]


def smtp_sink(port):
    # -u: it refuses to stay root. -m: all that may come at once.
    return ["smtp-sink", "-u", "postfix", "-m", "1000", f"127.0.0.1:{port}", "2000"]


def feed(port, arguments, messages):
    """Seconds until all were acknowledged. One refusal is an error."""
    argv = ["smtp-source", "-s", str(SESSIONS), "-l", str(LENGTH), "-m", str(messages), *arguments, f"127.0.0.1:{port}"]
    begin = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if done.returncode != 0 or done.stderr.strip():
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")
    return time.monotonic() - begin


def once(bench, argv, port, arguments, messages):
    """One figure of a sink: rate, CPU, what it and the disk wrote."""
    os.sync()
    with serving(bench, argv, port) as (group, _):
        feed(port, arguments, max(WARM_UP_MESSAGES_MIN, messages // 10))
        time.sleep(PAUSE_S)
        cpu, octets, (writes, flushes) = group.cpu_s(), group.written_bytes(), group.device_writes()
        seconds = feed(port, arguments, messages)
        after = group.device_writes()
        time.sleep(PAUSE_S)
        return {
            "rate": messages / seconds,
            "cpu_us": (group.cpu_s() - cpu) / messages * 1e6,
            "octets": (group.written_bytes() - octets) / messages,
            "writes": (after[0] - writes) / messages,
            "flushes": (after[1] - flushes) / messages,
        }


def by_turns(bench, ours, peers, rounds):
    """[[ours, the peer's], ...]; who begins changes, one of each is not counted. Both are functions."""
    if bench.warm_ups:
        ours(), peers()
    measured = []
    for number in range(rounds):
        first, second = (ours, peers) if number % 2 == 0 else (peers, ours)
        pair = [first(), second()]
        measured.append(pair if number % 2 == 0 else pair[::-1])
        shown = "; ".join(f"{one['rate']:.0f}/s {one['cpu_us']:.1f} us" for one in measured[-1])
        print(f"    round {number + 1}: {shown}", flush=True)
    return measured


def pairs(measured, field):
    return [[one[field] for one in pair] for pair in measured]


class Sink:
    """lab sink beside smtp-sink; by model; by store; 60,000 connections held."""

    name = "measure.sink"
    entries = (
        *(f".{what}.{figure}" for what in (*CASES, *(f"model.{model}" for model in MODELS), *(f"store.{store}" for store in STORES))
          for figure in ("rate", "cpu")),
        ".held",
    )
    smoke = {
        "CASES": {name: (arguments, 40) for name, (arguments, _) in CASES.items()}, "WARM_UP_MESSAGES_MIN": 20,
        "STORE_MESSAGES": 40, "HELD": 200, "HELD_MESSAGES": 200, "HELD_S": 1, "PAUSE_S": 0.02,
    }
    also = ("measure.source_sink.sink",)

    def run(self, bench):
        for name, (arguments, messages) in CASES.items():
            port, other = free_port(), free_port()
            measured = by_turns(
                bench,
                lambda: once(bench, lab_sink(bench, port), port, arguments, messages),
                lambda: once(bench, smtp_sink(other), other, arguments, messages),
                bench.rounds,
            )
            command = f"smtp-source {' '.join(['-s', str(SESSIONS), '-l', str(LENGTH), '-m', str(messages), *arguments])}"
            record = lambda figure, unit, field, **more: bench.results.record(
                f"{self.name}.{name}.{figure}", unit, pairs(measured, field), command, Goal(ratio=1),
                peer_name="smtp-sink", **more,
            )
            record("rate", "messages/s", "rate", more_is_better=True)
            record("cpu", "CPU us per message", "cpu_us")
        self.models(bench)
        self.stores(bench)
        self.held(bench)

    def models(self, bench):
        """Beside one event loop, sessions kept."""
        arguments, messages = CASES["kept"]
        for name, options in MODELS.items():
            port = free_port()
            measured = by_turns(
                bench,
                lambda: once(bench, lab_sink(bench, port, *options), port, arguments, messages),
                lambda: once(bench, lab_sink(bench, port), port, arguments, messages),
                min(bench.rounds, 3),
            )
            self.record_both(bench, f"model.{name}", measured, f"lab sink {' '.join(options)}", "one event loop")

    def stores(self, bench):
        """Beside none."""
        folder = os.path.join(bench.work, "sink-store")
        for name, (as_, sync) in STORES.items():
            port = free_port()
            options = ["--store", folder, "--store-as", as_, "--sync", sync]

            def stored():
                shutil.rmtree(folder, ignore_errors=True)
                return once(bench, lab_sink(bench, port, *options), port, ["-d"], STORE_MESSAGES)

            try:
                measured = by_turns(
                    bench,
                    stored,
                    lambda: once(bench, lab_sink(bench, port), port, ["-d"], STORE_MESSAGES),
                    min(bench.rounds, 3),
                )
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            more = {
                field: sorted(pair[0][field] for pair in measured)[len(measured) // 2]
                for field in ("octets", "writes", "flushes")
            }
            command = f"lab sink --store DIR --store-as {as_} --sync {sync}"
            self.record_both(bench, f"store.{name}", measured, command, "no store", **more)

    def record_both(self, bench, name, measured, command, peer, **more):
        options = {"peer_name": peer, **more}
        bench.results.record(
            f"{self.name}.{name}.rate", "messages/s", pairs(measured, "rate"), command, SHOWN, more_is_better=True, **options
        )
        bench.results.record(
            f"{self.name}.{name}.cpu", "CPU us per message", pairs(measured, "cpu_us"), command, SHOWN, **options
        )

    def held(self, bench):
        """60,000 connections over eight local addresses: one command at each end, of as many processes as it takes."""
        targets = f"127.0.0.1-127.0.0.8:{free_port()}"
        wanted = ["--connections", str(HELD)]
        argv = [kit(bench.binary), "lab", "sink", targets, "--record", "counters", "--json", *wanted]
        sink = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            sink.stdout.readline()
            argv = [
                kit(bench.binary), "lab", "hold", targets, *wanted, "--from", "127.0.1.1-127.0.1.4", "--messages",
                str(HELD_MESSAGES), "--seconds", str(HELD_S), "--pid", str(sink.pid), "--json", "--quiet",
            ]
            done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=300)
            if done.returncode != 0:
                raise BenchError(f"{' '.join(argv)}: exit code {done.returncode}")
        finally:
            sink.send_signal(signal.SIGINT)
            rest, _ = sink.communicate(timeout=60)
        counters = json.loads(rest.splitlines()[-1])
        tables = json.loads(done.stdout)["tables"]
        held = tables["held"][0]
        octets = {row["what"]: row["bytes_per_connection"] for row in tables["memory"]}
        bench.results.record(
            f"{self.name}.held", "connections", [[held["alive"], HELD]], f"lab sink --connections {HELD} and lab hold",
            Goal(ratio=1), more_is_better=True, peer_name="the goal", at_once=counters["open_max"],
            open_s=held["open_s"], messages=held["messages"], messages_per_s=held["messages_per_s"],
            sink_octets_each=octets["server, resident"], kernel_octets_each_both_ends=octets["kernel: slabs"],
        )
