"""Handshakes: how many `openssl s_time -new` gets a second from our smtps listener, beside `openssl s_server` with the same certificate; and
how many connections to hosts that we have been to before resume their session.

s_time makes one connection after the other, each with a full handshake of TLS 1.3, and closes it; as many run at a time as there are
processors. s_server has one process, and so each of our servers gets its clients by turns."""

import concurrent.futures
import os
import re
import time

from contestants.base import Contestant
from encryption import Certificate, TlsSink, add_users, metrics, run_tool
from measure import BenchError
from results import Goal
from sinks import LabInternet, free_port
from sources import SENDER, message, post

# Of keys.
KINDS = ("ecdsa", "rsa")
SECONDS = 5
CLIENTS = os.cpu_count()
RATIO_TO_OPENSSL = 0.8
SITES = 20
# To each site; each over a connection of its own.
MESSAGES = 20
RESUMED_SHARE = 0.95
DRAIN_S_MAX = 60


class OpensslServer(Contestant):
    """`openssl s_server`; it answers each connection with TLS alone."""

    def __init__(self, work, certificate, name):
        self.name, self.certificate = name, certificate
        super().__init__(work, 0)

    def launch(self):
        certificate = ["-cert", self.certificate.chain, "-key", self.certificate.key]
        # -www: what a client sends is read and not shown, and standard input is not.
        self.process = self.spawn(["openssl", "s_server", "-accept", f"127.0.0.1:{self.port}", *certificate, "-www"], "s_server.out")

    def shut_down(self):
        if self.process:
            self.process.terminate()
            self.process.wait(10)

    def queue_is_empty(self):
        return True

    def _listens(self):
        if not self.group.pids():
            raise BenchError(f"openssl s_server has exited, see {self.folder}")
        with open("/proc/net/tcp") as sockets:
            return any(line.split()[1].endswith(f":{self.port:04X}") and line.split()[3] == "0A" for line in sockets.readlines()[1:])


class Handshakes:
    """Accepted per second, with ECDSA and RSA; sessions with hosts that are resumed."""

    name = "tls.handshakes"
    entries = (".ecdsa", ".rsa", ".resumed")
    smoke = {"SECONDS": 1, "SITES": 3, "MESSAGES": 4, "KINDS": ("ecdsa",), "entries": (".ecdsa", ".resumed")}

    def run(self, bench):
        self.bench = bench
        for key in KINDS:
            self.accepted(key)
        self.resumed()

    def accepted(self, key):
        bench = self.bench
        folder = os.path.join(bench.work, "tls-handshakes")
        certificate, users, port = Certificate(folder, key=key), os.path.join(folder, "users"), free_port()
        add_users(bench, users, "ann@source.example")
        sink = TlsSink(bench, "tls-handshakes")
        more = f'{certificate.for_stentor()}[auth]\nusers = "{users}"\n'
        ours = bench.stentor(sink, name=f"handshakes-{key}", listen=f'smtps = ["127.0.0.1:{port}"]', more=more)
        openssl = OpensslServer(bench.work, certificate, f"s_server-{key}")
        ports = {ours: port, openssl: openssl.port}
        with bench.running(ours, openssl):
            rounds = bench.alternate([ours, openssl], lambda contestant: once(contestant, ports[contestant]))
        bench.results.record(
            f"{self.name}.{key}", "handshakes/s", [[one["rate"], other["rate"]] for one, other in rounds],
            f"{CLIENTS} times openssl s_time -new -tls1_3 -time {SECONDS}", Goal(ratio=RATIO_TO_OPENSSL), more_is_better=True,
            peer_name="openssl s_server", cpu_ms_per_handshake=[[round(one["cpu"], 4), round(other["cpu"], 4)] for one, other in rounds],
        )

    def resumed(self):
        """Messages one by one, each of which finds no connection to its site any more."""
        bench = self.bench
        scenario = os.path.join(bench.work, "tls-resumed.toml")
        with open(scenario, "w") as file:
            file.writelines(f"[[site]]\nname = 'site{n}.example'\nbehaviour = {{ tls = 'good' }}\n" for n in range(SITES))
        sink = LabInternet(bench.work, free_port(), bench.binary, scenario)
        server = bench.stentor(sink, name="resumed", routes=sink.routes(), http=free_port())
        server.delivery = "idle_ms = 0"
        with bench.running(sink, server):
            for turn in range(MESSAGES):
                for site in range(SITES):
                    post(server.port, SENDER, f"reader@site{site}.example", message(1000, f"resumed-{turn}-{site}"))
                sink.wait((turn + 1) * SITES, DRAIN_S_MAX)
                server.wait_drained()
            shown, connections = metrics(server.http), sink.counts()["connections"]
        secured = sum(value for name, value in shown.items() if name.startswith("stentor_host_sessions_total") and "proven" in name)
        if connections != SITES * MESSAGES or secured != connections:
            raise BenchError(f"{SITES * MESSAGES} messages went over {connections} connections, {secured} of them in TLS")
        repeated = secured - SITES
        bench.results.record(
            f"{self.name}.resumed", "of repeated sessions", [[shown["stentor_host_sessions_resumed_total"] / repeated, RESUMED_SHARE]],
            f"{MESSAGES} messages to each of {SITES} sites, idle_ms = 0", Goal(ratio=1), more_is_better=True, peer_name="the goal",
            sessions=secured, resumed=shown["stentor_host_sessions_resumed_total"],
        )


def once(contestant, port):
    cpu, begin = contestant.group.cpu_s(), time.monotonic()
    argv = ["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-new", "-tls1_3", "-time", str(SECONDS)]
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        said = list(pool.map(lambda _: run_tool(argv), range(CLIENTS)))
    found = [re.search(r"(\d+) connections in (\d+) real seconds", text) for text in said]
    if not all(found) or not all(int(one[1]) for one in found):
        raise BenchError(f"openssl s_time made no connection to {contestant.name}: {said[0][-300:]}")
    connections = sum(int(one[1]) for one in found)
    return {"rate": connections / (time.monotonic() - begin), "cpu": (contestant.group.cpu_s() - cpu) / connections * 1000}
