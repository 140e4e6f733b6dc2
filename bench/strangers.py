"""Strangers who do their worst, as a program of its own: many connections from 20 addresses of 127.0.0.0/8.

    python3 bench/strangers.py attack PORT --connections 2000 --seconds 20 --list news@lists.example
    python3 bench/strangers.py attack PORT --connections 100 --seconds 20 --messages FOLDER
    python3 bench/strangers.py discard PORT

With --messages each connection sends one message of the folder instead, and leaves the end of its data out.

An open loop: what is sent, and when a connection is made, follows from the clock and the seed alone, whatever is answered, so
that the same attack hits a mail server and a listener that only discards (`discard`: accepts, reads, says nothing). Each
connection plays its part for LIFE_S; cut early, it stays away for the rest of that time. Bounded by --seconds and by the
number of connections; what is left is closed at the end. Prints one JSON object: connections made, cut and refused, octets
sent and received.
"""

import argparse
import functools
import heapq
import json
import os
import random
import resource
import select
import socket
import struct
import time

ADDRESSES = [f"127.0.1.{n}" for n in range(1, 21)]
LIFE_S = 8
READ_BYTES = 65536
# Octets that one part may have unsent: the other side does not read, and no more is given to the kernel.
UNSENT_BYTES_MAX = 256 * 1024
LISTEN_BACKLOG = 4096
NO_LINGER = struct.pack("ii", 1, 0)

# The pace of a message: 256 KiB in two seconds.
MESSAGE_BLOCK_BYTES = 8 * 1024
MESSAGE_BLOCK_S = 0.06

HELO = b"EHLO a.example\r\n"
MAIL = b"MAIL FROM:<victim@far.example>\r\n"
HUGE = b"MAIL FROM:<victim@far.example> SIZE=52428800\r\n"
LINE = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\r\n"
SMUGGLED = b"\r\n\0.\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n.\r\n"


class Parts:
    """The parts that connections play: generators of (seconds to wait, octets to send)."""

    def __init__(self, to):
        self.rcpt = b"RCPT TO:<%s>\r\n" % to.encode()
        self.all = [
            self.ehlo_flood, self.noop_flood, self.announce, self.announce_and_begin, self.hold_a_piece, self.hold_a_stream,
            self.endless_chunk, self.empty_chunks, self.tiny_chunks, self.unknown_recipients, self.same_recipient,
            self.garbage, self.endless_line, self.trickled_command, self.silence, self.header_bomb, self.early,
            self.smuggle, self.never_finish, self.vrfy_and_reset, self.mail, self.wrong_parameters,
        ]
        # Those who read nothing of what they are told.
        self.deaf = {self.ehlo_flood, self.same_recipient, self.unknown_recipients, self.noop_flood}

    def begin(self, mail=HUGE):
        yield 0.3, HELO + mail + self.rcpt
        yield 0.3, b"DATA\r\n"

    def ehlo_flood(self):
        while True:
            yield 1, b"EHLO a\r\n" * 8192

    def noop_flood(self):
        while True:
            yield 1, b"NOOP\r\n" * 2000

    def announce(self):
        yield 0.3, HELO + HUGE
        while True:
            yield 60, b""

    def announce_and_begin(self):
        yield from self.begin()
        while True:
            yield 60, b""

    def hold_a_piece(self):
        yield from self.begin(MAIL)
        yield 0.5, LINE * 4000
        while True:
            yield 1, b"x"

    def hold_a_stream(self):
        yield from self.begin()
        for _ in range(4):
            yield 1, LINE * 8000
        while True:
            yield 1, b"x"

    def endless_chunk(self):
        yield 0.3, HELO + MAIL + self.rcpt + b"BDAT 18446744073709551615\r\n"
        while True:
            yield 0.5, LINE * 500

    def empty_chunks(self):
        yield 0.3, HELO + MAIL + self.rcpt
        while True:
            yield 0.5, b"BDAT 0\r\n" * 500

    def tiny_chunks(self):
        yield 0.3, HELO + MAIL + self.rcpt
        while True:
            yield 0.5, b"BDAT 1\r\nx" * 500

    def unknown_recipients(self):
        yield 0.3, HELO + MAIL
        while True:
            yield 1, b"RCPT TO:<nobody@lists.example>\r\n" * 1000

    def same_recipient(self):
        yield 0.3, HELO
        while True:
            yield 1, MAIL + self.rcpt * 1000 + b"RSET\r\n"

    def garbage(self):
        while True:
            yield 0.5, bytes(range(256)) * 16

    def endless_line(self):
        while True:
            yield 0.5, b"x" * 32768

    def trickled_command(self):
        while True:
            yield 0.5, b"N"

    def silence(self):
        while True:
            yield 60, b""

    def header_bomb(self):
        yield from self.begin(MAIL)
        yield 0.5, (b"Delivered-To: " + b"x" * 480 + b"@far.example\r\n") * 900
        while True:
            yield 1, b"List-Id: <" + b"y" * 400 + b">\r\n"

    def early(self):
        yield 0, HELO + MAIL + self.rcpt + b"DATA\r\n" + LINE * 100 + b".\r\n"
        while True:
            yield 60, b""

    def smuggle(self):
        yield from self.begin(MAIL)
        yield 0.3, b"Subject: x\r\n\r\ntext" + SMUGGLED
        while True:
            yield 60, b""

    def never_finish(self):
        while True:
            yield 0.5, HELO + MAIL + self.rcpt + b"RSET\r\n"

    def vrfy_and_reset(self):
        while True:
            yield 0.5, b"VRFY a\r\nHELP\r\nRSET\r\n" * 100

    def mail(self):
        yield 0.3, HELO
        for n in range(3):
            yield 0.3, MAIL + self.rcpt + b"DATA\r\n"
            yield 0.7, b"Subject: %d\r\nFrom: victim@far.example\r\n\r\n" % n + LINE * 30 + b".\r\n"
        while True:
            yield 60, b""

    def wrong_parameters(self):
        yield 0.3, HELO
        while True:
            yield 0.5, b"MAIL FROM:<a@b.example> RET=FULL NOTIFY=X SIZE=-1\r\n" * 50


class Messages:
    """Connections that send a message each, all files of a folder by turns, at a steady pace."""

    def __init__(self, to, folder):
        self.begin = Parts(to).begin
        paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        contents = [open(path, "rb").read() for path in paths]
        self.all = [functools.partial(self.message, content) for content in contents]
        self.deaf = set()

    def message(self, content):
        yield from self.begin(MAIL)
        for at in range(0, len(content), MESSAGE_BLOCK_BYTES):
            yield MESSAGE_BLOCK_S, content[at : at + MESSAGE_BLOCK_BYTES]
        while True:
            yield 60, b""


class Stranger:
    """One connection after the other, each for LIFE_S."""

    def __init__(self, number, part, deaf):
        self.number, self.part, self.deaf = number, part, deaf
        self.socket, self.script, self.unsent, self.ends = None, None, b"", 0


class Attack:
    def __init__(self, port, connections, seconds, parts, seed, storm):
        self.target = ("127.0.0.1", port)
        self.until = time.monotonic() + seconds
        self.epoll = select.epoll()
        self.open, self.due, self.order = {}, [], 0
        self.counts = dict.fromkeys(("made", "cut", "refused", "sent", "received"), 0)
        chance = random.Random(seed)
        now = time.monotonic()
        for number in range(connections):
            # The last ones come and go at once, over and over.
            part = None if number >= connections - storm else parts.all[number % len(parts.all)]
            stranger = Stranger(number, part, part in parts.deaf)
            self.at(now + chance.random() * min(LIFE_S, seconds) / 2, stranger)

    def at(self, when, stranger):
        self.order += 1
        heapq.heappush(self.due, (when, self.order, stranger))

    def run(self):
        while (now := time.monotonic()) < self.until:
            while self.due and self.due[0][0] <= now:
                self.turn(heapq.heappop(self.due)[2], now)
            wait = min(self.due[0][0] if self.due else self.until, self.until) - time.monotonic()
            for descriptor, event in self.epoll.poll(max(0, min(wait, 0.2))):
                self.ready(self.open.get(descriptor), event)
        for stranger in list(self.open.values()):
            self.close(stranger)
        return self.counts

    def turn(self, stranger, now):
        if stranger.part is None:
            # A storm: connected and gone, with a reset every other time.
            self.connect(stranger)
            if stranger.socket:
                if stranger.number % 2:
                    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                self.close(stranger)
            return self.at(now + 0.5, stranger)
        if now >= stranger.ends:
            self.close(stranger)
            self.connect(stranger)
            stranger.ends = now + LIFE_S
            stranger.script = stranger.part()
            wait, stranger.next = next(stranger.script)
        else:
            self.send(stranger, stranger.next)
            wait, stranger.next = next(stranger.script)
        self.at(min(now + wait, stranger.ends), stranger)

    def connect(self, stranger):
        made = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        try:
            made.bind((ADDRESSES[stranger.number % len(ADDRESSES)], 0))
            made.connect(self.target)
        except BlockingIOError:
            pass
        except OSError:
            self.counts["refused"] += 1
            made.close()
            return
        self.counts["made"] += 1
        stranger.socket, stranger.unsent = made, b""
        self.open[made.fileno()] = stranger
        self.epoll.register(made, 0 if stranger.deaf else select.EPOLLIN)

    def close(self, stranger):
        if stranger.socket:
            self.epoll.unregister(stranger.socket)
            del self.open[stranger.socket.fileno()]
            stranger.socket.close()
            stranger.socket, stranger.unsent = None, b""

    def send(self, stranger, octets):
        if stranger.socket and octets and len(stranger.unsent) < UNSENT_BYTES_MAX:
            stranger.unsent += octets
            self.write(stranger)

    def write(self, stranger):
        try:
            count = stranger.socket.send(stranger.unsent)
            self.counts["sent"] += count
            stranger.unsent = stranger.unsent[count:]
        except BlockingIOError:
            pass
        except OSError:
            self.counts["cut"] += 1
            return self.close(stranger)
        wanted = (0 if stranger.deaf else select.EPOLLIN) | (select.EPOLLOUT if stranger.unsent else 0)
        self.epoll.modify(stranger.socket, wanted)

    def ready(self, stranger, event):
        if not stranger:
            return
        if event & select.EPOLLIN:
            try:
                octets = stranger.socket.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                octets = b""
            self.counts["received"] += len(octets)
            if not octets:
                self.counts["cut"] += 1
                return self.close(stranger)
        elif event & (select.EPOLLERR | select.EPOLLHUP):
            self.counts["cut"] += 1
            return self.close(stranger)
        if event & select.EPOLLOUT:
            self.write(stranger)


def discard(port):
    """Accepts and reads until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=LISTEN_BACKLOG)
    listener.setblocking(False)
    epoll, connections, buffer = select.epoll(), {}, bytearray(READ_BYTES)
    epoll.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    continue
                accepted.setblocking(False)
                connections[accepted.fileno()] = accepted
                epoll.register(accepted, select.EPOLLIN)
                continue
            try:
                count = connections[descriptor].recv_into(buffer)
            except BlockingIOError:
                continue
            except OSError:
                count = 0
            if not count:
                epoll.unregister(descriptor)
                connections.pop(descriptor).close()


def main():
    parser = argparse.ArgumentParser(description="strangers who do their worst")
    parser.add_argument("what", choices=("attack", "discard"))
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--list", default="news@lists.example")
    parser.add_argument("--messages", default="")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    if asked.what == "discard":
        discard(asked.port)
    parts = Messages(asked.list, asked.messages) if asked.messages else Parts(asked.list)
    storm = 0 if asked.messages else asked.connections // 10
    attack = Attack(asked.port, asked.connections, asked.seconds, parts, asked.seed, storm)
    print(json.dumps(attack.run()))


if __name__ == "__main__":
    main()
