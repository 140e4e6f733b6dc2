"""sendmail as local programs call it: stentor-sendmail beside Postfix's, each at /usr/sbin/sendmail in a mount namespace of its
own. `policy.sendmail`: calls of which the outcome differs (exit code, envelope, header, body) and no reason is written here.
`policy.sendmail.later`: mail lost that was submitted while the server was down. `policy.sendmail.killed`: mail lost although the
program had answered 0, while server and programs were killed with -9 at random moments; copies too many are counted beside it.
"""

import collections
import email
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

from contestants.postfix import Postfix
from contestants.stentor import Stentor
from measure import BenchError, CannotHere, wait_until
from recorder import Recorder
from results import Goal

# Kills of everything, and programs at a time meanwhile.
KILLS = 40
PROGRAMS = 4
# None: all calls.
CALLS_MAX = None
# Whether cron itself is waited for: it looks once a minute.
WAITS_FOR_CRON = True
SEED = 20_261_123
GROUP = 4_242
NOBODY = 65_534
TIMEOUT_S = 60
CRON = "/var/cache/stentor-tests/cron/usr/sbin/cron"

SUBMISSION = """
[submission]
folder = "spool/submission"
group = ""
[aliases]
"root@stentor.example" = ["root@elsewhere.example"]
"""
# What both add or must not be held against each other: the names of the hosts are made one before.
APART = {"received", "delivered-to", "x-authentication-warning", "return-path"}
PRESENT = {"message-id", "date", "resent-message-id", "resent-date"}

TEXT = "Subject: a test\n\nhello\n"
FROM = "From: Ann Example <ann@one.example>\n"
TO = "To: Bob <bob@one.example>, carl@two.example\n"


class Call:
    """A command line for sh, where $S is /usr/sbin/sendmail; `argued`: what may differ, and why."""

    def __init__(self, name, command, text="", root=False, needs=None, argued=None):
        self.name, self.command, self.text, self.root, self.needs, self.argued = name, command, text, root, needs, argued


def calls():
    plain = [
        Call("one recipient", "$S bob@one.example", TEXT),
        Call("two recipients", "$S bob@one.example carl@two.example", TEXT),
        Call("a list in one argument", "$S 'Bob <bob@one.example>, carl@two.example'", TEXT),
        Call("two words in one argument", "$S 'bob@one.example carl@two.example'", TEXT),
        Call("an option behind a recipient", "$S bob@one.example -f ann@one.example", TEXT, argued="-f is no address: returned by both, in other words"),
        Call("text without a header", "$S bob@one.example", "hello\nworld\n"),
        Call("an empty message", "$S bob@one.example", ""),
        Call("no line end at the end", "$S bob@one.example", "Subject: x\n\nhello"),
        Call("lines with CR LF", "$S bob@one.example", "Subject: x\r\n\r\nhello\r\nworld\r\n"),
        Call("a dot ends it", "$S bob@one.example", "Subject: x\n\na\n.\nb\n"),
        Call("-i keeps the dot", "$S -i bob@one.example", "Subject: x\n\na\n.\nb\n"),
        Call("-oi keeps the dot", "$S -oi bob@one.example", "Subject: x\n\na\n.\n..\nb\n"),
        Call("an mbox line first", "$S bob@one.example", "From root Mon Nov 23\n>From x\n" + TEXT),
        Call("8-bit text", "$S -i bob@one.example", "Subject: x\nContent-Type: text/plain; charset=utf-8\n\ngr\u00fc\u00df\n"),
        Call("a large message", "head -c 300000 /dev/zero | tr '\\0' 'x' | fold -w 70 | $S -i bob@one.example"),
        Call("-t", "$S -t", FROM + TO + TEXT),
        Call("-t with Bcc", "$S -ti", FROM + TO + "Bcc: dora@two.example\n" + TEXT),
        Call("-t with Bcc alone", "$S -t", FROM + "Bcc: dora@two.example\n" + TEXT),
        Call("-t with groups and comments", "$S -t", FROM + "To: list: bob@one.example (Bob, B.), \"C, D\" <carl@two.example>;\n" + TEXT),
        Call("-t with folded fields", "$S -t", FROM + "To: bob@one.example,\n\tcarl@two.example\nCc: dora@two.example\n" + TEXT),
        Call("-t and a recipient beside it", "$S -t dora@two.example", FROM + TO + TEXT),
        Call("-t of a resent message", "$S -t", FROM + TO + "Resent-From: ann@one.example\nResent-To: erna@two.example\n" + TEXT),
        Call("-t without recipients", "$S -t", FROM + TEXT),
        Call("no recipients", "$S", TEXT),
        Call("-f", "$S -f ann@one.example bob@one.example", TEXT),
        Call("-f glued", "$S -fann@one.example bob@one.example", TEXT),
        Call("-r", "$S -r ann@one.example bob@one.example", TEXT),
        Call("-f with a name", "$S -f 'Ann <ann@one.example>' bob@one.example", TEXT),
        Call("-f empty", "$S -f '' bob@one.example", TEXT),
        Call("-f <>", "$S -f '<>' bob@one.example", TEXT),
        Call("-F", "$S -F 'A Program' bob@one.example", TEXT),
        Call("-F with quotes to be", "$S -F 'Example, Ann (x)' bob@one.example", TEXT),
        Call("-F beside a From", "$S -F 'A Program' bob@one.example", FROM + TEXT),
        Call("addresses without a domain", "$S root", "From: ann\nTo: root, Bob <bob@one.example>\nReply-To: ann\n" + TEXT),
        Call("a duplicate", "$S bob@one.example bob@one.example", TEXT),
        Call("a bad address among good", "$S bob@one.example 'a@@b'", TEXT, argued="the bad one is returned by mail; Postfix makes \"a@\"@b of it"),
        Call("none but bad addresses", "$S 'a@@b'", TEXT, argued="code: refused at once (67); Postfix makes \"a@\"@b of it"),
        Call("-- before a recipient", "$S -i -- bob@one.example", TEXT),
        Call("-N -R -V", "$S -N never -R hdrs -V id1 bob@one.example", TEXT),
        Call("an unknown option", "$S -Z bob@one.example", TEXT),
        Call("-bd as a user", "$S -bd -q30m; test $? -ne 0", argued="code: ours never starts a server"),
        Call("-bt", "$S -bt"),
        Call("-q15m", "$S -q15m"),
        Call("-bi", "$S -bi", root=True, argued="output: there is nothing to make"),
        Call("-G", "$S -G -i bob@one.example", FROM + "Date: Mon, 23 Nov 2026 06:00:00 +0000\nMessage-ID: <x@one.example>\n" + TO + TEXT),
        Call("-bs", "$S -bs", "HELO x\r\nMAIL FROM:<ann@one.example>\r\nRCPT TO:<bob@one.example>\r\nDATA\r\nSubject: x\r\n\r\n..a\r\n.\r\nQUIT\r\n"),
        Call("as root", "$S root bob@one.example", TEXT, root=True),
        # As these programs call it; those below are the programs.
        Call("cron's way", "$S -i -FCronDaemon -B8BITMIME -oem root", "From: root (Cron Daemon)\nTo: root\nSubject: Cron <root@x> date\n\nx\n", root=True),
        Call("cronie's way", "$S -FCronDaemon -i -odi -oem -oi -t -f root", "From: \"(Cron Daemon)\" <root>\nTo: root\nSubject: Cron <root@x> date\n\nx\n", root=True),
        # Sympa::Mailer::store() of 6.2.
        Call("Sympa's way", "$S -oi -odi -oem -N success,delay,failure -V00000123 -f list-owner@one.example -- bob@one.example carl@two.example", FROM + TO + TEXT),
        Call("Sympa's way without a sender", "$S -oi -odi -oem -f '' -- bob@one.example", FROM + TO + TEXT),
        Call("majordomo's way", "$S -oi -oee -fowner@one.example -odb bob@one.example", FROM + TO + TEXT),
        Call("mlmmj's way", "$S -f list+bounces-1@one.example bob@one.example", FROM + TO + TEXT),
        Call("logwatch's way", "$S -t", "To: bob@one.example\nFrom: Logwatch <logwatch@one.example>\nSubject: Logwatch\nMIME-Version: 1.0\n\nx\n", root=True),
        Call("Nagios' way", "printf 'Subject: PROBLEM\\n\\ndown\\n' | $S -v bob@one.example", argued="report: -v sends no report by mail here"),
    ]
    programs = [
        Call("Python, subprocess", "python3 -c 'import subprocess; from email.message import EmailMessage as M; m = M(); m[\"To\"] = \"bob@one.example\"; "
             "m[\"Subject\"] = \"gr\u00fc\u00df\"; m.set_content(\"hall\u00f6\\n\"); "
             "subprocess.run([\"/usr/sbin/sendmail\", \"-t\", \"-oi\"], input=m.as_bytes(), check=True)'", needs="python3"),
        Call("PHP, mail()", "php -r 'exit(mail(\"bob@one.example\", \"a test\", \"hello\\n.\\nworld\", \"From: ann@one.example\\r\\nX-A: b\") ? 0 : 1);'", needs="php"),
        Call("PHP, mail() with -f", "php -r 'exit(mail(\"bob@one.example\", \"a test\", \"hello\", \"\", \"-fann@one.example\") ? 0 : 1);'", needs="php"),
        Call("bsd-mailx", "bsd-mailx -s 'a test' bob@one.example", "hello\n", needs="bsd-mailx"),
        Call("bsd-mailx, with more", "bsd-mailx -s 'a test' -c carl@two.example -b dora@two.example -r ann@one.example bob@one.example", "hello\n", needs="bsd-mailx"),
        Call("s-nail", "s-nail -Ssendwait -n -s 'a test' bob@one.example", "hello\n", needs="s-nail"),
        Call("s-nail, with more", "s-nail -Ssendwait -n -s 'a test' -c carl@two.example -b dora@two.example -r ann@one.example bob@one.example", "hello\n", needs="s-nail"),
        Call("git send-email", "cd $(mktemp -d) && git init -q && git -c user.name=A -c user.email=ann@one.example commit -q --allow-empty -m one && "
             "echo x > x && git add x && git -c user.name=A -c user.email=ann@one.example commit -q -m two && git format-patch -q -1 && "
             "git -c user.name=A -c user.email=ann@one.example send-email --quiet --confirm=never --to bob@one.example --cc carl@two.example "
             "--suppress-cc=all 0001*", needs="/usr/lib/git-core/git-send-email"),
    ]
    return plain + programs


class WithSubmission(Stentor):
    """Stentor with a submission folder, and the program at /usr/sbin/sendmail."""

    def __init__(self, bench, *args, **kwargs):
        super().__init__(bench.binary, bench.work, *args, more=SUBMISSION, **kwargs)
        self.spool = os.path.join(self.folder, "spool")
        self.submissions = os.path.join(self.spool, "submission")
        os.makedirs(self.submissions)
        self.sendmail = os.path.join(self.spool, "sendmail")
        shutil.copy(bench.tool("stentor-sendmail"), self.sendmail)
        for path, mode in ((self.submissions, 0o1730), (self.sendmail, 0o2755), (self.spool, 0o755)):
            os.chown(path, 0, GROUP)
            os.chmod(path, mode)

    def mounts(self):
        spool = "mount -t tmpfs tmpfs /var/spool && mkdir -p /var/spool/stentor /var/spool/cron/crontabs"
        return f"{spool} && mount --bind {self.spool} /var/spool/stentor && mount --bind {self.sendmail} /usr/sbin/sendmail"

    def waiting(self):
        return [name for name in os.listdir(self.submissions) if name.startswith(("mail-", "deferred-", "taken-"))]

    def queue_is_empty(self):
        return not self.waiting() and super().queue_is_empty()


class WithPickup(Postfix):
    """Postfix that takes mail of local programs, with its configuration where they look for it."""

    def _write(self, name, text):
        if name == "master.cf":
            text += "pickup unix n - n 60 1 pickup\n"
        if name == "main.cf":
            text += "myorigin = $myhostname\nvirtual_alias_maps = inline:{root@postfix.example=root@elsewhere.example}\nmessage_size_limit = 52428800\n"
        super()._write(name, text)

    def mounts(self):
        spool = "mount -t tmpfs tmpfs /var/spool && mkdir -p /var/spool/cron/crontabs"
        return f"{spool} && mount --bind {self.configuration} /etc/postfix"


class Namespace:
    """Mounts that nobody else sees; commands are run among them."""

    def __init__(self, contestant):
        command = f"mount --make-rprivate / && {contestant.mounts()} && echo ready && exec sleep infinity"
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-ec", command], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise CannotHere(f"mount namespaces: {contestant.name}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(10)

    def argv(self, command, root=False):
        who = [] if root else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return ["nsenter", "-t", str(self.process.pid), "-m", "-w/", *who, "env", "-i", "PATH=/usr/bin:/bin:/usr/sbin", "HOME=/tmp", "S=/usr/sbin/sendmail",
                "LC_ALL=C.UTF-8", "MAILRC=/dev/null", "sh", "-c", command]

    def run(self, call):
        return subprocess.run(self.argv(call.command, call.root), input=call.text.encode(), capture_output=True, timeout=TIMEOUT_S)


def shown(copy, host):
    """A copy as it is compared."""
    sender, to, octets = (part.replace(host, "HOST") if isinstance(part, str) else part.replace(host.encode(), b"HOST") for part in copy)
    header, _, body = octets.partition(b"\r\n\r\n")
    message = email.message_from_bytes(header + b"\r\n\r\n")
    if not sender and message.get_content_type() == "multipart/report":
        return ("", to, "report", "")
    fields = sorted((name.lower(), "present" if name.lower() in PRESENT else " ".join(str(value).split())) for name, value in message.items())
    fields = [field for field in fields if field[0] not in APART and field != ("to", "undisclosed-recipients:;")]
    # A From without a domain is none (RFC 5322 section 3.4.1).
    fields = [("from", "MAILER-DAEMON") if field == ("from", "MAILER-DAEMON@HOST") else field for field in fields]
    return (sender, to, tuple(fields), body)


def outcome(contestant, namespace, recorder, call):
    done = namespace.run(call)
    contestant.wait_drained(TIMEOUT_S)
    copies = sorted(shown(copy, f"{contestant.name}.example") for copy in recorder.take())
    return {"code": done.returncode, "copies": copies, "stderr": done.stderr.decode(errors="replace")[-300:]}


def is_there(needs):
    return needs is None or (os.access(needs, os.X_OK) if needs.startswith("/") else shutil.which(needs) is not None)


class Matrix:
    """Calls of programs, ours and Postfix's sendmail(1) by turns."""

    name = "policy.sendmail"
    entries = ("", ".later", ".killed")
    smoke = {"KILLS": 2, "CALLS_MAX": 6, "WAITS_FOR_CRON": False}

    def run(self, bench):
        if os.geteuid() != 0:
            raise CannotHere("policy.sendmail: needs root")
        wanted = calls()[:CALLS_MAX]
        chosen = [call for call in wanted if is_there(call.needs)]
        recorders = [Recorder(), Recorder()]
        ours = WithSubmission(bench, recorders[0].port)
        theirs = WithPickup(bench.work, recorders[1].port)
        with bench.running(*recorders, ours, theirs), Namespace(ours) as here, Namespace(theirs) as there:
            differing, argued = [], []
            for call in chosen:
                both = [outcome(ours, here, recorders[0], call), outcome(theirs, there, recorders[1], call)]
                if (both[0]["code"] == 0) != (both[1]["code"] == 0) or both[0]["copies"] != both[1]["copies"]:
                    (argued if call.argued else differing).append(call.name)
                    if not call.argued:
                        print(f"    {call.name}:\n      ours   {both[0]}\n      theirs {both[1]}", flush=True)
            if WAITS_FOR_CRON and is_there(CRON):
                found = [cron(namespace, contestant, recorder) for namespace, contestant, recorder in zip((here, there), (ours, theirs), recorders)]
                chosen.append(Call("cron", CRON))
                if found[0] != found[1]:
                    differing.append("cron")
                    print(f"    cron: {found}", flush=True)
            missing = [call.name for call in wanted if call not in chosen]
            if bench.peers and missing:
                raise CannotHere(f"programs of these calls are missing: {', '.join(missing)}; testing/install.sh --peers")
            bench.results.record(
                self.name, "differences", [[len(differing), 0]], f"{len(chosen)} calls, ours and Postfix's", Goal(most=0), peer_name="the goal",
                differing=differing, argued=argued, missing=missing, calls=len(chosen),
            )
            self.later(bench, ours, here, recorders[0])
            self.killed(bench, ours, here, recorders[0])

    def later(self, bench, ours, namespace, recorder):
        """The server is down: everything is taken, and delivered after its start."""
        ours.crash()
        recorder.take()
        to = [f"later{number}@one.example" for number in range(60)]
        codes = [namespace.run(Call("", f"$S {address}", TEXT)).returncode for address in to]
        ours.restart()
        ours.wait_drained(TIMEOUT_S)
        delivered = {copy[1] for copy in recorder.take()}
        lost = [address for address, code in zip(to, codes) if address not in delivered or code != 0]
        bench.results.record(
            f"{self.name}.later", "lost", [[len(lost), 0]], f"{len(to)} submissions to a server that is down", Goal(most=0), peer_name="the goal"
        )

    def killed(self, bench, ours, namespace, recorder):
        """kill -9 of the server and of the programs, at random moments."""
        chance = random.Random(SEED)
        acknowledged, tried, lock, over = [], [0], threading.Lock(), threading.Event()
        running = set()

        def submit():
            while not over.is_set():
                with lock:
                    tried[0] += 1
                    to = f"killed{tried[0]}@one.example"
                program = subprocess.Popen(namespace.argv(f"exec $S -i {to}"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                with lock:
                    running.add(program)
                try:
                    program.communicate(TEXT.encode() + b"x\n" * 2_000, TIMEOUT_S)
                except (BrokenPipeError, subprocess.TimeoutExpired):
                    program.kill()
                with lock:
                    running.discard(program)
                    if program.returncode == 0:
                        acknowledged.append(to)

        recorder.take()
        threads = [threading.Thread(target=submit) for _ in range(PROGRAMS)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.05, 0.6))
                with lock:
                    for program in running:
                        program.send_signal(signal.SIGKILL)
                ours.crash()
                time.sleep(chance.uniform(0, 0.1))
                ours.restart()
        finally:
            over.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
        wait_until(lambda: not ours.waiting(), TIMEOUT_S, "the submission folder drained")
        ours.wait_drained(TIMEOUT_S)
        taken = recorder.take()
        copies = collections.Counter(copy[1] for copy in taken)
        lost = [to for to in acknowledged if not copies[to]]
        more = sum(count - 1 for count in copies.values())
        # By queue id: one that a delivery repeated (RFC 1047), or a submission that became two messages.
        ids = {(to, re.search(rb"\tid (\w+);", octets).group(1)) for _, to, octets in taken}
        twice = len(ids) - len(copies)
        if not acknowledged:
            raise BenchError("nothing was submitted")
        bench.results.record(
            f"{self.name}.killed", "lost", [[len(lost), 0]], f"{KILLS} times kill -9 of server and programs, {PROGRAMS} programs at a time",
            Goal(most=0), peer_name="the goal", acknowledged=len(acknowledged), delivered=len(copies), copies_too_many=more, submissions_taken_twice=twice,
        )


def cron(namespace, contestant, recorder):
    """What cron sends about a job that prints something."""
    recorder.take()
    setup = "printf '* * * * * echo hello\\n' > /var/spool/cron/crontabs/root && chmod 600 /var/spool/cron/crontabs/root"
    process = subprocess.Popen(namespace.argv(f"{setup} && exec {CRON} -f", root=True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: recorder.copies, 90, f"mail of cron by {contestant.name}")
    finally:
        process.kill()
        process.wait(10)
    contestant.wait_drained(TIMEOUT_S)
    return [shown(copy, f"{contestant.name}.example") for copy in recorder.take()[:1]]
