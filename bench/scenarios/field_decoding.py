"""What decoding costs at worst.

For each decoder a search for the message of 64 KiB with the highest processor time per octet, on the way of a stranger's message through
the server without sockets and disk (testing/sim/src/scenario/decoding); replies of milters and name servers on ways of their own.
`value` is the worst ratio to plain words on the message's way; the rows stand in `detail`, each with the message that was found.
`.recoding` is the same for conversions on the way out, which write up to eleven octets for one. A
seed decides what is tried, the measured time what is kept: a run may find another message than the one before.

`.p99`: the messages that were found, larger, sent by strangers to a server with rules on content while users submit, each in a session
of its own with TLS and a login; by turns to the server and to a listener that discards."""

import json
import os
import shutil
import subprocess
import sys
import time

from encryption import Certificate, add_users
from guesses import USERS
from measure import BenchError, wait_until
from results import Goal
from scenarios import tls_guesses
from scenarios.robust_strangers import PROGRAM, Discarder, by_turns, finished
from sinks import SmtpSink, free_port

OCTETS = 64 * 1024
ATTEMPTS = 600
SEED = 30
RUN_S_MAX = 1_800
RATIO_MAX = 4
RECODING = "recode."
RECODING_RATIO_MAX = 32
ROW_KEYS = ("ratio", "ns_per_octet", "plain_ns_per_octet", "begins", "unit")
# Of the strangers, from 20 addresses; each sends a message of 256 KiB in two seconds, and is back after eight.
CONNECTIONS = 200
SECONDS = 20
BEGIN_S = 4
TURNS = 6
CLOSED_S_MAX = 60
P99_LONGER = 1.2
# A condition of each kind, as in the search: all decoders work.
CONDITIONS = (
    r'body = ["/you\\s+won/", "viagra"]', r'body = ["/cash\\w{3,20}prize/", "/https?:\\/\\/[a-z0-9.-]+\\.bad\\//"]',
    'body = "предложение"', 'header = "*: /[a-z]+ pills/"', 'raw_header = "X-Mailer: bulk"', 'subject = "offer"', 'script = "Han 20%"',
    'charset = ["gb2312", "koi8*"]', 'malformed = ["nested", "boundary"]', 'attachment = ["*.exe", "*.js"]',
)
RULES = "".join(f'[[rules]]\n{condition}\ndo = "reject 550 5.7.1 No"\n' for condition in CONDITIONS)


class DecodingCost:
    """The worst message for each decoder, against plain words; users beside strangers who send them."""

    name = "field.decoding_cost"
    entries = ("", ".recoding", ".p99")
    smoke = {"ATTEMPTS": 3, "CONNECTIONS": 40, "SECONDS": 4, "BEGIN_S": 1, "TURNS": 1}

    def run(self, bench):
        self.messages = os.path.join(bench.work, "decoding-messages")
        shutil.rmtree(self.messages, ignore_errors=True)
        os.makedirs(self.messages)
        self.search(bench)
        self.beside_users(bench)

    def search(self, bench):
        command = ["decoding", f"seed={SEED}", f"bytes={OCTETS}", f"attempts={ATTEMPTS}", f"write={self.messages}"]
        done = subprocess.run([bench.tool("stentor-sim"), *command], capture_output=True, text=True, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"stentor-sim: {done.stderr.strip()[-800:]}")
        seen = json.loads(done.stdout)
        rows = {row["decoder"]: {key: row[key] for key in ROW_KEYS} for row in seen["rows"]}
        for decoder, row in rows.items():
            print(f"    {decoder:20} {row['ratio']:6.2f} times, {row['ns_per_octet']:7.2f} ns/octet: {row['unit'][:60]}", flush=True)
        for entry, goal, is_recoding in ((self.name, RATIO_MAX, False), (f"{self.name}.recoding", RECODING_RATIO_MAX, True)):
            own = {decoder: row for decoder, row in rows.items() if decoder.startswith(RECODING) == is_recoding}
            worst = max(row["ratio"] for row in own.values())
            bench.results.record(
                entry, "times plain words", [[worst, goal]], " ".join(["stentor-sim", *command[:-1]]),
                Goal(most=goal), peer_name="the goal", plain_ns_per_octet=seen["plain_ns_per_octet"], rows=own,
            )

    def beside_users(self, bench):
        folder = os.path.join(bench.work, "decoding-files")
        certificate, users, port = Certificate(folder), os.path.join(folder, "users"), free_port()
        add_users(bench, users, *USERS)
        subscribers = os.path.join(folder, "subscribers")
        with open(subscribers, "w") as file:
            file.write("reader@sink.example\n")
        sink, discarder = SmtpSink(bench.work, free_port()), Discarder(free_port())
        server = bench.stentor(
            sink, subscribers=subscribers, name="decoding", top='client_networks = ["192.0.2.1"]',
            listen=f'submission = ["127.0.0.1:{port}"]', more=f'{certificate.for_stentor()}[auth]\nusers = "{users}"\n{RULES}',
        )
        with bench.running(sink, discarder, server):
            # Warm up: every user logs in once.
            tls_guesses.submit(port, 1)
            rounds, full = by_turns(server, discarder, TURNS, lambda target, _: self.beside(server, port, target))
        command = f"python3 bench/strangers.py attack PORT --connections {CONNECTIONS} --seconds {SECONDS} --messages FOLDER"
        bench.results.record(
            f"{self.name}.p99", "ms at p99", rounds, f"{tls_guesses.SUBMISSIONS_RATE} submissions/s beside: {command}",
            Goal(ratio=1 / P99_LONGER), peer_name="the same attack at a listener that discards", rounds_in_full=full,
        )

    def beside(self, server, port, target):
        os.sync()
        argv = [sys.executable, PROGRAM, "attack", str(target.port), "--connections", str(CONNECTIONS), "--seconds", str(SECONDS)]
        attack = subprocess.Popen([*argv, "--messages", self.messages], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(BEGIN_S)
            begun, cpu_s = time.monotonic(), server.group.cpu_s()
            found = tls_guesses.submit(port, SECONDS - BEGIN_S)
            share = (server.group.cpu_s() - cpu_s) / (time.monotonic() - begun)
        finally:
            found_attack = finished(attack)
        wait_until(lambda: server.status()["connections_in"] == 0, CLOSED_S_MAX, "all sessions closed")
        server.wait_drained()
        return {**found, "attack": found_attack, "server_cpus": share}
