"""100,000 guesses of passwords, most from addresses of their own, half of them for users that exist: memory that they take; what they cost
users who log in meanwhile, each with a session of its own in TLS; and whether a secret is anywhere where it should not be.

Latency: users submit at a fixed rate while the same guesses go to the server, and while they go to a listener that only discards, by
turns; the server runs all the time. A submission counts from the moment at which it was due until its 250. Secrets: passwords that
were guessed and those of the users, as such and in base64, are looked for in all files of the server and in its memory, once all
sessions are closed."""

import base64
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time

from encryption import PASSWORD, Certificate, Client, add_users, trusting
from guesses import MARK, USERS
from measure import BenchError, CannotHere, Waits, resident_mib, wait_until
from results import Goal
from scenarios.robust_strangers import Discarder, by_turns
from sinks import SmtpSink, free_port

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guesses.py")
GUESSES = 100_000
TURNS = 6
# Over one connection.
EACH = 5
# A second, of all together.
RATE = 1_300
SUBMISSIONS_RATE = 50
THREADS = 10
MEMORY_MIB_MAX = 64
P99_LONGER = 1.1
SAMPLE_S = 0.05
CLOSED_S_MAX = 60
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TEXT = b"From: <%s>\r\nTo: <reader@sink.example>\r\nSubject: x\r\n\r\nx\r\n."


class Guesses:
    """Memory, p99 of others, secrets in files and memory."""

    name = "tls.guesses"
    alone = True
    entries = (".memory", ".p99", ".secrets", ".core")
    smoke = {"GUESSES": 200, "TURNS": 1, "RATE": 200, "EACH": 1, "SUBMISSIONS_RATE": 20}

    def run(self, bench):
        folder = os.path.join(bench.work, "tls-guesses")
        certificate, users, self.port = Certificate(folder), os.path.join(folder, "users"), free_port()
        add_users(bench, users, *USERS)
        sink, discarder = SmtpSink(bench.work, free_port()), Discarder(free_port())
        server = bench.stentor(
            sink, name="guesses", top='client_networks = ["192.0.2.1"]',
            listen=f'submission = ["127.0.0.1:{self.port}"]\nconnections_max = 10000',
            # Guesses in clear cost those who guess less.
            more=f'{certificate.for_stentor()}[auth]\nusers = "{users}"\nclear_networks = ["127.0.0.0/8"]\n',
        )
        limit = resource.getrlimit(resource.RLIMIT_CORE)
        if limit[1] == 0:
            raise CannotHere("core dumps are not allowed here: ulimit -Hc")
        # Inherited by the server, which is to see to it itself.
        resource.setrlimit(resource.RLIMIT_CORE, (limit[1], limit[1]))
        try:
            with bench.running(sink, discarder, server):
                self.turns(bench, server, discarder)
                self.secrets(bench, server)
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, limit)

    def turns(self, bench, server, discarder):
        seconds = GUESSES / TURNS / RATE
        # Warm up: every user logs in once.
        submit(self.port, 1)
        idle, self.peak = resident_mib(server.process.pid), 0
        ports = {server: self.port, discarder: discarder.port}
        rounds, full = by_turns(server, discarder, TURNS, lambda target, turn: self.beside(server, ports[target], turn, seconds))
        guessed = sum(ours["attack"]["guesses"] for ours, _ in full)
        added = self.peak - idle
        command = f"python3 bench/guesses.py PORT --guesses {GUESSES // TURNS} --rate {RATE} --each {EACH}"
        bench.results.record(
            f"{self.name}.memory", "MiB beyond idle", [[added, MEMORY_MIB_MAX]], f"{TURNS} times {command}", Goal(most=MEMORY_MIB_MAX),
            peer_name="the goal", idle_mib=idle, after_mib=resident_mib(server.process.pid), guesses=guessed,
        )
        bench.results.record(
            f"{self.name}.p99", "ms at p99", rounds, f"{SUBMISSIONS_RATE} submissions/s beside: {command}", Goal(ratio=1 / P99_LONGER),
            peer_name="the same guesses at a listener that discards", rounds_in_full=full,
        )

    def beside(self, server, port, turn, seconds):
        os.sync()
        part = GUESSES // TURNS
        argv = [sys.executable, PROGRAM, str(port), "--guesses", str(part), "--rate", str(RATE), "--each", str(EACH), "--first", str(turn * part)]
        attack = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        sampler = threading.Thread(target=self.sample, args=(server.process.pid, attack))
        sampler.start()
        try:
            found = submit(self.port, seconds)
        finally:
            output, errors = attack.communicate(timeout=300)
            sampler.join()
        if attack.returncode != 0:
            raise BenchError(f"the guessers: {errors[-500:]}")
        said = json.loads(output)
        replies = said["replies"]
        if port == self.port and (replies.get("235") or not replies.get("535")):
            raise BenchError(f"guesses were not answered as such: {said}")
        wait_until(lambda: server.status()["connections_in"] == 0, CLOSED_S_MAX, "all sessions closed")
        server.wait_drained()
        return {**found, "attack": said}

    def sample(self, pid, attack):
        while attack.poll() is None:
            self.peak = max(self.peak, resident_mib(pid))
            time.sleep(SAMPLE_S)

    def secrets(self, bench, server):
        time.sleep(Waits.settle)
        places, held = in_files(server.folder), in_memory(server.process.pid)
        bench.results.record(
            f"{self.name}.secrets", "places with a secret", [[len(places), 0]], "all files of the server, its logs among them", Goal(most=0),
            peer_name="the goal", places=places[:50],
        )
        # It has the memory whole, if there is one.
        in_core = len(held) if leaves_core(server.process.pid) else 0
        bench.results.record(
            f"{self.name}.core", "places with a secret", [[in_core, 0]], "kill -ABRT, with the limit of core dumps that the server was given unlimited",
            Goal(most=0), peer_name="the goal", in_memory=held[:50],
        )


def leaves_core(pid):
    """Kills the server, whose memory a core dump would have."""
    os.kill(pid, signal.SIGABRT)
    ends = []
    # It is still to be waited for by whoever started it.
    wait_until(lambda: ends.append(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) or ends[-1], CLOSED_S_MAX, "the server's end")
    for name in ("core", f"core.{pid}"):
        # Where the kernel puts it, unless told otherwise: our folder, which is the server's.
        if os.path.exists(name):
            os.remove(name)
    return ends[-1].si_code == os.CLD_DUMPED


def submit(port, seconds):
    """Users submit, each message in a session of its own, so many a second; ms."""
    took, errors, begin, context = {"session": [], "login": [], "message": [], "all": []}, [], time.monotonic() + 0.1, trusting()
    count = max(int(SUBMISSIONS_RATE * seconds), len(USERS))

    def one(thread):
        for number in range(thread, count, THREADS):
            due = begin + number / SUBMISSIONS_RATE
            time.sleep(max(0, due - time.monotonic()))
            user = USERS[number % len(USERS)]
            try:
                client = Client(port, context)
                begun = time.monotonic()
                client.login(user)
                took["session"].append(begun - due)
                logged_in = time.monotonic()
                took["login"].append(logged_in - begun)
                client.ask(b"MAIL FROM:<" + user.encode() + b">", b"250")
                client.ask(b"RCPT TO:<reader@sink.example>", b"250")
                client.ask(b"DATA", b"354")
                client.ask(TEXT % user.encode(), b"250")
                took["message"].append(time.monotonic() - logged_in)
                took["all"].append(time.monotonic() - due)
                client.ask(b"QUIT")
                client.close()
            except (OSError, BenchError) as error:
                errors.append(str(error))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise BenchError(f"{len(errors)} of {count} submissions failed: {errors[0]}")
    found = {f"{step}_p99": percentile(times, 99) for step, times in took.items() if step != "all"}
    return {"p50": percentile(took["all"], 50), "p99": percentile(took["all"], 99), "max": percentile(took["all"], 100), "submissions": count, **found}


def percentile(times, percent):
    """ms"""
    times = sorted(times)
    return round(times[min(len(times) - 1, len(times) * percent // 100)] * 1000, 3)


def forms():
    """What to look for: secrets as they are, and within anything in base64, where an octet may stand in three ways."""
    secrets = (MARK.encode(), PASSWORD.encode())
    encoded = (base64.b64encode(b"\0" * shift + secret)[(0, 2, 3)[shift] : -4] for secret in secrets for shift in range(3))
    return [*secrets, *encoded]


def found(octets, forms_of_secrets):
    return [form.decode() for form in forms_of_secrets for _ in range(octets.count(form))]


def in_files(folder):
    places, looked_for = [], forms()
    for base, _, names in os.walk(folder):
        for path in (os.path.join(base, name) for name in names):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    places += [f"{os.path.relpath(path, folder)}: {form}" for form in found(file.read(), looked_for)]
    return places


def in_memory(pid):
    places, looked_for = [], forms()
    process = f"/proc/{pid}"
    with open(f"{process}/maps") as maps, open(f"{process}/mem", "rb") as memory, open(f"{process}/pagemap", "rb") as pages:
        for extent, rights, *rest in (line.split() for line in maps):
            if not rights.startswith("rw"):
                continue
            for begin, end in present(pages, *(int(number, 16) for number in extent.split("-"))):
                memory.seek(begin)
                places += [f"{rest[3] if len(rest) > 3 else 'heap'}: {form}" for form in found(memory.read(end - begin), looked_for)]
    return places


def present(pages, begin, end):
    """Runs of pages that are there: an allocator reserves much more than it uses."""
    pages.seek(begin // PAGE_BYTES * 8)
    run = None
    for number, (entry,) in enumerate(struct.iter_unpack("Q", pages.read((end - begin) // PAGE_BYTES * 8))):
        is_there = entry >> 62 != 0
        if is_there and run is None:
            run = begin + number * PAGE_BYTES
        elif not is_there and run is not None:
            yield run, begin + number * PAGE_BYTES
            run = None
    if run is not None:
        yield run, end
