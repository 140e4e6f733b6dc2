"""The milters that Debian ships, and one in Python that does every action, behind Postfix and behind ours: what clients hear and the
messages that come out are the same, but for ids, dates and signatures' times."""

import os
import re
import shutil
import smtplib
import socket
import subprocess

from measure import BenchError, CannotHere, wait_until
from recorder import Recorder
from results import Goal
from sinks import free_port

PEERS_MAX = 10
START_S_MAX = 120
DRAIN_S_MAX = 120

# What the Python milter is asked for by the subject.
SUBJECTS = (
    "plain", "reject at the header", "reject", "tempfail", "accept", "discard", "change the header", "replace the body",
    "change the envelope", "work for long", "remove all",
)
MESSAGE = (
    "Received: from first.example by second.example; Sat, 21 Nov 2026 12:00:00 +0000\r\n"
    "From: Joe <joe@elsewhere.example>\r\nTo: all@one.example\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\n"
    "Message-ID: <{name}@elsewhere.example>\r\nX-Multi: 1\r\nX-multi:  2\r\n\tfolded\r\nX-MULTI:3\r\nSubject: {subject}\r\n"
    "{fields}\r\n{body}"
)
# EICAR's test file in two parts, so that no scanner takes this one for it.
EICAR = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
GTUBE = "XJS*C4JDBQADN1.NSBN3*2IDNEN*" + "GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"


def mail():
    """(name, sender, recipients, message)"""
    both = ("ann@one.example", "bob@one.example")
    cases = [(subject, "joe@elsewhere.example", both, subject, "", "Hello\r\n.\r\n..bye\r\n") for subject in SUBJECTS]
    cases += [
        ("busy", "busy@elsewhere.example", both, "plain", "", "x\r\n"),
        ("some refused", "joe@elsewhere.example", ("nobody@one.example", "ann@one.example", "later@one.example"), "plain", "", "x\r\n"),
        ("null", "", both, "plain", "", "x\r\n"),
        ("folded", "joe@elsewhere.example", both, "a subject\r\n of two lines", "", "x\r\n"),
        ("no body", "joe@elsewhere.example", both, "plain", "", ""),
        ("eight bits", "joe@elsewhere.example", both, "plain", "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n", "Grüße\r\n"),
        ("large", "joe@elsewhere.example", both, "change the header", "", "a line of a large message\r\n" * 60_000),
        ("virus", "joe@elsewhere.example", both, "plain", "", EICAR + "\r\n"),
        ("spam", "joe@elsewhere.example", both, "plain", "", GTUBE + "\r\n"),
    ]
    for name, sender, to, subject, fields, body in cases:
        text = MESSAGE.format(name=name.replace(" ", "."), subject=subject, fields=fields, body=body)
        yield name, sender, to, text.encode()


class Peer:
    """A milter: `argv` of its address; `files` to write before, `needs` on the PATH."""

    def __init__(self, name, needs, argv, prepare=lambda folder, port: None):
        self.name, self.needs, self.argv, self.prepare, self.process = name, needs, argv, prepare, None

    def is_there(self):
        return bool(shutil.which(self.needs)) if os.sep not in self.needs else os.path.exists(self.needs)

    def start(self, work):
        self.folder, self.port = os.path.join(work, f"milter-{self.name}"), free_port()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o777)
        self.others = [self.spawn(argv) for argv in self.prepare(self.folder, self.port) or []]
        if self.others:
            # A daemon behind a milter that asks it.
            wait_until(lambda: os.path.exists(os.path.join(self.folder, "daemon")), START_S_MAX, f"{self.name}'s daemon")
        self.process = self.spawn(self.argv(self.folder, self.port))
        wait_until(self.listens, START_S_MAX, f"{self.name} listening")

    def spawn(self, argv):
        with open(os.path.join(self.folder, "output"), "a") as output:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def listens(self):
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} has exited, see {self.folder}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return False

    def stop(self):
        for process in [self.process, *getattr(self, "others", [])]:
            if process and process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(20)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def opendkim(folder, port):
    key = os.path.join(folder, "key")
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    os.chmod(key, 0o600)
    write(folder, "conf", f"Socket inet:{port}@127.0.0.1\nDomain elsewhere.example\nSelector s\nKeyFile {key}\nMode s\nCanonicalization relaxed/relaxed\nRequireSafeKeys no\n")


def pyspf(folder, port):
    write(folder, "conf", f"Socket = inet:{port}@127.0.0.1\nUserID = root\nPidFile = {folder}/pid\nInternalHosts = 192.0.2.1\nSyslog = no\n")


def clamav(folder, port):
    """clamd with one signature, made by hand."""
    write(folder, "eicar.ndb", "Eicar-Test-By-Hand:0:*:" + EICAR.encode().hex() + "\n")
    clamd = write(folder, "clamd.conf", f"LocalSocket {folder}/daemon\nDatabaseDirectory {folder}\nForeground yes\nUser root\nTemporaryDirectory {folder}\n")
    write(folder, "conf", f"MilterSocket inet:{port}@127.0.0.1\nClamdSocket unix:{folder}/daemon\nForeground yes\nUser root\nOnInfected Reject\nAddHeader Replace\n")
    return [["clamd", "-c", clamd]]


def spamd(folder, port):
    del port
    return [["spamd", "--local", "--nouser-config", "--socketpath", f"{folder}/daemon", "--siteconfigpath", folder, "-m", "2"]]


RSPAMD = """
lua = "/usr/share/rspamd/rules/rspamd.lua";
options {{
    pidfile = "{folder}/pid"; control_socket = "{folder}/control mode=0600"; stats_file = "{folder}/stats"; hs_cache_dir = "{folder}";
    tempdir = "{folder}"; filters = "regexp"; local_addrs = []; dns {{ nameserver = ["127.0.0.1:9"]; timeout = 0.1s; retransmits = 1; }}
}}
logging {{ type = "file"; filename = "{folder}/log"; level = "info"; }}
worker "rspamd_proxy" {{
    bind_socket = "127.0.0.1:{port}"; milter = yes; timeout = 60s; count = 1; spam_header = "X-Spam"; reject_message = "Spam message rejected";
    upstream "local" {{ default = yes; self_scan = yes; }}
}}
modules {{ path = "/usr/share/rspamd/plugins/milter_headers.lua"; }}
milter_headers {{
    use = ["x-spam-status", "x-spamd-bar", "own"]; skip_local = false; skip_authenticated = false;
    custom {{ own = "return function(task, common) return nil, {{['X-Scanned'] = 'yes'}}, {{['X-Multi'] = 1}}, {{}} end"; }}
}}
actions {{ reject = 15; add_header = 6; }}
"""


def rspamd(folder, port):
    """Its proxy worker, which scans itself, without the modules that ask the network."""
    write(folder, "conf", RSPAMD.format(folder=folder, port=port))


def peers():
    here = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")
    python = "/usr/bin/python3"
    return [
        Peer("every", "/usr/lib/python3/dist-packages/Milter", lambda folder, port: [python, f"{here}/every_milter.py", f"inet:{port}@127.0.0.1"]),
        Peer("opendkim", "opendkim", lambda folder, port: ["opendkim", "-f", "-x", f"{folder}/conf"], opendkim),
        Peer("pyspf", "pyspf-milter", lambda folder, port: ["pyspf-milter", f"{folder}/conf"], pyspf),
        Peer("rspamd", "rspamd", lambda folder, port: ["rspamd", "-f", "-i", "-c", f"{folder}/conf"], rspamd),
        Peer("clamav", "clamav-milter", lambda folder, port: ["clamav-milter", "-c", f"{folder}/conf"], clamav),
        Peer("spamass", "spamass-milter", lambda folder, port: ["spamass-milter", "-p", f"inet:{port}@127.0.0.1", "-r", "15", "--", "-U", f"{folder}/daemon"], spamd),
    ]


def heard(port):
    """What a client hears about each message: {name: replies}"""
    replies = {}
    for name, sender, to, text in mail():
        with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example", timeout=120) as smtp:
            smtp.ehlo()
            said = [smtp.mail(sender, ["BODY=8BITMIME"])]
            if said[-1][0] == 250:
                said += [smtp.rcpt(one) for one in to]
                if any(code == 250 for code, _ in said[1:]):
                    said.append(smtp.data(text))
        # Of what is taken the words are the server's own.
        replies[name] = [(code, words.decode() if code >= 400 else "") for code, words in said]
    return replies


def plain(octets, names):
    """A message without what differs between any two servers: our own Received, host names, ids and dates."""
    text = octets.decode("utf-8", "replace")
    for name in names:
        text = text.replace(name, "HOST")
    text = re.sub(r"(?m)^Received: from client\.example(?:.*\r\n)(?:[ \t].*\r\n)*", "Received: ours\r\n", text, count=1)
    text = re.sub(r"\b(?:bh=)", "BH=", text)
    # The time of a signature, and with it the signature.
    text = re.sub(r"(?s)(DKIM-Signature: .*?\bt=)\d+", r"\1T", text)
    text = re.sub(r"(?s)(DKIM-Signature: .*?[;\s]b=)[A-Za-z0-9+/=\s]+(?=\r\n[^ \t])", r"\1B", text)
    text = re.sub(r"(?m)^(X-Spam-Checker-Version: ).*\r\n(?:[ \t].*\r\n)*", r"\1", text)
    return text


def received(recorder, names):
    return sorted((sender, to, plain(octets, names)) for sender, to, octets in recorder.take())


class Milters:
    """Differences between our server and Postfix behind the same milters."""

    name = "filters.milters"
    entries = ("",)
    smoke = {"PEERS_MAX": 1}

    def run(self, bench):
        differences, tried = [], []
        for peer in peers()[:PEERS_MAX]:
            if bench.peers and not peer.is_there():
                raise CannotHere(f"{peer.needs} is missing: testing/install.sh --peers")
            if not peer.is_there():
                print(f"    {peer.name}: not installed, skipped", flush=True)
                continue
            try:
                peer.start(bench.work)
                found = self.compare(bench, peer)
            finally:
                peer.stop()
            tried.append(peer.name)
            differences += [f"{peer.name}: {one}" for one in found]
            print(f"    {peer.name}: {len(found)} differences", flush=True)
        if not tried:
            raise CannotHere("no milter is installed: apt-get install python3-milter opendkim")
        for difference in differences[:20]:
            print(f"      {difference}", flush=True)
        command = f"{len(list(mail()))} messages through each of {', '.join(tried)}"
        self.record(bench, differences, command, tried)

    def record(self, bench, differences, command, tried):
        bench.results.record(
            self.name, "differences from Postfix", [[len(differences), 0]], command, Goal(most=0), peer_name="the goal",
            named=differences[:10], milters=tried,
        )

    def compare(self, bench, peer):
        outcomes = []
        for make in (self.ours, self.theirs):
            recorder = Recorder()
            server = make(bench, recorder, peer)
            with bench.running(recorder, server):
                replies = heard(server.port)
                server.wait_drained(DRAIN_S_MAX)
                outcomes.append((replies, received(recorder, ("stentor.example", "postfix.example"))))
        (ours, our_copies), (theirs, their_copies) = outcomes
        found = [f"{name}: {ours[name]} for {theirs[name]}" for name in ours if ours[name] != theirs[name]]
        for mine, other in ((our_copies, their_copies), (their_copies, our_copies)):
            who = "only ours" if mine is our_copies else "only Postfix"
            found += [f"{who}: {sender} {to} {text[:2000]!r}" for sender, to, text in mine if (sender, to, text) not in other]
        return found

    @staticmethod
    def ours(bench, recorder, peer):
        more = f'[[milters]]\nname = "{peer.name}"\naddress = "inet:127.0.0.1:{peer.port}"\n'
        return bench.stentor(recorder, more=more)

    @staticmethod
    def theirs(bench, recorder, peer):
        server = bench.postfix(recorder)
        server.more_main = f"smtpd_milters = inet:127.0.0.1:{peer.port}\nbounce_queue_lifetime = 0\n"
        return server
