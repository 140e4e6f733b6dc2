"""Totals of a trace that somebody else recorded: `stentor-kit iotrace --read` of texts as `trace-cmd report` prints those of the
function graph tracer. The calls are made here, so that the right totals are known to the nanosecond; and the sample in
trace-cmd's own manual page (trace-cmd-record(1)) is read, whose sums are in its lines."""

import json
import os
import random
import subprocess
import time
from collections import defaultdict

from measure import BenchError, kit
from results import Goal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEED = 6
THREADS = 6
CPUS = 4
CALLS = 60_000
DEPTH_MOST = 12
FUNCTIONS = [
    "vfs_write", "ksys_write", "ext4_file_write_iter", "ext4_sync_file", "file_write_and_wait_range", "jbd2_log_wait_commit",
    "blk_mq_submit_bio", "__folio_start_writeback", "io_schedule", "mutex_lock", "kmem_cache_alloc", "_raw_spin_lock",
]
# trace-cmd's marks before a duration: more than so many microseconds.
MARKS = ((1_000_000, "$"), (100_000, "@"), (10_000, "*"), (1_000, "#"), (100, "!"), (10, "+"))
MANUAL = "kit/iotrace/src/text/fixtures/trace-cmd-record.1.txt"
MANUAL_TOTALS = {"do_IRQ": (5, 146_755, 146_755)}


class TraceCmd:
    """How many functions' totals differ from the truth."""

    name = "measure.trace_cmd"
    entries = ("",)
    smoke = {"CALLS": 1_200}

    def run(self, bench):
        path = os.path.join(bench.work, "trace-cmd-report.txt")
        lines, truth = made(random.Random(SEED))
        with open(path, "w") as file:
            file.writelines(lines)
        rounds, wrong = [], []
        for text, right in ((path, truth), (os.path.join(ROOT, MANUAL), MANUAL_TOTALS)):
            began = time.monotonic()
            argv = [kit(bench.binary), "iotrace", "--read", text, "--json", "--quiet"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - began
            if done.returncode:
                raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")
            here = differing(json.loads(done.stdout), right)
            wrong += here
            rounds.append([len(here), 0])
            print(f"    {len(right)} functions, {sum(calls for calls, *_ in right.values())} calls, {seconds:.2f} s", flush=True)
        os.remove(path)
        worst = max(rounds)
        bench.results.record(
            self.name, "totals that differ", [worst], "stentor-kit iotrace --read TEXT --json", Goal(most=0),
            peer_name="the truth", functions=len(truth), lines=len(lines), wrong=wrong[:20],
        )


def made(draw):
    """(lines of the report, {function: (calls, inclusive ns, exclusive ns)}): threads in turn, moving between CPUs."""
    truth = defaultdict(lambda: [0, 0, 0])
    entries = []
    for number in range(THREADS):
        thread = f"{draw.choice(['dd', 'postfix', 'kworker/0:1H', 'tokio-rt worker'])}-{2000 + number}"
        now = draw.randrange(1_000_000)
        left = CALLS // THREADS
        while left > 0:
            taken, now = call(draw, entries, truth, thread, now, 0, left, set())
            left -= taken
            now += draw.randrange(100, 50_000)
    # Stable: of one instant, in the order in which they were made.
    entries.sort(key=lambda entry: entry[0])
    head = [f"cpus={CPUS}\n"]
    lines = [
        f"{thread:>24} [{draw.randrange(CPUS):03}] {157_412 + at / 1e9:13.6f}: {what}\n" for at, thread, what in entries
    ]
    return head + lines, {name: tuple(sums) for name, sums in truth.items()}


def call(draw, entries, truth, thread, began, depth, left, above):
    """One call with all below it; how many calls that is, and when it ended. Its sums go into `truth`."""
    name = draw.choice(FUNCTIONS)
    indent = "  " * (depth + 1)
    at = len(entries)
    entries.append(None)
    calls, now, below = 1, began + draw.randrange(50, 2_000), 0
    while depth < DEPTH_MOST and calls < left and draw.random() < 0.55:
        child_began = now
        taken, now = call(draw, entries, truth, thread, now, depth + 1, left - calls, above | {name})
        calls += taken
        below += now - child_began
        now += draw.randrange(10, 500)
    if draw.random() < 0.01:
        now += draw.randrange(1_000_000, 30_000_000)
    took = now - began
    sums = truth[name]
    sums[0] += 1
    # A call within one of the same function is not added twice.
    sums[1] += took if name not in above else 0
    sums[2] += took - below
    mark = next((mark for most, mark in MARKS if took > most * 1000), " ")
    duration = f"{mark} {took / 1000:.3f} us"
    if calls == 1:
        entries[at] = (began, thread, f"funcgraph_entry:     {duration:>14} |{indent}{name}();")
    else:
        entries[at] = (began, thread, f"funcgraph_entry:     {'':>14} |{indent}{name}() {{")
        entries.append((now, thread, f"funcgraph_exit:      {duration:>14} |{indent}}}"))
    return calls, now


def differing(report, right):
    """Functions whose calls or times are not those, to the nanosecond."""
    rows = {row["function"]: row for row in report["tables"]["functions"]}
    wrong = [f"{name}: not in the text" for name in rows if name not in right]
    for name, (calls, inclusive_ns, exclusive_ns) in right.items():
        row = rows.get(name, {})
        seen = (row.get("calls"), *(round((row.get(key) or 0) * 1000) for key in ("inclusive_us", "exclusive_us")))
        if seen != (calls, inclusive_ns, exclusive_ns):
            wrong.append(f"{name}: {seen} and not {(calls, inclusive_ns, exclusive_ns)}")
    return wrong
