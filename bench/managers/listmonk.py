"""What listmonk does, replayed: it cannot be had here as a program. A message of its own for each subscriber, over ten connections that it keeps, one
command at a time; bounces by requests to its API (docs/operate/managers/listmonk.md)."""

import http.server
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

from field.server import Client
from managers.page import Page
from managers.world import OWNER

DOMAIN = "news.listmonk.test"
SENDER = f"listmonk@{DOMAIN}"
CONNECTIONS = 10
PAGE_DOMAIN = "news.example.org"
POSTFIX_MAIN = """\
mydestination = {domain}
alias_maps = texthash:{folder}/aliases
local_recipient_maps = $alias_maps
"""


class Bounces(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.addresses.add(body["email"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Listmonk:
    name = "listmonk"
    address = SENDER

    def __init__(self, _, folder):
        self.folder, self.page, self.members = folder, Page("listmonk"), []
        self.api = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bounces)
        self.api.addresses = set()
        threading.Thread(target=self.api.serve_forever, daemon=True).start()

    @staticmethod
    def is_there():
        return True

    def sections(self):
        with open(os.path.join(self.folder, "listmonk.authorization"), "w") as file:
            file.write("token stentor:secret\n")
        os.chmod(file.name, 0o600)
        url = f"http://127.0.0.1:{self.api.server_address[1]}"
        values = {
            PAGE_DOMAIN: DOMAIN, "you@example.org": OWNER, "http://127.0.0.1:9000": url,
            "listmonk.authorization": f"{self.folder}/listmonk.authorization",
        }
        return self.page.block("toml", 0, values)

    def postfix(self, postfix, _):
        # Bounces come to a mailbox, which listmonk would read by POP: they are only counted.
        postfix.more_main = POSTFIX_MAIN.format(domain=DOMAIN, folder=self.folder)
        with open(f"{self.folder}/aliases", "w") as file:
            file.write(f"listmonk {self.folder}/mbox\n")
        # As whom it writes into files.
        open(f"{self.folder}/mbox", "w").close()
        shutil.chown(f"{self.folder}/mbox", "nobody")

    def prepare(self, _, members, **__):
        self.members = members.all

    def run(self):
        pass

    def post(self, mta, subject):
        def some(addresses):
            with Client(mta.port, "127.0.0.1", "listmonk.test") as client:
                return all(self._one(client, address, subject) for address in addresses)

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return all(pool.map(some, [self.members[n::CONNECTIONS] for n in range(CONNECTIONS)]))

    @staticmethod
    def _one(client, address, subject):
        replies = [client.ask(f"MAIL FROM:<{SENDER}> BODY=8BITMIME"), client.ask(f"RCPT TO:<{address}>")]
        text = (
            f"From: News <{SENDER}>\r\nTo: {address}\r\nSubject: {subject}\r\nDate: Sat, 28 Nov 2026 12:00:00 +0000\r\n"
            f"Message-ID: <{subject}.{address}>\r\nX-Listmonk-Campaign: 9f86b50d-5711-41c8-ab03-bc91c43d711b\r\n\r\nA post.\r\n"
        )
        return all(reply.startswith("250") for reply in [*replies, client.data(text)])

    def counted(self):
        """Members whose bounce has come to its API, or to the mailbox."""
        found = set(self.api.addresses)
        if os.path.exists(f"{self.folder}/mbox"):
            with open(f"{self.folder}/mbox", errors="replace") as file:
                found |= {line.split(";")[-1].strip() for line in file if line.startswith("Final-Recipient:")}
        return found

    def stop(self):
        self.api.shutdown()
        self.api.server_close()
