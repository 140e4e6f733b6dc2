#!/usr/bin/env python3
"""Lets a real sendmail, Postfix or Exim write a log: `run.py MTA --kit BIN --root DIR --out FILE`.

The MTA runs from a configuration of its own on loopback ports and delivers to the lab's sinks (`stentor-kit lab sink`): mail is
delivered, put off and tried again, refused for good, and given up after a few seconds in the queue. It ends when the queue is
empty. Must run as root; the programs are where testing/server/foreign/fetch.sh unpacked them (Postfix: where Debian installs it).
Nothing of the machine is changed: users, /dev/log and configuration are those of a mount namespace.
"""

import argparse
import os
import shutil
import smtplib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import mtas

MESSAGES = 24
# After this the run has failed, whatever the machine.
SECONDS_MAX = 240

OK, SLOW, DOWN = "127.0.9.2", "127.0.9.3", "127.0.9.9"
ROUTES = {"ok.lab": OK, "slow.lab": SLOW, "down.lab": DOWN}
BEHAVIOURS = {
    OK: 'reject_users = ["nobody"]\nfull_users = ["full"]',
    SLOW: 'rtt_ms = 20\nrecipients_per_transaction_max = 3\ngreylist_ms = 1500\ngreylist_by = "recipient"',
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mta", choices=sorted(mtas.MTAS))
    parser.add_argument("--kit", required=True)
    parser.add_argument("--root", required=True, help="where fetch.sh unpacked the programs")
    parser.add_argument("--out", required=True)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--inside"]
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", *command])
        sys.exit(done.returncode)
    folder = tempfile.mkdtemp(prefix=f"stentor-{options.mta}-")
    os.chmod(folder, 0o755)
    try:
        Run(options, folder).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Run:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.children = []
        self.sink_port = free_port(OK)
        self.port = free_port("127.0.0.1")
        self.log = os.path.join(folder, "log")
        self.mta = mtas.MTAS[options.mta](self)

    def run(self):
        threading.Thread(target=self.give_up, daemon=True).start()
        try:
            for address, behaviour in BEHAVIOURS.items():
                self.spawn([
                    self.options.kit, "lab", "sink", f"{address}:{self.sink_port}", "--behaviour", behaviour,
                    "--record", "counters",
                ])
                self.wait_for_port(address, self.sink_port)
            self.mta.start()
            self.wait_for_port("127.0.0.1", self.port)
            self.post()
            while not self.mta.queue_is_empty():
                self.mta.work()
                time.sleep(0.2)
            self.mta.stop()
        except BaseException:
            self.show_log()
            raise
        finally:
            for child in self.children:
                child.kill()
                child.wait()
        shutil.copy(self.mta.log_path(), self.options.out)

    def show_log(self):
        if os.path.exists(self.mta.log_path()):
            with open(self.mta.log_path(), errors="replace") as log:
                sys.stderr.writelines(log.readlines()[-20:])

    def give_up(self):
        time.sleep(SECONDS_MAX)
        print(f"{self.options.mta}: the queue was not empty after {SECONDS_MAX} s", file=sys.stderr, flush=True)
        self.show_log()
        for child in self.children:
            child.kill()
        os._exit(1)

    def spawn(self, command, **kwargs):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **kwargs)
        self.children.append(child)
        return child

    def wait_for_port(self, address, port):
        while True:
            try:
                socket.create_connection((address, port), timeout=5).close()
                return
            except OSError:
                dead = [child.args for child in self.children if child.poll() is not None]
                if dead:
                    sys.exit(f"{self.options.mta}: ended early: {dead}")
                time.sleep(0.05)

    def post(self):
        """Messages with one to seven recipients, some of them refused by us or by the hosts."""
        client = smtplib.SMTP("127.0.0.1", self.port, local_hostname="source.lab", timeout=60)
        for number in range(self.options.messages):
            to = [f"a{number}@ok.lab", f"b{number}@ok.lab", f"c{number}@slow.lab", f"d{number}@slow.lab"]
            if number % 3 == 0:
                to = to[:1]
            if number % 4 == 1:
                to.append("nobody@ok.lab")
            if number % 6 == 2:
                to.append("full@ok.lab")
            if number % 5 == 3:
                to.append(f"e{number}@down.lab")
            if number % 8 == 4:
                to.append("refused@ok.lab")
            text = f"From: s@ok.lab\r\nTo: l@ok.lab\r\nSubject: {number}\r\nMessage-ID: <{number}@source.lab>\r\n\r\n"
            client.sendmail("sender@ok.lab", to, text + "x" * 70 + "\r\n")
        client.quit()


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
