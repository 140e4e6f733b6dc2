"""Cuts while people unsubscribe, operators suppress and DKIM keys are replaced: `kill -9`, and the power of an xfs on a loop
device. Nothing that was answered may be lost, and nothing that was removed may come back. Controls show that this could be
noticed: for `kill -9` requests count as answered when they are sent; for the power the server runs without syncs
(eatmydata). `synchronous = OFF` of the registry alone is in testing/server/tests/all/suppression_cuts.rs.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from contestants.stentor import Stentor
from measure import BenchError, CannotHere, wait_until
from results import Goal
from scenarios.identity_one_click import HOST, Keeper, ask
from scenarios.robust_full_disk import Mounted, _run
from sinks import free_port
from sources import SENDER, message, post

CUTS = 500
KINDS = ("kill", "power")
# Rounds in which a control must lose something.
BLIND_ROUNDS_MAX = 10
SUBSCRIBERS = 2_000
OPERATORS = 3
CLICKS_PER_CUT = 3
# Answers after which it is cut.
ANSWERS = (10, 80)
XFS_MIB = 320
DOMAIN = "lists.example"
EXTRA_CONFIGURATION = f"""
[journal]
segment_bytes = 1048576
reserve_bytes = 4194304
[[dkim]]
domain = "{DOMAIN}"
rotate_days = 180
[dns]
servers = ["127.0.0.1:9"]
timeout_ms = 100
attempts = 1
"""


class Cuts:
    """Kills the server or cuts its power while the registry changes."""

    name = "identity.cuts"
    entries = (".kill", ".power")
    smoke = {"CUTS": 2, "SUBSCRIBERS": 40, "ANSWERS": (5, 10)}

    def run(self, bench):
        for program in ("xfs_io", "eatmydata"):
            if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
                raise CannotHere(f"{program} is missing: apt-get install xfsprogs eatmydata")
        for kind in KINDS:
            with ServerUnderCuts(bench, kind, is_control=False) as life:
                lost = [what for _ in range(CUTS) for what in life.cut()]
                answered = dict(life.answered)
            seen = self.control(bench, kind)
            bench.results.record(
                f"{self.name}.{kind}", "entries lost or back", [[len(lost), 0]],
                f"{CUTS} cuts while {OPERATORS} operators, one-click links and DKIM keys change the registry", Goal(most=0),
                peer_name="the goal", cuts=CUTS, answered=answered, lost=lost[:20], control_lost=seen,
            )

    def control(self, bench, kind):
        with ServerUnderCuts(bench, kind, is_control=True) as life:
            for _ in range(BLIND_ROUNDS_MAX):
                lost = life.cut()
                if lost:
                    return len(lost)
        raise BenchError(f"{kind}: the control lost nothing in {BLIND_ROUNDS_MAX} cuts, so the checker is blind")


class UnsyncedStentor(Stentor):
    """The server with syncs that do nothing."""

    def spawn(self, argv, output_name):
        return super().spawn(["eatmydata", *argv], output_name)


class ServerUnderCuts:
    """A server on a file system of its own, from cut to cut."""

    def __init__(self, bench, kind, is_control):
        self.bench, self.kind, self.is_control = bench, kind, is_control
        # What must be there (True) or must not (False), by subject and scope; what is under way is in neither state.
        self.expected = {}
        self.lock = threading.Lock()
        self.answers, self.answered = 0, {"operators": 0, "one_click": 0, "keys": 0}
        # The selectors at the last answer, unless a request is under way.
        self.selectors, self.number, self.refused = None, 0, []

    def __enter__(self):
        self.mounted = Mounted(self.bench.work, "xfs", XFS_MIB, ())
        self.mounted.__enter__()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, "server"):
            self.server.stop()
            self.keeper.stop()
        self.mounted.__exit__()

    def start(self):
        subscribers = f"{self.bench.work}/cuts.subscribers"
        with open(subscribers, "w") as file:
            file.writelines(f"reader{number:04}@d.example\n" for number in range(SUBSCRIBERS))
        self.keeper = Keeper().start()
        made = UnsyncedStentor if self.is_control and self.kind == "power" else Stentor
        self.server = made(
            self.bench.binary, self.mounted.point, self.keeper.port, subscribers=subscribers, http=free_port(),
            list_keys="one_click = true", http_keys=f'link_base = "https://{HOST}"', more=EXTRA_CONFIGURATION,
        )
        self.server.start()
        self.control = os.path.join(self.server.folder, "data", "control.sock")
        self.keeper.begin()
        post(self.server.port, SENDER, "news@lists.example", message(2_000, f"cuts{time.monotonic_ns()}"))
        self.server.wait_drained()
        self.links = list(self.keeper.links.items())
        if len(self.links) != SUBSCRIBERS:
            raise BenchError(f"{len(self.links)} copies of {SUBSCRIBERS}")
        random.shuffle(self.links)
        # Only what comes later can be lost.
        _run("sync", "--file-system", self.mounted.point)

    def cut(self):
        """Works, cuts, starts again. Returns what is wrong then."""
        goal = self.answers + random.randint(*ANSWERS)
        workers = [threading.Thread(target=self.operate, args=(n,)) for n in range(OPERATORS)]
        workers += [threading.Thread(target=self.click), threading.Thread(target=self.rotate)]
        self.is_over = False
        for worker in workers:
            worker.start()
        wait_until(lambda: self.answers >= goal, 120, "answers")
        if self.kind == "kill":
            self.server.crash()
        else:
            os.kill(self.server.process.pid, signal.SIGSTOP)
            _run("xfs_io", "-x", "-c", "shutdown", self.mounted.point)
            self.server.crash()
        self.is_over = True
        for worker in workers:
            worker.join(60)
        if self.refused:
            raise BenchError(f"refused: {self.refused[:5]}")
        if self.kind == "power":
            _run("umount", self.mounted.point)
            _run("mount", "-t", "xfs", self.mounted.device, self.mounted.point)
        self.number += 1
        try:
            self.server.restart()
        except BenchError as error:
            if self.is_control:
                return [f"the server does not start: {error}"]
            raise
        wait_until(self.is_controlled, 60, "the control socket")
        return self.check()

    def is_controlled(self):
        """Whether the control socket answers: it may be there a little later than the greeting."""
        try:
            return self.ask("status")
        except (OSError, ValueError):
            return False

    def check(self):
        there = {tuple(line.split(",")[:2]) for line in self.command("suppress", "export").splitlines()[1:]}
        wrong = [f"{key} lost" for key, must in self.expected.items() if must and key not in there]
        wrong += [f"{key} back" for key, must in self.expected.items() if not must and key in there]
        selectors = self.shown_selectors()
        if self.selectors is not None and not self.selectors <= selectors:
            wrong.append(f"keys {sorted(self.selectors - selectors)} lost")
        # Wrong entries are reported once.
        self.expected = {key: key in there for key in self.expected}
        self.selectors = selectors
        return wrong

    def operate(self, first):
        number = first
        while not self.is_over:
            subject = f"{self.number}-{number}@x.example"
            entry = {"subject": subject, "scope": "everything"}
            if not self.request((subject, "everything"), True, lambda: self.ask("suppress", entries=[entry])):
                return
            if number % 3 == 0 and not self.request((subject, "everything"), False, lambda: self.ask("unsuppress", entries=[entry])):
                return
            self.answered["operators"] += 1
            number += OPERATORS

    def click(self):
        for _ in range(min(CLICKS_PER_CUT, len(self.links))):
            if self.is_over:
                return
            address, link = self.links.pop()
            if not self.request((address, "list:news"), True, lambda: ask(self.server.http, "POST", link) == 200):
                return
            self.answered["one_click"] += 1

    def rotate(self):
        before, self.selectors = self.selectors, None
        try:
            if self.ask("dkim_rotate", domain=DOMAIN, now=True):
                self.selectors = self.shown_selectors()
                self.answered["keys"] += 1
        except (OSError, ValueError):
            # Under way when it was cut: the keys before stay.
            self.selectors = before

    def request(self, key, is_there, do):
        """Makes a request and notes its answer. False: the server is gone."""
        with self.lock:
            self.expected.pop(key, None)
            if self.is_control and self.kind == "kill":
                self.expected[key] = is_there
        try:
            is_done = do()
        except (OSError, ValueError):
            return False
        if not is_done:
            # A disk without power refuses changes, until the server is killed.
            if self.kind != "power":
                self.refused.append(key)
            return False
        with self.lock:
            self.expected[key] = is_there
            self.answers += 1
        return True

    def ask(self, verb, **fields):
        """A request on the control socket; whether it was done."""
        return self.reply(verb, **fields)["ok"]

    def reply(self, verb, **fields):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(self.control)
            client.sendall(json.dumps({"v": 1, "verb": verb, **fields}).encode() + b"\n")
            return json.loads(client.makefile().readline())

    def shown_selectors(self):
        return {json.loads(line).get("selector") for line in self.command("dkim", "show", "--json").splitlines()} - {None}

    def command(self, *words):
        """What a command prints; OSError without a server."""
        argv = [self.server.binary, *words, "--config", self.server.configuration]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout
