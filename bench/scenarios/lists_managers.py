"""List managers of others with 1,000 members on Stentor and on Postfix: the post, bounces that remove members, a confirmed join, a digest.

Stentor is configured by the manager's page in docs/operate/managers, Postfix as the manager's own pages say. Members are hosts of the lab; the
one who joins and the one with digests are at a host that keeps their mail.
"""

import os
import shutil
import tempfile
import time

from field.hosts import Host
from field.server import wait_for
from managers.listmonk import Listmonk
from managers.mailman import Mailman
from managers.mlmmj import Mlmmj
from managers.mta import Mta
from managers.sympa import Sympa, SympaInBulk
from managers.world import message
from measure import BenchError, CannotHere, Waits
from results import Goal, SHOWN
from sinks import LabInternet, free_port

MEMBERS, GONE = 1_000, 50
# Of Mailman's list with return paths: it takes two seconds before it sends, whatever the number.
VERP_MEMBERS = 4_000
MANAGERS = (Mailman, Mlmmj, Sympa, Listmonk)
STEP_S_MAX = 120
# Mailman with return paths of its own takes minutes for a thousand.
POST_S_MAX = 900
SCENARIO = """\
seed = 1
[[site]]
name = "good.test"
[[site]]
name = "gone.test"
behaviour = { at_rcpt = "550 5.1.1 No such user here" }
[[site]]
name = "members.test"
"""
PEOPLE = "people.test"
PEOPLE_HOST = "127.0.54.1"
JOINER, DIGESTED = f"joiner@{PEOPLE}", f"digested@{PEOPLE}"
QUICK_RETRY = "\n[retry]\nbounce_gather_ms = 1000\n"


class Members:
    def __init__(self, good, gone):
        self.good = {f"m{n}@good.test" for n in range(good)}
        self.gone = {f"m{n}@gone.test" for n in range(gone)}

    @property
    def all(self):
        return sorted(self.good | self.gone)


class ListsManagers:
    """Mailman, mlmmj, Sympa and listmonk's way of sending, on Stentor and on Postfix: what each of them misses, its time and its CPU."""

    name = "lists.managers"
    entries = ("",)
    smoke = {"MEMBERS": 20, "GONE": 5, "VERP_MEMBERS": 20, "MANAGERS": (Mlmmj,), "POST_S_MAX": 60}

    def run(self, bench):
        missing = [manager.name for manager in MANAGERS if not manager.is_there()]
        if missing:
            raise CannotHere(f"not installed: {', '.join(missing)}; run testing/install.sh --peers")
        if os.geteuid() != 0:
            raise CannotHere("programs of aliases need root")
        command = f"{MEMBERS} members, {GONE} of them refused at RCPT"
        missed, detail = 0, {}
        for manager in MANAGERS:
            found = {who: self.once(bench, manager, who) for who in ("stentor", "postfix")}
            detail[manager.name] = found
            missed += len(found["stentor"]["missed"])
            for figure, unit in (("seconds", "s to the last copy"), ("cpu", "CPU s of the MTA")):
                pair = [(found["stentor"][figure], found["postfix"][figure])]
                bench.results.record(f"{self.name}.{manager.name}.{figure}", unit, pair, command, SHOWN)
        bench.results.record(self.name, "steps missed", [(missed, 0)], command, Goal(most=0), peer_name="none", managers=detail)
        if Mailman in MANAGERS:
            members = Members(VERP_MEMBERS, 0)
            pair = self.once(bench, Mailman, "stentor", members), self.once(bench, Mailman, "postfix", members, own_verp=True)
            self._return_paths(bench, "verp", members, pair, Goal(ratio=20))
        if Sympa in MANAGERS:
            members = Members(MEMBERS - GONE, GONE)
            pair = self.once(bench, SympaInBulk, "stentor", members), detail["sympa"]["postfix"]
            self._return_paths(bench, "verp_sympa", members, pair, SHOWN)

    def _return_paths(self, bench, figure, members, pair, goal):
        """A return path for each member: by the server, and by the manager itself on Postfix."""
        rates = [len(members.good) / found["seconds"] for found in pair]
        command, peer = f"{len(members.all)} members", "postfix, the manager's own VERP"
        bench.results.record(f"{self.name}.{figure}", "members/s", [rates], command, goal, more_is_better=True, peer_name=peer)

    def once(self, bench, manager, who, members=None, **options):
        """What a manager misses on a server, and what its post costs. `members` are given where only their copies count."""
        folder = tempfile.mkdtemp(prefix=f"lists-{manager.name}-")
        os.chmod(folder, 0o755)
        is_whole, members = members is None, members or Members(MEMBERS - GONE, GONE)
        scenario = os.path.join(folder, "lab.toml")
        with open(scenario, "w") as file:
            file.write(SCENARIO)
        lab, people = LabInternet(bench.work, free_port(), bench.binary, scenario), Host(PEOPLE_HOST, 0)
        routes = {**lab.routes(), PEOPLE: f"{PEOPLE_HOST}:{people.port}"}
        with_list = manager(bench, folder, **options)
        try:
            contestant = self._contestant(bench, who, lab, routes, with_list)
            with bench.running(lab):
                try:
                    mta = Mta(contestant)
                    with_list.prepare(mta.port, members, **({"postmap": "/usr/sbin/postmap"} if who == "postfix" else {}))
                    contestant.start()
                    self._enter(with_list, contestant)
                    with_list.run()
                    found = Course(lab, people, contestant, with_list, mta, members).run(is_whole)
                finally:
                    with_list.stop()
                    contestant.stop()
        finally:
            people.stop()
            shutil.rmtree(folder, ignore_errors=True)
        print(f"    {manager.name} on {who} {options or ''}: {found}", flush=True)
        return found

    @staticmethod
    def _contestant(bench, who, lab, routes, with_list):
        if who == "stentor":
            return bench.stentor(lab, routes=routes, more=with_list.sections() + QUICK_RETRY)
        postfix = bench.postfix(lab, routes=routes)
        with_list.postfix(postfix, bench)
        return postfix

    @staticmethod
    def _enter(with_list, contestant):
        helper = getattr(with_list, "helper", None)
        if helper:
            # Postfix runs programs itself.
            helper.enter = contestant.group.enter


class Course:
    """The steps on one server."""

    def __init__(self, lab, people, contestant, with_list, mta, members):
        self.lab, self.people, self.contestant, self.manager, self.mta, self.members = lab, people, contestant, with_list, mta, members
        self.missed = []

    def run(self, is_whole):
        if hasattr(self.manager, "remove_at_first_bounce"):
            self.manager.remove_at_first_bounce()
        seconds, cpu = self._post()
        if not is_whole:
            return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "missed": self.missed}
        self._step("bounces", lambda: self.manager.counted() >= self.members.gone)
        # What each of them has of these.
        if hasattr(self.manager, "removed"):
            self._step("removed", self._are_removed)
        if hasattr(self.manager, "join"):
            self._join()
        if hasattr(self.manager, "digest"):
            self._digest()
        return {"seconds": round(seconds, 2), "cpu": round(cpu, 2), "missed": self.missed}

    def _post(self):
        cpu, before = self.contestant.group.cpu_s(), self.lab.counts()["copies"]
        begin = time.monotonic()
        if not self.manager.post(self.mta, "post-1"):
            raise BenchError(f"{self.manager.name}: the post was refused by {self.contestant.name}")
        wanted = before + len(self.members.good)
        if not wait_for(lambda: self.lab.counts()["copies"] >= wanted, POST_S_MAX):
            self.missed.append(f"{wanted - self.lab.counts()['copies']} copies")
        seconds = time.monotonic() - begin
        time.sleep(Waits.settle)
        return seconds, self.contestant.group.cpu_s() - cpu

    def _step(self, what, holds):
        if not wait_for(holds, STEP_S_MAX):
            self.missed.append(what)

    def _are_removed(self):
        self.manager.maintain()
        time.sleep(1)
        return self.manager.removed() == self.members.gone

    def _mails_to(self, person, word=""):
        return [mail for mail in list(self.people.mails) if mail.to == [person] and word in mail.content.decode(errors="replace")]

    def _join(self):
        reply = self.manager.join(self.mta, JOINER)
        answers = lambda: [answer for mail in self._mails_to(JOINER) if (answer := self.manager.answer(mail))]
        if not reply.startswith("250") or not wait_for(answers, STEP_S_MAX):
            return self.missed.append(f"request for confirmation ({reply})")
        if self.manager.is_member(JOINER):
            self.missed.append("a member without confirmation")
        to, subject = answers()[0]
        self.mta.send(JOINER, [to], message(JOINER, to, subject))
        self._step("confirmed join", lambda: self.manager.is_member(JOINER))

    def _digest(self):
        self.manager.digest(DIGESTED)
        self.manager.post(self.mta, "post-2")
        # It is collected while the post goes to the others.
        self._step("post after the join", lambda: self._mails_to(JOINER, "post-2"))

        def has_come():
            self.manager.send_digests()
            return self._mails_to(DIGESTED, "post-2")

        self._step("digest", has_come)
