"""Who missed a post, over kills: posts to a list of which hosts refuse some subscribers and are full for others, with
`kill -9` at random points of each. Afterwards those that the server says missed it must be exactly those, and after
`post resend --missed`, killed again as soon as it is answered, everybody has it. A copy may come twice only if the server
died soon after the first one.
"""

import collections
import json
import os
import random
import socket
import time

from measure import BenchError, wait_until
from results import Goal
from scenarios.identity_one_click import say
from sinks import ThreadedSink, free_port
from sources import SENDER, message, post

KILLS = 100
KILLS_PER_POST = 5
SUBSCRIBERS = 50_000
DOMAINS = 500
# One in so many is refused with 550, and one in so many is full (452) until an operator cancels its copy.
REFUSED_ONE_IN = 25
FULL_ONE_IN = 100
LENGTH = 4096
SERVED_S_MAX = 300
# A delivery is durable within completion_sync_ms_max (100 ms) and a sync; slow disks and a busy machine are allowed for.
WINDOW_S = 2
LIST_KEYS = "expire_s = 86400"


class Resend:
    """Kills during posts, and resends to those that missed them."""

    name = "lists.resend"
    entries = (".wrong",)
    smoke = {"KILLS": 3, "KILLS_PER_POST": 3, "SUBSCRIBERS": 2_000, "DOMAINS": 50}

    def run(self, bench):
        people = [f"reader{number:05}@d{number % DOMAINS:03}.example" for number in range(SUBSCRIBERS)]
        subscribers = f"{bench.work}/resend.subscribers"
        with open(subscribers, "w") as file:
            file.writelines(f"{address}\n" for address in people)
        self.refused = {address for number, address in enumerate(people) if number % REFUSED_ONE_IN == 1}
        self.full = {address for number, address in enumerate(people) if number % FULL_ONE_IN == 2}
        self.sink = PickySink(self.refused, self.full)
        stentor = bench.stentor(self.sink, subscribers=subscribers, list_keys=LIST_KEYS)
        self.wrong, self.kills, self.duplicates = [], [], 0
        with bench.running(self.sink, stentor):
            self.server, self.control = stentor, os.path.join(stentor.folder, "data", "control.sock")
            number = 0
            while len(self.kills) < KILLS:
                self.once(people, f"resend{number}")
                number += 1
                print(f"    post {number}: {len(self.kills)} kills, {len(self.wrong)} wrong, {self.duplicates} repeated", flush=True)
        bench.results.record(
            f"{self.name}.wrong", "recipients", [[len(self.wrong), 0]],
            f"{len(self.kills)} kills during {number} posts to {SUBSCRIBERS}: recipients wrongly missed or not missed, without a copy after the resend, or "
            f"with a second one although the first was over {WINDOW_S} s before a kill", Goal(most=0), peer_name="the goal", kills=len(self.kills),
            repeated=self.duplicates, wrong=self.wrong[:20],
        )

    def once(self, people, name):
        self.sink.begin(is_picky=True)
        post(self.server.port, SENDER, "news@lists.example", message(LENGTH, name))
        queue_id = self.rows("report", "post_rows", rows_max=1)[0]["id"]
        can_have_it = len(people) - len(self.refused) - len(self.full)
        for at in sorted(random.uniform(0, 0.98) for _ in range(KILLS_PER_POST)):
            goal = int(at * can_have_it)
            wait_until(lambda: self.sink.served() >= goal, SERVED_S_MAX, f"{goal} of {can_have_it} served ({self.sink.served()} are)")
            self.kill()
        wait_until(lambda: self.has_ended(queue_id, can_have_it), SERVED_S_MAX, f"the end of the post ({self.counts(queue_id)})")
        missed = self.missed(queue_id)
        self.wrong += [f"{name}: {address} misses it" for address in missed - self.refused - self.full]
        self.wrong += [f"{name}: {address} does not miss it" for address in (self.refused | self.full) - missed]
        self.sink.is_picky = False
        reply = self.lines("resend", id=queue_id)[0]
        if not reply["ok"] or reply["data"]["count"] != len(missed):
            self.wrong.append(f"{name}: {reply}")
        # The answer means that it is durable.
        self.kill()
        wait_until(lambda: self.counts(queue_id)["delivered"] == len(people), SERVED_S_MAX, f"all served ({self.counts(queue_id)})")
        copies = self.sink.copies
        self.wrong += [f"{name}: {address} has no copy" for address in people if address not in copies]
        self.wrong += [f"{name}: {address} is a stranger" for address in copies.keys() - set(people)]
        for address, times in copies.items():
            self.duplicates += len(times) - 1
            # Each copy but the last was repeated by a kill: one soon after it.
            repeated = [at for at in times[:-1] if not any(at <= kill <= at + WINDOW_S for kill in self.kills)]
            self.wrong += [f"{name}: {address} has a copy from outside of the window" for _ in repeated]

    def kill(self):
        # First: a copy that comes until the process is gone is in the window.
        self.server.crash()
        self.kills.append(time.monotonic())
        self.server.restart()
        wait_until(self.is_controlled, 60, "the control socket")

    def has_ended(self, queue_id, can_have_it):
        """Whether all that can have it do, and the others were refused or given up."""
        counts = self.counts(queue_id)
        if (counts["delivered"], counts["bounced"]) != (can_have_it, len(self.refused)):
            return False
        if counts["waiting"]:
            # Recipients in a transaction are left out.
            self.lines("remove", id=queue_id)
        return not self.counts(queue_id)["waiting"]

    def counts(self, queue_id):
        # Without those that missed it: their replies are searched in the history.
        return self.lines("post_show", id=queue_id, state="waiting", rows_max=1)[0]["data"]["counts"]

    def missed(self, queue_id):
        found, offset = set(), 0
        while offset is not None:
            lines = self.lines("post_show", id=queue_id, state="missed", rows_max=1000, offset=offset)
            found |= {row["address"] for line in lines[1:] for row in line["data"]}
            offset = lines[0]["data"]["next"]
        return found

    def rows(self, verb, kind, **fields):
        return [row for line in self.lines(verb, **fields) if line["reply"] == kind for row in line["data"]]

    def lines(self, verb, **fields):
        """The lines of a reply on the control socket."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(self.control)
            client.sendall(json.dumps({"v": 1, "verb": verb, **fields}).encode() + b"\n")
            replies = client.makefile()
            lines = [json.loads(replies.readline())]
            while lines[-1]["more"]:
                lines.append(json.loads(replies.readline()))
        return lines

    def is_controlled(self):
        """Whether the control socket answers: it may be there a little later than the greeting."""
        try:
            return self.lines("status")[0]["ok"]
        except (OSError, ValueError):
            return False


class PickySink(ThreadedSink):
    """An SMTP sink in this process that refuses some recipients, as long as it is picky, and notes each copy's time."""

    def __init__(self, refused, full):
        self.port = free_port()
        self.refusals = dict.fromkeys(refused, b"550 5.1.1 no such user") | dict.fromkeys(full, b"452 4.2.2 mailbox full")
        self.begin(is_picky=True)

    def begin(self, is_picky):
        # Times of copies by recipient.
        self.copies, self.is_picky = collections.defaultdict(list), is_picky

    def served(self):
        return len(self.copies)

    def serve(self, client):
        try:
            with client, client.makefile("rwb") as stream:
                self.talk(stream)
        except OSError:
            # The server was killed.
            pass

    def talk(self, stream):
        recipients, is_report = [], False
        say(stream, b"220 sink")
        for line in stream:
            verb = line[:4].upper()
            if verb == b"RCPT":
                recipient = line.split(b"<")[1].split(b">")[0].decode()
                refusal = self.refusals.get(recipient) if self.is_picky else None
                say(stream, refusal or b"250 ok")
                if not refusal:
                    recipients.append(recipient)
            elif verb == b"DATA":
                say(stream, b"354 go on" if recipients else b"554 no recipients")
                if not recipients:
                    continue
                if not all(part.endswith(b"\r\n") for part in iter(stream.readline, b".\r\n")):
                    # Killed within the data.
                    return
                now = time.monotonic()
                # The owner is told of failures.
                for recipient in recipients if not is_report else ():
                    self.copies[recipient].append(now)
                recipients = []
                say(stream, b"250 ok")
            elif verb == b"QUIT":
                return say(stream, b"221 bye")
            else:
                recipients = [] if verb in (b"MAIL", b"RSET") else recipients
                is_report = verb == b"MAIL" and b"<>" in line
                say(stream, b"250-sink\r\n250 PIPELINING" if verb == b"EHLO" else b"250 ok")
