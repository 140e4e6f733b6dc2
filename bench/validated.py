"""Zones that are signed, and a resolver that validates them: knot serves, unbound asks, each with a configuration of its own on loopback.

Zones, with what a resolver makes of them: signed.test is secure, plain.test insecure, bogus.test is signed by another key than the resolver trusts, and so
fails. Below any name a `_tcp` zone of its own may be plain (insecure), bogus, or not to be had (`failed`): its server refuses.
"""

import os
import shutil
import socket
import subprocess
import threading

from measure import CannotHere, wait_until
from sinks import free_port

# Postfix asks port 53 only, so that the resolver has an address of its own.
RESOLVER = "127.0.0.153"
WRONG_DS = "1 13 2 " + "00" * 32
START_S_MAX = 60

KNOT = """\
server:
  listen: 127.0.0.1@{port}
  rundir: {folder}
  pidfile: {folder}/knot.pid
  user: root:root
database:
  storage: {folder}/knot-db
log:
  - target: {folder}/knot.log
    any: info
control:
  listen: {folder}/knot.sock
policy:
  - id: lab
    algorithm: ecdsap256sha256
    single-type-signing: on
template:
  - id: default
    storage: {folder}
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
{zones}"""

UNBOUND = """\
server:
  interface: {resolver}
  port: 53
  do-ip6: no
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: "{folder}/unbound.pid"
  use-syslog: no
  logfile: "{folder}/unbound.log"
  access-control: 127.0.0.0/8 allow
  do-not-query-localhost: no
  module-config: "validator iterator"
  qname-minimisation: no
  # The zones below a name are not in the signed one, whose NSEC records would deny them.
  aggressive-nsec: no
  target-fetch-policy: "0 0 0 0 0"
  local-zone: "test." nodefault
{server}
remote-control:
  control-enable: no
{stubs}"""


class Refuser:
    """A name server that refuses every question."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, client = self.socket.recvfrom(4096)
            except OSError:
                return
            if len(query) > 12:
                # The question again, as a reply with the code REFUSED, and no more.
                self.socket.sendto(query[:2] + b"\x81\x05\x00\x01" + b"\x00" * 6 + question(query), client)

    def stop(self):
        self.socket.close()


def question(query):
    end = 12
    while end < len(query) and query[end]:
        end += query[end] + 1
    return query[12:end + 5]


class Validated:
    """`records`: lines of zone files by zone; `below`: {name: "insecure", "bogus" or "failed"} of `_tcp` zones below names."""

    def __init__(self, work, records, below):
        self.folder = os.path.join(work, "validated")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(os.path.join(self.folder, "knot-db"))
        self.records, self.below = records, below
        self.port, self.refuser, self.processes = free_port(), None, []

    def start(self):
        for program in ("knotd", "keymgr", "unbound"):
            if not shutil.which(program):
                raise CannotHere(f"{program} is missing: testing/install.sh")
        self.refuser = Refuser()
        configuration = self.knot()
        self.spawn(["knotd", "-c", configuration])
        wait_until(lambda: self.is_signed("signed.test"), START_S_MAX, "knot signing")
        wait_until(lambda: self.is_signed("bogus.test"), START_S_MAX, "knot signing")
        self.unbound(self.ds(configuration, "signed.test"))
        self.spawn(["unbound", "-c", os.path.join(self.folder, "unbound.conf")])
        wait_until(self.answers, START_S_MAX, f"unbound at {RESOLVER} (its log: {self.folder}/unbound.log)")
        return self

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(30)
        if self.refuser:
            self.refuser.stop()

    def spawn(self, argv):
        with open(os.path.join(self.folder, f"{argv[0]}.out"), "w") as out:
            self.processes.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def knot(self):
        lines = ""
        for zone in self.records:
            self.write(f"{zone}.zone", f"@ 60 SOA ns hostmaster 1 600 600 600 60\n@ 60 NS ns\nns 60 A 127.0.0.1\n" + "".join(
                f"{line}\n" for line in self.records[zone]), zone)
            signing = "    dnssec-signing: on\n    dnssec-policy: lab\n" if zone in ("signed.test", "bogus.test") else ""
            lines += f"  - domain: {zone}\n    file: {zone}.zone\n{signing}"
        return self.write("knot.conf", KNOT.format(folder=self.folder, port=self.port, zones=lines))

    def unbound(self, ds):
        server = "".join(f'  trust-anchor: "signed.test. DS {one}"\n' for one in ds)
        server += f'  trust-anchor: "bogus.test. DS {WRONG_DS}"\n'
        stubs = ""
        for zone in self.records:
            stubs += f'stub-zone:\n  name: "{zone}"\n  stub-addr: 127.0.0.1@{self.port}\n'
        for name, kind in self.below.items():
            zone = f"_tcp.{name}"
            if kind == "insecure":
                server += f'  domain-insecure: "{zone}"\n'
            elif kind == "bogus":
                server += f'  trust-anchor: "{zone}. DS {WRONG_DS}"\n'
            else:
                server += f'  domain-insecure: "{zone}"\n'
                stubs += f'stub-zone:\n  name: "{zone}"\n  stub-addr: 127.0.0.1@{self.refuser.port}\n'
        self.write("unbound.conf", UNBOUND.format(folder=self.folder, resolver=RESOLVER, server=server, stubs=stubs))

    def ds(self, configuration, zone):
        out = subprocess.run(["keymgr", "-c", configuration, f"{zone}.", "ds"], capture_output=True, text=True, check=True).stdout
        return [line.split(" DS ", 1)[1] for line in out.splitlines() if " DS " in line]

    def is_signed(self, zone):
        return "DNSKEY" in self.dig(f"127.0.0.1 -p {self.port} {zone} DNSKEY")

    def answers(self):
        return " ad" in self.dig(f"{RESOLVER} +dnssec ns.signed.test A", whole=True).replace(";", " ;")

    @staticmethod
    def dig(what, whole=False):
        server, *rest = what.split()
        argv = ["kdig", f"@{server}", *rest, "+time=2", "+retry=0"] + ([] if whole else ["+short"])
        out = subprocess.run(argv, capture_output=True, text=True).stdout
        return out if whole else ("DNSKEY" if out.strip() else "")

    def write(self, name, text, origin=None):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write((f"$ORIGIN {origin}.\n" if origin else "") + text)
        return path
