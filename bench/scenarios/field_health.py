"""Things that can be down: the seconds until `status`, `/readyz`, the console, `doctor` and the alert say so; and the
same server under traffic while all is well, when nothing may be said.

Each thing is broken in a running server and mended again, one after the other, beside a client that goes on. `value` is
the longest time of all views. The alert is the log's line."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

from contestants.stentor import Stentor
from fakes import Dns, Dovecot, Listener, Milter, Policy, Socketmap
from measure import BenchError, wait_until
from results import Goal
from scenarios.robust_full_disk import hand_in
from sinks import LabSink, free_port

GOAL_S = 15.0
QUIET_S = 3600
PAUSE_S = 0.5
POLL_S = 0.2
SAID_S_MAX = 60
THINGS = (
    "milter", "policy_service", "table_service", "dns", "recipients_deferred", "messages_deferred", "table_file", "users_file",
    "certificate_file", "certificate", "log", "webhook", "connections_full", "submission_folder", "dovecot",
)
CONTENT = b"Subject: health\r\n\r\nx\r\n"


class Health:
    """15 things that can be down."""

    name = "field.health"
    entries = ("", ".quiet")
    smoke = {"THINGS": ("users_file",), "QUIET_S": 1}

    def run(self, bench):
        world = World(bench)
        services = world.services
        with bench.running(world.sink, *services.values(), world.main, world.other):
            client = Client(world)
            try:
                said = self.quiet(world)
                views = {}
                for thing in THINGS:
                    views[thing] = self.breaks(world, thing)
                    print(f"    {thing}: {views[thing]}", flush=True)
            finally:
                client.end()
        bench.results.record(
            self.name, "s", [[max(seconds.values()), GOAL_S] for seconds in views.values()],
            f"{len(THINGS)} things broken and mended, one after the other", Goal(most=GOAL_S), peer_name="the goal", views=views,
        )
        bench.results.record(
            f"{self.name}.quiet", "conditions", [[said, 0]], f"{QUIET_S} s of traffic while all is well", Goal(most=0),
            peer_name="the goal", messages=client.taken,
        )

    def quiet(self, world):
        """Conditions that were said while all was well."""
        said, end = set(), time.monotonic() + QUIET_S
        while time.monotonic() < end:
            for server in (world.main, world.other):
                said |= {condition["name"] for condition in server.status().get("health", [])}
            time.sleep(1)
        if said:
            print(f"    said while all is well: {sorted(said)}", flush=True)
        return len(said)

    def breaks(self, world, thing):
        """Seconds until each view says so. Ends when none says so any more."""
        server = world.other if thing == "dovecot" else world.main
        views = {
            "status": lambda: any(found["name"] == thing for found in server.status().get("health", [])),
            "readyz": lambda: f" {thing}" in world.get(server, "/readyz"),
            "console": lambda: "badge-bad" in world.get(server, "/") and "badge-bad" in world.get(server, "/health"),
            "doctor": lambda: world.doctor(server, thing),
            "alert": lambda: world.has_alert(server, thing, seen),
        }
        seen = world.alerts(server, thing)
        mend = getattr(world, f"break_{thing}")()
        begin, seconds = time.monotonic(), {}
        while len(seconds) < len(views):
            for name, says in views.items():
                if name not in seconds and says():
                    seconds[name] = round(time.monotonic() - begin, 2)
            if time.monotonic() - begin > SAID_S_MAX:
                raise BenchError(f"{thing}: only {sorted(seconds)} said so within {SAID_S_MAX} s")
            time.sleep(POLL_S)
        mend()
        wait_until(lambda: not server.status().get("health"), SAID_S_MAX, f"{thing} to be over")
        return seconds


class World:
    """Two servers with everything that can be down: one with a users file, one with Dovecot."""

    def __init__(self, bench):
        self.binary, self.folder = bench.binary, os.path.join(bench.work, "health")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.sink = LabSink(bench.work, free_port(), bench.binary)
        self.services = {
            "milter": Milter(), "policy": Policy(), "table": Socketmap(), "dns": Dns(), "hook": Listener(),
            "dovecot": Dovecot(self.path("auth-client")),
        }
        self.write("people", "ann@one.example OK\n")
        self.write("users", "", 0o600)
        self.certify(365)
        self.main = self.server(bench, "main", self.sections())
        self.other = self.server(bench, "other", f'[auth]\ndovecot = "{self.path("auth-client")}"\n')

    def server(self, bench, name, more):
        server = Stentor(
            bench.binary, bench.work, self.sink.port, name=f"health-{name}", http=free_port(), more=more,
            listen="connections_max = 50\nconnections_per_client_max = 50",
        )
        return server

    def sections(self):
        services = self.services
        return f"""
[[milters]]
name = "judge"
address = "inet:127.0.0.1:{services["milter"].port}"
[policy_services.count]
address = "inet:127.0.0.1:{services["policy"].port}"
[[rules]]
policy_service = "count"
[tables.far]
source = "socketmap:inet:127.0.0.1:{services["table"].port}:far"
[tables.people]
source = "hash:{self.path("people")}"
[dns]
servers = ["127.0.0.1:{services["dns"].port}"]
[auth]
users = "{self.path("users")}"
[[tls.certificates]]
chain = "{self.path("chain.pem")}"
key = "{self.path("key.pem")}"
[submission]
folder = "{self.path("submission")}"
group = "root"
[webhooks.hook]
url = "http://127.0.0.1:{services["hook"].port}/"
secret = "0123456789abcdef0123456789abcdef"
events = ["accepted"]
batch_wait_ms = 0
"""

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        """Replaces a file as a rename does."""
        path = self.path(name)
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.chmod(f"{path}.new", mode)
        os.replace(f"{path}.new", path)

    def certify(self, days):
        """A certificate for so many days from now on; with -1 it ended yesterday."""
        key, chain, request = (self.path(name) for name in ("key.pem.new", "chain.pem.new", "request.pem"))
        run = lambda *words: subprocess.run(["openssl", *words], check=True, capture_output=True)
        run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=stentor.example",
            "-addext", "subjectAltName=DNS:stentor.example")
        run("x509", "-req", "-in", request, "-signkey", key, "-days", str(days), "-copy_extensions", "copy", "-out", chain)
        os.chmod(key, 0o600)
        os.replace(key, self.path("key.pem"))
        os.replace(chain, self.path("chain.pem"))

    def get(self, server, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.http}{path}", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def doctor(self, server, thing):
        argv = [self.binary, "doctor", "--config", server.configuration, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        found = [finding for finding in json.loads(done.stdout)["findings"] if finding.get("condition") == thing]
        return done.returncode == 1 and any(finding["severity"] == "problem" for finding in found)

    def alerts(self, server, thing):
        with open(os.path.join(server.folder, "stderr"), errors="replace") as log:
            return sum("health: PROBLEM" in line and f'name="{thing}"' in line for line in log)

    def has_alert(self, server, thing, seen):
        return self.alerts(server, thing) > seen

    def stops(self, name):
        service = self.services[name]
        service.stop()
        return service.start

    def edits(self, old, new):
        """Changes the configuration and has it read again."""
        path = self.main.configuration
        with open(path) as file:
            before = file.read()
        if old not in before:
            raise BenchError(f"{old!r} is not in the configuration")

        def put(text):
            with open(path, "w") as file:
                file.write(text)
            self.main.operate("reload")

        put(before.replace(old, new, 1))
        return lambda: put(before)

    def break_milter(self):
        return self.stops("milter")

    def break_policy_service(self):
        return self.stops("policy")

    def break_table_service(self):
        return self.stops("table")

    def break_dns(self):
        return self.stops("dns")

    def break_dovecot(self):
        return self.stops("dovecot")

    def break_webhook(self):
        return self.stops("hook")

    def break_recipients_deferred(self):
        return self.edits("[[rules]]\n", '[[rules]]\nsender = "ann@a.example"\ndo = "defer 451 4.3.0 later"\n[[rules]]\n')

    def break_messages_deferred(self):
        milter = self.services["milter"]
        milter.defers = True
        return lambda: setattr(milter, "defers", False)

    def break_table_file(self):
        os.remove(self.path("people"))
        return lambda: self.write("people", "ann@one.example OK\n")

    def break_users_file(self):
        self.write("users", "{ no users\n", 0o600)
        return lambda: self.write("users", "", 0o600)

    def break_certificate_file(self):
        self.write("key.pem", "no key\n", 0o600)
        return lambda: self.certify(365)

    def break_certificate(self):
        self.certify(-1)
        return lambda: self.certify(365)

    def break_log(self):
        path = os.path.join(self.main.folder, "attempts.log")
        os.rename(path, f"{path}.away")
        os.symlink("/dev/full", path)
        self.main.operate("reload")

        def mend():
            os.remove(path)
            os.rename(f"{path}.away", path)
            self.main.operate("reload")

        return mend

    def break_submission_folder(self):
        path = self.path("submission")
        os.rename(path, f"{path}.away")
        with open(path, "w"):
            pass

        def mend():
            os.remove(path)
            os.rename(f"{path}.away", path)

        return mend

    def break_connections_full(self):
        crowd = Crowd(self.main.port)
        return crowd.end


class Crowd:
    """More clients than there are places; each comes back when it is turned away."""

    def __init__(self, port):
        self.port, self.is_over = port, False
        self.threads = [threading.Thread(target=self.stay, args=(f"127.0.1.{n + 1}",), daemon=True) for n in range(60)]
        for thread in self.threads:
            thread.start()

    def stay(self, address):
        while not self.is_over:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5, source_address=(address, 0)) as client:
                    client.settimeout(0.5)
                    while not self.is_over:
                        try:
                            if not client.recv(512):
                                break
                        except TimeoutError:
                            continue
            except OSError:
                pass
            time.sleep(0.2)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(10)


class Client(threading.Thread):
    """Hands in a message now and then to both servers; whatever is answered."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.taken, self.is_over = world, 0, False
        self.start()

    def run(self):
        while not self.is_over:
            for server in (self.world.main, self.world.other):
                try:
                    self.taken += hand_in(server.port, CONTENT) == 250
                except (OSError, ValueError):
                    pass
            time.sleep(PAUSE_S)

    def end(self):
        self.is_over = True
        self.join(30)
