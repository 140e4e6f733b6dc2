"""A second opinion on a traced run: the kernel's own text of the same events, from a tracefs instance of its own, and
interval arithmetic that knows nothing of spans and layers. Root; what is switched on goes with the context.

Times are microseconds since boot, as the text has them.
"""

import os
import re
from collections import defaultdict

from measure import BenchError, CannotHere, median

TRACEFS = "/sys/kernel/tracing"
EVENTS = (
    *(f"syscalls/sys_{end}_{call}" for end in ("enter", "exit") for call in ("pwrite64", "fdatasync")),
    "block/block_rq_issue", "block/block_rq_complete", "jbd2/jbd2_start_commit", "jbd2/jbd2_end_commit",
    "sched/sched_switch", "sched/sched_waking",
)
BUFFER_KIB = 65536
LINE = re.compile(r"^\s*(.+)-(\d+)\s+\[\d+\]\s+\S+\s+(\d+)\.(\d{6}): (\w+)(?:: |\(| )(.*)$")
SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+)")
REQUEST = re.compile(r"(\d+),(\d+) (\S+) .*?(-?\d+) \+ \d+")


class RawTrace:
    """`with RawTrace() as raw: ...; raw.stop(); raw.lines()`."""

    def __enter__(self):
        self.folder = f"{TRACEFS}/instances/bench-{os.getpid()}"
        try:
            os.mkdir(self.folder)
        except OSError as error:
            raise CannotHere(f"{self.folder}: {error}; needs root and tracefs") from error
        try:
            self._say("trace_clock", "mono")
            self._say("buffer_size_kb", BUFFER_KIB)
            for event in EVENTS:
                self._say(f"events/{event}/enable", 1)
        except BaseException:
            os.rmdir(self.folder)
            raise
        return self

    def __exit__(self, *_):
        os.rmdir(self.folder)

    def _say(self, name, value):
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(str(value))

    def stop(self):
        self._say("tracing_on", 0)

    def lines(self):
        with open(f"{self.folder}/trace", errors="replace") as text:
            return text.readlines()


class Seen:
    """What the text says: when threads ran, were ready and were blocked; requests of a device; commits; calls."""

    def __init__(self, lines, device):
        self.spans = {state: defaultdict(list) for state in "RQB"}
        self.requests, self.commits, self.calls = [], [], []
        self.device, self.since, self.issued, self.entered, self.commit = device, {}, {}, {}, None
        for line in lines:
            if found := LINE.match(line):
                name, tid, seconds, micros, event, rest = found.groups()
                self._event(name, int(tid), int(seconds) * 10**6 + int(micros), event, rest)

    def _event(self, name, tid, at, event, rest):
        if event == "sched_switch":
            before, state, after = SWITCH.search(rest).groups()
            self._is_now(int(before), "Q" if state.startswith("R") else "B", at)
            self._is_now(int(after), "R", at)
        elif event == "sched_waking":
            woken = int(re.search(r" pid=(\d+)", rest)[1])
            if self.since.get(woken, "R")[0] == "B":
                self._is_now(woken, "Q", at)
        elif event.startswith("block_rq_"):
            self._request(event, at, rest)
        elif event == "jbd2_start_commit" and rest.startswith(f"dev {self.device} "):
            self.commit = (at, tid)
        elif event == "jbd2_end_commit" and rest.startswith(f"dev {self.device} ") and self.commit:
            self.commits.append((self.commit[0], at, self.commit[1]))
        elif event.startswith("sys_") and rest.startswith("->"):
            if (tid, event) in self.entered:
                self.calls.append((tid, name, event[4:], self.entered.pop((tid, event)), at))
        elif event.startswith("sys_"):
            self.entered[tid, event] = at

    def _is_now(self, tid, state, at):
        if tid in self.since:
            was, start = self.since[tid]
            self.spans[was][tid].append((start, at))
        self.since[tid] = (state, at)

    def _request(self, event, at, rest):
        major, minor, kind, sector = REQUEST.match(rest).groups()
        key = "FF" if kind == "FF" else sector
        if f"{major},{minor}" != self.device:
            return
        if event == "block_rq_issue":
            self.issued[key] = (at, kind)
        elif key in self.issued:
            start, kind = self.issued.pop(key)
            self.requests.append((start, at, kind))


def opinion(lines, device, count):
    """Means over the first `count` writes with their fdatasync of the thread `stentor-kit` that has most of them: `wall_us`,
    `device_us` (the writer is blocked, the device is busy, and the journal's thread has nothing to do), `commit_us`,
    `flush_us`, `flushes` an operation."""
    seen = Seen(lines, device)
    calls = [call for call in seen.calls if call[1].startswith("stentor-kit")]
    tids = [call[0] for call in calls]
    if not tids:
        raise BenchError("the raw trace has no call of the generator")
    writer = max(set(tids), key=tids.count)
    own = [call for call in calls if call[0] == writer]
    pairs = [(a, b) for a, b in zip(own, own[1:]) if (a[2], b[2]) == ("pwrite64", "fdatasync")][:count]
    windows = union((a[3], b[4]) for a, b in pairs)
    blocked = common(windows, union(seen.spans["B"][writer]))
    waits = common(blocked, union((start, end) for start, end, _ in seen.requests))
    for journal in {tid for _, _, tid in seen.commits}:
        waits = without(waits, union(seen.spans["R"][journal] + seen.spans["Q"][journal]))
    within = [request for request in seen.requests if common(windows, [request[:2]])]
    flushes = [end - start for start, end, kind in within if kind == "FF"]
    commits = [end - start for start, end, _ in seen.commits if common(windows, [(start, end)])]
    return {
        "operations": len(pairs), "wall_us": length(windows) / len(pairs), "device_us": length(waits) / len(pairs),
        "commit_us": mean(commits), "flush_us": mean(flushes), "flushes": len(flushes) / len(pairs),
        "fdatasync_us": median([b[4] - b[3] for _, b in pairs]),
    }


def mean(values):
    return sum(values) / len(values) if values else None


def union(spans):
    out = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def common(some, others):
    """Both sorted and disjoint, as `union` makes them."""
    out, a, b = [], 0, 0
    while a < len(some) and b < len(others):
        start, end = max(some[a][0], others[b][0]), min(some[a][1], others[b][1])
        if start < end:
            out.append((start, end))
        if some[a][1] < others[b][1]:
            a += 1
        else:
            b += 1
    return out


def without(some, others):
    whole = union(list(some) + list(others))
    ends = [(0, 0)] + list(others)
    rest = [(left[1], right[0]) for left, right in zip(ends, ends[1:])]
    rest.append((ends[-1][1], whole[-1][1] if whole else 0))
    return common(some, [(start, end) for start, end in rest if start < end])


def length(spans):
    return sum(end - start for start, end in spans)
