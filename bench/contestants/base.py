"""What a scenario may ask of a contestant, whichever it is.

States: made -> started (listens) -> stopped. `stop` may be called in each of them, and more than once.
"""

import os
import shutil
import socket
import subprocess

from measure import BenchError, Group, SyncCount, wait_until
from sinks import free_port

START_TIMEOUT_S = 60


class Contestant:
    """A server under test."""

    name = ""
    log_name = ""

    def __init__(self, work, sink_port, subscribers=None, counted=False, routes=None):
        """`routes`: {domain: "address:port"}; everything else goes to the sink."""
        self.folder = os.path.join(work, self.name)
        self.sink_port = sink_port
        self.subscribers = subscribers
        self.routes = routes or {}
        self.port = free_port()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.sync_count = SyncCount(os.path.join(self.folder, "syncs")) if counted else None
        self.process = None
        self.group = Group(self.name, self.folder)

    def start(self):
        try:
            self.launch()
            wait_until(self._listens, START_TIMEOUT_S, f"{self.name} listening")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        if self.group:
            try:
                self.shut_down()
            finally:
                self.group.remove()
                self.group = None

    def synced_bytes(self):
        """Octets sent to the disk by syncs so far: queue or journal. The log, which nobody syncs, is left out."""
        return self.group.written_bytes() - (0 if self.group.version_1 else self.log_bytes())

    def log_bytes(self):
        return os.path.getsize(os.path.join(self.folder, self.log_name))

    def spawn(self, argv, output_name):
        """Starts a process in the group; output goes to a file."""
        argv = self.sync_count.command(argv) if self.sync_count else argv
        with open(os.path.join(self.folder, output_name), "a") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            return subprocess.Popen(argv, preexec_fn=self.group.enter, **streams)

    def launch(self):
        raise NotImplementedError

    def shut_down(self):
        raise NotImplementedError

    def queue_is_empty(self):
        raise NotImplementedError

    def wait_drained(self, timeout_s=120):
        wait_until(self.queue_is_empty, timeout_s, f"{self.name}'s queue empty")

    def _listens(self):
        if not self.group.pids():
            raise BenchError(f"{self.name} has exited, see {self.folder}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as client:
                return client.recv(4).startswith(b"220")
        except OSError:
            return False
