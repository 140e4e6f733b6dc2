"""Clients of a mail server that stands on the Internet, as a program of its own: bots, and senders as they should be.

    python3 bench/bots.py PORT --bots 100000 --first 0 --good 2000 --retry 3

Each client has an address of its own in 127.0.0.0/8 and says what its kind says, at the server's pace: an early talker does not
wait for the greeting; a bot with a bad HELO gives a name without a dot; one that is listed does nothing wrong, but its address is
in `listed(...)`. A bot tries one message, once. A good sender does everything right, and comes back `--retry` seconds after
a temporary refusal, at most TRIES_MAX times. Good senders are spread evenly among the bots; `--sessions` are open at a time.
Sender and recipient are FROM and TO.

Prints one JSON object: for each kind of bot how many were `stopped` (a reply of 5xx, or for early talkers that the server hung up), got `through` (their message was
taken) or met something else (`other`: a temporary refusal, no connection, no answer); for the good ones how many were `taken`
after how many deferrals, and replies to those that were not. Every connection has SECONDS_MAX; whoever has none by then is `other`.
"""

import argparse
import collections
import heapq
import json
import resource
import select
import socket
import time

KINDS = ("early", "helo", "listed")
FROM, TO = "news%d@source.example", "reader@sink.example"
SECONDS_MAX = 60
TRIES_MAX = 5
READ_BYTES = 65536
IP_BIND_ADDRESS_NO_PORT = 24
HUNG_UP = ("closed", "ConnectionResetError")
TEXT = b"From: <news@source.example>\r\nTo: <reader@sink.example>\r\nSubject: An offer\r\n\r\n" + b"Buy now, and pay later.\r\n" * 40 + b".\r\n"


def bot_address(number):
    """From 127.1.0.0 on: the servers are at 127.0.0.1."""
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def good_address(number):
    """Each in a /24 of its own, since greylisting knows networks."""
    return f"127.{200 + number // 250}.{number % 250}.9"


def kind(number):
    return KINDS[number % len(KINDS)]


def listed(first, count):
    """The addresses of bots that a DNS list is to have."""
    return [bot_address(number) for number in range(first, first + count) if kind(number) == "listed"]


class Client:
    """One connection: a dialogue that yields what to send and is sent the codes of replies."""

    def __init__(self, who, number, tries=0):
        self.who, self.number, self.tries = who, number, tries
        self.codes, self.waiting, self.until, self.socket = [], b"", 0, None
        self.address = good_address(number) if who == "good" else bot_address(number)
        helo = b"pc" if who == "helo" else b"mx%d.source.example" % number
        mail = b"MAIL FROM:<%s>\r\n" % (FROM % number).encode()
        self.lines = [b"EHLO %s\r\n" % helo, mail, b"RCPT TO:<%s>\r\n" % TO.encode(), b"DATA\r\n", TEXT]
        if who == "good":
            self.lines.append(b"QUIT\r\n")
        # Before the greeting: who does not wait sends all that can be sent.
        self.unsent = b"".join(self.lines[:3]) if who == "early" else b""

    def hears(self, code):
        """What is sent after a reply; None: the connection ends."""
        self.codes.append(code)
        said = len(self.codes)
        if code >= 400 or said > len(self.lines):
            return None
        if said <= 3 and self.who == "early":
            return b""
        return self.lines[said - 1]

    def is_taken(self):
        """The reply to the message was a 250."""
        return len(self.codes) > 5 and self.codes[5] == 250


class Run:
    def __init__(self, options):
        self.options = options
        self.epoll, self.open, self.retries, self.order = select.epoll(), {}, [], 0
        self.bots = {one: collections.Counter() for one in KINDS}
        self.other, self.taken, self.lost = collections.Counter(), collections.Counter(), collections.Counter()

    def everybody(self):
        bots, good, begun = self.options.bots, self.options.good, 0
        for number in range(self.options.first, self.options.first + bots):
            while begun < good and begun * bots <= (number - self.options.first) * good:
                yield Client("good", begun)
                begun += 1
            yield Client(kind(number), number)
        for number in range(begun, good):
            yield Client("good", number)

    def run(self):
        fresh, is_over, swept = self.everybody(), False, time.monotonic()
        while self.open or self.retries or not is_over:
            now = time.monotonic()
            while len(self.open) < self.options.sessions:
                if self.retries and self.retries[0][0] <= now:
                    self.connect(heapq.heappop(self.retries)[2])
                elif not is_over and (client := next(fresh, None)):
                    self.connect(client)
                else:
                    is_over = True
                    break
            for descriptor, _ in self.epoll.poll(0.1):
                self.reads(self.open[descriptor])
            if now - swept > 1:
                swept = now
                for client in [client for client in self.open.values() if client.until < now]:
                    self.ends(client, "no answer")
        return {
            "bots": self.bots, "other": self.other, "lost": self.lost,
            "good": {"deferred %d times" % times: count for times, count in sorted(self.taken.items())},
        }

    def connect(self, client):
        made = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind((client.address, 0))
        # It says what it thinks of that when it is read.
        made.connect_ex(("127.0.0.1", self.options.port))
        client.socket, client.until = made, time.monotonic() + SECONDS_MAX
        self.open[made.fileno()] = client
        self.epoll.register(made, select.EPOLLIN | (select.EPOLLOUT if client.unsent else 0))

    def reads(self, client):
        if client.unsent:
            first, client.unsent = client.unsent, b""
            self.epoll.modify(client.socket, select.EPOLLIN)
            try:
                client.socket.send(first)
            except OSError:
                # A reason may be there to be read.
                pass
        try:
            octets = client.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            return self.ends(client, type(error).__name__)
        if not octets:
            return self.ends(client, "closed")
        *lines, client.waiting = (client.waiting + octets).split(b"\r\n")
        for line in lines:
            if line[3:4] == b"-":
                continue
            answer = client.hears(int(line[:3]))
            if answer is None:
                return self.ends(client, line.decode("ascii", "replace"))
            try:
                if answer:
                    client.socket.send(answer)
            except OSError:
                # What the server has said before it closed is still to be read.
                continue

    def ends(self, client, why):
        self.epoll.unregister(client.socket)
        del self.open[client.socket.fileno()]
        client.socket.close()
        last = client.codes[-1] if client.codes else 0
        if client.who != "good":
            is_stopped = last >= 500 or (client.who == "early" and why in HUNG_UP)
            fate = "through" if client.is_taken() else "stopped" if is_stopped else "other"
            self.bots[client.who][fate] += 1
            if fate == "other":
                self.other[f"{client.who}: {why[:100]}"] += 1
        elif client.is_taken():
            self.taken[client.tries] += 1
        elif 400 <= last < 500 and client.tries < TRIES_MAX:
            self.order += 1
            again = Client("good", client.number, client.tries + 1)
            heapq.heappush(self.retries, (time.monotonic() + self.options.retry, self.order, again))
        else:
            self.lost[why[:100]] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--bots", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first bot")
    parser.add_argument("--good", type=int, default=0)
    parser.add_argument("--retry", type=float, default=3, help="seconds until a good sender comes back")
    parser.add_argument("--sessions", type=int, default=500)
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(json.dumps(Run(options).run()))


if __name__ == "__main__":
    main()
