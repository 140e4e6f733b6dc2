"""Certificates from a CA: pebble issues and renews, by http-01 and by tls-alpn-01, while clients come by STARTTLS and others stay."""

import json
import os
import shutil
import smtplib
import socket
import ssl
import subprocess
import time
import urllib.request

from measure import CannotHere, wait_until
from recorder import Recorder
from results import Goal
from sinks import free_port

# At each of the two servers.
CERTIFICATES = 5
RENEWALS = 3
OPEN_SESSIONS = 20
# Renewed when a third of it is left. Long enough for a slow machine, short enough to wait for.
VALID_S = 30
WAIT_S_MAX = 120
CHALLENGES = ("http-01", "tls-alpn-01")

ACME = """
[acme]
agree_terms = true
challenge = "{challenge}"
{listen} = ["127.0.0.1:{port}"]
directory = "https://localhost:{directory}/dir"
ca_file = "{ca_file}"
"""


class Pebble:
    """Debian's pebble with its name server, for which every name is 127.0.0.1."""

    def __init__(self, work):
        self.folder = os.path.join(work, "pebble")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.certificate = os.path.join(self.folder, "localhost.pem")
        self.ports = {name: free_port() for name in ("directory", "management", "dns", "dns_management", *CHALLENGES)}
        self.running = []

    def start(self):
        key = os.path.join(self.folder, "localhost.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", self.certificate],
            check=True, capture_output=True,
        )
        at = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        configuration = os.path.join(self.folder, "pebble.json")
        with open(configuration, "w") as file:
            json.dump({"pebble": {
                "listenAddress": at["directory"], "managementListenAddress": at["management"], "certificate": self.certificate,
                "privateKey": key, "httpPort": self.ports["http-01"], "tlsPort": self.ports["tls-alpn-01"], "ocspResponderURL": "",
                "externalAccountBindingRequired": False, "certificateValidityPeriod": VALID_S,
            }}, file)
        # It asks for a proof each time, looks at it really, and refuses one nonce in twenty, as it does by itself.
        environment = os.environ | {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_AUTHZREUSE": "0", "PEBBLE_VA_ALWAYS_VALID": "0"}
        for argv in (
            ["pebble-challtestsrv", "-dns01", at["dns"], "-management", at["dns_management"], "-defaultIPv6", "", "-http01", "", "-https01", "",
             "-tlsalpn01", ""],
            ["pebble", "-dnsserver", at["dns"], "-config", configuration],
        ):
            with open(os.path.join(self.folder, f"{argv[0]}.log"), "w") as log:
                self.running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment))
        wait_until(self._listens, 30, "pebble listening")

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports["directory"])) == 0

    def stop(self):
        while self.running:
            process = self.running.pop()
            process.kill()
            process.wait()

    def root(self):
        """The CA that clients trust."""
        url = f"https://localhost:{self.ports['management']}/roots/0"
        with urllib.request.urlopen(url, context=ssl.create_default_context(cafile=self.certificate), timeout=30) as answer:
            return answer.read().decode()


class Client:
    """Sees what a server shows for each name, and whether the CA proves it."""

    def __init__(self, port, root):
        self.port = port
        self.context = ssl.create_default_context(cadata=root)

    def session(self, name):
        smtp = smtplib.SMTP("127.0.0.1", self.port, timeout=60)
        smtp.ehlo()
        # The name that is sent and verified.
        smtp._host = name
        smtp.starttls(context=self.context)
        return smtp

    def serial(self, name):
        """Of the certificate that is in force; None while the CA does not prove it."""
        try:
            smtp = self.session(name)
        except ssl.SSLCertVerificationError:
            return None
        with smtp:
            return smtp.sock.getpeercert()["serialNumber"]


class Acme:
    """Faults while certificates are obtained and renewed."""

    name = "tls.acme"
    entries = ("",)
    smoke = {"CERTIFICATES": 1, "RENEWALS": 1, "OPEN_SESSIONS": 3, "VALID_S": 15}

    def run(self, bench):
        if not shutil.which("pebble") or not shutil.which("pebble-challtestsrv"):
            raise CannotHere("pebble is missing: testing/install.sh")
        pebble, recorder, faults, obtained = Pebble(bench.work), Recorder(), [], 0
        with bench.running(recorder, pebble):
            root = pebble.root()
            servers = {challenge: self.server(bench, recorder, pebble, challenge) for challenge in CHALLENGES}
            with bench.running(*servers.values()):
                names = [(challenge, self.host(challenge, n)) for challenge in CHALLENGES for n in range(CERTIFICATES)]
                clients = {challenge: Client(server.port, root) for challenge, server in servers.items()}
                serials = {}
                for challenge, name in names:
                    wait_until(lambda: clients[challenge].serial(name), WAIT_S_MAX, f"a certificate for {name}")
                    serials[name] = {clients[challenge].serial(name)}
                opened = [
                    clients[challenge].session(self.host(challenge, n % CERTIFICATES)) for challenge in CHALLENGES for n in range(OPEN_SESSIONS)
                ]
                faults += self.watch(clients, names, serials)
                for smtp in opened:
                    faults += self.ended(smtp)
                obtained = sum(len(seen) for seen in serials.values())
                for server in servers.values():
                    faults += self.said(server)
        for fault in faults[:20]:
            print(f"      {fault}", flush=True)
        command = f"{len(CHALLENGES)} servers with {CERTIFICATES} certificates each, {RENEWALS} renewals, valid for {VALID_S} s"
        bench.results.record(
            self.name, "faults", [[len(faults), 0]], command, Goal(most=0), peer_name="the goal", named=faults[:10], obtained=obtained,
        )

    @staticmethod
    def watch(clients, names, serials):
        """Until all have been renewed often enough: each is proven at any time."""
        faults, deadline = [], time.monotonic() + WAIT_S_MAX + RENEWALS * VALID_S
        while min(len(seen) for seen in serials.values()) <= RENEWALS:
            if time.monotonic() > deadline:
                late = [name for name, seen in serials.items() if len(seen) <= RENEWALS]
                return [*faults, f"not renewed {RENEWALS} times: {', '.join(late)}"]
            for challenge, name in names:
                serial = clients[challenge].serial(name)
                if serial is None:
                    faults.append(f"{name} is shown a certificate that the CA does not prove")
                else:
                    serials[name].add(serial)
            time.sleep(0.2)
        return faults

    @staticmethod
    def ended(smtp):
        """What a session that was open all the time says."""
        try:
            code, text = smtp.noop()
            smtp.quit()
            return [] if code == 250 else [f"an open session: {code} {text}"]
        except (OSError, smtplib.SMTPException) as error:
            return [f"an open session was dropped: {error!r}"]

    @staticmethod
    def said(server):
        with open(os.path.join(server.folder, "stderr")) as log:
            return [line.strip() for line in log if "no certificate could be obtained" in line]

    @staticmethod
    def host(challenge, n):
        return f"mx{n}.{challenge}.example"

    def server(self, bench, recorder, pebble, challenge):
        listen = "http_listen" if challenge == "http-01" else "tls_listen"
        more = ACME.format(
            challenge=challenge, listen=listen, port=pebble.ports[challenge], directory=pebble.ports["directory"], ca_file=pebble.certificate,
        )
        for n in range(CERTIFICATES):
            more += f'[[acme.certificates]]\nnames = ["{self.host(challenge, n)}"]\n'
        return bench.stentor(recorder, name=f"stentor-{challenge}", more=more)
