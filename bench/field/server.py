"""A Stentor in a folder of its own, and a client that speaks to it line by line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from measure import BenchError

START_S_MAX = 20
STOP_S_MAX = 30
REPLY_S_MAX = 30
# Clocks short enough for a case to see a second try.
RETRY = """
[retry]
host_min_s = 0.5
host_max_s = 1
site_min_s = 0.5
site_max_s = 1
mailbox_min_s = 0.5
mailbox_max_s = 1
recipient_min_s = 0.5
recipient_max_s = 1
bounce_gather_ms = 100
"""

CONFIGURATION = """\
hostname = "{hostname}"
client_networks = ["127.0.0.1/32"]
[listen]
smtp = ["127.0.0.1:{port}"]
{listen}
[http]
{http}
[dns]
loopback_allowed = true
timeout_ms = 1000
servers = {name_servers}
[log]
attempts = "mail.log"
flush = "line"
[delivery]
smtp_port = {host_port}
"""


def wait_for(condition, seconds):
    """The condition's first true value, or its last one when the time is over."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Runs until the `with` ends. `sections`: TOML behind the usual sections; `files`: {name: text} beside the configuration; `http`,
    `listen`: keys of these sections."""

    def __init__(
        self, binary, names, host_port=25, sections="", files=None, hostname="mx.stentor.test", retry=RETRY, start=True, http="listen = []", listen="",
    ):
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="field-")
        self.port = free_port()
        servers = names if isinstance(names, list) else [names]
        values = {"hostname": hostname, "port": self.port, "host_port": host_port or self.port, "http": http, "listen": listen}
        text = CONFIGURATION.format(name_servers=json.dumps(servers), **values) + retry + sections
        for name, content in {"stentor.toml": text, **(files or {})}.items():
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(content)
        self.process = None
        self.starts = start

    def __enter__(self):
        if self.starts:
            errors = open(os.path.join(self.folder, "stderr"), "wb")
            argv = [self.binary, "serve", "--config", "stentor.toml"]
            self.process = subprocess.Popen(argv, cwd=self.folder, stdout=errors, stderr=errors, stdin=subprocess.DEVNULL)
            if not wait_for(lambda: self.process.poll() is not None or self._listens(), START_S_MAX) or self.process.poll() is not None:
                raise BenchError(f"no start: {self.read('stderr')}")
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_S_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill_and_start(self):
        """kill -9, and a new start with the same data."""
        self.process.kill()
        self.process.wait(STOP_S_MAX)
        self.__enter__()

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def read(self, name):
        try:
            with open(os.path.join(self.folder, name), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def command(self, *words):
        """Exit code and all that a command prints."""
        argv = [self.binary, *words, "--config", "stentor.toml"]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def log_line(self, *words, seconds=10):
        """The first line of the log with all these words."""
        lines = lambda: [line for line in self.read("mail.log").splitlines() if all(word in line for word in words)]
        found = wait_for(lines, seconds)
        return found[0] if found else None

    def client(self, source="127.0.0.1", ehlo="client.test"):
        return Client(self.port, source, ehlo)

    def send(self, sender, recipients, content, source="127.0.0.1", mail="", rcpt=""):
        """The reply after the content, or the first refusal."""
        with self.client(source) as client:
            lines = [f"MAIL FROM:<{sender}>{mail}", *(f"RCPT TO:<{one}>{rcpt}" for one in recipients)]
            for line in lines:
                reply = client.ask(line)
                if reply[0] != "2":
                    return reply
            return client.data(content)


class Client:
    def __init__(self, port, source, ehlo):
        self.socket = socket.create_connection(("127.0.0.1", port), REPLY_S_MAX, source_address=(source, 0))
        # Else the final dot waits for the server's delayed ACK, 40 ms.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.greeting = self._reply()
        if ehlo:
            self.ask(f"EHLO {ehlo}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _reply(self):
        text = b""
        while line := self.file.readline():
            text += line
            if line[3:4] != b"-":
                break
        return text.decode("utf-8", "replace").rstrip() or "closed"

    def ask(self, line):
        self.socket.sendall((line if isinstance(line, bytes) else line.encode()) + b"\r\n")
        return self._reply()

    def data(self, content):
        reply = self.ask("DATA")
        if reply[0] != "3":
            return reply
        octets = content if isinstance(content, bytes) else content.encode()
        stuffed = b"".join(b"." + line if line.startswith(b".") else line for line in octets.splitlines(keepends=True))
        self.socket.sendall(stuffed)
        return self.ask(".")


def message(subject, header="", body="text\r\n"):
    return (
        f"From: Me <me@home.test>\r\nTo: ann@one.test\r\nSubject: {subject}\r\nDate: Sat, 28 Nov 2026 12:00:00 +0000\r\n"
        f"Message-ID: <{abs(hash(subject))}@home.test>\r\n{header}\r\n{body}"
    )
