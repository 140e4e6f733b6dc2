"""The members of a list: hosts that take mail for some and refuse others at RCPT, and what a list manager is given of them."""

import os
import shutil
import subprocess
import time

from field.hosts import Host, path_of
from field.names import NameServer

# What testing/install.sh --peers unpacks: Mailman's venv, and the packages of mlmmj and Sympa with what they need.
PROGRAMS = os.environ.get("STENTOR_MANAGERS_ROOT", "/var/cache/stentor-tests/managers")
DOMAIN = "members.test"
HOST = "127.0.53.1"
OWNER = "owner@members.test"
POSTER = "poster@members.test"
# As whom programs of alias files run.
USER = "games"


class Members:
    """`good` take mail, `gone` are refused with 550 at RCPT."""

    def __init__(self, good, gone):
        self.good = [f"good{n}@{DOMAIN}" for n in range(good)]
        self.gone = [f"gone{n}@{DOMAIN}" for n in range(gone)]
        self.host = Host(HOST, 0, self._reply)
        self.names = NameServer().add_host(DOMAIN, HOST)

    @staticmethod
    def _reply(_, verb, line):
        if verb == "RCPT" and path_of(line).startswith("gone"):
            return "550 5.1.1 No such user here"
        return None

    @property
    def all(self):
        return [*self.good, *self.gone]

    def served(self, subject):
        """Members who have a copy."""
        mails = list(self.host.mails)
        return {to for mail in mails if any(subject in value for value in mail.fields("Subject")) for to in mail.to} & set(self.good)

    def stop(self):
        self.host.stop()


class Helper:
    """`stentor-deliver` with a service that runs the programs of an alias file."""

    def __init__(self, bench, folder, service):
        self.program, self.folder, self.service = bench.tool("stentor-deliver"), folder, service
        self.sockets = f"{folder}/run"
        self.enter, self.process = None, None

    def write(self, services):
        """Its configuration."""
        with open(f"{self.folder}/deliver.toml", "w") as file:
            file.write(f'sockets = "{self.sockets}"\nclient = "root"\nhostname = "mx.stentor.test"\n{services}')

    def start(self):
        argv = [self.program, "--config", f"{self.folder}/deliver.toml"]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=self.enter)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(30)


def run(argv, **options):
    """A command of a list manager; its output if it works."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit code {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def own(folder):
    """Gives a folder, and what is in it, to the user as whom programs run."""
    for path, _, files in os.walk(folder):
        for name in (path, *(os.path.join(path, file) for file in files)):
            shutil.chown(name, USER)


def post(to, subject):
    return (
        f"From: Poster <{POSTER}>\r\nTo: {to}\r\nSubject: {subject}\r\nDate: Sat, 28 Nov 2026 12:00:00 +0000\r\n"
        f"Message-ID: <{subject}@{DOMAIN}>\r\n\r\nA post.\r\n"
    )


def message(sender, to, subject):
    """A person's mail to the manager."""
    number = time.monotonic_ns()
    return f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\nMessage-ID: <{number}@{DOMAIN}>\r\n\r\n{subject}\r\n"
