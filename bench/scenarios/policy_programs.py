"""Deliveries to a program that counts them, by `stentor-deliver` and by Postfix's pipe(8): as many as were acknowledged, each once,
and nothing left: no process, no zombie, no descriptor. Then what each exit code, a signal, a time-out and processes that a
program leaves behind come to.
"""

import os
import re
import shutil
import smtplib
import subprocess
import tempfile
import time

from bench import measured_cpu, pairs
from contestants.postfix import Postfix
from contestants.stentor import Stentor
from measure import BenchError, wait_until
from results import Goal
from sources import RECIPIENT, command_text, smtp_source

# Five turns are 100,000 deliveries.
TURNS = 5
DELIVERIES = 20_000
SESSIONS = 20
LENGTH = 4096
CODES = 256
USER = "nobody"
# What a program that does not end leaves behind is found by this argument.
MARK = f"98{os.getpid()}"

SERVICES = """\
sockets = "{folder}/run"
client = "root"
hostname = "stentor.example"

[services.count]
kind = "program"
user = "{user}"
command = ["{folder}/count"]

[services.exit]
kind = "program"
user = "{user}"
command = ["/bin/sh", "-c", "exit $1", "sh", "${{user}}"]

[services.dies]
kind = "program"
user = "{user}"
command = ["/bin/sh", "-c", "kill -9 $$"]

[services.hangs]
kind = "program"
user = "{user}"
timeout_s = 1
command = ["/bin/sh", "-c", "trap '' TERM; setsid sleep {mark} & sleep {mark}"]

[services.stays]
kind = "program"
user = "{user}"
command = ["/bin/sh", "-c", "setsid sh -c 'sleep {mark} & sleep {mark}' & exit 0"]
"""

# Documented in docs/operate/local-delivery.md, beside the exit codes.
ENDS = {"dies": "4.3.0", "hangs": "4.3.0", "stays": "2.0.0"}


class Counter:
    """A program that appends an octet to a file, and the file. Also the sink that is asked for copies."""

    # Nothing goes to a port.
    port = 9

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="stentor-programs-")
        os.chmod(self.folder, 0o755)
        self.file = os.path.join(self.folder, "counted")
        self.program = os.path.join(self.folder, "count")
        with open(self.program, "w") as program:
            program.write(f"#!/bin/sh\nprintf x >>{self.file}\n")
        os.chmod(self.program, 0o755)

    def start(self):
        with open(self.file, "w"):
            pass
        shutil.chown(self.file, USER)

    def stop(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def counts(self):
        return {"copies": os.path.getsize(self.file)}

    def wait(self, total, timeout_s):
        wait_until(lambda: self.counts()["copies"] >= total, timeout_s, f"{total} deliveries")
        return time.monotonic()


class WithHelper(Stentor):
    """Stentor, and `stentor-deliver` in its group."""

    def __init__(self, bench, counter):
        self.deliver, self.counter, self.helper = bench.tool("stentor-deliver"), counter, None
        route = {RECIPIENT.partition("@")[2]: f"lmtp:unix:{self.socket('count')}"}
        super().__init__(bench.binary, bench.work, counter.port, routes=route)

    def socket(self, service):
        return os.path.join(self.counter.folder, "run", f"{service}.sock")

    def launch(self):
        path = os.path.join(self.counter.folder, "deliver.toml")
        with open(path, "w") as file:
            file.write(SERVICES.format(folder=self.counter.folder, user=USER, mark=MARK))
        self.helper = self.spawn([self.deliver, "--config", path], "deliver.out")
        wait_until(lambda: os.path.exists(self.socket("stays")), 30, "stentor-deliver listening")
        super().launch()

    def shut_down(self):
        super().shut_down()
        if self.helper is not None:
            self.helper.terminate()
            self.helper.wait(60)

    def workers(self):
        return [pid for pid in self.group.pids() if pid not in (self.process.pid, self.helper.pid)]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.helper.pid}/fd"))


class WithPipe(Postfix):
    """Postfix whose mail goes to pipe(8): what RECIPIENT gets to the counting program, `CODE@exit.example` exits with CODE."""

    def __init__(self, bench, counter):
        super().__init__(bench.work, counter.port)
        self.counter = counter

    def launch(self):
        exits = os.path.join(self.counter.folder, "exit")
        with open(exits, "w") as program:
            program.write("#!/bin/sh\nexit $1\n")
        os.chmod(exits, 0o755)
        pipe = "unix - n n - 20 pipe flags=DR user=" + USER
        self.more_services = f"count {pipe} argv={self.counter.program}\nexit {pipe} argv={exits} ${{user}}\n"
        self.transports = {RECIPIENT.partition("@")[2]: "count:", "exit.example": "exit:"}
        super().launch()


class Programs:
    """Mail to programs: none lost, none twice, nothing left; exit codes as Postfix has them."""

    name = "policy.programs"
    entries = (".rate", ".cpu", ".left", ".codes", ".ends")
    smoke = {"TURNS": 1, "DELIVERIES": 80, "CODES": 20}

    def run(self, bench):
        counter = Counter()
        stentor, postfix = WithHelper(bench, counter), WithPipe(bench, counter)
        with bench.running(counter, stentor, postfix):
            self.before = stentor.descriptors()
            self.rate(bench, counter, stentor, postfix)
            self.left(bench, stentor)
            self.codes(bench, stentor, postfix)
            self.ends(bench, stentor)

    def rate(self, bench, counter, stentor, postfix):
        def deliver(contestant):
            send = lambda: smtp_source(contestant.port, SESSIONS, DELIVERIES, LENGTH, True)
            _, elapsed, _, cpu = measured_cpu(contestant, counter, DELIVERIES, send)
            return {"rate": DELIVERIES / elapsed, "cpu": 1000 * cpu / DELIVERIES}

        rounds = bench.alternate([stentor, postfix], deliver, TURNS)
        command = command_text(SESSIONS, DELIVERIES, LENGTH, True)
        bench.results.record(
            f"{self.name}.rate", "deliveries/s", pairs(rounds, "rate"), command, Goal(ratio=1), more_is_better=True
        )
        bench.results.record(f"{self.name}.cpu", "CPU ms/delivery", pairs(rounds, "cpu"), command, Goal(ratio=1))

    def left(self, bench, stentor):
        """Once its connections are closed, the helper is as it was before the first delivery."""
        wait_until(lambda: not stentor.workers(), 60, "all workers gone")
        zombies = sum(f" Z {stentor.helper.pid} " in stat for stat in stats())
        left = zombies + max(stentor.descriptors() - self.before, 0) + len(stentor.workers())
        command = f"{TURNS * DELIVERIES} deliveries, then /proc"
        bench.results.record(
            f"{self.name}.left", "zombies, descriptors, processes", [[left, 0]], command, Goal(most=0), peer_name="none",
            zombies=zombies, descriptors=stentor.descriptors(),
        )

    def codes(self, bench, stentor, postfix):
        """Which status each exit code has: what Postfix logs, and what the helper replies."""
        addresses = [f"{code}@exit.example" for code in range(CODES)]
        ours = {address: status(stentor.socket("exit"), address) for address in addresses}
        with smtplib.SMTP("127.0.0.1", postfix.port) as client:
            # One recipient each, since pipe(8) runs one command for all of a message.
            for address in addresses:
                client.sendmail("", [address], "Subject: codes\r\n\r\n")
        wait_until(lambda: len(logged(postfix)) == CODES, 120, "Postfix's attempts")
        theirs = logged(postfix)
        differ = {address: [ours[address], theirs[address]] for address in addresses if ours[address] != theirs[address]}
        bench.results.record(
            f"{self.name}.codes", "exit codes that differ", [[len(differ), 0]], f"exit codes 0 to {CODES - 1}", Goal(most=0),
            differ=differ,
        )

    def ends(self, bench, stentor):
        found = {name: status(stentor.socket(name), "a@end.example") for name in ENDS}
        running = subprocess.run(["pgrep", "-f", f"sleep {MARK}"], capture_output=True, text=True).stdout.split()
        wrong = sum(found[name] != wanted for name, wanted in ENDS.items()) + len(running)
        bench.results.record(
            f"{self.name}.ends", "wrong", [[wrong, 0]], "a signal, a time-out, processes left behind", Goal(most=0),
            peer_name="none", found=found,
        )


def stats():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                yield file.read()
        except OSError:
            pass


def status(socket, address):
    """The enhanced code with which a delivery ends."""
    with smtplib.LMTP(socket) as client:
        client.ehlo()
        for command in ("MAIL FROM:<>", f"RCPT TO:<{address}>"):
            code, text = client.docmd(command)
            if code != 250:
                raise BenchError(f"{command}: {code} {text}")
        _, text = client.data("Subject: x\r\n\r\n")
    return text.split()[0].decode()


def logged(postfix):
    """The status of each address in Postfix's log."""
    with open(os.path.join(postfix.folder, postfix.log_name)) as log:
        found = re.findall(r"to=<(\d+@exit\.example)>,.*? dsn=([\d.]+), status=", log.read())
    return dict(found)
