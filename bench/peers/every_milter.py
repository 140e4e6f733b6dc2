"""A milter that does every action of the protocol, as the subject says: `every_milter.py ADDRESS` (python3-milter)."""

import sys

import Milter


class Every(Milter.Base):
    """Reads the subject; acts on recipients by their names, on messages by their subject."""

    def envfrom(self, sender, *_):
        self.subject = ""
        return Milter.TEMPFAIL if sender.startswith("<busy") else Milter.CONTINUE

    def envrcpt(self, to, *_):
        if to.startswith("<nobody"):
            self.setreply("550", "5.1.1", "No such person", "in 100%% of cases")
            return Milter.REJECT
        return Milter.TEMPFAIL if to.startswith("<later") else Milter.CONTINUE

    def header(self, name, value):
        if name == "Subject":
            self.subject = value
        if value == "reject at the header":
            self.setreply("554", "5.7.1", "The subject is refused")
            return Milter.REJECT
        return Milter.DISCARD if value == "discard" else Milter.CONTINUE

    def eom(self):
        getattr(self, self.subject.replace(" ", "_"), lambda: None)()
        return {"reject": Milter.REJECT, "tempfail": Milter.TEMPFAIL, "accept": Milter.ACCEPT}.get(self.subject, Milter.CONTINUE)

    def change_the_header(self):
        self.addheader("X-Added", "value\n folded\n\tagain")
        self.addheader("X-First", "first", 0)
        self.addheader("X-Second", "second", 1)
        self.addheader("X-Fourth", "fourth", 3)
        self.addheader("X-Last", "last", 999)
        self.chgheader("To", 1, "somebody else")
        self.chgheader("x-multi", 2, "the second")
        self.chgheader("X-Multi", 1, "")
        self.chgheader("Received", 1, "from nowhere")
        self.chgheader("X-New", 1, "made")
        self.chgheader("X-Absent", 1, "")

    def replace_the_body(self):
        self.replacebody("new body\r\nsecond line\r\n")
        self.replacebody(".dot\r\n\r\nlast line")

    def change_the_envelope(self):
        self.chgfrom("<changed@elsewhere.example>")
        self.addrcpt("<added@one.example>")
        self.addrcpt("added-too@one.example")
        self.delrcpt("<bob@one.example>")

    def work_for_long(self):
        for _ in range(3):
            self.progress()
        self.addheader("X-Worked", "yes")

    def remove_all(self):
        self.delrcpt("<ann@one.example>")
        self.delrcpt("<bob@one.example>")


Milter.factory = Every
Milter.set_flags(Milter.ADDHDRS | Milter.CHGHDRS | Milter.CHGBODY | Milter.ADDRCPT | Milter.DELRCPT | Milter.CHGFROM)
Milter.runmilter("every", sys.argv[1], 60)
