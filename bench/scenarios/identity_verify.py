"""DKIM: messages that the server signs, in all forms in which they leave, verified by programs of others."""

import base64
import collections
import concurrent.futures
import dataclasses
import hashlib
import http.client
import json
import os
import re
import secrets
import shutil
import subprocess

import dkim_messages
from field.hosts import Host
from field.names import NameServer
from field.server import Server, free_port, wait_for
from measure import BenchError, CannotHere
from results import Goal
from verifiers import INSTALLED, VERIFIERS, rewrites
from verifiers.verdicts import PASS, Records, Signature

MESSAGES = 2_400
SEED = 33
# Messages of which the verifiers also get changed copies, one of a kind each.
CHANGED = 5
ARRIVAL_S_MAX = 300
# The lists by the prefix of their addresses, with their keys.
LISTS = {
    "news": "",
    "own": 'verp = "tagged"\none_click = true\ncopy_fields = ["Feedback-ID: {message}:{list}:example", "To: <{recipient}>"]',
}


class Verify:
    """Messages of 24 kinds, signed with RSA and Ed25519: each verifier accepts all signatures whose algorithm it knows."""

    name = "identity.verify"
    entries = ("",)
    smoke = {"MESSAGES": 72, "VERIFIERS": INSTALLED}

    def run(self, bench):
        verifiers = [verifier() for verifier in VERIFIERS]
        missing = [verifier.name for verifier in verifiers if not verifier.is_there()]
        if missing:
            # A missing verifier would count as having missed nothing.
            raise CannotHere(f"not installed: {', '.join(missing)}; run testing/install.sh --peers")
        folder = os.path.join(bench.work, "signed")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        messages = list(dkim_messages.messages(MESSAGES, SEED))
        copies = Copies(bench, folder, messages)
        copies.store()
        lost = [f"message {message.number} ({message.kind}) did not arrive" for message in messages if message.number not in copies.stored]
        if lost:
            raise BenchError(f"{len(lost)} of {len(messages)}: {'; '.join(lost[:10])}")
        misses, counts = [], {}
        for found in copies.verify(verifiers):
            misses += found.lines()
            counts[found.verifier.name] = found.counts()
            print(f"    {found.verifier.name}: {found.counts()}", flush=True)
        for one in misses[:40]:
            print(f"      {one}", flush=True)
        command = f"{len(messages)} messages of {len(dkim_messages.KINDS)} kinds, {len(verifiers)} verifiers"
        bench.results.record(
            self.name, "messages not verified", [[len(misses), 0]], command, Goal(most=0), peer_name="the goal", verifiers=counts,
            named=misses[:100],
        )


class Copies:
    """Sends messages through a server that signs, and stores what arrives in files."""

    def __init__(self, bench, folder, messages):
        self.binary, self.folder, self.messages = bench.binary, folder, messages
        self.stored = {}
        zone, self.sections = "", ""
        for domain in (dkim_messages.AUTHOR_DOMAIN, dkim_messages.LIST_DOMAIN, dkim_messages.REPORT_DOMAIN):
            argv = [self.binary, "dkim", "new", domain, "--dir", folder]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
            if done.returncode:
                raise BenchError(f"{' '.join(argv)}: {done.stderr}")
            zone += done.stdout
            self.sections += done.stderr.partition("\n")[2]
        self.records = Records(zone)

    def store(self):
        """Sends all, and returns when all have arrived or ARRIVAL_S_MAX is over."""
        hosts = {name: Host("127.0.0.1", 0, ehlo=("PIPELINING", "SIZE 50000000", *offers)) for name, offers in dkim_messages.HOSTS.items()}
        gone = Host("127.0.0.1", 0, lambda _, verb, __: "550 5.1.1 no such user" if verb == "RCPT" else None)
        routes = {**{name: host.port for name, host in hosts.items()}, "gone": gone.port}
        sections = "[routes]\n" + "".join(f'"{name}.example" = ["127.0.0.1:{port}"]\n' for name, port in routes.items())
        sections += "".join(list_section(prefix, name, keys) for prefix, keys in LISTS.items() for name in hosts) + self.sections
        subscribers = {f"{name}.txt": f"member@{name}.example\n" for name in hosts}
        submission = Submission()
        try:
            with Server(self.binary, NameServer().address, sections=sections, files=subscribers, http=submission.keys()) as server:
                for message in self.messages:
                    if message.values:
                        submission.send(message)
                        continue
                    reply = server.send(message.sender, [message.recipient], message.octets, mail=message.parameters)
                    if not reply.startswith("250"):
                        raise BenchError(f"message {message.number} ({message.kind}): {reply}")
                arrived = lambda: sum(len(host.mails) for host in hosts.values())
                wait_for(lambda: arrived() >= len(self.messages), ARRIVAL_S_MAX)
        finally:
            for host in (*hosts.values(), gone):
                host.stop()
        for host in hosts.values():
            for mail in host.mails:
                self._take(mail)

    def _take(self, mail):
        found = re.search(r"^m(\d+)@", mail.to[0]) or re.search(rb"^X-Number: (\d+)", mail.content, re.MULTILINE)
        number = int(found[1])
        if number in self.stored:
            raise BenchError(f"message {number} arrived twice")
        self.stored[number] = mail.content
        self.write(file_of(number), mail.content)

    def write(self, name, content):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(content)

    def verify(self, verifiers):
        """A Finding of each verifier."""
        changed = []
        for message in self.messages[: CHANGED * len(dkim_messages.KINDS) : len(dkim_messages.KINDS) + 1]:
            for change, content in enumerate(changes(self.stored[message.number])):
                changed.append(f"changed-{message.number}-{change}.eml")
                self.write(changed[-1], content)
        files = [file_of(message.number) for message in self.messages]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda verifier: verifier.verify(self.folder, files + changed, self.records), verifiers))
        for verifier, verdicts in zip(verifiers, found):
            fooled = [file for file in changed if any(verdict.result == PASS for verdict in verdicts[file])]
            if fooled:
                # Its other verdicts then prove nothing.
                raise BenchError(f"{verifier.name} accepts changed messages: {', '.join(fooled)}")
        return [Finding(self, verifier, verdicts) for verifier, verdicts in zip(verifiers, found)]

    def why_missed(self, message, verifier, verdicts):
        """Why a verifier has not verified a message; None: it has verified all signatures, and there are no others of ours."""
        domains = self.records.domains()
        ours = [one for one in verdicts if one.signature.domain in domains and one.signature.algorithm in verifier.algorithms]
        passed = [one.signature for one in ours if one.result == PASS]
        due = {Signature(domain, algorithm) for domain in message.domains for algorithm in verifier.algorithms}
        if len(passed) == len(ours) == len(due) and set(passed) == due:
            return None
        return "; ".join(f"{one.signature.domain} {one.signature.algorithm}: {one.result}" for one in verdicts) or "no signature"


class Submission:
    """Submits messages with values for their placeholders, which SMTP does not have."""

    def __init__(self):
        self.port, self.token = free_port(), secrets.token_urlsafe()

    def keys(self):
        """The keys of [http]."""
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        return f'listen = ["127.0.0.1:{self.port}"]\nlink_base = "https://{dkim_messages.LIST_DOMAIN}"\ntokens = {{ bench = "sha256:{digest}" }}'

    def send(self, message):
        body = {
            "sender": message.sender, "recipients": [message.recipient], "values": {message.recipient: message.values},
            "message_base64": base64.b64encode(message.octets).decode(),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/api/v1/messages", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 201:
                raise BenchError(f"message {message.number} ({message.kind}): {answer.status} {answer.read()[:500]}")
        finally:
            connection.close()


class Finding:
    """The result of one verifier. `misses`: the reason by message; those that limits of the verifier explain (verifiers/rewrites.py) are
    counted in `argued` instead."""

    def __init__(self, copies, verifier, verdicts):
        self.copies, self.verifier = copies, verifier
        self.misses, self.argued, self.signatures = {}, collections.Counter(), 0
        readable = {}
        for message in copies.messages:
            of_file = verdicts[file_of(message.number)]
            self.signatures += sum(one.result == PASS for one in of_file)
            why = copies.why_missed(message, verifier, of_file)
            if why is None:
                continue
            content, names = rewrites.rewrite(verifier.name, copies.stored[message.number])
            if refusal := rewrites.refusal([one.result for one in of_file]):
                self.argued[refusal] += 1
            else:
                self.misses[message] = why
                if names:
                    readable[message] = ReadableForm(content, ", ".join(names))
        self._argue(readable)

    def _argue(self, readable):
        """Removes the misses whose readable form the verifier accepts."""
        files = {f"rewritten-{message.number}.eml": message for message in readable}
        for file, message in files.items():
            self.copies.write(file, readable[message].content)
        verdicts = self.verifier.verify(self.copies.folder, list(files), self.copies.records) if files else {}
        for file, message in files.items():
            if self.copies.why_missed(message, self.verifier, verdicts[file]) is None:
                self.argued[readable[message].names] += 1
                del self.misses[message]

    def lines(self):
        return [f"{self.verifier.name}: {file_of(one.number)} ({one.kind} to {one.host}): {why}" for one, why in self.misses.items()]

    def counts(self):
        return {
            "messages": len(self.copies.messages), "missed": len(self.misses), "argued": dict(self.argued), "signatures": self.signatures,
            "algorithms": list(self.verifier.algorithms), "missed_by_kind": dict(collections.Counter(one.kind for one in self.misses)),
        }


@dataclasses.dataclass
class ReadableForm:
    content: bytes
    # The names of the rewrites.
    names: str


def list_section(prefix, host, keys):
    address = dkim_messages.list_address(prefix, host)
    return f'[lists.{prefix}-{host}]\naddress = "{address}"\nsubscribers = "{host}.txt"\n{keys}\n'


def file_of(number):
    return f"{number:04}.eml"


def changes(content):
    """A message with another body, a second From, and another Subject: no signature of ours covers these."""
    header, _, body = content.partition(b"\r\n\r\n")
    yield header + b"\r\n\r\n" + body + b"added\r\n"
    yield content.replace(b"\r\nFrom:", b"\r\nFrom: Eve <eve@example.org>\r\nFrom:", 1)
    yield b"Subject: added\r\n" + content
