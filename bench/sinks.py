"""Where both contestants deliver: one mail host on loopback that counts.

LabInternet is a whole simulated Internet instead. SmtpSink is Postfix's smtp-sink. It prints its counters at each message into a file, whose end is polled, so that the time
of the last message is exact to the poll (2 ms) and costs the same for everybody. LabSink is `stentor-kit lab sink`; it counts
recipients, which smtp-sink cannot, and prints every 2 ms.

Failure: a sink that does not listen or dies is a BenchError.
"""

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading

from measure import BenchError, kit, wait_until

TAIL_BYTES = 4096
LAB_REPORT_S = 0.002
SAME_NAMES = ("transactions", "connections", "duplicates")


class Sink:
    """A counting sink; `copies` is what `wait` waits for."""

    def __init__(self, work, port, host="127.0.0.1"):
        self.host, self.port = host, port
        self.output_path = os.path.join(work, f"sink-{port}.out")
        self.process = None

    def argv(self):
        raise NotImplementedError

    def start(self):
        with open(self.output_path, "w") as output, open(self.output_path + ".err", "w") as errors:
            self.process = subprocess.Popen(self.argv(), stdout=output, stderr=errors)
        wait_until(self._listens, 10, f"{self.argv()[0]} on port {self.port}")
        return self

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT if isinstance(self, LabSink) else signal.SIGTERM)
            self.process.wait(10)

    def counts(self):
        """{copies, transactions, connections, duplicates} so far; a copy is a message to one recipient."""
        raise NotImplementedError

    def wait(self, copies, timeout_s):
        """Time at which so many copies had come since the start."""

        def complete():
            if self.process.poll() is not None:
                raise BenchError(f"the sink has died, see {self.output_path}.err")
            return self.counts()["copies"] >= copies

        return wait_until(complete, timeout_s, f"{copies} copies at the sink ({self.counts()} there)")

    def _listens(self):
        if self.process.poll() is not None:
            raise BenchError(f"{' '.join(self.argv())} has exited, see {self.output_path}.err")
        try:
            socket.create_connection((self.host, self.port), 1).close()
            return True
        except OSError:
            return False

    def _tail(self):
        with open(self.output_path, "rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - TAIL_BYTES))
            return output.read().decode("ascii", "replace")


class ThreadedSink:
    """A sink in this process: `serve` gets each client of `port`, on a thread of its own."""

    def start(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def stop(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()


class SmtpSink(Sink):
    """smtp-sink; a message counts as one copy, so it suits one recipient a message."""

    def argv(self):
        # -u: it refuses to stay root. -m: all that may come at once.
        return ["smtp-sink", "-u", "postfix", "-c", "-m", "1000", f"127.0.0.1:{self.port}", "2000"]

    def counts(self):
        found = re.findall(r"sess=(\d+) +quit=(\d+) +mesg=(\d+)\r", self._tail())
        connections, _, messages = (int(n) for n in found[-1]) if found else (0, 0, 0)
        return {"copies": messages, "transactions": messages, "connections": connections, "duplicates": 0}


class LabSink(Sink):
    """`stentor-kit lab sink`, counting only."""

    def __init__(self, work, port, binary, record="counters", addresses="127.0.0.1"):
        """`addresses`: one, or FIRST-LAST, all on this port."""
        super().__init__(work, port, addresses.split("-")[0])
        self.binary = binary
        self.addresses = addresses
        self.record = record

    def argv(self):
        address = f"{self.addresses}:{self.port}"
        lines = ["--json", "--every", str(LAB_REPORT_S)]
        return [kit(self.binary), "lab", "sink", address, "--record", self.record, *lines]

    def counts(self):
        lines = [line for line in self._tail().split("\n")[:-1] if line.startswith("{") and line.endswith("}")]
        stats = json.loads(lines[-1]) if lines else {}
        return {"copies": stats.get("recipients", 0), **{name: stats.get(name, 0) for name in SAME_NAMES}}


class LabInternet(LabSink):
    """`stentor-kit lab run`: all hosts of a scenario file, on one port."""

    def __init__(self, work, port, binary, scenario, record="compact"):
        super().__init__(work, port, binary, record)
        self.scenario = scenario

    def argv(self):
        ports = ["--smtp-port", str(self.port), "--dns-port", "0"]
        argv = [kit(self.binary), "lab", "run", self.scenario, *ports]
        return [*argv, "--record", self.record, "--every", str(LAB_REPORT_S)]

    def routes(self):
        """{domain: "address:port"} of each domain's first host."""
        routes = {}
        for line in self._lab("hosts", self.scenario).splitlines():
            domain, _, address = line.split()
            routes.setdefault(domain, f"{address}:{self.port}")
        return routes

    def subscribers(self, count, reachable=False):
        return self._lab("subscribers", self.scenario, str(count), *(["--reachable"] if reachable else [])).split()

    def _lab(self, *arguments):
        done = subprocess.run([kit(self.binary), "lab", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"stentor-kit lab {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def _listens(self):
        if self.process.poll() is not None:
            raise BenchError(f"the lab has exited, see {self.output_path}.err")
        # Its first line comes when everything listens.
        return os.path.getsize(self.output_path) > 0


def free_port():
    """A port that nobody listens on now, below those that the system gives to connections: they might take it meanwhile."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
