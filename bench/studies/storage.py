#!/usr/bin/env python3
"""Where does the acceptance of a message spend its time? docs/kit/storage.md has what came of it.

    python3 bench/studies/storage.py [--parts files,servers,relay] [--messages 1500] [--out FOLDER]

- files: `stentor-kit iotrace` writes 16 KiB and fdatasyncs it, in new, growing, preallocated and recycled files.
- servers: Stentor and Postfix take a load from smtp-source (20 sessions, 4 KiB) while `iotrace --pid` traces them; Stentor
  three times: in its first segments, when they are recycled, and in preallocated ones: mail stays, so that none comes back, and
  the thread that fills new ones with zeros is frozen (a freezer control group of version 1), so that each commit that needs one
  makes it by fallocate, as it does when that thread is late. (A segment that grows is something that the server does not have.)
- relay: `stentor-kit lab compare`, syncs on and off.

Each on the machine's disk, on ext4, xfs and btrfs on loop devices, and on ext4 on a device of its own: zram, which is memory,
as quick as a device can be. Root is needed. Reports and pictures stand in the folder of --out.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from bench import Bench  # noqa: E402
from contestants.postfix import Postfix  # noqa: E402
from contestants.stentor import Stentor  # noqa: E402
from measure import BenchError  # noqa: E402, kit
from scenarios.measure_iotrace import LAYERS, LoopDisk, run  # noqa: E402
from sinks import SmtpSink, free_port  # noqa: E402
from sources import smtp_source  # noqa: E402

SIZE = "16K"
STATES = ("new", "growing", "preallocated", "recycled")
SESSIONS = 20
LENGTH = 4096
# More than the bound on disk space allows before segments are used again.
WARM_UP_MESSAGES = 40_000
PREALLOCATED_AFTER_S = 5
ZRAM_MIB = 1024


def main():
    options = parse()
    os.makedirs(options.out, exist_ok=True)
    bench = Bench(ROOT, options.binary, 1)
    with contextlib.ExitStack() as stack:
        places = make_places(bench, stack)
        wanted = options.places.split(",") if options.places else list(places)
        places = {name: place for name, place in places.items() if name in wanted}
        for part in options.parts.split(","):
            {"files": files, "servers": servers, "relay": relay}[part](bench, places, options)


def make_places(bench, stack):
    """{name: directory}"""
    folder = os.path.join(bench.work, "storage")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "root"))
    places = {"system disk": os.path.join(folder, "root")}
    for kind in ("ext4", "xfs", "btrfs"):
        disk = LoopDisk(folder, kind, 2048)
        stack.callback(disk.remove)
        places[kind] = disk.point
    try:
        places["ext4 on zram"] = zram(folder, stack)
    except (BenchError, OSError) as error:
        print(f"no device of its own: {error}", flush=True)
    return places


def zram(folder, stack):
    """ext4 on the first zram device that nobody uses."""
    device = next((name for name in sorted(os.listdir("/sys/block")) if is_free_zram(name)), None)
    if device is None:
        raise BenchError("no free zram device")
    with open(f"/sys/block/{device}/disksize", "w") as size:
        size.write(f"{ZRAM_MIB}M")
    stack.callback(lambda: write(f"/sys/block/{device}/reset", "1"))
    run("mkfs.ext4", "-q", f"/dev/{device}")
    point = os.path.join(folder, "zram")
    os.makedirs(point)
    run("mount", f"/dev/{device}", point)
    stack.callback(lambda: run("umount", point))
    return point


def is_free_zram(name):
    if not name.startswith("zram"):
        return False
    with open(f"/sys/block/{name}/disksize") as size:
        return size.read().strip() == "0"


def files(bench, places, options):
    out = os.path.join(options.out, "files")
    argv = [kit(bench.binary), "iotrace", *places.values(), "--size", SIZE, "--sync", "fdatasync"]
    argv += ["--file", ",".join(STATES), "--count", "100", "--buffer-kib", "16384", "--runs", "3", "--quiet", "--plot", "png"]
    report = traced(argv, out)
    print("\nfiles: exclusive us of a 16 KiB write and its fdatasync")
    table(report, "layers-us", ("place", "work"))


def servers(bench, places, options):
    for name, place in places.items():
        sink = SmtpSink(bench.work, free_port()).start()
        try:
            made_by = {"stentor": lambda: Stentor(bench.binary, place, sink.port), "postfix": lambda: Postfix(place, sink.port)}
            for who in options.servers.split(","):
                made = made_by[who]()
                try:
                    trace_server(bench, made, sink, name, options)
                except (BenchError, OSError, subprocess.TimeoutExpired) as error:
                    print(f"{made.name} on {name}: {error}", flush=True)
                finally:
                    made.stop()
                    shutil.rmtree(made.folder, ignore_errors=True)
        finally:
            sink.stop()


def trace_server(bench, server, sink, place, options):
    # Postfix's daemons open their queue as another user.
    for folder in (os.path.dirname(server.folder), server.folder):
        os.chmod(folder, 0o755)
    server.start()
    laps = ["first", "later", "preallocated"] if server.name == "stentor" else ["later"]
    for lap in laps:
        with contextlib.ExitStack() as stack:
            if lap == "preallocated":
                stack.enter_context(stopped(sink.process))
                stack.enter_context(frozen(server.group.pids()[0], "segments"))
            trace_lap(bench, server, place, lap, options)
        server.wait_drained()


def trace_lap(bench, server, place, lap, options):
    if lap == "later":
        warm_up = WARM_UP_MESSAGES if server.name == "stentor" else 1000
        smtp_source(server.port, SESSIONS, warm_up, LENGTH, True)
        server.wait_drained()
    out = os.path.join(options.out, f"{server.name}-{lap}-{place.replace(' ', '-')}")
    argv = [kit(bench.binary), "iotrace", server.folder, "--pid", str(server.group.pids()[0])]
    argv += ["--seconds", str(options.seconds), "--buffer-kib", "65536", "--memory-mib", "1024", "--runs", "1", "--quiet"]
    source = load_for(server.port)
    try:
        # In preallocated segments, once those that were filled are full.
        time.sleep(PREALLOCATED_AFTER_S if lap == "preallocated" else 0.5)
        report = traced([*argv, "--plot", "png"], out)
    finally:
        source.kill()
        source.wait()
    print(f"\n{server.name}, {lap}, on {place}: {report['notes']} {report['warnings']}", flush=True)
    table(report, "layers-us", ("work",))


@contextlib.contextmanager
def stopped(process):
    """Does nothing meanwhile; what is sent to it waits."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def frozen(pid, name):
    """One thread of a process stands still."""
    tasks = f"/proc/{pid}/task"
    thread = next(task for task in os.listdir(tasks) if read(f"{tasks}/{task}/comm") == name)
    group = f"/sys/fs/cgroup/freezer/stentor-storage-{os.getpid()}"
    os.mkdir(group)
    try:
        write(f"{group}/tasks", thread)
        write(f"{group}/freezer.state", "FROZEN")
        yield
    finally:
        write(f"{group}/freezer.state", "THAWED")
        write("/sys/fs/cgroup/freezer/tasks", thread)
        os.rmdir(group)


def read(path):
    with open(path) as file:
        return file.read().strip()


def load_for(port):
    argv = ["smtp-source", "-d", "-s", str(SESSIONS), "-m", "10000000", "-l", str(LENGTH), "-f", "a@source.example"]
    argv += ["-t", "reader@sink.example", f"127.0.0.1:{port}"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def relay(bench, places, options):
    argv = [kit(bench.binary), "lab", "compare", "stentor", "postfix", "--stentor", bench.binary, "--quiet"]
    argv += ["--messages", str(options.messages), "--runs", "2", "--sync", "both", "--sessions", "each"]
    argv += ["--out", os.path.join(options.out, "relay"), "--plot", "png"]
    queues = [*places.values(), "/dev/shm"]
    argv += [word for queue in queues for word in ("--queue", queue)]
    print("\n" + checked(argv), flush=True)


def traced(argv, out):
    checked([*argv, "--out", out])
    with open(os.path.join(out, "iotrace.json")) as report:
        return json.load(report)


def checked(argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def table(report, name, heads):
    """Exclusive microseconds by layer, the median beside them, and how much of the journal's commits, all below them included."""
    calls = {tuple(row[head] for head in heads): row for row in report["tables"]["operations"]}
    journal = {
        tuple(row[head] for head in heads): row["inclusive_us"]["median"]
        for row in report["tables"]["layers"] if row["layer"] == "journal"
    }
    print("| " + " | ".join([*heads, "n", "p50", *LAYERS, "sum", "journal with all below"]) + " |")
    for row in report["tables"][name]:
        key = tuple(row[head] for head in heads)
        call = calls.get(key, {})
        cells = [middle(call.get("p50_us")), *(row.get(layer) for layer in (*LAYERS, "sum")), journal.get(key)]
        shown = ["-" if cell is None else f"{cell:.1f}" for cell in cells]
        print("| " + " | ".join([*map(str, key), str(middle(call.get("operations_per_run"))), *shown]) + " |", flush=True)


def middle(cell):
    return cell["median"] if isinstance(cell, dict) else cell


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/stentor"))
    parser.add_argument("--parts", default="files,servers,relay")
    parser.add_argument("--servers", default="stentor,postfix")
    parser.add_argument("--places", default="", help="of: system disk, ext4, xfs, btrfs, ext4 on zram; empty: all")
    parser.add_argument("--messages", type=int, default=1500)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--out", default=os.path.join(ROOT, "target/bench/storage"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
