"""Mailman 3.3.10 by LMTP, out of the maps that it writes for Postfix (docs/operate/moving.md). It finds the members in the DSN's text."""

import os
import sqlite3
import subprocess
import time

from field.server import free_port, wait_for
from managers.world import OWNER, POSTER, PROGRAMS, post, run

DOMAIN = "lists.mailman.test"
LIST = f"news@{DOMAIN}"

CONFIGURATION = """\
[mailman]
layout: here
site_owner: {owner}
[paths.here]
var_dir: {folder}/var
[mta]
incoming: mailman.mta.postfix.LMTP
outgoing: mailman.mta.deliver.deliver
lmtp_host: 127.0.0.1
lmtp_port: {lmtp}
smtp_host: 127.0.0.1
smtp_port: {smtp}
configuration: {folder}/postfix-mailman.cfg
[webservice]
port: {web}
# It looks every quarter of an hour otherwise.
[runner.bounces]
sleep_time: 1s
"""
POSTFIX = "[postfix]\npostmap_command: /bin/true\ntransport_file_type: hash\n"

SECTIONS = """
[domains]
relay = ["table:mailman_domains"]
postmaster = "{owner}"
[tables.mailman_domains]
source = "hash:{data}/postfix_domains"
[tables.mailman]
source = "hash:{data}/postfix_lmtp"
as = "transport"
[tables.postmasters]
as = "virtual"
inline = {{ "postmaster@{domain}" = "{owner}" }}
[addresses]
virtual = ["postmasters"]
[routing]
tables = ["mailman"]
[[rules]]
recipient = "table:mailman_domains"
not = {{ recipient = ["table:mailman", "postmaster@{domain}"] }}
do = "reject 550 5.1.1 User unknown"
"""


class Mailman:
    name = "mailman"
    address = LIST

    def __init__(self, _, folder):
        self.folder, self.program = folder, os.path.join(PROGRAMS, "mailman", "bin", "mailman")
        self.smtp, self.lmtp, self.web = None, free_port(), free_port()

    @staticmethod
    def is_there():
        return os.access(os.path.join(PROGRAMS, "mailman", "bin", "mailman"), os.X_OK)

    def _mailman(self, *words, **options):
        return run([self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", *words], cwd=self.folder, **options)

    def sections(self):
        # The server reads the maps when it starts, and again when Mailman has written them.
        data = f"{self.folder}/var/data"
        os.makedirs(data)
        for name in ("postfix_domains", "postfix_lmtp"):
            open(f"{data}/{name}", "w").close()
        return SECTIONS.format(data=data, owner=OWNER, domain=DOMAIN)

    def start(self, server, members):
        values = {"folder": self.folder, "owner": OWNER, "smtp": server.port, "lmtp": self.lmtp, "web": self.web}
        for name, text in {"mailman.cfg": CONFIGURATION.format(**values), "postfix-mailman.cfg": POSTFIX}.items():
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(text)
        self._mailman("create", "-o", OWNER, LIST)
        self._mailman("addmembers", "-W", "-", LIST, input="\n".join([*members.all, POSTER]) + "\n")
        # What it starts keeps the descriptors that it has.
        argv = [self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", "start", "--force"]
        subprocess.run(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        if not wait_for(self._listens, 60):
            raise RuntimeError("Mailman does not listen for LMTP")

    def _listens(self):
        return subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.lmtp}"], capture_output=True).returncode == 0

    def post(self, server, subject):
        # Until the table that Mailman has just written is in force.
        return wait_for(lambda: self._taken(server, subject), 20)

    def _taken(self, server, subject):
        reply = server.send(POSTER, [LIST], post(LIST, subject))
        time.sleep(0 if reply.startswith("250") else 0.5)
        return reply.startswith("250")

    def counted(self):
        """Members whose bounce is registered."""
        with sqlite3.connect(f"file:{self.folder}/var/data/mailman.db?mode=ro", uri=True, timeout=10) as database:
            return {email for email, in database.execute("SELECT email FROM bounceevent")}

    def stop(self):
        subprocess.run([self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        wait_for(lambda: not os.path.exists(f"{self.folder}/var/master.pid"), 30)
