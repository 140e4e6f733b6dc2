"""30 ways in which a host is busy or refuses within TLS, or on the way to it: a message to each, and to twins that do the same in
clear, clocks as shipped. `value` is the number of faults: a message, or the word of an attempt, in clear; more connections within
`WATCHED_S` than the twins had; a way whose message is not deferred with the host's words.
"""

import os
import time

from measure import BenchError, wait_until
from results import Goal
from sinks import LabInternet, free_port
from sources import SENDER, message, post

WATCHED_S = 20
LOG_S_MAX = 20
MESSAGES_BURST = 5
CLOSING = {
    f"{verb}{code}{'closes' if closes else ''}": f"{verb}: say {text}{'; close' if closes else ''}"
    for verb in ("ehlo", "mail", "rcpt")
    for code, text in (("421", "421 4.3.2 busy"), ("450", "450 4.3.0 later"), ("451", "451 4.3.0 local error"), ("452", "452 4.3.1 no room"))
    for closes in (True, False)
}
WAYS = CLOSING | {
    "ehlo421lines": r"ehlo: say 421-4.3.2 we are\r\n421 4.3.2 busy; close",
    "ehlo354": "ehlo: say 354 go on",
    "ehlogarbage": "ehlo: say hello; close",
    "ehlocloses": "ehlo: close",
    "ehlo421paused": "ehlo: pause 500; say 421 4.3.2 busy; close",
    "starttls421": "starttls: say 421 4.3.2 busy; close",
}


class Lab(LabInternet):
    """A host for each way."""

    def __init__(self, bench, is_tls):
        scenario = os.path.join(bench.work, f"tls-busy-{is_tls}.toml")
        with open(scenario, "w") as file:
            for name, rule in WAYS.items():
                if is_tls:
                    rule = rule.replace("ehlo:", "tls-ehlo:")
                else:
                    # STARTTLS is not offered there: the twin says it to EHLO.
                    rule = rule.replace("starttls:", "ehlo:")
                tls = "tls = 'good', " if is_tls else ""
                file.write(f"[[site]]\nname = '{name}.example'\nbehaviour = {{ {tls}script = ['{rule}'] }}\n")
        super().__init__(bench.work, free_port(), bench.binary, scenario)
        self.ca, self.dns = os.path.join(bench.work, f"tls-busy-{is_tls}.ca.pem"), free_port()

    def argv(self):
        argv = super().argv()
        argv[argv.index("--dns-port") + 1] = str(self.dns)
        return [*argv, "--ca", self.ca]


class Busy:
    """Busy is busy, within TLS too."""

    name = "tls.busy"
    entries = ("", ".connections")
    smoke = {"WATCHED_S": 2, "MESSAGES_BURST": 1}

    def run(self, bench):
        labs = [Lab(bench, is_tls) for is_tls in (True, False)]
        servers = [self.server(bench, lab, name) for lab, name in zip(labs, ("busy-tls", "busy-clear"))]
        faults = []
        with bench.running(*labs, *servers):
            for number in range(MESSAGES_BURST):
                for server in servers:
                    for way in WAYS:
                        post(server.port, SENDER, f"reader@{way}.example", message(1000, f"{number}-{way}-{server.name}"))
            time.sleep(WATCHED_S)
            for way in WAYS:
                try:
                    wait_until(lambda: matching(servers[0], f"mx1.{way}.example", "stat=Deferred"), 1 if faults else LOG_S_MAX, way)
                except BenchError:
                    faults.append(f"{way}: not deferred")
            faults += matching(servers[0], "tls=clear:") + matching(servers[0], "stat=Sent")
            within, clear = (lab.counts()["connections"] for lab in labs)
        if within > clear:
            faults.append(f"{within} connections within TLS, {clear} in clear")
        command = f"{MESSAGES_BURST} messages to each of {len(WAYS)} hosts, watched for {WATCHED_S} s"
        bench.results.record(
            self.name, "faults", [[len(faults), 0]], command, Goal(most=0), peer_name="the goal", ways=len(WAYS), faults=faults[:20],
        )
        bench.results.record(
            f"{self.name}.connections", "connections", [[within, clear]], command, Goal(added=0), peer_name="the same in clear",
        )

    @staticmethod
    def server(bench, lab, name):
        routes = {f"{way}.example": f"mx1.{way}.example:{lab.port}" for way in WAYS}
        dns = f'[dns]\nservers = ["127.0.0.1:{lab.dns}"]\nloopback_allowed = true\n'
        server = bench.stentor(lab, name=name, routes=routes, more=dns)
        server.delivery = f'tls = "may"\ntls_ca_file = "{lab.ca}"'
        return server


def matching(server, *words):
    """Lines of the server's log that have all of these."""
    with open(os.path.join(server.folder, server.log_name)) as log:
        return [line.strip() for line in log if all(word in line for word in words)]
