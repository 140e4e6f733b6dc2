"""What a contestant costs, measured by the kernel and not by the contestant.

A Group is a control group that a contestant's whole process tree lives in: its CPU time includes children that have
exited, whatever their parent did about them. Octets written are those that the group has sent to the block device.
Syncs are system calls counted by a tracepoint (perf), which neither stops nor slows the traced processes.

States: a group is made empty, filled by the first process that enters it, and removed once it is empty again.
Failure: anything missing (no root, no control groups, no perf) is a CannotHere with the remedy; nothing is silently
estimated.
"""

import os
import re
import signal
import statistics
import subprocess
import time

CGROUP_ROOT = "/sys/fs/cgroup"
SYNC_CALLS = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync")
POLL_S = 0.002
SYNC_INTERVAL_S = 0.05
# Cgroup v1 counts octets only where a limit is set; this one is never reached.
IOPS_UNLIMITED = 1_000_000_000


class BenchError(Exception):
    """A benchmark that could not be run or whose result would not be valid."""


class CannotHere(BenchError):
    """This machine lacks something that the benchmark needs, which no change of ours can mend."""


def kit(binary):
    """The path of `stentor-kit`, of the same build as the server."""
    return os.path.join(os.path.dirname(binary), "stentor-kit")


class Waits:
    """How long a server is left alone before a figure is read, seconds. A smoke run, whose figures mean nothing, sets
    shorter ones."""

    # Completions that are synced or logged after the last copy belong to it.
    settle = 0.5
    # No connection and no look-up for so long: all sites have been tried.
    quiet = 3.0
    # The same memory three times, so far apart: it has stopped changing.
    memory = 1.0

    @classmethod
    def shorten(cls):
        cls.settle, cls.quiet, cls.memory = 0.05, 0.3, 0.05


class Group:
    """The control groups (v1 cpuacct and blkio, or one of v2) of a contestant whose data is at `folder`."""

    def __init__(self, name, folder):
        self.version_1 = os.path.isdir(f"{CGROUP_ROOT}/cpuacct")
        parents = [f"{CGROUP_ROOT}/cpuacct", f"{CGROUP_ROOT}/blkio"] if self.version_1 else [CGROUP_ROOT]
        self.paths = [f"{parent}/stentor-bench-{os.getpid()}-{name}" for parent in parents]
        self.device = _disk_of(folder)
        try:
            if not self.version_1:
                _write(f"{CGROUP_ROOT}/cgroup.subtree_control", "+io")
            for path in self.paths:
                os.mkdir(path)
            if self.version_1:
                self.limit_writes(IOPS_UNLIMITED)
        except OSError as error:
            raise CannotHere(f"cannot make a control group: {error}; run as root on a machine with cgroups") from error

    def enter(self):
        """Moves the calling process in; for `preexec_fn`."""
        for path in self.paths:
            _write(f"{path}/cgroup.procs", str(os.getpid()))

    def pids(self):
        with open(f"{self.paths[0]}/cgroup.procs") as procs:
            return sorted({int(line) for line in procs})

    def cpu_s(self):
        """User and system time of all processes that ever were in the group, in seconds."""
        if self.version_1:
            with open(f"{self.paths[0]}/cpuacct.usage") as usage:
                return int(usage.read()) / 1e9
        with open(f"{self.paths[0]}/cpu.stat") as stat:
            return int(re.search(r"usage_usec (\d+)", stat.read())[1]) / 1e6

    def threads_cpu_s(self):
        """{name without its number: seconds} of the live processes' threads."""
        used = {}
        for task in [f"/proc/{pid}/task/{task}" for pid in self.pids() for task in _listing(f"/proc/{pid}/task")]:
            try:
                with open(f"{task}/comm") as comm, open(f"{task}/schedstat") as schedstat:
                    name = re.sub(r"[-\d]+$", "", comm.read().strip())
                    used[name] = used.get(name, 0) + int(schedstat.read().split()[0]) / 1e9
            except OSError:
                pass  # It has exited.
        return used

    def written_bytes(self):
        """Octets that the tree has sent to the disk by its own syncs. What the kernel writes back later on its own (an
        unsynced log) is in it with cgroup v2 alone."""
        path, pattern = (
            (f"{self.paths[1]}/blkio.throttle.io_service_bytes", rf"^{self.device} Write (\d+)")
            if self.version_1
            else (f"{self.paths[0]}/io.stat", rf"^{self.device} .*wbytes=(\d+)")
        )
        with open(path) as stat:
            found = re.search(pattern, stat.read(), re.MULTILINE)
        return int(found[1]) if found else 0

    def limit_writes(self, per_s=IOPS_UNLIMITED):
        """From now on the tree may send so many writes a second to the disk of its folder."""
        if not self.version_1:
            raise CannotHere("writes are limited with cgroup v1 alone (blkio.throttle.write_iops_device)")
        _write(f"{self.paths[1]}/blkio.throttle.write_iops_device", f"{self.device} {per_s}")

    def writes(self):
        """Writes that the tree has sent to the disk, as the throttle counts them."""
        with open(f"{self.paths[1]}/blkio.throttle.io_serviced") as serviced:
            found = re.search(rf"^{self.device} Write (\d+)", serviced.read(), re.MULTILINE)
        return int(found[1]) if found else 0

    def device_writes(self):
        """Writes that the whole disk has completed, whoever asked for them: (requests, flushes)."""
        with open(f"/sys/dev/block/{self.device}/stat") as stat:
            fields = [int(number) for number in stat.read().split()]
        return fields[4], fields[15] if len(fields) > 15 else 0

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
        for path in self.paths:
            os.rmdir(path)


class SyncCount:
    """Counts the sync calls of a process tree that is started with `command`."""

    def __init__(self, path):
        self.path = path
        self.events = ",".join(f"syscalls:sys_enter_{call}" for call in SYNC_CALLS)
        argv = ["perf", "stat", "-x,", "-e", self.events, "true"]
        try:
            trial = subprocess.run(argv, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise CannotHere("syncs cannot be counted: apt-get install linux-perf") from error
        if trial.returncode != 0 or "not supported" in trial.stderr:
            said = trial.stderr.strip()[-200:]
            raise CannotHere(f"syncs cannot be counted: apt-get install linux-perf, run as root ({said})")

    def command(self, argv):
        """`argv`, counted."""
        interval = str(round(SYNC_INTERVAL_S * 1000))
        return ["perf", "stat", "-x,", "-I", interval, "-o", self.path, "-e", self.events, "--", *argv]

    def syncs(self):
        """Sync calls so far."""
        time.sleep(3 * SYNC_INTERVAL_S)
        with open(self.path) as counts:
            return sum(int(n) for n in re.findall(r"^ *[\d.]+,(\d+),,syscalls:", counts.read(), re.MULTILINE))


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


def resident_mib(pid):
    """Resident memory of one process."""
    kib = _proc_number(pid, "status", "VmRSS")
    if not kib:
        raise BenchError(f"process {pid} has ended")
    return kib / 1024


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _disk_of(folder):
    """major:minor of the whole disk that a folder is on, as control groups name it."""
    number = os.stat(folder).st_dev
    if os.major(number) == 0:
        # btrfs has numbers of its own; the mount's source is the device.
        source = subprocess.run(["findmnt", "-n", "-o", "SOURCE", "-T", folder], capture_output=True, text=True).stdout.strip()
        number = os.stat(source).st_rdev if source.startswith("/dev/") else number
    device = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if os.path.exists(f"{device}/partition"):
        device = os.path.dirname(device)
    try:
        with open(f"{device}/dev") as file:
            return file.read().strip()
    except OSError as error:
        raise CannotHere(f"{folder} is on no disk ({error}); syncs there would mean nothing") from error


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
