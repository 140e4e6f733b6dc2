"""What a contestant costs, measured by the kernel and not by the contestant.

A Group is a control group that a contestant's whole process tree lives in: its CPU time includes children that have
exited, whatever their parent did about them. Bytes written are those of /proc/PID/io (pages dirtied, in octets), where a
parent inherits what its reaped children wrote. Syncs are counted by strace with a seccomp filter, which stops the traced
process at sync calls alone; only the syncs scenario starts its contestants under it.

States: a group is made empty, filled by the first process that enters it, and removed once it is empty again.
Failure: anything missing (no root, no control groups) is a BenchError with the remedy; nothing is silently estimated.
"""

import os
import re
import signal
import statistics
import time

CGROUP_ROOT = "/sys/fs/cgroup"
SYNC_CALLS = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync", "pwritev2")
POLL_S = 0.002


class BenchError(Exception):
    """A benchmark that could not be run or whose result would not be valid."""


class Group:
    """A control group (v1 cpuacct or v2) for one contestant."""

    def __init__(self, name):
        self.version_1 = os.path.isdir(f"{CGROUP_ROOT}/cpuacct")
        parent = f"{CGROUP_ROOT}/cpuacct" if self.version_1 else CGROUP_ROOT
        self.path = f"{parent}/stentor-bench-{os.getpid()}-{name}"
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise BenchError(f"cannot make a control group: {error}; run as root on a machine with cgroups") from error

    def enter(self):
        """Moves the calling process in; for `preexec_fn`."""
        with open(f"{self.path}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))

    def pids(self):
        with open(f"{self.path}/cgroup.procs") as procs:
            return sorted({int(line) for line in procs})

    def cpu_s(self):
        """User and system time of all processes that ever were in the group, in seconds."""
        if self.version_1:
            with open(f"{self.path}/cpuacct.usage") as usage:
                return int(usage.read()) / 1e9
        with open(f"{self.path}/cpu.stat") as stat:
            return int(re.search(r"usage_usec (\d+)", stat.read())[1]) / 1e6

    def written_bytes(self):
        """Octets that the tree has caused to be written to files."""
        return sum(_proc_number(pid, "io", "write_bytes") for pid in self.pids())

    def memory_peak_kib(self):
        """Sum of the peak resident sizes of the processes now alive."""
        return sum(_proc_number(pid, "status", "VmHWM") for pid in self.pids())

    def context_switches(self):
        """(voluntary, forced) context switches of the live processes' threads."""
        names = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
        tasks = [f"{pid}/task/{task}" for pid in self.pids() for task in _listing(f"/proc/{pid}/task")]
        return tuple(sum(_proc_number(task, "status", name) for task in tasks) for name in names)

    def remove(self, grace_s=10.0):
        """Waits for the group to become empty, kills what is left in it (all of it is ours), and removes it."""
        deadline = time.monotonic() + grace_s
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        while self.pids():
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        os.rmdir(self.path)


class SyncTrace:
    """Counts the sync calls of a process tree that is started under strace."""

    def __init__(self, path):
        self.path = path

    def command(self, argv):
        """`argv`, traced."""
        calls = ",".join(SYNC_CALLS)
        return ["strace", "-f", "-qq", "--seccomp-bpf", "-e", f"trace={calls}", "-e", "signal=none", "-o", self.path, *argv]

    def syncs(self):
        """Sync calls begun so far. A pwritev2 counts when it asks for a sync."""
        total = 0
        with open(self.path) as trace:
            for line in trace:
                call = re.match(r"\d+ +(\w+)\(", line)
                if call and (call[1] != "pwritev2" or "SYNC" in line):
                    total += 1
        return total


def wait_until(condition, timeout_s, what):
    """Polls `condition` until it holds; returns the time.monotonic() at which it was seen to."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)
    return time.monotonic()


def median(values):
    return statistics.median(values)


def _listing(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def _proc_number(pid, file, name):
    try:
        with open(f"/proc/{pid}/{file}") as lines:
            for line in lines:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1])
    except OSError:
        pass  # It has exited; what it did is in its parent's account.
    return 0
