"""The server's certificate is replaced again and again while 200 sessions are open, a third each between commands, within a transaction and
within the data of a message, and while new ones come all the time. All of them have to end as if nothing had happened."""

import os
import threading
import time

from encryption import Certificate, Client, trusting
from measure import BenchError, wait_until
from results import Goal
from sinks import SmtpSink, free_port
from sources import RECIPIENT, SENDER

SESSIONS = 200
REPLACED = 5
# A new one is taken up within seconds, once its files have stopped changing.
TAKEN_UP_S_MAX = 30
DRAIN_S_MAX = 60
HEADER = b"From: <sender@source.example>\r\nSubject: x\r\n\r\n"


class Replaced:
    """Sessions that a new certificate has cost."""

    name = "tls.replaced"
    entries = ("",)
    smoke = {"SESSIONS": 30, "REPLACED": 1}

    def run(self, bench):
        self.context, self.faults, self.made, self.is_over = trusting(), [], 0, False
        folder = os.path.join(bench.work, "tls-replaced")
        certificate = Certificate(folder)
        sink = SmtpSink(bench.work, free_port())
        server = bench.stentor(sink, name="replaced", more=certificate.for_stentor())
        with bench.running(sink, server):
            sessions = [Session(server.port, self.context, number % 3) for number in range(SESSIONS)]
            newcomers = threading.Thread(target=self.newcomers, args=(server.port,))
            newcomers.start()
            try:
                for _ in range(REPLACED):
                    self.replace(server, certificate, folder)
                    for session in sessions:
                        self.tried(session.go_on)
            finally:
                self.is_over = True
                newcomers.join()
            for session in sessions:
                self.tried(session.finish)
            # A message of each session; those of newcomers say nothing but QUIT.
            sink.wait(SESSIONS - len(self.faults), DRAIN_S_MAX)
        bench.results.record(
            self.name, "sessions dropped", [[len(self.faults), 0]], f"{REPLACED} certificates, {SESSIONS} sessions open, {self.made} new ones",
            Goal(most=0), peer_name="the goal", faults=self.faults[:20], new_sessions=self.made,
        )

    def tried(self, what):
        try:
            what()
        except (OSError, BenchError) as error:
            self.faults.append(f"{what.__qualname__}: {error}")

    def replace(self, server, certificate, folder):
        """By two renames, as whoever renews does it; until a new session is shown the new one."""
        new = Certificate(os.path.join(folder, "new"))
        expected = new.der()
        for old, fresh in ((certificate.chain, new.chain), (certificate.key, new.key)):
            os.rename(fresh, old)

        def is_shown():
            session = Client(server.port, self.context)
            shown = session.socket.getpeercert(binary_form=True)
            session.close()
            time.sleep(0.05)
            return shown == expected

        wait_until(is_shown, TAKEN_UP_S_MAX, "the new certificate in force")

    def newcomers(self, port):
        while not self.is_over:
            self.tried(lambda: Client(port, self.context).ask(b"QUIT", b"221"))
            self.made += 1
            time.sleep(0.01)


class Session(Client):
    """`stage`: 0 between commands, 1 within a transaction, 2 within the data."""

    def __init__(self, port, context, stage):
        super().__init__(port, context)
        self.stage = stage
        if stage > 0:
            self.envelope()
        if stage > 1:
            self.ask(b"DATA", b"354")
            self.socket.sendall(HEADER)

    def envelope(self):
        self.ask(b"MAIL FROM:<" + SENDER.encode() + b">", b"250")
        self.ask(b"RCPT TO:<" + RECIPIENT.encode() + b">", b"250")

    def go_on(self):
        if self.stage == 2:
            self.socket.sendall(b"another line\r\n")
        else:
            self.ask(b"NOOP", b"250")

    def finish(self):
        if self.stage == 0:
            self.envelope()
        if self.stage < 2:
            self.ask(b"DATA", b"354")
            self.socket.sendall(HEADER)
        self.ask(b"the end\r\n.", b"250")
        self.ask(b"QUIT", b"221")
        self.close()
