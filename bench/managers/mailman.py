"""Mailman 3.3.10 by LMTP, out of the maps that it writes for Postfix (docs/operate/managers/mailman.md). It finds the members in the DSN's text."""

import base64
import os
import shlex
import sqlite3
import subprocess
import time
import urllib.parse
import urllib.request

from field.server import free_port, wait_for
from managers.page import Page
from managers.world import OWNER, POSTER, PROGRAMS, message, post, run

DOMAIN = "lists.mailman.test"
LIST = f"news@{DOMAIN}"
PAGE_DOMAIN = "lists.example.org"
# Exit code of `stentor explain`.
REFUSED = 69

BEGINNING = """\
[mailman]
layout: here
site_owner: {owner}
[paths.here]
var_dir: {folder}/var
[webservice]
port: {web}
# It looks every quarter of an hour otherwise.
[runner.bounces]
sleep_time: 1s
"""
# As Postfix reads the maps.
POSTFIX_MAIN = """\
mydestination =
local_recipient_maps =
recipient_delimiter = +
relay_domains = hash:{data}/postfix_domains
transport_maps = hash:{configuration}/transport, hash:{data}/postfix_lmtp
"""
POSTFIX_SERVICES = "lmtp      unix  - - n - - lmtp\n"


class Mailman:
    name = "mailman"
    address = LIST

    def __init__(self, _, folder, own_verp=False):
        """`own_verp`: Mailman hands a message in for each member."""
        self.folder, self.program = folder, os.path.join(PROGRAMS, "mailman", "bin", "mailman")
        self.data, self.page, self.own_verp = f"{folder}/var/data", Page("mailman"), own_verp
        self.lmtp, self.web = free_port(), free_port()

    @staticmethod
    def is_there():
        return os.access(os.path.join(PROGRAMS, "mailman", "bin", "mailman"), os.X_OK)

    def _mailman(self, *words, **options):
        return run([self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", *words], cwd=self.folder, **options)

    def sections(self):
        # The server reads the maps when it starts, and again when Mailman has written them.
        os.makedirs(self.data, exist_ok=True)
        for name in ("postfix_domains", "postfix_lmtp"):
            open(f"{self.data}/{name}", "a").close()
        return self.page.block("toml", 0, {"/var/lib/mailman3/data": self.data, "you@example.org": OWNER, PAGE_DOMAIN: DOMAIN})

    def postfix(self, postfix, _):
        postfix.more_main = POSTFIX_MAIN.format(data=self.data, configuration=postfix.configuration)
        postfix.more_services = POSTFIX_SERVICES

    def prepare(self, port, members, postmap="/bin/true"):
        """The list and its members, before anything runs."""
        values = {"lmtp_port: 8024": f"lmtp_port: {self.lmtp}", "smtp_port: 25": f"smtp_port: {port}", "/etc/mailman3": self.folder}
        mta = self.page.block("ini", 0, values)
        if self.own_verp:
            mta += "verp_delivery_interval: 1\n"
        files = {
            "mailman.cfg": BEGINNING.format(folder=self.folder, owner=OWNER, web=self.web) + mta,
            "postfix-mailman.cfg": self.page.block("ini", 1, {"/bin/true": postmap}),
        }
        for name, text in files.items():
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(text)
        self._mailman("create", "-o", OWNER, LIST)
        self.add([*members.all, POSTER])

    def add(self, addresses, delivery="regular"):
        self._mailman("addmembers", "-W", "-d", delivery, "-", LIST, input="\n".join(addresses) + "\n")

    def run(self):
        # What it starts keeps the descriptors that it has.
        argv = [self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", "start", "--force"]
        subprocess.run(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        if not wait_for(self._listens, 60):
            raise RuntimeError("Mailman does not listen for LMTP")

    def start(self, server, members):
        self.prepare(server.port, members)
        self.run()

    def _listens(self):
        return subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.lmtp}"], capture_output=True).returncode == 0

    def post(self, server, subject):
        # Until the table that Mailman has just written is in force.
        return wait_for(lambda: self._taken(server, subject), 20)

    def _taken(self, server, subject):
        reply = server.send(POSTER, [LIST], post(LIST, subject))
        time.sleep(0 if reply.startswith("250") else 0.5)
        return reply.startswith("250")

    def explained(self, server):
        """Whether the commands of README.md end as it says: valid, a post accepted, an unknown list refused, a bounce accepted."""
        commands = Page("README").block("sh", 0, {PAGE_DOMAIN: DOMAIN}).splitlines()
        codes = [server.command(*shlex.split(line, comments=True)[1:])[0] for line in commands]
        return codes == [0, 0, REFUSED, 0]

    def counted(self):
        """Members whose bounce is registered."""
        return self._column("SELECT email FROM bounceevent")

    def _column(self, query):
        with sqlite3.connect(f"file:{self.data}/mailman.db?mode=ro", uri=True, timeout=10) as database:
            return {value for value, in database.execute(query)}

    def _rest(self, method, path, **form):
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}/3.1/{path}", urllib.parse.urlencode(form).encode(), method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"restadmin:restpass").decode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def remove_at_first_bounce(self):
        wait_for(lambda: not self._fails(lambda: self._rest("GET", "system/versions")), 60)
        self._rest("PATCH", f"lists/{LIST}/config", bounce_score_threshold="1")

    @staticmethod
    def _fails(call):
        try:
            call()
        except OSError:
            return True
        return False

    def maintain(self):
        """What a timer does."""

    def removed(self):
        """Members who get no more mail because of bounces."""
        return set(self._mailman("members", "-n", "bybounces", LIST).split()) - {f"{LIST}", "has", "no", "members"}

    def join(self, server, person):
        return server.send(person, [f"news-join@{DOMAIN}"], message(person, f"news-join@{DOMAIN}", "join"))

    def answer(self, mail):
        """To whom a request for confirmation is answered, and with which subject; None: it is none."""
        to, subject = (mail.fields(name)[0].decode() for name in ("From", "Subject"))
        return (to.split("<")[-1].strip("<>"), f"Re: {subject}") if "confirm" in to else None

    def is_member(self, person):
        return person in self._mailman("members", LIST).split()

    def digest(self, person):
        """From now on a member gets digests."""
        self.add([person], "mime")

    def send_digests(self):
        self._mailman("digests", "-l", LIST, "-s")

    def stop(self):
        self._quietly("stop")
        wait_for(lambda: not os.path.exists(f"{self.folder}/var/master.pid"), 30)

    def _quietly(self, word):
        argv = [self.program, "-C", f"{self.folder}/mailman.cfg", "--run-as-root", word]
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
