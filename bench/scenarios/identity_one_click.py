"""One-click unsubscribing (RFC 8058): link scanners and forged links change nothing, and what was answered holds."""

import http.client
import multiprocessing
import re
import socket
import time

from measure import BenchError
from results import Goal
from sinks import ThreadedSink, free_port
from sources import SENDER, message, post

SUBSCRIBERS = 200
# Links used one after the other, each followed by kill -9.
KILLS = 20
FORGED_S = 10
FORGERS = 4
# Requests written at once on a connection that is kept.
PIPELINED = 50
FORGED_PER_S = 10_000
SUPPRESSED_S_MAX = 1
HOST = "lists.example"
LINK = re.compile(rb"List-Unsubscribe:\r\n <https://lists\.example(/unsubscribe/[^>]+)>")


class OneClick:
    """Subscribers of a list leave by their links."""

    name = "identity.one_click"
    entries = (".wrong", ".suppressed", ".forged")
    smoke = {"SUBSCRIBERS": 12, "KILLS": 2, "FORGED_S": 0.5, "FORGERS": 1}

    def run(self, bench):
        subscribers = f"{bench.work}/one_click.subscribers"
        addresses = [f"reader{number:04}@d.example" for number in range(SUBSCRIBERS)]
        with open(subscribers, "w") as file:
            file.writelines(f"{address}\n" for address in addresses)
        self.keeper = Keeper()
        stentor = bench.stentor(
            self.keeper, subscribers=subscribers, http=free_port(), list_keys="one_click = true",
            http_keys=f'link_base = "https://{HOST}"',
        )
        with bench.running(self.keeper, stentor):
            self.measure(bench, stentor, addresses)

    def measure(self, bench, stentor, addresses):
        wrong = []
        left = set(addresses)
        self.post(stentor, left, wrong)
        links = dict(self.keeper.links)
        if len(links) != len(addresses):
            raise BenchError(f"{len(links)} copies of {len(addresses)} have a link")
        # Scanners fetch every link, some of them with HEAD.
        for link in links.values():
            for method in ("GET", "HEAD"):
                ask(stentor.http, method, link)
        self.post(stentor, left, wrong)
        # What was answered survives a crash.
        slowest = 0
        for address in addresses[:KILLS]:
            status = ask(stentor.http, "POST", links[address], b"List-Unsubscribe=One-Click")
            if status != 200:
                wrong.append(f"{address}: {status}")
            answered = time.monotonic()
            left.discard(address)
            self.post(stentor, left, wrong)
            slowest = max(slowest, self.keeper.first - answered)
            stentor.crash()
            stentor.restart()
            self.post(stentor, left, wrong)
        # Another list's or person's token is nobody's.
        per_s = self.forge(stentor, links[addresses[-1]])
        self.post(stentor, left, wrong)
        command = f"{len(addresses)} subscribers: GET and HEAD of each link, {KILLS} links used with kill -9 after each"
        bench.results.record(
            f"{self.name}.wrong", "wrong answers and copies", [[len(wrong), 0]], command, Goal(most=0), peer_name="the goal", wrong=wrong[:20]
        )
        bench.results.record(
            f"{self.name}.suppressed", "s", [[slowest, SUPPRESSED_S_MAX]], command + "; from 200 to the next post's first copy, without that one",
            Goal(most=SUPPRESSED_S_MAX), peer_name="the goal",
        )
        bench.results.record(
            f"{self.name}.forged", "forged links/s", [[per_s, FORGED_PER_S]], f"{FORGERS} processes for {FORGED_S} s, nothing changed",
            Goal(ratio=1), more_is_better=True, peer_name="the goal",
        )

    def post(self, stentor, left, wrong):
        """Posts, and notes copies that miss or should not be there."""
        self.keeper.begin()
        post(stentor.port, SENDER, "news@lists.example", message(2_000, f"click{time.monotonic_ns()}"))
        stentor.wait_drained()
        got = set(self.keeper.links)
        wrong.extend(f"{address}: no copy" for address in left - got)
        wrong.extend(f"{address}: a copy too many" for address in got - left)

    def forge(self, stentor, link):
        with multiprocessing.Pool(FORGERS) as pool:
            return sum(pool.starmap(forge, [(stentor.http, link, number) for number in range(FORGERS)])) / FORGED_S


class Keeper(ThreadedSink):
    """An SMTP sink in this process that keeps the link of each copy."""

    def __init__(self):
        self.port, self.links, self.first = free_port(), {}, None

    def begin(self):
        self.links, self.first = {}, None

    def serve(self, client):
        with client, client.makefile("rwb") as stream:
            recipient = None
            say(stream, b"220 keeper")
            for line in stream:
                verb = line[:4].upper()
                if verb == b"RCPT":
                    recipient = line.split(b"<")[1].split(b">")[0].decode()
                if verb == b"DATA":
                    say(stream, b"354 go on")
                    content = b"".join(iter(stream.readline, b".\r\n"))
                    found = LINK.search(content)
                    self.first = self.first or time.monotonic()
                    self.links[recipient] = found.group(1).decode() if found else None
                say(stream, b"221 bye" if verb == b"QUIT" else b"250 ok")
                if verb == b"QUIT":
                    return


def say(stream, text):
    stream.write(text + b"\r\n")
    stream.flush()


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, {"Host": HOST, "Content-Type": "application/x-www-form-urlencoded"})
    status = connection.getresponse().status
    connection.close()
    return status


def forge(port, link, number):
    """Sends altered links for FORGED_S; returns how many were answered, each of them with 404."""
    answered, at = 0, 0
    connection = socket.create_connection(("127.0.0.1", port))
    stream = connection.makefile("rb")
    end = time.monotonic() + FORGED_S
    while time.monotonic() < end:
        requests = []
        for _ in range(PIPELINED):
            at += 1
            place = len("/unsubscribe/") + (at * 7 + number) % (len(link) - len("/unsubscribe/"))
            other = "A" if link[place] != "A" else "B"
            forged = link[:place] + other + link[place + 1:]
            requests.append(f"POST {forged} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n")
        connection.sendall("".join(requests).encode())
        for _ in requests:
            status = stream.readline().split()[1]
            if status != b"404":
                raise BenchError(f"a forged link was answered {status}")
            size = 0
            for line in iter(stream.readline, b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            stream.read(size)
            answered += 1
    return answered
