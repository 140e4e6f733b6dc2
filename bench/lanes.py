"""Runs a smoke run's scenarios in parallel, since most of them wait. A lane is one process at a time, with the scenarios of one module.

Each has a network namespace and a work folder of its own, so that no two meet at a port, a loopback address or a file. What it prints is
shown when it ends. Those that are `alone` run when all others have ended. Failure: a process that dies fails its scenarios.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import traceback

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
# More than processors: most scenarios wait for a server's clocks.
LANES = 4


class Outcome:
    """What became of scenarios: the names of those that failed, and of those that this machine cannot run."""

    def __init__(self, failed=(), skipped=()):
        self.failed, self.skipped = list(failed), list(skipped)

    def add(self, other):
        self.failed += other.failed
        self.skipped += other.skipped


def run_beside(bench, scenarios, run_all, lanes=LANES):
    """`run_all(bench, scenarios)` in up to `lanes` processes at a time. Returns the Outcome of all; their figures are in `bench.results`."""
    groups = by_module(scenarios)
    alone = [group for group in groups if any(getattr(scenario, "alone", False) for scenario in group)]
    total = Outcome()
    for waiting, names in ([group for group in groups if group not in alone], range(lanes)), (alone, range(1)):
        run_groups(bench, waiting, run_all, [str(name) for name in names], total)
    return total


def run_groups(bench, waiting, run_all, idle, total):
    """Each group in a lane, of which those named are idle. Adds to the Outcome."""
    running = {}
    try:
        while waiting or running:
            while waiting and idle:
                lane = Lane(bench, idle.pop(), waiting.pop(0), run_all)
                running[lane.pid] = lane
            pid, status = os.wait()
            if lane := running.pop(pid, None):
                idle.append(lane.name)
                total.add(lane.end(bench, status))
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        # Each stops what it has started.
        for pid in running:
            os.waitpid(pid, 0)


def by_module(scenarios):
    """Lists of scenarios of one module each, which may share files, in the order of the first of each."""
    groups = {}
    for scenario in scenarios:
        groups.setdefault(scenario.__module__, []).append(scenario)
    return list(groups.values())


class Lane:
    """A process that runs some scenarios."""

    def __init__(self, bench, name, scenarios, run_all):
        self.name, self.scenarios = name, scenarios
        # Kept short: socket paths are limited.
        self.folder = os.path.join(bench.work, name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.figures, self.outcome = (os.path.join(self.folder, file) for file in ("figures.json", "outcome.json"))
        self.output = tempfile.TemporaryFile("w+")
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(bench, run_all)

    def _run(self, bench, run_all):
        """In the process itself; does not return."""
        code = 1
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, leave)
        try:
            # For programs that it starts too.
            os.dup2(self.output.fileno(), 1)
            os.dup2(self.output.fileno(), 2)
            sys.stdout = sys.stderr = self.output
            enter_network()
            bench.move(self.folder, self.figures)
            outcome = run_all(bench, self.scenarios)
            with open(self.outcome, "w") as file:
                json.dump(vars(outcome), file)
            code = 0
        except BaseException:  # Whatever it is, this process must not go on as the one that it was forked from.
            traceback.print_exc()
        finally:
            self.output.flush()
            os._exit(code)

    def end(self, bench, status):
        """Prints its output, merges its figures, returns its Outcome."""
        with self.output:
            self.output.seek(0)
            print(self.output.read(), end="", flush=True)
        bench.results.take(self.figures)
        try:
            with open(self.outcome) as file:
                outcome = Outcome(**json.load(file))
        except FileNotFoundError:
            print(f"    FAILED: ended with status {status}", flush=True)
            outcome = Outcome([scenario.name for scenario in self.scenarios])
        shutil.rmtree(self.folder)
        return outcome


def leave(number, _):
    """Once: a terminal's Ctrl-C comes before the signal of the process that waits, and what is being stopped must be."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def enter_network():
    """Moves this process to a network that has nothing but a loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
