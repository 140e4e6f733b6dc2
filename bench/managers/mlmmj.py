"""mlmmj 1.3.0 as a program of an alias file. It sends each member's copy from `list+bounces-N-member=domain@`, and counts what comes back
there by the address in Delivered-To."""

import os

from managers.world import OWNER, POSTER, PROGRAMS, Helper, own, post, run

DOMAIN = "lists.mlmmj.test"
LIST = f"news@{DOMAIN}"
FOLDERS = (
    "incoming queue queue/discarded archive text subconf unsubconf bounce control moderation subscribers.d digesters.d requeue nomailsubs.d"
)


class Mlmmj:
    name = "mlmmj"
    address = LIST

    def __init__(self, bench, folder):
        self.folder, self.list = folder, f"{folder}/news"
        self.helper = Helper(bench, folder, f"{folder}/aliases")

    @staticmethod
    def program(name):
        return os.path.join(PROGRAMS, "mlmmj", "usr", "bin", name)

    @staticmethod
    def is_there():
        return os.access(Mlmmj.program("mlmmj-receive"), os.X_OK)

    def sections(self):
        with open(self.helper.aliases, "w") as file:
            file.write(f'news: "|{self.program("mlmmj-receive")} -L {self.list}/"\n')
        return self.helper.sections(DOMAIN)

    def start(self, server, members):
        for name in FOLDERS.split():
            os.makedirs(f"{self.list}/{name}")
        control = {"owner": OWNER, "listaddress": LIST, "relayhost": "127.0.0.1", "smtpport": str(server.port)}
        for name, text in control.items():
            with open(f"{self.list}/control/{name}", "w") as file:
                file.write(f"{text}\n")
        open(f"{self.list}/index", "w").close()
        for member in [*members.all, POSTER]:
            run([self.program("mlmmj-sub"), "-L", self.list, "-a", member, "-f", "-s"])
        own(self.list)
        self.helper.start()

    def post(self, server, subject):
        return server.send(POSTER, [LIST], post(LIST, subject)).startswith("250")

    def counted(self):
        """Members that have a file with a bounce."""
        names = (name for name in os.listdir(f"{self.list}/bounce") if not name.endswith(".lastmsg"))
        return {name.replace("=", "@") for name in names}

    def stop(self):
        self.helper.stop()
