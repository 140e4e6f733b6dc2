"""Deep queues: servers whose mail waits for hosts that are down.

Down is a name server (downdns.py) for as many domains as are wanted, each with a host of its own that refuses
connections. DeepStentor looks domains up there, and has a route for `sink.example`, where a sink takes what is to be
delivered. Its hosts' clocks begin at an hour, their default maximum, which they reach after some hours of being down: in
the first minutes the retries of so many hosts come in bursts.
"""

import itertools
import os
import random
import re
import socket
import subprocess
import sys
import time

from contestants.stentor import Stentor
from measure import BenchError, Waits, kit, wait_until
from sinks import free_port
from sources import lab_report

CONFIGURATION = """\
hostname = "stentor.example"
data_dir = "data"

[http]
listen = []
[listen]
smtp = ["127.0.0.1:{port}"]

[dns]
servers = ["127.0.0.1:{dns_port}"]
loopback_allowed = true

[delivery]
smtp_port = {smtp_port}

[retry]
host_min_s = 3600

[routes]
"sink.example" = ["127.0.0.1:{sink_port}"]

[log]
attempts = "attempts.log"
"""

LIST = """
[lists.news]
address = "news@lists.example"
subscribers = "{subscribers}"
owner = "owner@elsewhere.example"
"""


class Down:
    """Domains whose hosts are down, and the name server that knows them."""

    def __init__(self, work, sites):
        self.work, self.sites = work, sites
        self.dns_port, self.smtp_port = free_port(), free_port()
        self.process = None

    def addresses(self, count, seed=7):
        """A file of so many addresses, spread over the domains by Zipf's law; made once."""
        path = os.path.join(self.work, f"down-{self.sites}-{count}.addresses")
        if not os.path.exists(path):
            weights = list(itertools.accumulate(1 / (k + 1) for k in range(self.sites)))
            chosen = random.Random(seed).choices(range(self.sites), cum_weights=weights, k=count)
            with open(path + ".new", "w") as file:
                file.writelines(f"reader.{i:07}@d{site}.down.example\n" for i, site in enumerate(chosen))
            os.replace(path + ".new", path)
        return path

    def start(self):
        server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "downdns.py")
        self.process = subprocess.Popen([sys.executable, server, str(self.dns_port)])
        wait_until(self._answers, 20, "the name server")
        return self

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def _answers(self):
        if self.process.poll() is not None:
            raise BenchError("the name server has exited")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(0.2)
            client.sendto(b"\0\0\1\0\0\1\0\0\0\0\0\0\2d1\4down\7example\0\0\17\0\1", ("127.0.0.1", self.dns_port))
            try:
                return len(client.recv(512)) > 30
            except OSError:
                return False


class DeepStentor(Stentor):
    """A server that looks domains up at a `Down`."""

    def __init__(self, binary, work, sink_port, down, **kwargs):
        super().__init__(binary, work, sink_port, **kwargs)
        self.down = down

    def launch(self):
        text = CONFIGURATION.format(
            port=self.port, sink_port=self.sink_port, dns_port=self.down.dns_port, smtp_port=self.down.smtp_port
        )
        if self.subscribers:
            text += LIST.format(subscribers=self.subscribers)
        with open(self.configuration, "w") as file:
            file.write(text)
        self.process = self.spawn([self.binary, "serve", "--config", self.configuration], "stderr")

    def command(self, *arguments):
        """(seconds that the command took, its output)."""
        argv = [self.binary, *arguments, "--config", self.configuration]
        begin = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        elapsed = time.monotonic() - begin
        if done.returncode != 0:
            raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return elapsed, done.stdout

    def pending(self):
        return self.status()["recipients"]["pending"]

    def resident_mib(self):
        """Memory that is this process's own; the binary's text and other file pages are not in it."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"RssAnon:\s+(\d+)", status.read())[1]) / 1024

    def settled_mib(self):
        """Memory once it has stopped changing: pages that were given back go with a delay."""
        before, same = self.resident_mib(), 0
        while same < 3:
            time.sleep(Waits.memory)
            now = self.resident_mib()
            same = same + 1 if abs(now - before) < 1 else 0
            before = now
        return before

    def wait_quiet(self, timeout_s, what):
        """Until no connection is open and no look-up is made any more: all sites have been tried."""
        last, since = None, time.monotonic()

        def is_quiet():
            nonlocal last, since
            status = self.status()
            now = (status["dns_queries"], status["connections_out"])
            if now != last or now[1] > 0:
                last, since = now, time.monotonic()
            time.sleep(Waits.quiet / 15)
            return time.monotonic() - since > Waits.quiet

        wait_until(is_quiet, timeout_s, what)

    def disk_mib(self):
        """Blocks of the store's files, and how much of them is live content."""
        used = 0
        for folder, _, names in os.walk(os.path.join(self.folder, "data")):
            used += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in names)
        return used / 2**20, self.status()["content_bytes"] / 2**20

    def crash_and_restart(self):
        """Seconds from the new process's start to its greeting."""
        self.crash()
        begin = time.monotonic()
        self.restart()
        elapsed = time.monotonic() - begin
        # The control socket comes a moment after the greeting; until then its name is the killed process's.
        wait_until(self._takes_commands, 20, "the control socket")
        return elapsed

    def _takes_commands(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(os.path.join(self.folder, "data", "control.sock"))
            except OSError:
                return False
        return True


def source(binary, port, *, connections, messages, size, recipients, per_message=1, sender="source@source.example"):
    """`stentor-kit lab source`; returns its report. One refusal is an error."""
    argv = [kit(binary), "lab", "source", f"127.0.0.1:{port}", "--connections", str(connections)]
    argv += ["--messages", str(messages), "--size", str(size), "--from", sender, "--json", "--quiet"]
    argv += ["--recipients-per-message", str(per_message)]
    # A Message-ID of 50 octets.
    argv += ["--run", "a-message-id-of-fifty-octets-"]
    argv += ["--to-file" if os.path.sep in recipients else "--to", recipients]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")
    report = lab_report(done.stdout)["report"]
    if report["accepted"] != messages:
        raise BenchError(f"{messages} messages, {report}")
    return report


def scattered(path, addresses_path, count, seed=11):
    """A file of `count` addresses: the same ones shuffled again and again."""
    if os.path.exists(path):
        return path
    with open(addresses_path) as file:
        addresses = file.readlines()
    rng = random.Random(seed)
    with open(path + ".new", "w") as file:
        for _ in range(count // len(addresses)):
            rng.shuffle(addresses)
            file.writelines(addresses)
    os.replace(path + ".new", path)
    return path
