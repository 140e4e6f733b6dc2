"""Aliases as Majordomo has them (docs/operate/managers/majordomo.md): a list by `:include:`, and one whose program posts it through `sendmail`. There
is no package of Majordomo any more: a small script stands for its `resend`."""

import os
import re

from field.server import wait_for
from managers.page import Page
from managers.world import OWNER, POSTER, USER, Helper, message, post

DOMAIN = "lists.majordomo.test"
PAGE_DOMAIN, PAGE_ALIASES = "lists.example.org", "/etc/stentor/majordomo.aliases"
# wrapper resend -l news news-outgoing
RESEND = '#!/bin/sh\nexec {sendmail} -C {folder}/sendmail.conf -oi -f "owner-$3@{domain}" "$4@{domain}"\n'


class Majordomo:
    name = "majordomo"
    address = f"crew@{DOMAIN}"

    def __init__(self, bench, folder):
        self.folder, self.page, self.aliases, self.members = folder, Page("majordomo"), f"{folder}/aliases", None
        self.sendmail, self.helper = bench.tool("stentor-sendmail"), Helper(bench, folder, "majordomo")
        # The submission folder is the server's.
        self.drop = f"{folder}/drop"

    @staticmethod
    def is_there():
        return True

    def sections(self):
        values = {"/var/lib/majordomo/lists": self.folder, "/usr/lib/majordomo": self.folder, "you@example.org": OWNER}
        with open(self.aliases, "w") as file:
            file.write(self.page.block("", 0, values))
        user = {PAGE_ALIASES: self.aliases, 'user = "majordomo"': f'user = "{USER}"'}
        self.helper.write(self.page.block("toml", 1, user))
        values = {PAGE_DOMAIN: DOMAIN, PAGE_ALIASES: self.aliases, "/run/stentor-deliver": self.helper.sockets, "you@example.org": OWNER}
        submission = f'[submission]\nfolder = "{self.drop}"\ngroup = "{USER}"\ntrusted_users = ["{USER}"]\n'
        return submission + self.page.block("toml", 0, values)

    def start(self, _, members):
        self.members = members
        files = {
            "crew": "\n".join(members.all) + "\n", "news": "\n".join(members.good) + "\n", "sendmail.conf": f'folder = "{self.drop}"\n',
            "wrapper": RESEND.format(sendmail=self.sendmail, folder=self.folder, domain=DOMAIN),
        }
        for name, text in files.items():
            with open(f"{self.folder}/{name}", "w") as file:
                file.write(text)
        os.chmod(f"{self.folder}/wrapper", 0o755)
        self.helper.start()

    def post(self, server, subject):
        # From outside: the sender of the copies is the list's owner, whoever posts. Then the list with a program.
        outside = lambda: server.send(POSTER, [self.address], post(self.address, subject), source="127.0.0.9").startswith("250")
        # Until the included files, which have just been written, are in force.
        first = wait_for(outside, 20)
        second = server.send(POSTER, [f"news@{DOMAIN}"], message(POSTER, f"news@{DOMAIN}", f"{subject} by a program"))
        return first and second.startswith("250")

    def counted(self):
        """Members in the reports that came to the owner, if each good one's copies have their own return paths."""
        mails = list(self.members.host.mails)
        paths = {mail.sender for mail in mails if mail.to[0] in self.members.good}
        of = lambda owner: {f"{owner}+{name.replace('@', '=')}@{DOMAIN}" for name in self.members.good}
        if paths != of("owner-crew") | of("owner-news-outgoing"):
            return set()
        reports = [mail.content.decode() for mail in mails if mail.to == [OWNER]]
        return {name for text in reports for name in re.findall(r"Final-Recipient: rfc822; ?(\S+)", text)}

    def stop(self):
        self.helper.stop()
