"""Relay with tables and rules in force beside the same server without any: what deciding costs. None of the rules ends the list,
so that all of them are asked for each message; a table of routes names the next hop at last."""

import os
import random

from bench import measured_cpu, pairs
from results import Goal
from sinks import SmtpSink, free_port
from sources import RECIPIENT, SENDER, command_text, smtp_source

SESSIONS = 20
MESSAGES = 5000
LENGTH = 4096
# Entries of each table.
ENTRIES = 1000
TABLES = 20
RULES = 50
SEED = 14


def write_tables(folder, sink_port):
    """A table of networks, one of routes, and others of addresses; as (name, `source`, `as`)."""
    chance = random.Random(SEED)
    os.makedirs(folder, exist_ok=True)
    tables = []
    for number in range(TABLES):
        path = os.path.join(folder, f"table-{number}")
        if number == 0:
            kind, owner = "cidr", "access"
            lines = [f"198.{chance.randint(18, 19)}.{n % 256}.{n // 256}/32 REJECT" for n in range(ENTRIES)]
        elif number == 1:
            kind, owner = "hash", "transport"
            lines = [f"site{n}.example smtp:[192.0.2.{n % 256}]" for n in range(ENTRIES)]
            lines.append(f"{RECIPIENT.rpartition('@')[2]} smtp:[127.0.0.1]:{sink_port}")
        else:
            kind, owner = "hash", "access"
            lines = [f"user{n}@site{number}.example REJECT not {n}" for n in range(ENTRIES)]
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        tables.append((f"t{number}", f"{kind}:{path}", owner))
    return tables


def configuration(tables):
    text = '[routing]\ntables = ["t1"]\n'
    for name, source, owner in tables:
        text += f'[tables.{name}]\nsource = "{source}"\nas = "{owner}"\n'
    for number in range(RULES):
        # Most ask a table, as those who come from Postfix have them; the others have patterns of their own.
        name = tables[number % TABLES][0]
        if number % TABLES == 0:
            text += f'[[rules]]\nclient = "table:{name}"\n'
        elif number % TABLES == 1:
            text += f'[[rules]]\nsender = "/^bounce[0-9]+-{number}@/"\ndo = "reject"\n'
        elif number % 2:
            text += f'[[rules]]\nrecipient = "table:{name}"\n'
        elif number % 4:
            text += f'[[rules]]\nsender = "table:{name}"\n'
        else:
            text += f'[[rules]]\nsender = ["a{number}@x.example", ".bad{number}.example"]\nrecipient = "b@y.example"\ndo = "hold"\n'
    return text


class Relay:
    """Relay with 20 tables and 50 rules, against none."""

    name = "policy.relay"
    entries = (".accepted", ".delivered", ".cpu")
    smoke = {"MESSAGES": 200}

    def run(self, bench):
        sink = SmtpSink(bench.work, free_port())
        tables = write_tables(os.path.join(bench.work, "policy-relay"), sink.port)
        ruled = bench.stentor(sink, name="with-rules", more=configuration(tables))
        plain = bench.stentor(sink, name="without")
        with bench.running(sink, ruled, plain):
            rounds = bench.alternate([ruled, plain], lambda contestant: self.once(contestant, sink))
        command = f"{command_text(SESSIONS, MESSAGES, LENGTH, True)} -f {SENDER} -t {RECIPIENT}"
        for field, unit, goal, more in (
            ("accepted", "messages/s", Goal(ratio=0.9), True),
            ("delivered", "messages/s", Goal(ratio=0.9), True),
            ("cpu", "CPU ms/message", Goal(added=0.05), False),
        ):
            bench.results.record(
                f"{self.name}.{field}", unit, pairs(rounds, field), command, goal, more_is_better=more, peer_name="without rules"
            )

    def once(self, contestant, sink):
        accepted_s, delivered_s, _, cpu_s = measured_cpu(
            contestant, sink, MESSAGES, lambda: smtp_source(contestant.port, SESSIONS, MESSAGES, LENGTH, True)
        )
        return {"accepted": MESSAGES / accepted_s, "delivered": MESSAGES / delivered_s, "cpu": cpu_s / MESSAGES * 1000}
