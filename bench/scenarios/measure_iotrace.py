"""Where a write spends its life: `stentor-kit iotrace` on ext4, xfs and btrfs on loop devices and on the machine's disk,
held against the time that its generator measured, against a device that is made slow, against `strace -T` and `perf trace` of
the same run, and against the kernel's own text of the same events. The reports stand in target/bench/iotrace-*/ with their pictures."""

import json
import os
import re
import shutil
import subprocess
import sys

import rawtrace
from measure import BenchError, CannotHere, kit, median
from results import Goal
from slowdisk import SBIN, SlowDisk

KINDS = ("ext4", "xfs", "btrfs")
MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-E", "nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
IMAGE_MIB = 512
# How much of an image is written before: a first write must not be an allocation in the disk's own file system.
WRITTEN_MIB = 512
SIZES = "4K,8K,1M"
BUFFER_KIB = "32768"
COUNT = 50
WRITES_PER_S = 50
# Operations of the program that others watch too.
CALLS = 200
LAYERS = (
    "application", "system_call", "page_cache", "file_system", "journal", "block_layer", "device", "scheduler",
    "interrupt", "unattributed",
)
PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for number in range(int(sys.argv[2])):
    os.pwrite(file, b"x" * 4096, number * 4096)
    os.fdatasync(file)
"""


class Iotrace:
    """iotrace: sums, what is unattributed and lost; a slow device; strace and perf trace."""

    name = "measure.iotrace"
    alone = True
    entries = (
        ".sum", ".outside_calls", ".unattributed", ".lost", ".interference", ".raw", ".slow.device", ".slow.others", ".perf",
        ".strace",
    )
    smoke = {"IMAGE_MIB": 320, "WRITTEN_MIB": 0, "SIZES": "4K", "COUNT": 5, "CALLS": 50, "BUFFER_KIB": "4096"}

    def run(self, bench):
        for program in ("strace", "perf", "mkfs.xfs", "mkfs.btrfs"):
            if not shutil.which(program, path=SBIN["PATH"]):
                raise CannotHere(f"{program} is missing: apt-get install strace linux-perf xfsprogs btrfs-progs")
        folder = os.path.join(bench.work, "iotrace")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            self.places(bench, folder)
            self.raw(bench, folder)
            self.slow(bench, folder)
            for watcher, most in (("perf", 5), ("strace", 50)):
                self.beside(bench, folder, watcher, most)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def places(self, bench, folder):
        disks = []
        try:
            for kind in KINDS:
                disks.append(LoopDisk(folder, kind))
            words = [*(disk.point for disk in disks), folder, "--size", SIZES, "--count", str(COUNT), "--sync", "fdatasync"]
            words += ["--buffer-kib", BUFFER_KIB, "--runs", str(bench.rounds)]
            report, command = iotrace(bench, "places", words)
        finally:
            for disk in reversed(disks):
                disk.remove()
        rows = report["tables"]["operations"]

        def each(column):
            return [row[column]["median"] if isinstance(row[column], dict) else row[column] for row in rows]

        detail = {"layers_percent": report["tables"]["layers-percent"], "notes": report["notes"]}
        goal = "goal"
        off = max(abs(value - 100) for value in each("sum_percent"))
        bench.results.record(f"{self.name}.sum", "% off", [[off, 5]], command, Goal(most=5), peer_name=goal, **detail)
        calls = max(100 - value for value in each("calls_percent"))
        bench.results.record(f"{self.name}.outside_calls", "%", [[calls, 5]], command, Goal(most=5), peer_name=goal)
        unknown = max(each("unattributed_percent"))
        bench.results.record(f"{self.name}.unattributed", "%", [[unknown, 10]], command, Goal(most=10), peer_name=goal)
        bench.results.record(f"{self.name}.lost", "events", [[sum(each("lost")), 0]], command, Goal(most=0), peer_name=goal)
        others = max(row["interference_percent"]["median"] for row in report["tables"]["interference"])
        bench.results.record(
            f"{self.name}.interference", "% of events", [[others, 100]], command, Goal(most=100), peer_name="all",
        )

    def raw(self, bench, folder):
        """Device, flushes and commits of the same run, as the kernel's text has them."""
        off = {}
        for kind in KINDS:
            disk = LoopDisk(folder, kind)
            try:
                with rawtrace.RawTrace() as raw:
                    words = [disk.point, "--size", "4K", "--count", str(COUNT), "--sync", "fdatasync", "--runs", "1"]
                    report, command = iotrace(bench, f"raw-{kind}", [*words, "--buffer-kib", BUFFER_KIB])
                    raw.stop()
                    theirs = rawtrace.opinion(raw.lines(), disk.number, COUNT)
            finally:
                disk.remove()
            ours = as_raw(report)
            for name, figure in ours.items():
                print(f"    {kind:5} {name:12} {figure:>10.1f}, raw {theirs[name]:>10.1f}", flush=True)
                off[f"{kind} {name}"] = 100 * abs(figure - theirs[name]) / theirs[name]
        worst = max(off.values())
        bench.results.record(
            f"{self.name}.raw", "% off", [[worst, 5]], command, Goal(most=5), peer_name="goal", off=off,
        )

    def slow(self, bench, folder):
        """Slowing the device moves the device's row, and no other."""
        disk = SlowDisk(folder, mib=IMAGE_MIB)
        try:
            words = [disk.point, "--size", "4K", "--count", str(COUNT), "--sync", "fdatasync", "--buffer-kib", BUFFER_KIB]
            words += ["--runs", "2"]
            before, command = iotrace(bench, "quick", words)
            disk.limit(WRITES_PER_S)
            after, _ = iotrace(bench, "slow", words)
        finally:
            disk.remove()
        (quick,), (slow,) = (report["tables"]["layers-us"] for report in (before, after))
        moved = {layer: slow[layer] - quick[layer] for layer in LAYERS}
        for layer in LAYERS:
            print(f"    {layer:14} {quick[layer]:>10.1f} us, slowed {slow[layer]:>10.1f} us", flush=True)
        others = sum(abs(us) for layer, us in moved.items() if layer != "device")
        command = f"{command}; device A below limited to {WRITES_PER_S} writes/s"
        bench.results.record(
            f"{self.name}.slow.device", "us", [[slow["device"], quick["device"]]], command, Goal(added=10**7),
            peer_name="not slowed", quick=quick, slow=slow,
        )
        bench.results.record(
            f"{self.name}.slow.others", "% of the device's", [[100 * others / moved["device"], 5]], command, Goal(most=5),
            peer_name="goal",
        )

    def beside(self, bench, folder, watcher, most):
        """The same calls of the same run, as iotrace and as the watcher have seen them."""
        said = os.path.join(folder, f"{watcher}.txt")
        program = [sys.executable, "-c", PROGRAM, os.path.join(folder, "file"), str(CALLS)]
        if watcher == "perf":
            program = ["perf", "trace", "-o", said, "-e", "pwrite64,fdatasync", "--", *program]
        else:
            program = ["strace", "-f", "-T", "-e", "trace=pwrite64,fdatasync", "-o", said, *program]
        words = [folder, "--seconds", "60", "--buffer-kib", "65536", "--memory-mib", "1024", "--runs", "1", "--command"]
        report, command = iotrace(bench, watcher, [*words, "--", *program])
        rows = {row["work"]: row for row in report["tables"]["operations"]}
        with open(said) as text:
            theirs = (perf_calls if watcher == "perf" else strace_calls)(text)
        pairs = {}
        for call in ("fdatasync", "pwrite64"):
            # perf tells no time of a call whose entry it has not seen.
            if call not in rows or abs(len(theirs.get(call, ())) - CALLS) > CALLS // 50:
                raise BenchError(f"{watcher} saw {len(theirs.get(call, ()))} calls of {call}, not {CALLS}")
            pairs[call] = [rows[call]["p50_us"]["median"], median(theirs[call])]
            print(f"    {call}: {pairs[call][0]:.1f} us, {watcher} {pairs[call][1]:.1f} us", flush=True)
        ours, other = pairs["fdatasync"]
        # What a watcher adds itself is the same for every call: the short one has it in full.
        added = {call: round(pair[1] - pair[0], 1) for call, pair in pairs.items()}
        bench.results.record(
            f"{self.name}.{watcher}", "% off", [[100 * abs(other - ours) / ours, most]], command, Goal(most=most),
            peer_name="goal", median_us=pairs, added_us=added,
        )


class LoopDisk:
    """A file system on a loop device of its own."""

    def __init__(self, folder, kind):
        self.image, self.point = (os.path.join(folder, f"{kind}{end}") for end in (".image", ""))
        # Written, not reserved, and no discards below, which punch holes.
        with open(self.image, "wb") as image:
            for _ in range(WRITTEN_MIB):
                image.write(bytes(1 << 20))
            image.truncate(IMAGE_MIB << 20)
            os.fsync(image.fileno())
        os.makedirs(self.point)
        self.mounted = False
        self.loop = run("losetup", "--find", "--show", self.image)
        with open(f"/sys/block/{os.path.basename(self.loop)}/dev") as number:
            self.number = number.read().strip().replace(":", ",")
        try:
            run(*MAKERS[kind], self.loop)
            run("mount", *(["-o", "nodiscard"] if kind == "btrfs" else []), self.loop, self.point)
            self.mounted = True
        except BenchError:
            self.remove()
            raise

    def remove(self):
        if self.mounted:
            run("umount", self.point)
        run("losetup", "--detach", self.loop)
        os.rmdir(self.point)
        os.remove(self.image)


def run(*argv):
    done = subprocess.run(argv, env=SBIN, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotHere(f"{' '.join(argv)}: {done.stderr.strip()}; needs root and loop devices")
    return done.stdout.strip()


def iotrace(bench, name, words):
    """The report as JSON, and the command."""
    out = os.path.join(bench.folder, f"iotrace-{name}")
    argv = [kit(bench.binary), "iotrace", "--quiet", "--out", out, "--plot", "png", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")
    with open(os.path.join(out, "iotrace.json")) as report:
        return json.load(report), " ".join(["stentor-kit", *argv[1:3], *words])


def as_raw(report):
    """The figures that `rawtrace.opinion` has too, of one place and work."""
    tables = report["tables"]
    flush = next(row for row in tables["requests"] if row["request"] == "flush")
    figures = {
        "wall_us": tables["operations"][0]["mean_us"]["median"], "device_us": tables["layers-us"][0]["device"],
        "flush_us": flush["device_us"], "flushes": flush["requests_per_operation"],
    }
    commit = [row["mean_us"] for row in tables["every-step"] if row["step"] == "commit"]
    return figures | ({"commit_us": commit[0]} if commit else {})


def perf_calls(lines):
    """Microseconds by call: `12.3 ( 0.412 ms): python3/7 fdatasync(fd: 3) = 0`. Where another line came between entry and
    exit, `python3/7  ... [continued]: fdatasync()) = 0`."""
    calls = {}
    for line in lines:
        found = re.search(r"\(\s*([\d.]+) ms\):\s+\S+\s+(?:\.\.\. \[continued\]: )?(\w+)\(", line)
        if found:
            calls.setdefault(found[2], []).append(1000 * float(found[1]))
    return calls


def strace_calls(lines):
    """Microseconds by call: `7 fdatasync(3) = 0 <0.000412>`."""
    calls = {}
    for line in lines:
        found = re.match(r"\d+\s+(\w+)\(.*<([\d.]+)>$", line)
        if found:
            calls.setdefault(found[1], []).append(1e6 * float(found[2]))
    return calls
