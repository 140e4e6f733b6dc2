"""19 kinds of servers whose TLS is broken (docs/operate/tls-outgoing.md): mail that demands nothing is delivered in one attempt, encrypted
as far as can be, else in clear with the reason; mail that demands a proven host waits with the reason, and mail to a good host does
not; and a good site is served as fast beside them as without."""

import os

from bench import measured_cpu, pairs
from encryption import kit_source, source_text
from measure import BenchError, wait_until
from results import Goal
from sinks import LabInternet, free_port
from sources import RECIPIENT, SENDER, message, post

MESSAGES = 3000
# To each of the broken ones.
WAITING = 50
HANDSHAKE_S = 1
# How often those that wait are tried again: much more often than as shipped.
RETRY_S = 1
LOG_S_MAX = 60
OTHERS_RATE = 0.9
# What the host does; a word of the record where nothing is demanded; a word of the reason for which `verify` waits.
KINDS = {
    "selfsigned": ("tls = 'self_signed'", ":unproven(self-signed)", "TLS failed"),
    "expired": ("tls = 'expired'", ":unproven(expired)", "TLS failed"),
    "future": ("tls = 'not_yet_valid'", ":unproven(not-yet-valid)", "TLS failed"),
    "wrongname": ("tls = 'wrong_name'", ":unproven(wrong-name)", "TLS failed"),
    "oldversion": ("tls = 'old_version'", "clear:", "TLS failed"),
    "nocipher": ("tls = 'no_cipher'", "clear:", "TLS failed"),
    "plain": ("tls = 'plain'", "clear:not-tls", "TLS failed"),
    "garbage": ("tls = 'garbage'", "clear:not-tls", "TLS failed"),
    "eof": ("tls = 'eof'", "clear:unexpected-eof", "TLS failed"),
    "reset": ("tls = 'reset'", "clear:io", "TLS failed"),
    "silent": ("tls = 'silent'", "clear:timeout", "TLS failed"),
    "inject": ("tls = 'inject'", "clear:injected", "unencrypted octets"),
    "closeafter": ("tls = 'close_after'", "clear:", ""),
    "refuses": ("tls = 'good', at_starttls = '454 4.7.0 TLS not available'", "clear:refused", "STARTTLS was refused: 454"),
    "unknown": ("tls = 'good', at_starttls = '502 5.5.1 what'", "clear:refused", "STARTTLS was refused: 502"),
    "drops": ("tls = 'good', at_starttls = 'drop'", "clear:lost", "lost connection while sending STARTTLS"),
    "resets": ("tls = 'good', at_starttls = 'reset'", "clear:", "STARTTLS"),
    "odd": ("tls = 'good', script = ['starttls: say 250 fine']", "clear:protocol", "unexpected reply to STARTTLS"),
    "none": ("", "clear:not-offered", "STARTTLS is not offered"),
}
DSN = "dsn=4.7.5"
GOOD = "sink"


class Lab(LabInternet):
    """The broken ones and a good one."""

    def __init__(self, bench):
        scenario = os.path.join(bench.work, "tls-broken.toml")
        hosts = {**{name: kind[0] for name, kind in KINDS.items()}, GOOD: "tls = 'good'"}
        with open(scenario, "w") as file:
            file.writelines(f"[[site]]\nname = '{name}.example'\nbehaviour = {{ {behaviour} }}\n" for name, behaviour in hosts.items())
        super().__init__(bench.work, free_port(), bench.binary, scenario)
        self.ca, self.dns = os.path.join(bench.work, "tls-broken.ca.pem"), free_port()

    def argv(self):
        argv = super().argv()
        argv[argv.index("--dns-port") + 1] = str(self.dns)
        return [*argv, "--ca", self.ca]


class Broken:
    """Mail that did not go as documented; the rate of a good site."""

    name = "tls.broken"
    entries = ("", ".others")
    smoke = {"MESSAGES": 100, "WAITING": 2}

    def run(self, bench):
        self.bench, self.faults, self.lab = bench, [], Lab(bench)
        with bench.running(self.lab):
            self.opportunistic()
            self.demanding()
            bench.results.record(
                self.name, "faults", [[len(self.faults), 0]], f"a message to each of {len(KINDS)} kinds, tls = \"may\" and \"verify\"",
                Goal(most=0), peer_name="the goal", kinds=len(KINDS), faults=self.faults,
            )
            self.others()

    def server(self, name, tls):
        # By name, since certificates are for names.
        routes = {f"{site}.example": f"mx1.{site}.example:{self.lab.port}" for site in (*KINDS, GOOD)}
        retry = f"[retry]\nhost_min_s = {RETRY_S}\nhost_max_s = {RETRY_S}\n"
        dns = f'[dns]\nservers = ["127.0.0.1:{self.lab.dns}"]\nloopback_allowed = true\n'
        server = self.bench.stentor(self.lab, name=name, routes=routes, more=retry + dns)
        server.delivery = f'tls = "{tls}"\ntls_ca_file = "{self.lab.ca}"\ntls_timeout_s = {HANDSHAKE_S}'
        return server

    def opportunistic(self):
        server = self.server("broken-may", "may")
        with self.bench.running(server):
            to_all(server, "may")
            for name, (_, word, _) in KINDS.items():
                self.expect(server, f"{name}, may", f"<reader@{name}.example>", "stat=Sent", "tls=", word)
            server.wait_drained()
            if lines := matching(server, "stat=Deferred"):
                self.faults.append(f"may: not in one attempt: {lines[:3]}")

    def demanding(self):
        server = self.server("broken-verify", "verify")
        with self.bench.running(server):
            to_all(server, "verify")
            post(server.port, SENDER, RECIPIENT, message(1000, "verify-good"))
            self.expect(server, "good, verify", f"<{RECIPIENT}>", "stat=Sent", ":verified")
            for name, (_, _, reason) in KINDS.items():
                self.expect(server, f"{name}, verify", "connect: relay=", f"mx1.{name}.example", "stat=Deferred", DSN, reason)
            recipients = server.status()["recipients"]
            if recipients["pending"] != len(KINDS) or recipients["bounced"]:
                self.faults.append(f"verify: {recipients}")

    def others(self):
        """A good site alone, and beside mail that waits for the broken ones, which are tried every second."""
        beside, alone = self.server("broken-beside", "verify"), self.server("broken-alone", "verify")
        with self.bench.running(beside, alone):
            for number in range(WAITING):
                to_all(beside, f"wait{number}")
            beside.wait_drained = lambda: beside.wait_pending(WAITING * len(KINDS), LOG_S_MAX)
            rounds = self.bench.alternate([beside, alone], self.once)
            if (pending := beside.status()["recipients"]["pending"]) != WAITING * len(KINDS):
                raise BenchError(f"{pending} of {WAITING * len(KINDS)} recipients wait")
        self.bench.results.record(
            f"{self.name}.others", "messages/s", pairs(rounds, "delivered"), source_text(MESSAGES), Goal(ratio=OTHERS_RATE),
            more_is_better=True, peer_name="without them", waiting=WAITING * len(KINDS), cpu_ms_per_message=pairs(rounds, "cpu"),
        )

    def once(self, server):
        _, delivered_s, _, cpu_s = measured_cpu(server, self.lab, MESSAGES, lambda: kit_source(self.bench, server.port, MESSAGES))
        return {"delivered": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1000}

    def expect(self, server, what, *words):
        """A line of the log with all of these."""
        try:
            wait_until(lambda: matching(server, *words), LOG_S_MAX if not self.faults else RETRY_S, what)
        except BenchError:
            lines = matching(server, words[0]) or matching(server, words[1])
            self.faults.append(f"{what}: no line with {' '.join(words)}, but {lines[-1:]}")


def to_all(server, name):
    for kind in KINDS:
        post(server.port, SENDER, f"reader@{kind}.example", message(1000, f"{name}-{kind}"))


def matching(server, *words):
    """Lines of the server's log that have all of these."""
    with open(os.path.join(server.folder, server.log_name)) as log:
        return [line.strip() for line in log if all(word in line for word in words)]
