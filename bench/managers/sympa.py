"""Sympa 6.2.70: it posts through our `sendmail`, gets its mail as programs of an alias file, and sends each member's copy from
`bounce+member==domain==list@`, which it reads in `To` of what comes back.

It is Debian's package, unpacked: a copy of its constants has other folders, and small scripts stand for its `queue` and `bouncequeue`, whose
folders are compiled in. All else is its own: distribution, sending, and the daemon that reads bounces.
"""

import os
import re
import sqlite3
import subprocess

from managers.world import OWNER, POSTER, PROGRAMS, USER, Helper, own, post, run

DOMAIN = "lists.sympa.test"
LIST = f"news@{DOMAIN}"
DAEMONS = ("sympa_msg.pl", "bulk.pl", "bounced.pl")

CONFIGURATION = """\
domain {domain}
listmaster {owner}
db_type SQLite
db_name {folder}/sympa.sqlite
home {folder}/list_data
spool {folder}/spool
etc {folder}/etc
arc_path {folder}/arc
bounce_path {folder}/bounce
queue {folder}/spool/msg
queuebounce {folder}/spool/bounce
sendmail {folder}/sendmail
sendmail_aliases none
verp_rate 100%
log_socket_type inet
"""
LIST_CONFIGURATION = """\
subject News
status open
process_archive off

owner
email {owner}

creation
date_epoch 1700000000
date 14 Nov 2023
email {owner}
"""
# As its `queue` and `bouncequeue` do: a whole file under the name that the daemons look for.
QUEUE = '#!/bin/sh\nname="$1.$(date +%s).$$"; {{ {first}cat; }} >"{spool}/tmp/$name" && mv "{spool}/tmp/$name" "{spool}/{queue}/$name"\n'


class Sympa:
    name = "sympa"
    address = LIST

    def __init__(self, bench, folder):
        # Its own, since it is a user's; the submission folder beside it is the server's.
        self.folder, self.root, self.drop = f"{folder}/sympa", os.path.join(PROGRAMS, "sympa"), f"{folder}/drop"
        self.helper = Helper(bench, folder, f"{folder}/aliases")
        self.sendmail = bench.tool("stentor-sendmail")
        self.daemons = []

    @staticmethod
    def is_there():
        return os.access(os.path.join(PROGRAMS, "sympa", "usr", "lib", "sympa", "bin", "bounced.pl"), os.R_OK)

    @property
    def _environment(self):
        usr = f"{self.root}/usr"
        architecture = os.path.join(usr, "lib", f"{os.uname().machine}-linux-gnu")
        compiled = [f"{architecture}/perl5/{name}" for name in sorted(os.listdir(f"{architecture}/perl5"))]
        libraries = ":".join([f"{usr}/share/perl5", *compiled])
        return {
            **os.environ, "SYMPALIB": f"{self.folder}/lib:{usr}/share/sympa/lib", "PERL5LIB": libraries, "LD_LIBRARY_PATH": architecture,
        }

    def _argv(self, program, *words):
        return ["perl", f"{self.root}/usr/lib/sympa/bin/{program}", *words]

    def sections(self):
        with open(self.helper.aliases, "w") as file:
            file.write(f'news: "|{self.folder}/queue {LIST}"\nbounce: "|{self.folder}/bouncequeue sympa@{DOMAIN}"\n')
            file.write(f'news-owner: "|{self.folder}/bouncequeue {LIST}"\n')
            file.write(f"sympa: {OWNER}\nsympa-request: {OWNER}\nnews-request: {OWNER}\n")
        submission = f'[submission]\nfolder = "{self.drop}"\ngroup = "{USER}"\ntrusted_users = ["{USER}"]\n'
        return submission + self.helper.sections(DOMAIN)

    def start(self, server, members):
        self._write_files()
        own(self.folder)
        run(self._argv("sympa.pl", "--health_check"), env=self._environment)
        everyone = "\n".join([*members.all, POSTER]) + "\n"
        run(self._argv("sympa.pl", "add", "--quiet", LIST), env=self._environment, input=everyone)
        self.helper.start()
        for daemon in DAEMONS:
            log = open(f"{self.folder}/{daemon}.log", "wb")
            argv = self._argv(daemon, "--foreground")
            self.daemons.append(subprocess.Popen(argv, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def _write_files(self):
        folder, spool = self.folder, f"{self.folder}/spool"
        names = "lib/Sympa run list_data/news etc arc bounce css pictures spool/msg spool/bounce spool/tmp"
        for name in names.split():
            os.makedirs(f"{folder}/{name}", exist_ok=True)
        constants = f"{self.root}/usr/share/sympa/lib/Sympa/Constants.pm"
        files = {
            "lib/Sympa/Constants.pm": self._constants(open(constants).read()),
            "sympa.conf": CONFIGURATION.format(domain=DOMAIN, owner=OWNER, folder=folder),
            "list_data/news/config": LIST_CONFIGURATION.format(owner=OWNER),
            "sendmail.conf": f'folder = "{self.drop}"\n',
            "sendmail": f'#!/bin/sh\nexec {self.sendmail} -C {folder}/sendmail.conf "$@"\n',
            "queue": QUEUE.format(first="printf 'X-Sympa-To: %s\\n' \"$1\"; ", spool=spool, queue="msg"),
            "bouncequeue": QUEUE.format(first="", spool=spool, queue="bounce"),
        }
        for name, text in files.items():
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        for name in ("sendmail", "queue", "bouncequeue"):
            os.chmod(f"{folder}/{name}", 0o755)

    def _constants(self, text):
        """Its folders and its user, in a copy of the module that has them."""
        usr = f"{self.root}/usr"
        for there, here in (
            ("'/etc/sympa/sympa/sympa.conf'", f"'{self.folder}/sympa.conf'"), ("'/run/sympa'", f"'{self.folder}/run'"),
            ("'/var/lib/sympa/", f"'{self.folder}/"), ("'/var/spool/sympa'", f"'{self.folder}/spool'"), ("'/etc/sympa'", f"'{self.folder}/etc'"),
            ("'/usr/share/sympa", f"'{usr}/share/sympa"), ("'/usr/lib/sympa/bin'", f"'{usr}/lib/sympa/bin'"),
        ):
            text = text.replace(there, here)
        return re.sub(r"(?<=> )'sympa'", f"'{USER}'", text)

    def post(self, server, subject):
        return server.send(POSTER, [LIST], post(LIST, subject)).startswith("250")

    def counted(self):
        """Members with bounces."""
        with sqlite3.connect(f"file:{self.folder}/sympa.sqlite?mode=ro", uri=True, timeout=10) as database:
            rows = database.execute("SELECT user_subscriber FROM subscriber_table WHERE bounce_subscriber IS NOT NULL")
            return {email for email, in rows}

    def stop(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(20)
        self.helper.stop()
