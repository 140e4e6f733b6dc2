"""MTA-STS as RFC 8461 has it: domains with policies of each kind at hosts with TLS and without, their policies on a web server over HTTPS; all
domains share two hosts, so that a broken policy would hold up its siblings."""

import os
import subprocess
import sys

from measure import BenchError
from results import Goal
from validated import Validated

from .tls_dane import HOST, Certificates, Mailbox, Ours, send, settled

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SERVER = os.path.join(ROOT, "testing", "server", "scripts", "policy_server.py")
MX = "mx.plain.test"

# Name, mode, what it lists, files beside the policy, and (sent, proven) at a host with TLS and at one without.
POLICIES = (
    ("enforce", "enforce", MX, {}, (True, True), (False, False)),
    ("wildcard", "enforce", "*.plain.test", {}, (True, True), (False, False)),
    ("unlisted", "enforce", "mx.elsewhere.test", {}, (False, False), (False, False)),
    ("deeper", "enforce", "*.test", {}, (False, False), (False, False)),
    ("testing", "testing", "mx.elsewhere.test", {}, (True, False), (True, False)),
    ("none", "none", MX, {}, (True, False), (True, False)),
    ("nonsense", "enforced", MX, {}, (True, False), (True, False)),
    ("redirect", "enforce", "mx.elsewhere.test", {"status": "302", "location": "https://mta-sts.enforce.plain.test/"}, (True, False), (True, False)),
    ("html", "enforce", "mx.elsewhere.test", {"type": "text/html"}, (True, False), (True, False)),
    ("wrongname", "enforce", "mx.elsewhere.test", {}, (True, False), (True, False)),
    # No policy at all.
    ("sibling", None, None, {}, (True, False), (True, False)),
)


class Case:
    def __init__(self, name, mode, lists, files, *outcomes):
        self.title, self.mode, self.lists, self.files, self.outcomes = name, mode, lists, files, outcomes
        self.domain = f"{name}.plain.test"
        self.policy_host = f"mta-sts.{self.domain}"

    def records(self):
        lines = [f"{self.domain}. 60 MX 10 {MX}."]
        if self.mode:
            lines.append(f'_mta-sts.{self.domain}. 60 TXT "v=STSv1; id=1;"')
            lines.append(f"{self.policy_host}. 60 A 127.0.0.1")
        return lines

    def publish(self, folder, certificates):
        if not self.mode:
            return
        host = os.path.join(folder, self.policy_host)
        os.makedirs(host, exist_ok=True)
        policy = f"version: STSv1\r\nmode: {self.mode}\r\nmx: {self.lists}\r\nmax_age: 86400\r\n"
        name = "www.elsewhere.test" if self.title == "wrongname" else self.policy_host
        chain, key = certificates.issue(name)
        for file, text in {"policy": policy, "chain.pem": chain, "key.pem": key, **self.files}.items():
            with open(os.path.join(host, file), "w", newline="") as out:
                out.write(text)


class Issuer(Certificates):
    def issue(self, name):
        self.write("web.ext", f"subjectAltName=DNS:{name}\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=web", "-keyout", "web.key", "-out", "web.csr")
        self.openssl("x509", "-req", "-in", "web.csr", "-CA", "ta.pem", "-CAkey", "ta.key", "-CAcreateserial", "-days", "20",
                     "-extfile", "web.ext", "-out", "web.pem")
        return self.read("web.pem") + self.read("ta.pem"), self.read("web.key")


class Web:
    """The web server of policies."""

    def __init__(self, folder):
        self.folder, self.process, self.port = folder, None, None

    def start(self):
        self.process = subprocess.Popen([sys.executable, SERVER, self.folder], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            raise BenchError(f"{SERVER} does not start")
        self.port = int(line)
        return self

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait(30)


class Fetching(Ours):
    proofs = r":sts,"

    def set_up_web(self, web, ca):
        self.delivery = f'sts_port = {web.port}\nsts_private_allowed = true\ntls_ca_file = "{ca}"\n'
        return self


class Sts:
    """Cases in which what is sent, or proven, is not as documented."""

    name = "tls.sts"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        cases = [Case(*one) for one in POLICIES]
        certificates = Issuer(bench.work)
        folder = os.path.join(bench.work, "policies")
        subprocess.run(["rm", "-rf", folder], check=True)
        os.makedirs(folder)
        for case in cases:
            case.publish(folder, certificates)
        hosts = [Mailbox(certificates.chain()), Mailbox()]
        lines = [line for case in cases for line in case.records()] + [f"{MX}. 60 A {HOST}"]
        web, differences = Web(folder), {}
        ca = os.path.join(certificates.folder, "ta.pem")
        with bench.running(*hosts, web, Validated(bench.work, {"signed.test": [], "plain.test": lines, "bogus.test": []}, {})):
            for at, host in enumerate(hosts):
                ours = Fetching(bench.binary, bench.work, host.port).set_up("sts", host.port).set_up_web(web, ca)
                with bench.running(ours):
                    send(ours.port, cases)
                    found = settled(lambda ours=ours: ours.outcomes(cases))
                for case in cases:
                    if found[case.title] != case.outcomes[at]:
                        what = f"{'without' if at else 'with'} TLS: {found[case.title]}, not {case.outcomes[at]}"
                        differences.setdefault(case.title, []).append(what)
        for title, found in differences.items():
            print(f"      {title}: {'; '.join(found)}", flush=True)
        bench.results.record(
            self.name, "cases that are not as documented", [[len(differences), 0]], f"{len(cases)} policies at one host, with TLS and without",
            Goal(most=0), peer_name="the goal", cases=len(cases), named=list(differences)[:10],
        )
