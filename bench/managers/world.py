"""The members of a list: hosts that take mail for some and refuse others at RCPT, and what a list manager is given of them."""

import os
import shutil
import subprocess

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
    """`stentor-deliver` with the service `aliases`: it runs the programs of an alias file."""

    def __init__(self, bench, folder, aliases):
        self.program, self.folder, self.aliases = bench.tool("stentor-deliver"), folder, aliases
        self.socket = os.path.join(folder, "run", "aliases.sock")
        self.process = None

    def sections(self, domain):
        return (
            f'[domains]\nlocal = ["{domain}"]\npostmaster = "{OWNER}"\n[tables.aliases]\nsource = "aliases:{self.aliases}"\nas = "aliases"\n'
            f'[addresses]\naliases = ["aliases"]\nalias_domains = ["{domain}"]\norigin = "{domain}"\nprograms = "lmtp:unix:{self.socket}"\n'
        )

    def start(self):
        path = os.path.join(self.folder, "deliver.toml")
        service = f'[services.aliases]\nkind = "aliases"\nfiles = ["{self.aliases}"]\nuser = "{USER}"\n'
        with open(path, "w") as file:
            file.write(f'sockets = "{self.folder}/run"\nclient = "root"\nhostname = "mx.stentor.test"\n{service}')
        self.process = subprocess.Popen([self.program, "--config", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(30)


def run(argv, **options):
    """A command of a list manager; its output if it works."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, **options)
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
