"""Clients that guess passwords, as a program of its own.

    python3 bench/guesses.py PORT --guesses 20000 --rate 1300 --first 0 --each 5

An open loop: what is sent and when follows from the clock and the numbers alone, whatever is answered, so that the same guesses hit a
mail server and a listener that only discards (`strangers.py discard`). A connection says EHLO and then `--each` times AUTH PLAIN, in
clear; it is closed a while after the last. Three of four come from an address of their own, the others from one of FEW; half of
the guesses are for users that exist. The password of each is MARK with its number, so that it can be looked for afterwards.

Prints one JSON object: guesses sent, connections made, refused and cut, replies by code.
"""

import argparse
import base64
import collections
import heapq
import itertools
import json
import resource
import select
import socket
import time

MARK = "guessed-secret"
USERS = [f"user{n}@source.example" for n in range(10)]
EHLO_S = 0.2
# A wrong password is answered after half a second.
BETWEEN_S = 0.7
FEW = 20
READ_BYTES = 65536
IP_BIND_ADDRESS_NO_PORT = 24


def address(number):
    """From 127.1.0.0 on; the servers and everybody else are at 127.0.0.1."""
    number = number if number % 4 else number // 4 % FEW
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def guess(number):
    user = USERS[number // 2 % len(USERS)] if number % 2 else f"nobody{number}@source.example"
    return b"AUTH PLAIN " + base64.b64encode(f"\0{user}\0{MARK}-{number}".encode()) + b"\r\n"


class Guessers:
    def __init__(self, port, guesses, rate, first, each):
        self.target, self.first, self.guesses, self.each = ("127.0.0.1", port), first, guesses, each
        self.epoll, self.open, self.due = select.epoll(), {}, []
        self.counts, self.codes = dict.fromkeys(("guesses", "made", "refused", "cut"), 0), collections.Counter()
        self.order = itertools.count()
        now = time.monotonic()
        for number in range(-(-guesses // each)):
            self.at(now + number * each / rate, self.play(number))

    def at(self, when, script):
        heapq.heappush(self.due, (when, next(self.order), script))

    def play(self, number):
        """A connection: yields the seconds until it goes on."""
        made = self.connect(self.first // self.each + number)
        if made is None:
            return
        descriptor = made.fileno()
        yield EHLO_S
        self.send(made, descriptor, b"EHLO guesser.example\r\n")
        yield EHLO_S
        for nth in range(number * self.each, min((number + 1) * self.each, self.guesses)):
            self.counts["guesses"] += self.send(made, descriptor, guess(self.first + nth))
            yield BETWEEN_S
        self.close(made, descriptor)

    def connect(self, number):
        made = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        try:
            made.bind((address(number), 0))
            made.connect(self.target)
        except BlockingIOError:
            pass
        except OSError:
            self.counts["refused"] += 1
            made.close()
            return None
        self.counts["made"] += 1
        self.open[made.fileno()] = made
        self.epoll.register(made, select.EPOLLIN)
        return made

    def send(self, made, descriptor, octets):
        """Whether it was; a few hundred octets always find room in a connection that is there."""
        if self.open.get(descriptor) is not made:
            return False
        try:
            made.send(octets)
            return True
        except OSError:
            self.counts["cut"] += 1
            self.close(made, descriptor)
            return False

    def close(self, made, descriptor):
        if self.open.get(descriptor) is made:
            self.epoll.unregister(descriptor)
            del self.open[descriptor]
            made.close()

    def read(self, descriptor):
        made = self.open.get(descriptor)
        if made is None:
            return
        try:
            octets = made.recv(READ_BYTES)
        except OSError:
            octets = b""
        # Short lines come whole.
        self.codes.update(line[:3].decode("ascii", "replace") for line in octets.split(b"\r\n") if line[3:4] == b" ")
        if not octets:
            self.counts["cut"] += 1
            self.close(made, descriptor)

    def run(self):
        while self.due:
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                when, _, script = heapq.heappop(self.due)
                wait = next(script, None)
                if wait is not None:
                    self.at(when + wait, script)
            wait = self.due[0][0] - time.monotonic() if self.due else 0
            for descriptor, _ in self.epoll.poll(max(0, min(wait, 0.2))):
                self.read(descriptor)
        return {**self.counts, "replies": dict(sorted(self.codes.items()))}


def main():
    parser = argparse.ArgumentParser(description="clients that guess passwords")
    parser.add_argument("port", type=int)
    parser.add_argument("--guesses", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--each", type=int, default=5)
    asked = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(Guessers(asked.port, asked.guesses, asked.rate, asked.first, asked.each).run()))


if __name__ == "__main__":
    main()
