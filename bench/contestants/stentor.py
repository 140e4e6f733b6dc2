"""Stentor as `cargo build --release` makes it and as it is shipped: log on, journal synced, every key at its default
except those that the comparison needs: ports, the route to the sink, and as many recipients in a transaction as Postfix
puts there.
"""

import json
import os
import signal
import subprocess
import time

from contestants.base import Contestant
from measure import BenchError, wait_until

# Postfix's default_destination_recipient_limit, for equal transactions.
RECIPIENTS_PER_TRANSACTION = 50

CONFIGURATION = """\
hostname = "stentor.example"
data_dir = "data"
{top}
[http]
listen = {http}
{http_keys}
[listen]
smtp = [{listener}]
{listen}

[routes]
"*" = ["127.0.0.1:{sink_port}"]
{routes}
[delivery]
recipients_per_transaction_max = {recipients}
{delivery}

[log]
{log}
[history]
keep_days = {keep_days}
"""

# What `[log]` says: nothing at all, lines that share writes (as it is shipped), or a write for each line.
LOGS = {
    "off": 'attempts = "off"',
    "buffer": 'attempts = "attempts.log"',
    "line": 'attempts = "attempts.log"\nflush = "line"',
}

LIST = """
[lists.news]
address = "news@lists.example"
subscribers = "{subscribers}"
owner = "owner@elsewhere.example"
{list_keys}
"""

JOURNAL = """
[journal]
commit_delay_us = {commit_delay_us}
"""


class Stentor(Contestant):
    """The server that this repository builds."""

    name = "stentor"
    log_name = "attempts.log"

    def __init__(
        self, binary, *args, commit_delay_us=None, dead_route=None, name=None, log="buffer", history=True, top="", listen="", more="",
        connections=None, http=None, http_keys="", list_keys="", recipients=RECIPIENTS_PER_TRANSACTION, **kwargs,
    ):
        self.name = name or self.name
        super().__init__(*args, **kwargs)
        self.binary = binary
        self.commit_delay_us = commit_delay_us
        self.log, self.history = log, history
        # The port of the console, if there is one.
        self.http = http
        # Further keys of [http] and of the list; recipients in a transaction.
        self.http_keys, self.list_keys, self.recipients = http_keys, list_keys, recipients
        # Where it listens, as an entry of the configuration.
        self.listener = '"127.0.0.1:{port}"'
        # Keys of no section, and of [listen].
        self.top, self.listen = top, listen
        # Most connections out at a time, if not the default.
        self.delivery = f"connections_max = {connections}" if connections else ""
        # Further sections.
        self.more = more
        # A domain whose only host refuses connections: its mail stays.
        self.dead_route = dead_route
        self.configuration = os.path.join(self.folder, "stentor.toml")

    def launch(self):
        routes = dict(self.routes)
        if self.dead_route:
            routes[self.dead_route] = "127.0.0.1:9"
        lines = "".join(f'"{domain}" = ["{host}"]\n' for domain, host in routes.items())
        values = {"port": self.port, "sink_port": self.sink_port, "routes": lines}
        values["http"] = json.dumps([f"127.0.0.1:{self.http}"] if self.http else [])
        values |= {"top": self.top, "listen": self.listen, "listener": self.listener.format(port=self.port)}
        values |= {"delivery": self.delivery, "log": LOGS[self.log], "keep_days": 30 if self.history else 0}
        values["http_keys"] = self.http_keys
        text = CONFIGURATION.format(recipients=self.recipients, **values)
        if self.subscribers:
            text += LIST.format(subscribers=self.subscribers, list_keys=self.list_keys)
        if self.commit_delay_us is not None:
            text += JOURNAL.format(commit_delay_us=self.commit_delay_us)
        text += self.more
        with open(self.configuration, "w") as file:
            file.write(text)
        self.process = self.spawn([self.binary, "serve", "--config", self.configuration], "stderr")

    def shut_down(self):
        if self.process is None or self.process.poll() is not None:
            return
        for pid in self.group.pids():
            # What counts the syncs ends with the server.
            if not self.sync_count or pid != self.process.pid:
                os.kill(pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.crash()

    def crash(self):
        """kill -9, as a power cut is to a process."""
        self.process.kill()
        self.process.wait(30)

    def restart(self):
        """After a crash: the same data, in a new process. Returns once it greets."""
        self.launch()
        wait_until(self._listens, 120, f"{self.name} listening again")

    def status(self):
        """The server's own counters (docs/operate/control-protocol.md, `status`)."""
        argv = [self.binary, "status", "--config", self.configuration, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return json.loads(done.stdout.splitlines()[0])["data"]

    def operate(self, *words):
        """A command of the operator."""
        argv = [self.binary, *words, "--config", self.configuration]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")

    def queue_is_empty(self):
        return self.status()["recipients"]["pending"] == 0

    def wait_pending(self, recipients, timeout_s):
        """Until no more than so many are pending."""
        what = f"{self.name}: {recipients} recipients pending"
        wait_until(lambda: self.status()["recipients"]["pending"] <= recipients, timeout_s, what)

    def wait_settled(self, timeout_s, quiet_s=1.5):
        """Until the journal has written nothing for a while: checkpoints and cleaning are through."""
        seen = [self.status()["journal_bytes"], time.monotonic()]

        def is_quiet():
            time.sleep(0.1)
            written = self.status()["journal_bytes"]
            if written != seen[0]:
                seen[:] = [written, time.monotonic()]
            return time.monotonic() - seen[1] >= quiet_s

        wait_until(is_quiet, timeout_s, f"{self.name}'s journal quiet")
