"""Operators who look: answers at ten million pending deliveries, and what watching costs.

The deep server of queue.ten_million_pending: ten posts to a million addresses at 50,000 sites that refuse connections. The
commands' wall times are measured as a user feels them; a snapshot is asked for at the control socket. What watching costs is
measured on that same server, turn by turn with and without `realstat` at an interval of a second and `mailqq` every five:
a fan-out of 20 messages to 1,000 recipients each at a sink."""

import json
import os
import socket
import statistics
import subprocess
import threading
import time

from deep import DeepStentor, Down, source
from results import Goal
from scenarios import queue_pending
from scenarios.queue_pending import TRIED_S_MAX, TenMillionPending, lock_held
from measure import BenchError, Waits
from sinks import LabSink, free_port

ASKED = 9
GOAL_MS = 200
COMMANDS = {
    "mailqq": ["mailqq"],
    "mailqq_list": ["mailqq", "--list", "news"],
    "mailqq_site": ["mailqq", "--site", "d7.down.example"],
    "latedudes": ["latedudes"],
    "hosts": ["hosts"],
    "hosts_failing": ["hosts", "--failing", "--sort", "next-try"],
    "report": ["report"],
    "queue": ["queue"],
}
TURNS = 24
WARM_UP_TURNS = 3
MESSAGES = 20
PER_MESSAGE = 1_000
POLL_S = 5


class TenMillion(TenMillionPending):
    """op.ten_million: watching at ten million pending."""

    name = "op.ten_million"
    entries = (*(f".{command}" for command in COMMANDS), ".watch", ".watching", ".watching_cpu")
    smoke = {"ASKED": 1, "TURNS": 1, "WARM_UP_TURNS": 0, "MESSAGES": 2, "PER_MESSAGE": 100}

    def run(self, bench):
        down = Down(bench.work, queue_pending.SITES)
        self.addresses = down.addresses(queue_pending.ADDRESSES)
        sink = LabSink(bench.work, free_port(), bench.binary)
        deep = DeepStentor(bench.binary, bench.work, sink.port, down, subscribers=self.subscribers(), name="deep")
        with bench.running(down, sink, deep):
            self.fill(bench, deep)
            if deep.pending() != queue_pending.PENDING:
                raise BenchError(f"{deep.pending()} recipients are pending")
            deep.wait_quiet(TRIED_S_MAX, "all sites tried and found down")
            lock_held(deep)
            for name, arguments in COMMANDS.items():
                times = [deep.command(*arguments, "--json")[0] * 1000 for _ in range(ASKED)]
                self.record(
                    bench, f".{name}", "ms", times, GOAL_MS, f"stentor {' '.join(arguments)} --json",
                    all=[round(ms, 1) for ms in times], lock_held=lock_held(deep),
                )
            self.snapshots(bench, deep)
            self.cost(bench, deep, sink)

    def snapshots(self, bench, deep):
        """Each over a connection of its own, so that it is the first of a watch."""
        times, took = [], []
        for _ in range(ASKED):
            # Longer than an overview is kept.
            time.sleep(3)
            begin = time.monotonic()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(os.path.join(deep.folder, "data", "control.sock"))
                client.sendall(b'{"v":1,"verb":"watch","interval_ms":1000,"count":1,"history_s":900}\n')
                line = client.makefile().readline()
            times.append((time.monotonic() - begin) * 1000)
            took.append(json.loads(line)["data"]["sites_took_us"] / 1000)
        self.record(
            bench, ".watch", "ms", times, GOAL_MS, "the first snapshot of the verb watch, with 900 s of history",
            all=[round(ms, 1) for ms in times], sites_took_ms=took, lock_held=lock_held(deep), octets=len(line),
        )

    def cost(self, bench, deep, sink):
        path = os.path.join(bench.work, "sink.recipients")
        with open(path, "w") as file:
            file.writelines(f"reader{n:05}@sink.example\n" for n in range(MESSAGES * PER_MESSAGE))

        def once():
            total, cpu = sink.counts()["copies"] + MESSAGES * PER_MESSAGE, deep.group.cpu_s()
            begin = time.monotonic()
            source(
                bench.binary, deep.port, connections=4, messages=MESSAGES, size=4096, recipients=path,
                per_message=PER_MESSAGE,
            )
            end = sink.wait(total, 120)
            time.sleep(Waits.settle)
            return MESSAGES * PER_MESSAGE / (end - begin), (deep.group.cpu_s() - cpu) / (MESSAGES * PER_MESSAGE) * 1e6

        for _ in range(WARM_UP_TURNS):
            once()
        rounds, cpu = [], []
        for turn in range(TURNS):
            measured = {}
            for watched in (True, False) if turn % 2 == 0 else (False, True):
                with Watchers(deep) if watched else Nobody():
                    measured[watched] = once()
            rounds.append([measured[True][0], measured[False][0]])
            cpu.append([measured[True][1], measured[False][1]])
        command = f"{MESSAGES} messages to {PER_MESSAGE} recipients each; realstat --interval 1, mailqq every {POLL_S} s"
        bench.results.record(
            f"{self.name}.watching", "deliveries/s", rounds, command, Goal(ratio=0.98), more_is_better=True,
            peer_name="stentor with nobody watching", ratio_of_rounds=ratio(rounds),
            cpu_us_per_delivery=[statistics.median(pair[side] for pair in cpu) for side in (0, 1)],
        )
        bench.results.record(
            f"{self.name}.watching_cpu", "CPU us/delivery", cpu, command, Goal(ratio=0.98),
            peer_name="stentor with nobody watching", ratio_of_rounds=ratio(cpu),
        )


def ratio(rounds):
    """The median of the rounds' own ratios: what a slow minute of the machine does to both sides cancels out."""
    return round(statistics.median(ours / theirs for ours, theirs in rounds), 4)


class Nobody:
    def __enter__(self):
        time.sleep(1)

    def __exit__(self, *_):
        pass


class Watchers:
    """Somebody looks at rates and messages."""

    def __init__(self, server):
        self.server, self.over = server, threading.Event()

    def __enter__(self):
        argv = [self.server.binary, "realstat", "--interval", "1", "--config", self.server.configuration]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        self.thread = threading.Thread(target=self._poll)
        self.thread.start()
        time.sleep(1)

    def _poll(self):
        while not self.over.is_set():
            self.server.command("mailqq", "--json")
            self.over.wait(POLL_S)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.process.terminate()
        self.process.wait(20)
