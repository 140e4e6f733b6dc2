"""Forged mail to the addresses of lists: nobody joins or leaves, each victim gets one mail, no post passes."""

import collections
import multiprocessing
import random
import re
import socket
import threading

from measure import resident_mib, wait_until
from results import SHOWN, Goal
from sinks import ThreadedSink, free_port

FORGED = 100_000
# People in whose names requests are forged, and members of the lists.
VICTIMS, MEMBERS = 1_000, 20
FORGERS = 8
# Messages of one client address: more unproven requests are deferred.
CLIENT_MESSAGES = 50
# What 100,000 forged messages may leave in memory.
MIB_MAX = 64
LISTS = ("news", "dev")
CONFIRM = re.compile(rb"Reply-To:\s+<([^>]*-confirm\+[^>]*)>")
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"

SECTIONS = "".join(
    f"""
[lists.{name}]
address = "{name}@lists.example"
owner = "owner@elsewhere.example"
post = "members"
"""
    for name in LISTS
)


class Forged:
    """Joins, departures, confirmations, commands and posts that others forge."""

    name = "lists.forged"
    entries = (".changes", ".mails", ".memory", ".time")
    smoke = {"FORGED": 300, "VICTIMS": 10, "MEMBERS": 3, "FORGERS": 2}

    def run(self, bench):
        self.sink = Mailboxes()
        # 127.0.0.1 alone is trusted; forgers have other addresses.
        top = 'client_networks = ["127.0.0.1"]'
        stentor = bench.stentor(self.sink, http=free_port(), top=top, more=SECTIONS)
        with bench.running(self.sink, stentor):
            self.measure(bench, stentor)

    def measure(self, bench, stentor):
        members = [f"member{number}@d.example" for number in range(MEMBERS)]
        for member in members:
            self.join(stentor.port, member)
        before = self.post(stentor, members[0])
        idle, cpu = resident_mib(stentor.process.pid), stentor.group.cpu_s()
        self.sink.begin()
        shares = [range(first, FORGED, FORGERS) for first in range(FORGERS)]
        with multiprocessing.Pool(FORGERS) as pool:
            replies = sum(pool.starmap(forge, [(stentor.port, share) for share in shares]), collections.Counter())
        stentor.wait_drained()
        cpu_us = (stentor.group.cpu_s() - cpu) / FORGED * 1e6
        grown = resident_mib(stentor.process.pid) - idle
        mails, posts = self.sink.mails, self.sink.posts
        victims = collections.Counter(recipient.partition("@")[0].partition("+")[0] for recipient in mails)
        most = max(victims.values(), default=0)
        after = self.post(stentor, members[0])
        changed = len(before ^ set(members)) + len(after ^ set(members)) + len(posts)
        command = (
            f"{FORGED} forged messages in {VICTIMS} names (joins, departures, tokens, commands, posts) of "
            f"{-(-FORGED // CLIENT_MESSAGES)} client addresses"
        )
        bench.results.record(
            f"{self.name}.changes", "people and posts", [[changed, 0]], command + "; members who got a post too many or missed one, forged posts sent",
            Goal(most=0), peer_name="the goal", replies=dict(replies),
        )
        bench.results.record(
            f"{self.name}.mails", "mails to a victim", [[most, 1]], f"{command}; {len(victims)} victims got mail", Goal(most=1), peer_name="the goal",
        )
        bench.results.record(
            f"{self.name}.memory", "MiB", [[max(grown, 0), MIB_MAX]], f"{command}; resident memory more than before", Goal(most=MIB_MAX), peer_name="the goal",
        )
        bench.results.record(f"{self.name}.time", "CPU us each", [[cpu_us, cpu_us]], command, SHOWN, peer_name="itself")

    def join(self, port, person):
        """Joins all lists as people do."""
        for name in LISTS:
            self.sink.begin()
            send(port, "127.0.0.1", person, [(person, f"{name}-join@lists.example", "x")])
            wait_until(lambda: self.sink.confirm, 30, f"a confirmation for {person}")
            send(port, "127.0.0.1", person, [(person, self.sink.confirm, "Re: x")])
            wait_until(lambda: self.sink.mails[person] == 2, 30, f"a welcome for {person}")

    def post(self, stentor, member):
        """Posts to all lists; returns who got all of it."""
        self.sink.begin()
        send(stentor.port, "127.0.0.1", member, [(member, f"{name}@lists.example", "a post") for name in LISTS])
        stentor.wait_drained()
        return {recipient for recipient, count in self.sink.posts.items() if count == len(LISTS)}


def forged(number):
    """One forged message: sender, recipient, subject."""
    rng = random.Random(number)
    victim, name = rng.randrange(VICTIMS), rng.choice(LISTS)
    detail = rng.choice(("", f"+{number}"))
    sender = f"victim{victim}{detail}@d.example"
    token = "".join(rng.choices(CROCKFORD, k=26))
    member = f"member{rng.randrange(MEMBERS)}{detail}@d.example"
    return rng.choice(
        (
            (sender, f"{name}-join@lists.example", "x"),
            (sender, f"{name}+subscribe@lists.example", "x"),
            (member, f"{name}-leave@lists.example", "x"),
            (member, f"{name}-confirm+7{token[1:]}@lists.example", "x"),
            (sender, f"{name}-confirm@lists.example", f"Re: confirm {token}"),
            (sender, f"{name}-request@lists.example", rng.choice(("help", "who", "subscribe", "unsubscribe", "x"))),
            (sender, f"{name}@lists.example", "a forged post"),
        )
    )


def forge(port, numbers):
    """Sends forged messages; returns how many got which reply."""
    replies = collections.Counter()
    numbers = list(numbers)
    for first in range(0, len(numbers), CLIENT_MESSAGES):
        batch = numbers[first:first + CLIENT_MESSAGES]
        place = batch[0]
        client = f"127.{1 + place // 62_500 % 250}.{place // 250 % 250}.{2 + place % 250}"
        replies.update(send(port, client, "forger.example", [forged(number) for number in batch]))
    return replies


def send(port, client, helo, messages):
    """Sends messages in one session from an address; returns the code of each."""
    codes = []
    with socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(client, 0)) as connection, connection.makefile("rwb") as stream:
        reply(stream)
        command(stream, f"HELO {helo.partition('@')[2] or helo}")
        for sender, recipient, subject in messages:
            command(stream, f"MAIL FROM:<{sender}>")
            code = command(stream, f"RCPT TO:<{recipient}>")
            if code == 250 and (code := command(stream, "DATA")) == 354:
                code = command(stream, f"From: <{sender}>\r\nTo: <{recipient}>\r\nSubject: {subject}\r\n\r\nHello\r\n.")
            codes.append(code)
            command(stream, "RSET")
        command(stream, "QUIT")
    return codes


def command(stream, text):
    stream.write(text.encode() + b"\r\n")
    stream.flush()
    return reply(stream)


def reply(stream):
    line = stream.readline()
    while line[3:4] == b"-":
        line = stream.readline()
    return int(line[:3] or 0)


class Mailboxes(ThreadedSink):
    """An SMTP sink in this process that counts posts and other mail of each recipient."""

    def __init__(self):
        self.port, self.lock = free_port(), threading.Lock()
        self.begin()

    def begin(self):
        self.mails, self.posts, self.confirm = collections.Counter(), collections.Counter(), None

    def serve(self, client):
        with client, client.makefile("rwb") as stream:
            recipients = []
            stream.write(b"220 mailboxes\r\n")
            stream.flush()
            for line in stream:
                verb = line[:4].upper()
                text = b"250 ok"
                if verb == b"RCPT":
                    recipients.append(line.split(b"<")[1].split(b">")[0].decode())
                elif verb == b"DATA":
                    stream.write(b"354 go on\r\n")
                    stream.flush()
                    self.take(recipients, b"".join(iter(stream.readline, b".\r\n")))
                    recipients = []
                elif verb == b"QUIT":
                    text = b"221 bye"
                stream.write(text + b"\r\n")
                stream.flush()
                if verb == b"QUIT":
                    return

    def take(self, recipients, content):
        is_post = b"\r\nList-Id:" in b"\r\n" + content
        with self.lock:
            (self.posts if is_post else self.mails).update(recipients)
            found = CONFIRM.search(content)
            if found:
                self.confirm = found.group(1).decode()
