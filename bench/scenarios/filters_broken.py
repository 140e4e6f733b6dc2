"""Milters that hang, are slow without end, die or send garbage at the end of some messages: those get the default action within the
milter's time-out, all mail comes, and other sessions go on at full speed."""

import contextlib
import smtplib
import threading
import time

from measure import BenchError
from results import Goal
from sinks import SmtpSink, free_port
from sources import command_text, smtp_source

from scenarios.filters_relay import QuickMilter

FAULTS = ("hangs", "slow", "dies", "garbage")
SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096
BAD_SESSIONS = 5
TIMEOUT_S = 2
WAIT_S_MAX = 300
BAD = "Subject: bad\r\n\r\nx\r\n"


class BadSessions:
    """Clients whose messages the milter fails on, one message after the other."""

    def __init__(self, port):
        self.port, self.waits, self.errors, self.is_over = port, [], [], threading.Event()

    def __enter__(self):
        self.threads = [threading.Thread(target=self.send) for _ in range(BAD_SESSIONS)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def send(self):
        while not self.is_over.is_set():
            try:
                with smtplib.SMTP("127.0.0.1", self.port, timeout=120) as smtp:
                    smtp.ehlo()
                    smtp.mail("bad@source.example")
                    smtp.rcpt("to@sink.example")
                    begin = time.monotonic()
                    code, words = smtp.data(BAD)
                    self.waits.append(time.monotonic() - begin)
                    if code != 250:
                        self.errors.append(f"{code} {words}")
            except (OSError, smtplib.SMTPException) as error:
                self.errors.append(repr(error))


class Broken:
    """Other sessions' messages per second beside sessions that a milter fails, and without those."""

    name = "filters.broken"
    entries = (".others", ".late")
    smoke = {"MESSAGES": 200, "FAULTS": ("hangs", "garbage")}

    def run(self, bench):
        rounds, late, counts = [], 0, {}
        for fault in FAULTS:
            sink, milter = SmtpSink(bench.work, free_port()), QuickMilter(bench, fault)
            more = milter.for_stentor() + f'default_action = "accept"\ncontent_timeout_s = {TIMEOUT_S}\n'
            server = bench.stentor(sink, name=f"milter-{fault}", more=more)
            with bench.running(sink, milter, server):
                alone, _ = self.once(server, sink, is_bad=False)
                beside, bad = self.once(server, sink, is_bad=True)
            if bad.errors or not bad.waits:
                raise BenchError(f"a milter that {fault}: {bad.errors[:3] or 'no message was sent'}")
            print(f"    {fault}: {beside:.0f} messages/s beside, {alone:.0f} alone; {len(bad.waits)} waited up to {max(bad.waits):.2f} s", flush=True)
            rounds.append([beside, alone])
            late = max(late, max(bad.waits) - TIMEOUT_S)
            counts[fault] = len(bad.waits)
        command = f"{command_text(SESSIONS, MESSAGES, LENGTH, True)} beside {BAD_SESSIONS} sessions whose milter fails"
        bench.results.record(
            self.name + ".others", "messages/s", rounds, command, Goal(ratio=0.9), more_is_better=True, peer_name="without those", failed=counts,
        )
        bench.results.record(self.name + ".late", "s beyond the time-out", [[max(late, 0), 0]], command, Goal(most=1), peer_name="the goal")

    @staticmethod
    def once(server, sink, is_bad):
        before, bad = sink.counts()["copies"], BadSessions(server.port)
        with bad if is_bad else contextlib.nullcontext():
            seconds = smtp_source(server.port, SESSIONS, MESSAGES, LENGTH, True)
        sink.wait(before + MESSAGES + len(bad.waits), WAIT_S_MAX)
        return MESSAGES / seconds, bad
