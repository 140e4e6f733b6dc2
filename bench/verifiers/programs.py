"""Verifiers that are libraries: a program of ours calls each, is given RECORDS FILE... and prints `FILE DOMAIN ALGORITHM RESULT` for each
signature."""

import os
import shutil
import subprocess

from measure import BenchError
from verifiers.verdicts import ED25519, RSA, Signature, Verdict

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Programs that the server's own tests use, too.
SCRIPTS = os.path.join(ROOT, "testing", "server", "tests", "dkim")
# Where testing/install.sh --peers puts those that are not Debian packages.
CACHE = os.environ.get("STENTOR_VERIFIERS_ROOT", "/var/cache/stentor-tests/verifiers")
# Debian's Python, which has Debian's packages.
PYTHON = "/usr/bin/python3"
FILES_PER_RUN = 250
RUN_S_MAX = 600


def works(*command):
    try:
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


class Program:
    """`command()`: what the records and the files are appended to. `algorithms`: those that the verifier knows."""

    name = ""
    algorithms = (RSA, ED25519)

    def is_there(self):
        raise NotImplementedError

    def command(self):
        raise NotImplementedError

    def verify(self, folder, files, records):
        """{file: its Verdicts} of files in a folder."""
        zone = os.path.join(folder, f"{self.name}.zone")
        with open(zone, "w") as file:
            file.write(records.zone)
        found = {file: [] for file in files}
        for begin in range(0, len(files), FILES_PER_RUN):
            argv = [*self.command(), zone, *files[begin : begin + FILES_PER_RUN]]
            done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=RUN_S_MAX)
            if done.returncode:
                raise BenchError(f"{self.name}: exit code {done.returncode}: {done.stderr.decode(errors='replace')[-800:]}")
            for line in done.stdout.decode(errors="replace").splitlines():
                file, domain, algorithm, result = line.split(" ", 3)
                found[file].append(Verdict(Signature(domain, algorithm), result))
        return found


class Dkimpy(Program):
    name = "dkimpy"

    def is_there(self):
        return works(PYTHON, "-c", "import dkim, nacl")

    def command(self):
        return [PYTHON, os.path.join(SCRIPTS, "verify.py")]


class MailDkim(Program):
    """The version of Debian 12 does not know Ed25519."""

    name = "Mail::DKIM"
    algorithms = (RSA,)

    def is_there(self):
        return works("perl", "-e", "use Mail::DKIM; use Net::DNS;")

    def command(self):
        return ["perl", os.path.join(SCRIPTS, "verify.pl")]


class Mailauth(Program):
    name = "mailauth"
    modules = os.path.join(CACHE, "mailauth")

    def is_there(self):
        return bool(shutil.which("node")) and os.path.isdir(os.path.join(self.modules, "node_modules", "mailauth"))

    def command(self):
        return ["node", os.path.join(HERE, "mailauth", "verify.cjs"), self.modules]


class GoMsgauth(Program):
    name = "go-msgauth"
    program = os.path.join(CACHE, "go-msgauth", "go-msgauth")

    def is_there(self):
        return os.access(self.program, os.X_OK)

    def command(self):
        return [self.program]
