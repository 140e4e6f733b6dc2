"""DANE as Postfix decides: the cases of crates/tls-policy/tests/dane.toml as zones that knot signs and unbound validates, mail to each through
Postfix and through ours, to hosts with TLS and to the same without."""

import base64
import hashlib
import os
import re
import smtplib
import socketserver
import ssl
import subprocess
import threading
import time
import tomllib

from contestants.stentor import Stentor
from measure import BenchError, CannotHere
from results import Goal
from sinks import free_port
from validated import RESOLVER, Validated

# Another address than Postfix's own, for which it would see a loop.
HOST = "127.0.0.2"
CASES = os.path.join(os.path.dirname(__file__), "..", "..", "crates", "tls-policy", "tests", "dane.toml")
LEVELS = ("dane", "dane-only")
# All of them.
CASES_MAX = None
# All that is going to be decided is decided by then: look-ups that fail do so at once.
DECIDED_S_MAX = 120
QUIET_S = 4

MAIN = """\
relayhost =
smtp_tls_security_level = {level}
smtp_dns_support_level = dnssec
smtp_host_lookup = dns
smtp_tls_loglevel = 1
smtp_address_preference = ipv4
smtp_tls_session_cache_database =
smtp_connection_cache_on_demand = no
dnssec_probe =
smtp_connect_timeout = 10
"""

OURS = """\
hostname = "stentor.example"
data_dir = "data"
[http]
listen = []
[listen]
smtp = ["127.0.0.1:{port}"]
[dns]
servers = ["{resolver}:53"]
loopback_allowed = true
timeout_ms = 3000
[delivery]
tls = "{level}"
smtp_port = {host_port}
{delivery}
[log]
attempts = "attempts.log"
flush = "line"
"""


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail host that takes everything; with a certificate it offers STARTTLS."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, chain=None):
        self.context = None
        if chain:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*chain)
        self.port = free_port()
        super().__init__((HOST, self.port), Session)

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self):
        self.shutdown()
        self.server_close()


class Session(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            self.talk(self.request, self.server.context)
        except (OSError, ValueError):
            pass

    def talk(self, peer, context):
        lines = peer.makefile("rb")
        say = lambda text: peer.sendall(text.encode() + b"\r\n")
        if context is self.server.context:
            say("220 host")
        for line in lines:
            verb = line.decode("latin-1").strip().upper().partition(" ")[0]
            if verb == "EHLO":
                say("250-host\r\n250 STARTTLS" if context else "250 host")
            elif verb == "STARTTLS":
                say("220 go")
                return self.talk(context.wrap_socket(peer, server_side=True), None)
            elif verb == "DATA":
                say("354 go")
                while lines.readline() not in (b".\r\n", b""):
                    pass
                say("250 taken")
            elif verb == "QUIT":
                return say("221 bye")
            else:
                say("250 ok")


class Certificates:
    """A certificate of an anchor of its own, for all names of the zones, and what TLSA records say of both."""

    def __init__(self, work):
        self.folder = os.path.join(work, "dane-certificates")
        os.makedirs(self.folder, exist_ok=True)
        names = ",".join(f"DNS:*.{zone}" for zone in ("signed.test", "plain.test", "bogus.test"))
        self.write("ee.ext", f"subjectAltName={names}\nbasicConstraints=critical,CA:FALSE\n")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self.openssl("req", "-x509", *curve, "-subj", "/CN=anchor", "-days", "30", "-keyout", "ta.key", "-out", "ta.pem")
        self.openssl("req", *curve, "-subj", "/CN=host", "-keyout", "ee.key", "-out", "ee.csr")
        self.openssl("x509", "-req", "-in", "ee.csr", "-CA", "ta.pem", "-CAkey", "ta.key", "-CAcreateserial", "-days", "20",
                     "-extfile", "ee.ext", "-out", "ee.pem")
        self.write("chain.pem", self.read("ee.pem") + self.read("ta.pem"))
        self.parts = {}
        for who in ("ee", "ta"):
            self.parts[f"{who}-cert"] = self.der(self.read(f"{who}.pem"))
            key = self.openssl("x509", "-in", f"{who}.pem", "-noout", "-pubkey")
            self.parts[f"{who}-key"] = self.der(key)
        self.parts["other"] = b"another certificate"

    def chain(self):
        return os.path.join(self.folder, "chain.pem"), os.path.join(self.folder, "ee.key")

    def tlsa(self, record):
        usage, selector, matching, data = record.split()
        if data in self.parts:
            part = self.parts[data]
            digest = {"0": lambda: part, "2": lambda: hashlib.sha512(part).digest()}.get(matching, lambda: hashlib.sha256(part).digest())
            data = digest().hex()
        return f"{usage} {selector} {matching} {data}"

    def openssl(self, *argv):
        out = subprocess.run(["openssl", *argv], cwd=self.folder, capture_output=True, text=True)
        if out.returncode:
            raise BenchError(f"openssl {argv[0]}: {out.stderr}")
        return out.stdout

    @staticmethod
    def der(pem):
        return base64.b64decode("".join(line for line in pem.splitlines() if "-----" not in line))

    def read(self, name):
        with open(os.path.join(self.folder, name)) as file:
            return file.read()

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)


class Case:
    """One case of the table, with its names."""

    def __init__(self, number, table):
        self.table, self.title = table, table["name"]
        mx, host, self.alias = table.get("mx", "secure"), table.get("host", "secure"), table.get("alias", "")
        zone = {"secure": "signed.test", "insecure": "plain.test", "bogus": "bogus.test", "none": "signed.test"}
        self.domain = f"c{number}.{zone[mx]}"
        at = self.alias or host
        self.host = self.domain if mx == "none" else f"m{number}.{zone[at]}"
        self.end = f"e{number}.{zone[host]}" if self.alias else self.host
        self.has_mx, self.mx_alias = mx != "none", table.get("mx_alias", False)

    def add(self, records, below, certificates, ports):
        def line(name, kind, data):
            zone = ".".join(name.split(".")[-2:])
            records[zone].append(f"{name}. 60 {kind} {data}")

        if self.has_mx:
            where = self.domain
            if self.mx_alias:
                where = f"real-{self.domain}"
                line(self.domain, "CNAME", f"{where}.")
            line(where, "MX", f"10 {self.host}.")
        if self.alias:
            line(self.host, "CNAME", f"{self.end}.")
        line(self.end, "A", HOST)
        for name, published in ((self.end, self.table["end"]), (self.host, self.table.get("at_name", "absent"))):
            if isinstance(published, list):
                owners = published
            elif published == "absent" or (name == self.host == self.end and published is None):
                continue
            else:
                below[name] = published
                if published == "failed":
                    continue
                owners = ["3 1 1 ee-key"]
                records.setdefault(f"_tcp.{name}", [])
            for port in ports:
                owner = f"_{port}._tcp.{name}"
                zone = f"_tcp.{name}" if name in below else ".".join(name.split(".")[-2:])
                records[zone] += [f"{owner}. 60 TLSA {certificates.tlsa(one)}" for one in owners]

    def expected(self, level, has_tls):
        """By the table: (sent, proven)."""
        word = self.table["dane" if level == "dane" else "dane_only"]
        if not has_tls:
            return (word == "may", False)
        if word == "match":
            # Of an insecure MX answer the host is not proven to be the domain's.
            is_verified = self.table["handshake"] == "verified"
            return (is_verified, is_verified and not self.table.get("half"))
        return (word in ("may", "encrypt"), False)


class Ours(Stentor):
    # What proves a host, in the words of the log.
    proofs = r":dane-(ee|ta),"

    def set_up(self, level, host_port):
        self.level, self.host_port = level, host_port
        return self

    def launch(self):
        with open(self.configuration, "w") as file:
            file.write(OURS.format(port=self.port, resolver=RESOLVER, level=self.level, host_port=self.host_port, delivery=self.delivery))
        self.process = self.spawn([self.binary, "serve", "--config", self.configuration], "stderr")

    def outcomes(self, cases):
        text = read(os.path.join(self.folder, "attempts.log"))
        found = {}
        for case in cases:
            sent = [line for line in text.splitlines() if f"<x@{case.domain}>" in line and "stat=Sent" in line]
            found[case.title] = (bool(sent), any(re.search(self.proofs, line) for line in sent))
        return found


def theirs(server, cases):
    text = read(os.path.join(server.folder, "maillog"))
    found = {}
    for case in cases:
        sent = re.search(rf"to=<x@{re.escape(case.domain)}>.* status=sent", text)
        proven = re.search(rf"Verified TLS connection established to {re.escape(case.host)}\[", text)
        found[case.title] = (bool(sent), bool(sent and proven))
    return found


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def send(port, cases):
    with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=120) as smtp:
        for case in cases:
            smtp.sendmail("joe@client.example", [f"x@{case.domain}"], f"Subject: {case.title}\r\nMessage-ID: <{case.domain}>\r\n\r\nx\r\n")


def settled(look):
    """What has been decided when nothing has changed for a while."""
    begin, last, since = time.monotonic(), None, time.monotonic()
    while time.monotonic() - begin < DECIDED_S_MAX:
        seen = look()
        if seen != last:
            last, since = seen, time.monotonic()
        if time.monotonic() - since > QUIET_S and time.monotonic() - begin > 2 * QUIET_S:
            break
        time.sleep(0.5)
    return last


class Dane:
    """Cases in which ours and Postfix do not do the same, or do it other than the table says."""

    name = "tls.dane"
    entries = ("",)
    smoke = {"CASES_MAX": 2, "QUIET_S": 1, "LEVELS": ("dane",)}

    def run(self, bench):
        if os.geteuid() != 0:
            raise CannotHere("Postfix asks port 53, which takes root to listen at")
        with open(CASES, "rb") as file:
            table = [case for case in tomllib.load(file)["case"] if case.get("lab", True)]
        cases = [Case(number, one) for number, one in enumerate(table[:CASES_MAX])]
        certificates = Certificates(bench.work)
        hosts = {True: Mailbox(certificates.chain()), False: Mailbox()}
        records, below = {"signed.test": [], "plain.test": [], "bogus.test": []}, {}
        for case in cases:
            case.add(records, below, certificates, [host.port for host in hosts.values()])
        resolv_conf = os.path.join(bench.work, "dane.resolv.conf")
        with open(resolv_conf, "w") as file:
            file.write(f"nameserver {RESOLVER}\noptions trust-ad edns0\n")
        differences, wrong = {}, {}
        with bench.running(*hosts.values(), Validated(bench.work, records, below)):
            for level in LEVELS:
                for has_tls, host in hosts.items():
                    what = f"{level}, {'with' if has_tls else 'without'} TLS"
                    mine, others = self.both(bench, cases, level, host, resolv_conf)
                    for case in cases:
                        ours, peers = mine[case.title], others[case.title]
                        if ours != peers:
                            differences.setdefault(case.title, []).append(f"{what}: {word(ours)}, Postfix {word(peers)}")
                        if peers != case.expected(level, has_tls):
                            wrong.setdefault(case.title, []).append(f"{what}: Postfix {word(peers)}")
        for title, found in differences.items():
            print(f"      {title}: {'; '.join(found)}", flush=True)
        for title, found in wrong.items():
            print(f"      the table is wrong on: {title}: {'; '.join(found)}", flush=True)
        # Both may be wrong alike.
        unmet = list(dict.fromkeys([*differences, *wrong]))
        command = f"{len(cases)} cases of signed, unsigned and bogus zones, at {' and '.join(LEVELS)}, with TLS and without"
        bench.results.record(
            self.name, "cases that differ from Postfix or from the table", [[len(unmet), 0]], command, Goal(most=0), peer_name="the goal",
            cases=len(cases), named=unmet[:10], table_is_wrong=list(wrong)[:10],
        )

    @staticmethod
    def both(bench, cases, level, host, resolv_conf):
        ours = Ours(bench.binary, bench.work, host.port).set_up(level, host.port)
        with bench.running(ours):
            send(ours.port, cases)
            mine = settled(lambda: ours.outcomes(cases))
        peer = bench.postfix(host)
        peer.more_main, peer.resolv_conf = MAIN.format(level=level), resolv_conf
        peer.transports = {case.domain: f"smtp:{case.domain}:{host.port}" for case in cases}
        with bench.running(peer):
            send(peer.port, cases)
            others = settled(lambda: theirs(peer, cases))
        return mine, others


def word(outcome):
    return "not sent" if not outcome[0] else "proven" if outcome[1] else "sent"
