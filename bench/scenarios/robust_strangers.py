"""What strangers can do: memory that they make the server hold, and what it costs the trusted clients.

2,000 connections from 20 addresses play the parts of `strangers.py`. Memory: resident beyond idle, sampled while they attack
alone. Latency: five trusted clients hand in messages at a fixed rate while the same attack goes to the server, and while it
goes to a listener that only discards, by turns; both servers run all the time."""

import json
import os
import subprocess
import sys
import time

from measure import BenchError, kit, resident_mib, wait_until
from results import Goal
from sinks import SmtpSink, free_port
from sources import SENDER, lab_report

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "strangers.py")
CONNECTIONS = 2_000
SECONDS = 20
# Until all strangers are there.
BEGIN_S = 5
TURNS = 6
CLIENTS = 5
RATE = 200
LENGTH = 4096
SAMPLE_S = 0.05
MEMORY_MIB_MAX = 64
P99_LONGER = 1.2


class Strangers:
    """robust.strangers: memory and p99."""

    name = "robust.strangers"
    entries = (".memory", ".p99")
    smoke = {"CONNECTIONS": 100, "SECONDS": 3, "BEGIN_S": 1, "TURNS": 1}

    def run(self, bench):
        subscribers = os.path.join(bench.work, "strangers.subscribers")
        with open(subscribers, "w") as file:
            file.write("reader@sink.example\n")
        sink, discarder = SmtpSink(bench.work, free_port()), Discarder(free_port())
        server = bench.stentor(sink, subscribers=subscribers, name="strangers", top='client_networks = ["127.0.0.1"]')
        with bench.running(sink, discarder, server):
            self.source(bench, server, BEGIN_S)
            server.wait_drained()
            memory, attacked = self.memory(server)
            command = f"python3 bench/strangers.py attack PORT --connections {CONNECTIONS} --seconds {SECONDS}"
            bench.results.record(
                f"{self.name}.memory", "MiB beyond idle", [[memory["added_mib"], MEMORY_MIB_MAX]], command,
                Goal(most=MEMORY_MIB_MAX), peer_name="the goal", attack=attacked, **memory,
            )
            rounds, full = by_turns(server, discarder, TURNS, lambda target, _: self.beside(bench, server, target))
        bench.results.record(
            f"{self.name}.p99", "ms at p99", rounds, f"{CLIENTS} clients, {RATE} messages/s beside: {command}",
            Goal(ratio=1 / P99_LONGER), peer_name="the same attack at a listener that discards", rounds_in_full=full,
        )

    def memory(self, server):
        """Resident octets while the strangers are alone with the server."""
        idle = resident_mib(server.process.pid)
        attack, peak = strangers(server.port), 0
        while attack.poll() is None:
            peak = max(peak, resident_mib(server.process.pid))
            time.sleep(SAMPLE_S)
        made = finished(attack)
        # The server is there, and answers.
        server.wait_drained()
        after = resident_mib(server.process.pid)
        return {"added_mib": peak - idle, "idle_mib": idle, "peak_mib": peak, "after_mib": after}, made

    def beside(self, bench, server, target):
        os.sync()
        attack = strangers(target.port)
        try:
            time.sleep(BEGIN_S)
            found = self.source(bench, server, SECONDS - BEGIN_S)
        finally:
            found_attack = finished(attack)
        server.wait_drained()
        return found | {"attack": found_attack}

    def source(self, bench, server, seconds):
        argv = [
            kit(bench.binary), "lab", "source", f"127.0.0.1:{server.port}", "--connections", str(CLIENTS), "--rate", str(RATE),
            "--seconds", str(seconds), "--size", str(LENGTH), "--from", SENDER, "--json", "--quiet",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        report = lab_report(done.stdout) if done.returncode == 0 else {}
        if not report or report["report"]["errors"]:
            raise BenchError(f"lab source: {done.stdout[-500:]} {done.stderr[-500:]}")
        return {name: report["final_us"][name] / 1000 for name in ("p50", "p99", "max")}


class Discarder:
    """A listener that reads and says nothing."""

    def __init__(self, port):
        self.port, self.process = port, None

    def start(self):
        self.process = subprocess.Popen([sys.executable, PROGRAM, "discard", str(self.port)])
        wait_until(self._listens, 10, "the discarding listener")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _listens(self):
        with open("/proc/net/tcp") as table:
            return any(line.split()[1].endswith(f":{self.port:04X}") and line.split()[3] == "0A" for line in table)


def by_turns(server, discarder, turns, measure):
    """`measure(target, turn)` of both in each turn, who is first changes. Returns pairs of their p99 in ms, and of all that was measured."""
    rounds, full = [], []
    for turn in range(turns):
        order = (server, discarder) if turn % 2 == 0 else (discarder, server)
        measured = {target: measure(target, turn) for target in order}
        rounds.append([measured[server]["p99"], measured[discarder]["p99"]])
        full.append([measured[server], measured[discarder]])
        print(f"    turn {turn + 1}: p99 {rounds[-1][0]:.2f} ms, discarded {rounds[-1][1]:.2f} ms", flush=True)
    return rounds, full


def strangers(port):
    argv = [sys.executable, PROGRAM, "attack", str(port)]
    argv += ["--connections", str(CONNECTIONS), "--seconds", str(SECONDS)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(attack):
    output, errors = attack.communicate(timeout=120)
    if attack.returncode != 0:
        raise BenchError(f"the strangers: {errors[-500:]}")
    return json.loads(output)
