"""Sympa 6.2.70 (docs/operate/managers/sympa.md): it posts through `sendmail`, gets its mail as programs of an alias file, and sends each member's copy from
`bounce+member==domain==list@`, which it reads in `To` of what comes back.

It is Debian's package, unpacked: a copy of its constants has other folders, and small scripts stand for its `queue` and `bouncequeue`, whose
folders are compiled in. All else is its own: distribution, sending, and the daemon that reads bounces.
"""

import os
import re
import sqlite3
import subprocess

from managers.page import Page
from managers.world import OWNER, POSTER, PROGRAMS, USER, Helper, message, own, post, run

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
log_socket_type inet
"""
PAGE_DOMAIN, PAGE_OWNER = "lists.example.org", "you@example.org"
PAGE_ALIASES, PAGE_PROGRAMS = "/etc/stentor/sympa.aliases", "/usr/lib/sympa/bin"
POSTFIX_MAIN = """\
mydestination = {domain}
recipient_delimiter = +
default_privs = {user}
alias_maps = hash:{aliases}
local_recipient_maps = $alias_maps
"""
POSTFIX_SERVICES = "pickup    unix  n - n 60 1 pickup\n"
# Its sendmail takes its configuration from /etc/postfix, if a user may name no other.
WITHIN = ["unshare", "-m", "--propagation", "private", "sh", "-ec", 'mount --bind "$0" /etc/postfix && exec "$@"']
LIST_CONFIGURATION = """\
subject News

status open

subscribe auth

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
        self.page, self.aliases = Page("sympa"), f"{folder}/aliases"
        self.helper = Helper(bench, folder, "sympa")
        self.sendmail = f"exec {bench.tool('stentor-sendmail')} -C {self.folder}/sendmail.conf"
        self.daemons = []
        # What its daemons are run by.
        self.within = []

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

    def _write_aliases(self):
        values = {PAGE_DOMAIN: DOMAIN, PAGE_PROGRAMS: self.folder, PAGE_OWNER: OWNER}
        with open(self.aliases, "w") as file:
            file.write(self.page.block("", 0, values))

    def sections(self):
        self._write_aliases()
        self.helper.write(self.page.block("toml", 1, {PAGE_ALIASES: self.aliases, 'user = "sympa"': f'user = "{USER}"'}))
        values = {
            PAGE_DOMAIN: DOMAIN, PAGE_ALIASES: self.aliases, "/run/stentor-deliver": self.helper.sockets, PAGE_OWNER: OWNER,
            "/var/spool/stentor/submission": self.drop, 'trusted_users = ["sympa"]': f'trusted_users = ["{USER}"]\ngroup = "{USER}"',
        }
        return self.page.block("toml", 0, values)

    def postfix(self, postfix, _):
        self._write_aliases()
        run(["postalias", f"hash:{self.aliases}"])
        postfix.more_main = POSTFIX_MAIN.format(domain=DOMAIN, user=USER, aliases=self.aliases)
        postfix.more_services = POSTFIX_SERVICES
        self.helper, self.sendmail, self.within = None, "exec /usr/sbin/sendmail", [*WITHIN, postfix.configuration]

    def prepare(self, _, members, **__):
        self._write_files()
        own(self.folder)
        run(self._argv("sympa.pl", "--health_check"), env=self._environment)
        everyone = "\n".join([*members.all, POSTER]) + "\n"
        run(self._argv("sympa.pl", "add", "--quiet", LIST), env=self._environment, input=everyone)

    def run(self):
        if self.helper:
            self.helper.start()
        for daemon in DAEMONS:
            log = open(f"{self.folder}/{daemon}.log", "wb")
            argv = [*self.within, *self._argv(daemon, "--foreground")]
            self.daemons.append(subprocess.Popen(argv, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def start(self, server, members):
        self.prepare(server.port, members)
        self.run()

    def _settings(self):
        return self.page.block("ini", 0, {"/usr/sbin/sendmail": f"{self.folder}/sendmail"})

    def _write_files(self):
        folder, spool = self.folder, f"{self.folder}/spool"
        names = "lib/Sympa run list_data/news etc arc bounce css pictures spool/msg spool/bounce spool/tmp"
        for name in names.split():
            os.makedirs(f"{folder}/{name}", exist_ok=True)
        constants = f"{self.root}/usr/share/sympa/lib/Sympa/Constants.pm"
        files = {
            "lib/Sympa/Constants.pm": self._constants(open(constants).read()),
            "sympa.conf": CONFIGURATION.format(domain=DOMAIN, owner=OWNER, folder=folder)
            + self._settings(),
            "list_data/news/config": LIST_CONFIGURATION.format(owner=OWNER),
            "sendmail.conf": f'folder = "{self.drop}"\n',
            "sendmail": f'#!/bin/sh\n{self.sendmail} "$@"\n',
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

    def join(self, server, person):
        return server.send(person, [f"sympa@{DOMAIN}"], message(person, f"sympa@{DOMAIN}", "subscribe news"))

    def answer(self, mail):
        """To whom a request for confirmation is answered, and with which subject; None: it is none."""
        subject = mail.fields("Subject")[0].decode()
        return (f"sympa@{DOMAIN}", f"Re: {subject}") if subject.startswith("AUTH ") else None

    def is_member(self, person):
        with sqlite3.connect(f"file:{self.folder}/sympa.sqlite?mode=ro", uri=True, timeout=10) as database:
            return bool(database.execute("SELECT 1 FROM subscriber_table WHERE user_subscriber = ?", (person,)).fetchone())

    def stop(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(20)
        if self.helper:
            self.helper.stop()


class SympaInBulk(Sympa):
    """The same, but it sends to many members at a time, and this server gives each copy its return path."""

    name = "sympa_bulk"

    def sections(self):
        return super().sections() + self.page.block("toml", 2, {PAGE_DOMAIN: DOMAIN})

    def _settings(self):
        return super()._settings().replace("verp_rate 100%\n", self.page.block("ini", 1))
