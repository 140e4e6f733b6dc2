"""Posts to a list with public-inbox as its archive, while the server is killed with -9 at random moments. A client posts again what was not
acknowledged, with the same Message-ID. Each post must be in public-inbox once, and the permalink in the subscriber's copy must show it."""

import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from urllib.error import HTTPError
from urllib.request import urlopen

from field.hosts import Host
from field.names import NameServer
from field.server import Server, wait_for
from managers.public_inbox import PublicInbox
from managers.world import DOMAIN, HOST, OWNER, POSTER
from measure import BenchError, CannotHere
from results import Goal

POSTS, KILLS = 10_000, 100
# Sizes for a comparison with programs of others.
PEERS_SIZE = {"POSTS": 400, "KILLS": 10}
CLIENTS = 4
SEED = 20_261_201
# Between a start and the next kill.
LIFE_S = (0.05, 0.5)
ARCHIVED_S_MAX = 900
# Without a new message for so long, public-inbox has all.
QUIET_S = 15
LIST = "news@lists.archive.test"
MEMBER = f"ann@{DOMAIN}"
# What a URL must encode, or public-inbox would look for another message.
FORMS = ("post-{}@x.test", "a/../{}?b=1&c#d@x.test", "{}%2F+=;$!*'@x.test", "..{}/.@x.test", "{}:{{}}|^~@x.test")


def message_id(number):
    return FORMS[number % len(FORMS)].format(number)


def post(number):
    return (
        f"From: Poster <{POSTER}>\r\nTo: {LIST}\r\nSubject: Post {number} of the list\r\nDate: Sat, 28 Nov 2026 12:00:00 +0000\r\n"
        f"Message-ID: <{message_id(number)}>\r\n\r\nThe text of post {number}.\r\n"
    )


class Posters:
    """Post each number until it is acknowledged."""

    def __init__(self, server):
        self.server, self.lock, self.next, self.tries = server, threading.Lock(), 0, 0
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while (number := self.take()) is not None:
            while not self.one(number):
                time.sleep(0.02)

    def take(self):
        with self.lock:
            self.next += 1
            return self.next - 1 if self.next <= POSTS else None

    def one(self, number):
        with self.lock:
            self.tries += 1
        try:
            return self.server.send(POSTER, [LIST], post(number)).startswith("250")
        except OSError:
            return False

    def is_over(self):
        return not any(thread.is_alive() for thread in self.threads)


class Archive:
    """A list whose archive is public-inbox."""

    name = "lists.archive"
    entries = (".posts", ".permalinks")
    smoke = {"POSTS": 40, "KILLS": 3, "QUIET_S": 3}

    def run(self, bench):
        if not PublicInbox.is_there():
            raise CannotHere("public-inbox is not installed: run testing/install.sh")
        if os.geteuid() != 0:
            raise CannotHere("stentor-deliver needs root")
        folder = tempfile.mkdtemp(prefix="archive-")
        os.chmod(folder, 0o755)
        host, inbox = Host(HOST, 0), PublicInbox(bench, folder, LIST)
        names = NameServer().add_host(DOMAIN, HOST)
        section = f'[lists.news]\naddress = "{LIST}"\nsubscribers = "news.txt"\nowner = "{OWNER}"\n{inbox.keys()}'
        try:
            inbox.start()
            with Server(bench.binary, names.address, host.port, sections=section, files={"news.txt": f"{MEMBER}\n"}) as server:
                tries, kills = kill_while_posting(server)
                wait_for(lambda: {mail.fields("Message-ID")[0] for mail in list(host.mails)} >= wanted(), 120)
                wait_archived(inbox)
            self.judge(bench, inbox, host, {"posts": POSTS, "tries": tries, "kills": kills})
        finally:
            inbox.stop()
            host.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def judge(self, bench, inbox, host, seen):
        links = {mail.fields("Message-ID")[0]: mail.fields("Archived-At") for mail in host.mails}
        if set(links) != wanted():
            raise BenchError(f"the subscriber has {len(links)} of {POSTS} posts")
        wrong_posts, wrong_links = [], []
        for number in range(POSTS):
            found = links[f"<{message_id(number)}>".encode()]
            link = found[0].decode().strip("<>") if len(found) == 1 else ""
            if not link.startswith(inbox.url) or f"Post {number} of the list" not in page(link):
                wrong_links.append(number)
            if page(link + "raw").count(f"\nThe text of post {number}.\n") != 1:
                wrong_posts.append(number)
        seen["copies of the subscriber"] = len(host.mails)
        seen["files in the Maildir"] = sum(len(os.listdir(f"{inbox.maildir}/{name}")) for name in ("new", "cur"))
        seen["messages in public-inbox"] = inbox.stored()
        print(f"    {seen}", flush=True)
        missed = max(len(wrong_posts), abs(seen["messages in public-inbox"] - POSTS))
        command = f"{seen['kills']} x kill -9, {POSTS} posts"
        for entry, what, value, named in (
            (".posts", "posts that public-inbox does not show once", missed, wrong_posts),
            (".permalinks", "permalinks that do not show their post", len(wrong_links), wrong_links),
        ):
            bench.results.record(self.name + entry, what, [[value, 0]], command, Goal(most=0), peer_name="the goal", named=named[:10], **seen)


def wanted():
    return {f"<{message_id(number)}>".encode() for number in range(POSTS)}


def kill_while_posting(server):
    """Tries of the clients, and kills: at least `KILLS`, and until all is posted."""
    chance, posters, kills = random.Random(SEED), Posters(server), 0
    while kills < KILLS and not posters.is_over():
        time.sleep(chance.uniform(*LIFE_S))
        server.kill_and_start()
        kills += 1
    if not wait_for(posters.is_over, ARCHIVED_S_MAX):
        raise BenchError(f"only {posters.next} of {POSTS} posts were taken")
    return posters.tries, kills


def wait_archived(inbox):
    """Waits until public-inbox has all posts and takes no more."""
    last, since = inbox.stored(), time.monotonic()
    end = since + ARCHIVED_S_MAX
    while time.monotonic() < end and not (last >= POSTS and time.monotonic() - since > QUIET_S):
        time.sleep(0.5)
        if (now := inbox.stored()) != last:
            last, since = now, time.monotonic()


def page(url):
    try:
        with urlopen(url, timeout=30) as reply:
            return reply.read().decode("utf-8", "replace")
    except (HTTPError, ValueError):
        return ""
