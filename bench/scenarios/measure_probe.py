"""The measuring kit beside fio: `stentor-kit probe log` and `raw` and fio do the same work by turns, on the machine's disk and on
one that lets 200 writes a second through; sync latency and throughput agree. `probe log`, `fs` and `kv` tables of both
disks stand in target/bench/probe-*. Both run with a real-time priority: else, beside any other work, both measure how long
a thread that was woken up by the disk waits for a processor (4 ms, a tick of the scheduler).

Four scenarios, of which each takes one to three minutes and can be run by itself: measure.probe.root, .raw, .slow, .tables."""

import contextlib
import json
import os
import shutil
import subprocess

from measure import BenchError, CannotHere, kit
from results import Goal
from slowdisk import SlowDisk

WRITES_PER_S = 200
WITHIN = 0.15
# Short turns and many: a virtual disk changes its mind within seconds.
TURNS_MIN = 9
SLOW_TURNS = 3
REAL_TIME = ["chrt", "--rr", "1"]
MIB = 1 << 20
# (name, octets of a write, fio's options for the file's state, ours, seconds on the disk, MiB of the file)
SYNC_WORK = (
    ("overwritten_4k", 4096, ["--overwrite=1"], ["--file", "recycled"], 0.5, 64),
    ("overwritten_64k", 65536, ["--overwrite=1"], ["--file", "recycled"], 0.5, 128),
    ("preallocated_4k", 4096, ["--overwrite=0", "--fallocate=native"], ["--file", "preallocated"], 0.5, 64),
)
SYNC_ENTRIES = tuple(f".{work[0]}" for work in SYNC_WORK)
SLOW_SECONDS = 3.0
SLOW_MIB = 1024
# Words that make a command's tables smaller: none, its defaults.
SHORT = {}
# Its rates scatter more than syncs do.
RAW_TURNS = 15
RAW_MIB = 256
RAW_BLOCK = MIB
# Whose tables are made.
DISKS = ("root", "slow")
# (our mode, fio's options, the direction in fio's JSON)
RAW_WORK = (
    ("write-sync", ["--rw=write", "--end_fsync=1"], "write"),
    ("write-direct", ["--rw=write", "--direct=1"], "write"),
    ("read", ["--rw=read"], "read"),
    ("read-direct", ["--rw=read", "--direct=1"], "read"),
)


@contextlib.contextmanager
def working_folder(bench):
    """On the disk; gone afterwards."""
    if not shutil.which("fio"):
        raise CannotHere("fio is missing: apt-get install fio")
    folder = os.path.join(bench.work, "probe")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def slow_disk(folder):
    slow = SlowDisk(folder, SLOW_MIB)
    try:
        slow.limit(WRITES_PER_S)
        yield slow
    finally:
        slow.remove()


class ProbeRoot:
    """Sync latency of probe log beside fio's on the machine's disk."""

    name = "measure.probe.root"
    entries = SYNC_ENTRIES
    smoke = {"TURNS_MIN": 1, "SYNC_WORK": tuple((*work[:-2], 0.1, 8) for work in SYNC_WORK)}

    def run(self, bench):
        with working_folder(bench) as folder:
            syncs(bench, self.name, "root", folder, max(bench.rounds, TURNS_MIN), None)


class ProbeRaw:
    """Sequential throughput of probe raw beside fio's."""

    name = "measure.probe.raw"
    entries = tuple(f".{mode}" for mode, *_ in RAW_WORK)
    smoke = {"RAW_TURNS": 1, "RAW_MIB": 8}

    def run(self, bench):
        with working_folder(bench) as folder:
            raw(bench, self.name, folder, max(bench.rounds, RAW_TURNS))


class ProbeSlow:
    """Sync latency of probe log beside fio's on a disk of 200 writes a second."""

    name = "measure.probe.slow"
    entries = SYNC_ENTRIES
    smoke = {"SLOW_TURNS": 1, "SLOW_SECONDS": 0.5, "SLOW_MIB": 256, "SYNC_WORK": tuple((*work[:-1], 2) for work in SYNC_WORK)}

    def run(self, bench):
        with working_folder(bench) as folder, slow_disk(folder) as slow:
            before = slow.writes()
            syncs(bench, self.name, "slow", slow.point, SLOW_TURNS, SLOW_SECONDS)
            print(f"    the slow device made {slow.writes() - before} writes", flush=True)


class ProbeTables:
    """Tables of log, fs and kv on the disk and on a slow one."""

    name = "measure.probe.tables"
    # Its tables are files.
    entries = ()
    smoke = {"DISKS": ("root",), "SHORT": {
        "log": ["--seconds", "0.05", "--runs", "1", "--per-sync", "1", "--record-bytes", "4K", "--file-mib", "4"],
        "fs": ["--seconds", "0.05", "--runs", "1", "--files", "20"],
        "kv": ["--seconds", "0.05", "--runs", "1", "--records", "50"],
    }}

    def run(self, bench):
        with working_folder(bench) as folder:
            tables(bench, "root", folder)
            if "slow" in DISKS:
                with slow_disk(folder) as slow:
                    tables(bench, "slow", slow.point)


def syncs(bench, name_of, disk, folder, turns, seconds):
    """Entries `name_of.WORK`. `seconds`: of a turn, in place of the work's own."""
    for name, block, fio_file, our_file, usual_seconds, mib in SYNC_WORK:
        mib = mib if seconds is None else min(mib, 64)
        shared = [f"--bs={block}", f"--size={mib}m", "--rw=write", "--fdatasync=1", *fio_file]
        shared += ["--time_based", f"--runtime={round(1000 * (seconds or usual_seconds))}ms"]
        words = ["log", folder, *our_file, "--record-bytes", str(block), "--per-sync", "1", "--writers", "0"]
        words += ["--way", "pwrite", "--runs", "1", "--file-mib", str(mib), "--seconds", str(seconds or usual_seconds)]

        def theirs():
            path = laid_out(folder, mib if "recycled" in our_file else 0)
            job = fio(path, shared)
            latency, writes = job["sync"]["lat_ns"], job["write"]
            return {
                "p50": latency["percentile"]["50.000000"] / 1000, "mean": latency["mean"] / 1000,
                "per_s": writes["total_ios"] / (writes["runtime"] / 1000),
            }

        def ours():
            row = probe(bench, words)["tables"]["log"][0]
            return {
                "p50": row["sync_p50_us"]["median"], "mean": row["sync_mean_us"]["median"],
                "per_s": row["records_per_s"],
            }

        rounds = by_turns(bench, turns, ours, theirs)
        command = f"stentor-kit probe {' '.join(words)}; fio {' '.join(shared)} --ioengine=psync"
        # A throttle lets writes through in bursts: a median lies on one side of a gap, the mean does not. On the quick disk
        # it is the other way round: a mean is that of the few syncs that others' work got before.
        figure = "mean" if disk == "slow" else "p50"
        bench.results.record(
            f"{name_of}.{name}", f"us of a sync, {figure}",
            [[one[figure], two[figure]] for one, two in rounds], command, Goal(within=WITHIN), peer_name="fio",
            rounds_in_full=rounds,
        )
    remove_laid_out(folder)


def raw(bench, name_of, folder, turns):
    for mode, fio_words, direction in RAW_WORK:
        words = ["raw", folder, "--mode", mode, "--block-bytes", str(RAW_BLOCK), "--file-mib", str(RAW_MIB)]
        # The pass that follows the laying out at once is dropped: before fio's the time of its start goes by.
        words += ["--runs", "3", "--seconds", "60"]
        # Without the hint to read further ahead than usual, and without changing the buffer between calls, which fio
        # does and we do not.
        shared = [*fio_words, f"--bs={RAW_BLOCK}", f"--size={RAW_MIB}m", "--overwrite=1", "--fadvise_hint=0"]
        shared.append("--scramble_buffers=0")

        def theirs():
            job = fio(laid_out(folder, RAW_MIB), shared)
            return job[direction]["io_bytes"] / MIB / (job[direction]["runtime"] / 1000)

        def ours():
            return probe(bench, words)["tables"]["calls"][0]["mib_per_s"]["median"]

        rounds = by_turns(bench, turns, ours, theirs)
        bench.results.record(
            f"{name_of}.{mode}", "MiB/s", rounds, f"stentor-kit probe {' '.join(words)}; fio {' '.join(shared)}",
            Goal(within=WITHIN), more_is_better=True, peer_name="fio",
        )
    remove_laid_out(folder)


def tables(bench, disk, folder):
    """Those that a user would look at; where they stand is said."""
    out = os.path.join(bench.folder, f"probe-{disk}")
    for command in ("log", "fs", "kv"):
        slow = ["--seconds", "1", "--runs", "1"] if disk == "slow" and command == "log" else []
        done = start(bench, [command, folder, "--out", out, "--plot", *SHORT.get(command, slow)])
        if done.returncode:
            raise BenchError(f"probe {command} on {disk}: {done.stderr[-300:]}")
    print(f"    tables of the {disk} disk: {out}", flush=True)


def by_turns(bench, turns, ours, theirs):
    """[[ours, theirs], ...], one turn before to warm up; who begins changes."""
    rounds = []
    for number in range(1 - bench.warm_ups, turns + 1):
        os.sync()
        if number % 2:
            two, one = theirs(), ours()
        else:
            one, two = ours(), theirs()
        if number:
            rounds.append([one, two])
    return rounds


def start(bench, words):
    program = [kit(bench.binary), "probe"]
    return subprocess.run([*REAL_TIME, *program, *words, "--quiet"], capture_output=True, text=True)


def probe(bench, words):
    done = start(bench, [*words, "--json"])
    if done.returncode:
        raise BenchError(f"stentor-kit probe {' '.join(words)}: {done.stderr[-300:]}")
    return json.loads(done.stdout)


def fio(path, words):
    argv = [*REAL_TIME, "fio", "--name=beside", f"--filename={path}", "--ioengine=psync", "--output-format=json", *words]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)}: {done.stderr[-300:]}")
    # Warnings may stand before it.
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def laid_out(folder, mib):
    """A file that has just been written through and synced, as ours is before its clock begins (the host below a virtual
    disk remembers); 0: there is none."""
    remove_laid_out(folder)
    path = os.path.join(folder, "fio.data")
    if mib:
        part = os.urandom(MIB)
        with open(path, "wb") as file:
            for _ in range(mib):
                file.write(part)
            os.fsync(file.fileno())
            # fio empties the page cache after its clock has begun, ours before.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def remove_laid_out(folder):
    path = os.path.join(folder, "fio.data")
    if os.path.exists(path):
        os.remove(path)
