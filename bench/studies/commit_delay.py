#!/usr/bin/env python3
"""How long should a commit wait for company? docs/design/decisions/0003-commit-delay.md has what came of it.

    python3 bench/studies/commit_delay.py [--seconds 1.5] [--delays 0,500,5000] [--disks fast,slow] [--out FILE]

For each delay a server of its own; for each disk (as it is; slowed to 200 writes a second by the control group), size and
number of sessions a short load from `stentor-kit lab source`, sessions kept. The servers take turns at each point, so that noise
meets all alike. A row: messages/s, median and p99 ms from the end of data to its 250, sync calls per message (of the
journal, completions included). Without --out the table goes to the screen alone.
"""

import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from bench import Bench  # noqa: E402
from measure import kit  # noqa: E402
from sinks import SmtpSink, free_port  # noqa: E402
from sources import lab_report  # noqa: E402

DELAYS_US = (0, 100, 200, 500, 1000, 2000, 5000)
SIZES = (1024, 4096, 65536, 1048576)
SESSIONS = (1, 5, 20, 200)
SLOW_WRITES_PER_S = 200
COLUMNS = ("messages_per_s", "p50_ms", "p99_ms", "syncs_per_message")
DRAIN_S_MAX = 120


def main():
    options = parse()
    bench = Bench(ROOT, options.binary, 1)
    sink = SmtpSink(bench.work, free_port())
    servers = {
        delay: bench.stentor(sink, name=f"delay-{delay}", commit_delay_us=delay) for delay in numbers(options.delays)
    }
    bench.binary = options.source or options.binary
    rows = []
    with bench.running(sink, *servers.values()):
        for disk in options.disks.split(","):
            for size in numbers(options.sizes):
                for sessions in numbers(options.sessions):
                    for delay, server in servers.items():
                        found = point(bench, server, disk, size, sessions, options.seconds)
                        rows.append({"disk": disk, "size": size, "sessions": sessions, "delay_us": delay, **found})
                        print(json.dumps(rows[-1]), flush=True)
    text = table(rows, list(servers))
    print(text)
    if options.out:
        with open(options.out, "w") as out:
            out.write(text)


def parse():
    parser = argparse.ArgumentParser(description="Measure commit_delay_us.")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--delays", default=",".join(map(str, DELAYS_US)))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--sessions", default=",".join(map(str, SESSIONS)))
    parser.add_argument("--disks", default="fast,slow")
    parser.add_argument("--out")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "stentor"))
    parser.add_argument("--source", help="the binary that sends, if the servers' is an older one")
    return parser.parse_args()


def numbers(text):
    return [int(part) for part in text.split(",")]


def point(bench, server, disk, size, sessions, seconds):
    """One short load on one server."""
    os.sync()
    if disk == "slow":
        server.group.limit_writes(SLOW_WRITES_PER_S)
    before = server.status()["journal_syncs"]
    argv = [
        kit(bench.binary), "lab", "source", f"127.0.0.1:{server.port}", "--connections", str(sessions), "--messages",
        "10000000", "--seconds", str(seconds), "--size", str(size), "--json", "--quiet",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    report = lab_report(done.stdout)
    syncs = server.status()["journal_syncs"] - before
    server.group.limit_writes()
    server.wait_drained(DRAIN_S_MAX)
    accepted = report["report"]["accepted"]
    return {
        "messages_per_s": round(report["report"]["accepted_per_s"], 1),
        "p50_ms": report["final_us"]["p50"] / 1000,
        "p99_ms": report["final_us"]["p99"] / 1000,
        "syncs_per_message": round(syncs / max(1, accepted), 3),
    }


def table(rows, delays):
    """Markdown: a line a load, a column a delay, in each cell the four figures."""
    lines = ["| disk | octets | sessions | " + " | ".join(f"{delay} us" for delay in delays) + " |"]
    lines.append("|---|---|---|" + "---|" * len(delays))
    loads = list(dict.fromkeys((row["disk"], row["size"], row["sessions"]) for row in rows))
    for load in loads:
        cells = [
            " / ".join(f"{row[column]:g}" for column in COLUMNS)
            for row in rows
            if (row["disk"], row["size"], row["sessions"]) == load
        ]
        lines.append("| " + " | ".join([*map(str, load), *cells]) + " |")
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()) + "\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
