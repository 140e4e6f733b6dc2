"""A full disk: ENOSPC, EIO and EDQUOT at each write, sync and create of a simulated disk under the real committer; and
real file systems of 64 MiB (XFS and btrfs as small as they can be made), filled by somebody else and freed, again and
again, while a client goes on. `value` is the longest time from room to the next 250. Nothing acknowledged may be lost, or
it fails.
"""

import json
import os
import socket
import subprocess
import threading
import time

from contestants.stentor import Stentor
from measure import BenchError, CannotHere, wait_until
from results import Goal
from sinks import LabSink, free_port
from slowdisk import SBIN

# What the campaign is asked for.
WORDS = ("--full-disk", "--seconds", "60")
CYCLES = 50
KINDS = (("ext4", 64, ("-m", "0")), ("xfs", 300, ()), ("btrfs", 128, ("--mixed",)))
GOAL_S = 1.0
BLOCK = bytes(1 << 20)
# Several segments and the reserve fit into what is left of 64 MiB.
JOURNAL = "[journal]\nsegment_bytes = 1048576\nreserve_bytes = 4194304\n"
# One message, in octets, and how often a client that was refused comes again.
LENGTH = 8192
AGAIN_S = 0.01
COMMANDS = (b"EHLO a.example", b"MAIL FROM:<ann@a.example>", b"RCPT TO:<bob@sink.example>", b"DATA")


class SimulatedDisk:
    """The committer on a disk that refuses each operation in turn."""

    name = "robust.full_disk.simulated"
    entries = ("",)
    smoke = {"WORDS": ("--full-disk", "--seed", "1", "--seconds", "3")}

    def run(self, bench):
        done = subprocess.run([bench.tool("stentor-campaign"), *WORDS, "--json"], capture_output=True, text=True)
        try:
            summary = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            raise BenchError(f"the campaign says nothing: {done.stderr[-500:]}") from None
        if done.returncode != 0 or summary["failure"]:
            raise BenchError(f"the campaign failed: {done.stderr[-500:]}")
        figures = summary["figures"]
        bench.results.record(
            self.name, "s until mail is taken", [[figures["recovery_ms_max"] / 1000, GOAL_S]],
            f"stentor-campaign {' '.join(WORDS)} --json", Goal(most=GOAL_S), peer_name="the goal", lost=0, **figures,
        )


class FullDisk:
    """Real file systems that are filled and freed."""

    name = "robust.full_disk"
    entries = tuple(f".{kind}" for kind, _, _ in KINDS)
    smoke = {"CYCLES": 2}

    def run(self, bench):
        for kind, mib, options in KINDS:
            with Mounted(bench.work, kind, mib, options) as mounted:
                waits, taken = self.fill_and_free(bench, mounted)
            bench.results.record(
                f"{self.name}.{kind}", "s until mail is taken", [[max(waits), GOAL_S]],
                f"{mib} MiB of {kind} filled and freed {CYCLES} times beside a client", Goal(most=GOAL_S),
                peer_name="the goal", lost=0, waits_s=[round(wait, 3) for wait in waits], messages=taken,
            )

    def fill_and_free(self, bench, mounted):
        sink = LabSink(bench.work, free_port(), bench.binary)
        server = Stentor(bench.binary, mounted.point, sink.port, more=JOURNAL)
        with bench.running(sink, server):
            waits, client = [], Client(server.port)
            try:
                for _ in range(CYCLES):
                    waits.append(self.once(mounted, client))
            finally:
                client.end()
            if client.failure:
                raise BenchError(f"{mounted.kind}: {client.failure}")
            wait_until(lambda: sink.counts()["copies"] >= client.taken, 120, f"{client.taken} copies ({mounted.kind})")
            server.wait_drained()
            if sink.counts()["copies"] != client.taken:
                raise BenchError(f"{mounted.kind}: {client.taken} messages taken, {sink.counts()} delivered")
            return waits, client.taken

    def once(self, mounted, client):
        """Fills it until mail is refused; frees it. Seconds from then to the next message that is taken."""
        refused = client.refused
        mounted.fill()
        wait_until(lambda: client.refused > refused, 60, "a refusal")
        mounted.free()
        begin = time.monotonic()
        wait_until(lambda: client.taken_at > begin, 60, f"mail taken again on {mounted.kind}")
        return client.taken_at_after(begin) - begin


class Client(threading.Thread):
    """Hands in one message after the other; what is refused comes again."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.taken, self.refused, self.taken_at = port, 0, 0, 0.0
        self.first, self.is_over, self.failure = [], False, None
        self.start()

    def run(self):
        body = b"x" * 70 + b"\r\n"
        content = b"Subject: full\r\n\r\n" + body * (LENGTH // len(body))
        while not self.is_over:
            try:
                code = hand_in(self.port, content)
            except (OSError, ValueError) as error:
                self.failure = str(error)
                return
            if code == 250:
                self.taken += 1
                self.taken_at = time.monotonic()
                self.first.append(self.taken_at)
            elif code in (451, 452):
                self.refused += 1
                time.sleep(AGAIN_S)
            else:
                self.failure = f"answered {code}"
                return

    def taken_at_after(self, begin):
        return next(at for at in self.first if at > begin)

    def end(self):
        self.is_over = True
        self.join(60)


def hand_in(port, content):
    """One message in one session. The code of the first refusal, or 250."""
    with socket.create_connection(("127.0.0.1", port), 60) as client, client.makefile("rb") as replies:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = reply(replies)
        for command in (*COMMANDS, content + b"."):
            if code not in (220, 250, 354):
                return code
            client.sendall(command + b"\r\n")
            code = reply(replies)
        return code


def reply(replies):
    line = replies.readline()
    while line[3:4] == b"-":
        line = replies.readline()
    return int(line[:3])


class Mounted:
    """A file system of its own in a file behind a loop device; unmounted and gone at the end."""

    def __init__(self, folder, kind, mib, options):
        self.kind, self.mib, self.options = kind, mib, options
        self.image, self.point = os.path.join(folder, f"full.{kind}"), os.path.join(folder, f"full-{kind}")
        self.device, self.is_mounted = None, False

    def __enter__(self):
        try:
            with open(self.image, "wb") as image:
                image.truncate(self.mib << 20)
            quiet = "-f" if self.kind == "btrfs" else "-q"
            _run(f"mkfs.{self.kind}", quiet, *self.options, self.image)
            self.device = _run("losetup", "--find", "--show", self.image)
            os.makedirs(self.point, exist_ok=True)
            _run("mount", "-t", self.kind, self.device, self.point)
            self.is_mounted = True
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            said = getattr(error, "stderr", "") or error
            raise CannotHere(f"no {self.kind} of {self.mib} MiB: {said}; needs root and loop devices") from error
        return self

    def __exit__(self, *_):
        if self.is_mounted:
            _run("umount", "-l", self.point)
        if self.device:
            _run("losetup", "--detach", self.device)
        if os.path.exists(self.image):
            os.remove(self.image)

    def fill(self):
        """Until there is no room for an octet more; what is freed meanwhile is filled again."""
        with open(self.ballast, "ab", buffering=0) as ballast:
            for part in (BLOCK, BLOCK[:4096]):
                try:
                    while True:
                        ballast.write(part)
                except OSError:
                    continue

    def free(self):
        os.remove(self.ballast)

    @property
    def ballast(self):
        return os.path.join(self.point, "ballast")


def _run(*argv):
    done = subprocess.run(argv, env=SBIN, capture_output=True, text=True, check=True)
    return done.stdout.strip()
