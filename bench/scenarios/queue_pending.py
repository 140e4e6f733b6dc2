"""Ten million pending deliveries to hosts that are all down, in two shapes: ten posts to a list of a million, and ten
thousand messages to a thousand random ones of that million each. No peer is asked: goals stand in its place, and for the
acceptance of other mail an identical server whose queue is empty, turn by turn."""

import os
import statistics
import time

from deep import DeepStentor, Down, scattered, source
from measure import BenchError, Waits, wait_until
from results import Goal
from sinks import SmtpSink, free_port
from sources import SENDER, message, post

ADDRESSES = 1_000_000
SITES = 50_000
PENDING = 10_000_000
# Of the scattered ones.
PER_MESSAGE = 1_000
ASKED = 7
TURNS = 14
TURN_MESSAGES = 4_000
WARM_UP_TURNS = 12
TURN_BYTES = 4096
SESSIONS = 20
TRIED_S_MAX = 900
RESTARTS = 3
# A view never waits for a count.
VIEW_MS_MAX = 10


class TenMillionPending:
    """10 posts to a list of a million addresses at 50,000 sites that are down."""

    name = "queue.ten_million_pending"
    entries = ("", ".status_ms", ".stuck_ms", ".disk_mib", ".acceptance", ".restart_s")
    smoke = {
        "ADDRESSES": 500, "SITES": 50, "PENDING": 5_000, "ASKED": 1, "TURNS": 1, "TURN_MESSAGES": 100, "WARM_UP_TURNS": 0,
        "RESTARTS": 1,
    }
    memory_goal = 400

    def run(self, bench):
        down = Down(bench.work, SITES)
        self.addresses = down.addresses(ADDRESSES)
        sink = SmtpSink(bench.work, free_port())
        deep = DeepStentor(bench.binary, bench.work, sink.port, down, subscribers=self.subscribers(), name="deep")
        empty = DeepStentor(bench.binary, bench.work, sink.port, down, name="empty")
        with bench.running(down, sink, deep, empty):
            self.fill(bench, deep)
            if deep.pending() != PENDING:
                raise BenchError(f"{deep.pending()} recipients are pending")
            deep.wait_quiet(TRIED_S_MAX, "all sites tried and found down")
            self.measure(bench, deep, empty, sink)

    def subscribers(self):
        return self.addresses

    def fill(self, bench, deep):
        for number in range(PENDING // ADDRESSES):
            post(deep.port, SENDER, "news@lists.example", message(4096, f"post{number}"))

    def command_text(self):
        return f"{PENDING // ADDRESSES} posts to {ADDRESSES} addresses at {SITES} sites that refuse connections"

    def measure(self, bench, deep, empty, sink):
        what = self.command_text()
        filling = lock_held(deep)
        memory = deep.settled_mib()
        peak = deep.group.memory_peak_kib() / 1024
        self.record(bench, "", "MiB", [memory], self.memory_goal, what, peak=peak, lock_held_while_filling=filling)
        status = [deep.command("queue", "--json")[0] * 1000 for _ in range(ASKED)]
        stuck = [deep.command("stuck", "-n", "20", "--json")[0] * 1000 for _ in range(ASKED)]
        idle = [empty.command("queue", "--json")[0] * 1000 for _ in range(ASKED)]
        held = lock_held(deep)
        detail = {"all": status, "empty_queue_ms": statistics.median(idle), "lock_held": held}
        self.record(bench, ".status_ms", "ms", status, VIEW_MS_MAX, "stentor queue --json", **detail)
        self.record(bench, ".stuck_ms", "ms", stuck, VIEW_MS_MAX, "stentor queue --stuck 20 --json", all=stuck)
        disk, content = deep.disk_mib()
        self.record(
            bench, ".disk_mib", "MiB", [disk - content], 250, "blocks of the store's files less live content",
            disk=disk, content=content,
        )
        self.acceptance(bench, deep, empty, sink)
        restarts, cpu = [], []
        for _ in range(RESTARTS):
            before = deep.group.cpu_s()
            restarts.append(deep.crash_and_restart())
            cpu.append(deep.group.cpu_s() - before)
            if deep.pending() != PENDING:
                raise BenchError(f"{deep.pending()} recipients are pending after a restart")
        self.record(bench, ".restart_s", "s", restarts, 3, "kill -9, start, until the greeting", cpu_s=cpu)

    def acceptance(self, bench, deep, empty, sink):
        """Messages/s of a relay to a good host, beside a server with an empty queue."""

        def once(server):
            total, cpu = sink.counts()["copies"] + TURN_MESSAGES, server.group.cpu_s()
            report = source(
                bench.binary, server.port, connections=SESSIONS, messages=TURN_MESSAGES, size=TURN_BYTES,
                recipients="reader@sink.example",
            )
            sink.wait(total, 120)
            time.sleep(Waits.settle)
            return report["accepted_per_s"], (server.group.cpu_s() - cpu) / TURN_MESSAGES * 1e6

        # Until segments are recycled: the first pass through new ones writes zeros, which has nothing to do with depth.
        for _ in range(WARM_UP_TURNS):
            for server in (deep, empty):
                once(server)
        rounds, cpu = [], []
        for turn in range(TURNS):
            order = (deep, empty) if turn % 2 == 0 else (empty, deep)
            measured = {server.name: once(server) for server in order}
            rounds.append([measured["deep"][0], measured["empty"][0]])
            cpu.append([round(measured["deep"][1], 1), round(measured["empty"][1], 1)])
        bench.results.record(
            f"{self.name}.acceptance", "messages/s", rounds,
            f"stentor-kit lab source --connections {SESSIONS} --messages {TURN_MESSAGES} --size {TURN_BYTES}",
            Goal(ratio=0.9), more_is_better=True, peer_name="stentor with an empty queue",
            ratios=[round(ours / theirs, 3) for ours, theirs in rounds], cpu_us_per_message=cpu,
        )

    def record(self, bench, entry, unit, values, goal, command, **detail):
        rounds = [[value, goal] for value in values]
        bench.results.record(
            f"{self.name}{entry}", unit, rounds, command, Goal(most=goal), peer_name="the goal", **detail
        )


class TenMillionScattered(TenMillionPending):
    """10,000 messages to 1,000 random ones of a million addresses at 50,000 sites that are down."""

    name = "queue.ten_million_scattered"
    memory_goal = 600
    smoke = {"PER_MESSAGE": 100}

    def subscribers(self):
        return None

    def fill(self, bench, deep):
        path = scattered(f"{self.addresses}.{PENDING}.scattered", self.addresses, PENDING)
        # A client of our own takes as many recipients as it likes; the source reads the file first.
        source(
            bench.binary, deep.port, connections=SESSIONS, messages=PENDING // PER_MESSAGE, size=1024,
            recipients=path, per_message=PER_MESSAGE,
        )
        wait_until(lambda: deep.pending() == PENDING, 60, "all pending")

    def command_text(self):
        return f"{PENDING // PER_MESSAGE} messages to {PER_MESSAGE} of {ADDRESSES} addresses each"


def lock_held(server):
    """The longest hold of the queue's lock since the last time that this was asked, and where."""
    status = server.status()
    return f"{status['lock_held_us_max']} us at {status['lock_held_at']}"
