"""mlmmj 1.3.0 as a program of an alias file (docs/operate/managers/mlmmj.md). Each member's copy comes from `list+bounces-N-member=domain@`, and it
counts what comes back there by the address in Delivered-To."""

import os
import re

from field.server import wait_for
from managers.page import Page
from managers.world import OWNER, POSTER, PROGRAMS, USER, Helper, message, own, post, run

DOMAIN = "lists.mlmmj.test"
LIST = f"news@{DOMAIN}"
FOLDERS = (
    "incoming queue queue/discarded archive text subconf unsubconf bounce control moderation subscribers.d digesters.d requeue nomailsubs.d"
)
PAGE_DOMAIN = "lists.example.org"
PAGE_ALIASES = "/etc/stentor/mlmmj.aliases"
POSTFIX_MAIN = """\
mydestination = {domain}
recipient_delimiter = +
default_privs = {user}
smtpd_authorized_verp_clients = 127.0.0.0/8
alias_maps = hash:{aliases}
local_recipient_maps = $alias_maps
"""


class Mlmmj:
    name = "mlmmj"
    address = LIST

    def __init__(self, bench, folder, verp="postfix"):
        """`verp`: what the list's file of that name says; None: there is none."""
        self.folder, self.list, self.page, self.verp = folder, f"{folder}/news", Page("mlmmj"), verp
        self.aliases = f"{folder}/aliases"
        self.helper = Helper(bench, folder, "mlmmj")

    @staticmethod
    def program(name):
        return os.path.join(PROGRAMS, "mlmmj", "usr", "bin", name)

    @staticmethod
    def is_there():
        return os.access(Mlmmj.program("mlmmj-receive"), os.X_OK)

    def _write_aliases(self):
        values = {"/usr/bin/mlmmj-receive": self.program("mlmmj-receive"), "/var/spool/mlmmj": self.folder}
        with open(self.aliases, "w") as file:
            file.write(self.page.block("", 0, values))

    def sections(self):
        self._write_aliases()
        self.helper.write(self.page.block("toml", 1, {PAGE_ALIASES: self.aliases, 'user = "mlmmj"': f'user = "{USER}"'}))
        values = {PAGE_DOMAIN: DOMAIN, PAGE_ALIASES: self.aliases, "/run/stentor-deliver": self.helper.sockets, "you@example.org": OWNER}
        return self.page.block("toml", 0, values)

    def postfix(self, postfix, _):
        self._write_aliases()
        run(["postalias", f"hash:{self.aliases}"])
        postfix.more_main = POSTFIX_MAIN.format(domain=DOMAIN, user=USER, aliases=self.aliases)
        self.helper = None

    def prepare(self, port, members, **_):
        for name in FOLDERS.split():
            os.makedirs(f"{self.list}/{name}")
        texts = os.path.join(PROGRAMS, "mlmmj", "usr", "share", "mlmmj", "text.skel", "en")
        run(["cp", "-r", f"{texts}/.", f"{self.list}/text"])
        control = {"owner": OWNER, "listaddress": LIST, "relayhost": "127.0.0.1", "smtpport": str(port)}
        if self.verp is not None:
            control["verp"] = self.verp
        for name, text in control.items():
            with open(f"{self.list}/control/{name}", "w") as file:
                file.write(f"{text}\n")
        open(f"{self.list}/index", "w").close()
        self.begun = {*members.all, POSTER}
        for member in self.begun:
            run([self.program("mlmmj-sub"), "-L", self.list, "-a", member, "-f", "-s"])
        own(self.list)

    def run(self):
        if self.helper:
            self.helper.start()

    def start(self, server, members):
        self.prepare(server.port, members)
        self.run()

    def post(self, server, subject):
        return server.send(POSTER, [LIST], post(LIST, subject)).startswith("250")

    def counted(self):
        """Members that have a file with a bounce."""
        names = (name for name in os.listdir(f"{self.list}/bounce") if not name.endswith(".lastmsg"))
        return {name.replace("=", "@") for name in names}

    def maintain(self):
        """What a timer does, ten days later: it removes members who bounced for `bouncelife` if the probe has come back, too."""
        for name in self.counted():
            path = f"{self.list}/bounce/{name.replace('@', '=')}"
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(re.sub(r"(?<=:)\d{10}", lambda at: str(int(at[0]) - 10 * 86_400), text))
        run(["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", self.program("mlmmj-maintd"), "-F", "-L", self.list])

    def removed(self):
        """Members who are no subscribers any more."""
        return self.begun - self._members()

    def _members(self):
        found = set()
        for folder in ("subscribers.d", "digesters.d"):
            for name in os.listdir(f"{self.list}/{folder}"):
                with open(f"{self.list}/{folder}/{name}") as file:
                    found |= set(file.read().split())
        return found

    def join(self, server, person):
        return server.send(person, [f"news+subscribe@{DOMAIN}"], message(person, f"news+subscribe@{DOMAIN}", "join"))

    def answer(self, mail):
        """To whom a request for confirmation is answered, and with which subject; None: it is none."""
        to = (mail.fields("Reply-To") or [b""])[0].decode()
        return (to, "Re: confirm") if "confsub" in to else None

    def is_member(self, person):
        return person in self._members()

    def digest(self, person):
        """From now on a member gets digests."""
        run([self.program("mlmmj-sub"), "-L", self.list, "-a", person, "-d", "-f", "-s"])
        own(self.list)
        with open(f"{self.list}/control/digestmaxmails", "w") as file:
            file.write("1\n")

    def send_digests(self):
        self.maintain()

    def stop(self):
        if self.helper:
            self.helper.stop()


class MlmmjByPipe(Mlmmj):
    """The same as a program for all addresses of a domain; a table of its lists refuses the others."""

    name = "mlmmj_pipe"

    def sections(self):
        program = {"/usr/bin/mlmmj-receive": self.program("mlmmj-receive"), 'user = "mlmmj"': f'user = "{USER}"', "/var/spool/mlmmj": self.folder}
        self.helper.write(self.page.block("toml", 3, program))
        # As the route's short form names it.
        route = {'"pipe:mlmmj"': f'"lmtp:unix:{self.helper.sockets}/mlmmj.sock"', PAGE_DOMAIN: DOMAIN, "/var/spool/mlmmj": self.folder}
        open(f"{self.folder}/lists", "w").close()
        return self.page.block("toml", 2, route)

    def start(self, server, members):
        super().start(server, members)
        run(["sh", "-ec", self.page.block("sh", 1, {"/var/spool/mlmmj": self.folder})])

    def post(self, server, subject):
        # Until the table that has just been written is in force.
        return wait_for(lambda: super(MlmmjByPipe, self).post(server, subject), 20)
