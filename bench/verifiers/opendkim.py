"""OpenDKIM's `-t`, which treats files like mail that a mail server hands it; with -vv it prints the field that it would add, which has a
result for each signature."""

import os
import re
import shutil
import subprocess

from measure import BenchError
from verifiers.verdicts import ED25519, PASS, RSA, Signature, Verdict

# The names of all files are one argument, which Linux limits to 128 KiB.
FILES_PER_RUN = 250
RUN_S_MAX = 600
CONFIGURATION = """\
Mode v
TestPublicKeys {keys}
AlwaysAddARHeader yes
MaximumSignaturesToVerify 10
Syslog no
"""
BEGIN = re.compile(r"### INSHEADER: .* hname='Authentication-Results'")
RESULT = re.compile(r".*\bdkim=(\w+)(.*?) header\.d=(\S+) .*header\.a=(\S+) ")
# A step of a file, on standard error.
STEP = re.compile(r"^opendkim: (\S+\.eml): ", re.MULTILINE)
# Missing if the message cannot be read.
END = re.compile(r"opendkim: (\S+): (?:verification|message not signed)")


class OpenDkim:
    name = "OpenDKIM"
    algorithms = (RSA, ED25519)

    def is_there(self):
        return bool(self.program())

    @staticmethod
    def program():
        return shutil.which("opendkim") or shutil.which("/usr/sbin/opendkim")

    def verify(self, folder, files, records):
        """{file: its Verdicts} of files in a folder."""
        keys, configuration = (os.path.join(folder, name) for name in ("opendkim.keys", "opendkim.conf"))
        with open(keys, "w") as file:
            file.writelines(f"{name} {text}\n" for name, text in records.texts.items())
        with open(configuration, "w") as file:
            file.write(CONFIGURATION.format(keys=keys))
        found, waiting = {file: [] for file in files}, list(files)
        while waiting:
            waiting = waiting[self._run(folder, configuration, waiting[:FILES_PER_RUN], found) :]
        return found

    def _run(self, folder, configuration, files, found):
        """Adds the verdicts on the first files, and returns their number: it ends at one that it cannot read."""
        argv = [self.program(), "-vv", "-x", configuration, "-t", ",".join(files)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, timeout=RUN_S_MAX)
        at = -1
        for line in done.stdout.decode(errors="replace").splitlines():
            if BEGIN.match(line):
                at += 1
            if at < len(files) and (result := RESULT.match(line)):
                word, reason, domain, algorithm = result.groups()
                found[files[at]].append(Verdict(Signature(domain, algorithm), PASS if word == "pass" else word + reason))
            end = END.match(line)
            if end and (at >= len(files) or end[1] != files[at]):
                raise BenchError(f"opendkim -t: the result of another file stands before that of {end[1]}")
        steps = STEP.findall(done.stderr.decode(errors="replace"))
        last = files.index(steps[-1]) if steps else -1
        if at not in (last, last - 1) or last < 0 or done.returncode == 0 and last + 1 < len(files):
            raise BenchError(f"opendkim -t: {at + 1} results of {len(files)} files: {done.stderr.decode(errors='replace')[-400:]}")
        return last + 1
