"""Idle sessions in TLS: what each adds to the server's resident memory, beside as many in clear.

A session has had its handshake and two EHLOs, and says nothing more. The client keeps the sockets alone: what openssl would hold for
10,000 sessions is not needed to be idle. Those of a sample are kept whole, and asked at the end; no other may have been closed."""

import resource
import socket
import time

from encryption import Certificate, Client, trusting
from measure import BenchError, CannotHere, Waits, resident_mib, wait_until
from results import Goal
from sinks import SmtpSink, free_port

SESSIONS = 10_000
# Of these every so manieth is asked at the end.
SAMPLE = 100
# Before it is measured, so many have come and gone.
WARM_UP = 200
KIB_MAX = 40
DROP_S_MAX = 30
# Descriptors for everything else.
OTHERS = 200


class Idle:
    """Resident memory of an idle session in TLS."""

    name = "tls.idle"
    entries = ("",)
    smoke = {"SESSIONS": 300, "WARM_UP": 20}

    def run(self, bench):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < SESSIONS + OTHERS:
            raise CannotHere(f"{SESSIONS} sessions need as many descriptors, and {hard} are allowed: ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        sink = SmtpSink(bench.work, free_port())
        certificate = Certificate(f"{bench.work}/tls-idle")
        limits = f"connections_max = {SESSIONS + 100}\nconnections_per_client_max = {SESSIONS + 100}"
        rounds, clear = [], []
        for _ in range(1 if bench.smoke else min(bench.rounds, 3)):
            server = bench.stentor(sink, name="idle", listen=limits, more=certificate.for_stentor())
            with bench.running(sink, server):
                rounds.append([self.each(server, Secured), KIB_MAX])
            server = bench.stentor(sink, name="idle-clear", listen=limits)
            with bench.running(sink, server):
                clear.append(self.each(server, Clear))
            print(f"    {rounds[-1][0]:.1f} KiB in TLS, {clear[-1]:.1f} KiB in clear", flush=True)
        bench.results.record(
            self.name, "KiB each", rounds, f"{SESSIONS} sessions after STARTTLS and EHLO", Goal(most=KIB_MAX), peer_name="the goal",
            in_clear_kib=[round(kib, 2) for kib in clear],
        )

    def each(self, server, kind):
        """KiB that a session adds."""
        pid = server.process.pid
        for session in [kind(server.port) for _ in range(WARM_UP)]:
            session.close()
        wait_until(lambda: server.status()["connections_in"] == 0, DROP_S_MAX, "no session any more")
        time.sleep(Waits.memory)
        before = resident_mib(pid)
        asked, held = [], []
        try:
            for number in range(SESSIONS):
                session = kind(server.port)
                (asked if number % SAMPLE == 0 else held).append(session if number % SAMPLE == 0 else session.bare())
            time.sleep(Waits.memory)
            added = (resident_mib(pid) - before) * 1024
            if (there := server.status()["connections_in"]) != SESSIONS:
                raise BenchError(f"{there} of {SESSIONS} sessions are there")
            for session in asked:
                session.noop()
            if gone := sum(map(is_closed, held)):
                raise BenchError(f"{gone} sessions were closed")
            return added / SESSIONS
        finally:
            for session in (*asked, *held):
                session.close()


class Secured(Client):
    """A session in TLS."""

    context = trusting()

    def __init__(self, port):
        super().__init__(port, self.context)

    def bare(self):
        """Its socket, without what it takes to say anything over it."""
        self.replies.close()
        return socket.socket(fileno=self.socket.detach())

    def noop(self):
        self.ask(b"NOOP", b"250")


class Clear(Secured):
    """A session in clear, with as many EHLOs."""

    def __init__(self, port):
        self.name = b"client.example"
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.replies = self.socket.makefile("rb")
        self.reply(b"220")
        for _ in range(2):
            self.ask(b"EHLO " + self.name, b"250")


def is_closed(held):
    """Something has come since, which can be the end alone."""
    try:
        held.setblocking(False)
        held.recv(1, socket.MSG_PEEK)
        return True
    except BlockingIOError:
        return False
