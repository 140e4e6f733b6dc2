#!/usr/bin/env python3
"""Where the microseconds and the system calls of one message go: `python3 bench/cost.py relay.each tls.kept ...`. Each workload
runs once under `perf record` and once under `perf stat`, which counts calls. Prints the tables of docs/design/cost.md.

A sample counts for the system call that it is in, else for the crate of its function; what the crates call in the allocator, in libc
and in libraries stands in rows of its own. perf counts with the system's clock where there are no hardware counters: anything
shorter than a sampling interval is accurate only over many messages.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import tempfile
import time

from bench import Bench
from encryption import Certificate, TlsSink, kit_source
from measure import BenchError
from run import ROOT
from scenarios.filters_relay import QuickMilter
from sinks import SmtpSink, free_port
from sources import smtp_source

SESSIONS = 20
LENGTH = 4096
HERTZ = 4000
CALL = re.compile(r"^(?:__(?:x64|ia32|arm64)_sys_(?:new)?|ksys_|do_(?=writev))(\w+)")
CRATE = re.compile(r"(?:^|[<& ])(?:stentor_)(\w+?)::")
LIBRARY = re.compile(r"(?:^|[<& (])(\w+)::")
ALLOCATOR = re.compile(r"^_?(?:mi_|_mi_|je_|malloc|free|realloc|calloc|_int_|__rust_|cfree|unlink_chunk|sysmalloc|_rjem)")
CRYPTOGRAPHY = re.compile(r"aws_lc|aes|gcm|sha\d|ghash|x25519|ecp|bn_|p256|curve25519", re.IGNORECASE)


class Workload:
    """A server between a source and a sink. `send(messages)` returns when all are acknowledged."""

    messages = 10_000

    def __init__(self, bench, is_kept):
        self.bench, self.is_kept = bench, is_kept
        self.sink = SmtpSink(bench.work, free_port())
        self.others = []
        self.stentor = bench.stentor(self.sink, name="cost", more=self.more())

    def more(self):
        return ""

    def send(self, messages):
        smtp_source(self.stentor.port, SESSIONS, messages, LENGTH, self.is_kept)


class Relay(Workload):
    """In clear, without filters."""


class Milter(Workload):
    """With a milter that answers at once."""

    def more(self):
        milter = QuickMilter(self.bench)
        self.others.append(milter)
        return milter.for_stentor()


class Tls(Workload):
    """In TLS on both sides."""

    messages = 4_000

    def __init__(self, bench, is_kept):
        self.bench, self.is_kept = bench, is_kept
        self.sink = TlsSink(bench, "cost-tls")
        self.others = []
        certificate = Certificate(f"{bench.work}/cost-tls")
        self.stentor = bench.stentor(self.sink, name="cost", more=certificate.for_stentor())
        self.stentor.delivery = f'tls_ca_file = "{self.sink.ca}"'
        if not is_kept:
            self.stentor.delivery += "\ntransactions_per_connection_max = 1"

    def send(self, messages):
        options = ("--tls", "starttls") if self.is_kept else ("--tls", "starttls", "--session-each")
        kit_source(self.bench, self.stentor.port, messages, *options)


WORKLOADS = {
    f"{name}.{'kept' if kept else 'each'}": (kind, kept)
    for name, kind in (("relay", Relay), ("milter", Milter), ("tls", Tls))
    for kept in (False, True)
}


def main():
    parser = argparse.ArgumentParser(description="Where the time and the system calls of one message go.")
    parser.add_argument("workloads", nargs="+", choices=WORKLOADS)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target", "release", "stentor"))
    parser.add_argument("--functions", type=int, default=0, help="also print the N most expensive functions", metavar="N")
    options = parser.parse_args()
    bench = Bench(ROOT, os.path.abspath(options.binary), 1, smoke=True)
    for name in options.workloads:
        kind, kept = WORKLOADS[name]
        workload = kind(bench, kept)
        with bench.running(workload.sink, *workload.others, workload.stentor):
            print(f"\n### {name}\n\n{cost(workload, options.functions)}", flush=True)


def cost(workload, functions):
    """The table of a workload, as Markdown."""
    drain(workload, 2_000)
    cpu_us, samples = profile(workload)
    calls = count_calls(workload)
    rows = collections.Counter()
    dearest = collections.Counter()
    for stack, weight in samples.items():
        rows[area(stack)] += weight
        dearest[stack[0]] += weight
    total = sum(rows.values())
    lines = [f"{cpu_us:.1f} us of CPU a message; {sum(calls.values()):.1f} system calls", "", "| where | us | share | calls |", "|---|---|---|---|"]
    for where, weight in rows.most_common():
        if weight / total >= 0.005:
            called = calls.get(where.removeprefix("kernel: "), 0)
            lines.append(f"| {where} | {cpu_us * weight / total:.1f} | {weight / total:.1%} | {f'{called:.2f}' if called else ''} |")
    shown = {where.removeprefix("kernel: ") for where, weight in rows.items() if weight / total >= 0.005}
    rest = {name: called for name, called in calls.items() if name not in shown and called >= 0.01}
    if rest:
        lines += ["", "Other calls: " + ", ".join(f"{name} {called:.2f}" for name, called in rest.items()) + "."]
    if functions:
        lines += ["", "| function | us |", "|---|---|"]
        lines += [f"| `{name[:110]}` | {cpu_us * weight / total:.2f} |" for name, weight in dearest.most_common(functions)]
    return "\n".join(lines)


def drain(workload, messages):
    before = workload.sink.counts()["copies"]
    workload.send(messages)
    workload.sink.wait(before + messages, 300)


def profile(workload):
    """(CPU microseconds per message, {stack, innermost first: samples})."""
    with tempfile.NamedTemporaryFile(prefix="cost-") as data:
        pid = workload.stentor.process.pid
        argv = ["perf", "record", "-q", "-F", str(HERTZ), "-g", "-e", "cpu-clock", "-o", data.name, "-p", str(pid)]
        recorder = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        cpu = workload.stentor.group.cpu_s()
        drain(workload, workload.messages)
        cpu = workload.stentor.group.cpu_s() - cpu
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
        script = subprocess.run(
            ["perf", "script", "-i", data.name, "--no-inline", "-F", "comm,ip,sym"], capture_output=True, text=True, errors="replace"
        )
    if script.returncode != 0:
        raise BenchError(f"perf script: {script.stderr[-300:]}")
    samples = collections.Counter()
    for block in script.stdout.split("\n\n"):
        frames = [line.split(None, 1)[1].strip() for line in block.splitlines()[1:] if len(line.split(None, 1)) == 2]
        if frames:
            samples[tuple(frames)] += 1
    return cpu / workload.messages * 1e6, samples


def area(stack):
    for frame in stack:
        if found := CALL.match(frame):
            return f"kernel: {found[1]}"
    leaf = stack[0]
    if ALLOCATOR.match(leaf):
        return "allocator"
    if found := CRATE.search(leaf):
        return f"{found[1]}"
    if CRYPTOGRAPHY.search(leaf):
        return "cryptography"
    if found := LIBRARY.search(leaf):
        return f"library: {found[1]}"
    return "kernel: other" if any("entry_SYSCALL" in frame or "asm_" in frame for frame in stack) else "libc and others"


def count_calls(workload):
    """System calls per message, by name. Counted in the kernel: under strace the server is so slow that it works in other ways."""
    argv = ["perf", "stat", "-x", ",", "-e", "syscalls:sys_enter_*", "-p", str(workload.stentor.process.pid)]
    counter = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    drain(workload, workload.messages)
    counter.send_signal(signal.SIGINT)
    calls = collections.Counter()
    for line in counter.communicate(timeout=60)[1].splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("syscalls:") and fields[0].isdigit():
            name = fields[2].removeprefix("syscalls:sys_enter_").removeprefix("new")
            calls[name] = int(fields[0]) / workload.messages
    return calls


if __name__ == "__main__":
    main()
