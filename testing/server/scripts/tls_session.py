#!/usr/bin/env python3
"""One session, step by step: `tls_session.py [--implicit] [--tls12] [--name NAME] [--certificate FILE] [--sessions N] PORT STEP...`

A step is a command, of which the reply is printed; `@starttls` (the command, then the handshake), `@handshake` (that alone),
`@raw:OCTETS` (sent as they are, with escapes), `@reply` (waits for one), `@message:OCTETS` (DATA, the message, the end), `@file:PATH` (the
same with a file's octets), `@user:NAME:PASSWORD` (AUTH PLAIN), `@login:NAME:PASSWORD` (AUTH LOGIN), `@scram:NAME:PASSWORD` (AUTH SCRAM-SHA-256),
`@plus:NAME:PASSWORD` (the same bound to the certificate), `@bearer:NAME:KEY` and `@xoauth2:NAME:KEY` (a token for the name, signed by that key), `@cut`
(ends the connection without the close of TLS), `@close` (closes TLS), `@rest` (what comes until the end), `@certificate` (the peer's names), `@wait` (for a line on standard input).
Of several sessions each takes a step before any takes the next; they wait together.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import socket
import ssl
import sys
import time


def token(name, key):
    """A JSON Web Token that says whose it is, for an hour."""
    def text(octets):
        return base64.urlsafe_b64encode(octets).rstrip(b"=")
    now = int(time.time())
    says = {"sub": name, "email": name, "iat": now - 1, "nbf": now - 1, "exp": now + 3600}
    signed = b".".join(text(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, says))
    return (signed + b"." + text(hmac.digest(key, signed, "sha256"))).decode()


class Session:
    def __init__(self, options):
        self.socket = socket.create_connection(("127.0.0.1", options.port), timeout=60)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.name = options.name
        if options.tls12:
            self.context.maximum_version = ssl.TLSVersion.TLSv1_2
        if options.certificate:
            self.context.load_cert_chain(options.certificate)
        if options.implicit:
            self.handshake()
        self.file = self.socket.makefile("rb")
        self.reply()

    def handshake(self):
        self.socket = self.context.wrap_socket(self.socket, server_hostname=self.name)
        self.file = self.socket.makefile("rb")
        print("tls", self.socket.version())

    def send(self, octets):
        self.socket.sendall(octets)

    def reply(self):
        while True:
            line = self.file.readline()
            if not line:
                print("end")
                sys.exit(0)
            text = line.decode("ascii", "replace").rstrip("\r\n")
            print(text, flush=True)
            if text[3:4] != "-":
                return text

    def ask(self, line):
        self.send(line.encode() + b"\r\n")
        return self.reply()

    def challenge(self, line):
        reply = self.ask(line)
        return base64.b64decode(reply[4:]) if reply.startswith("334 ") else None

    def scram(self, name, password, is_plus):
        binding, mechanism = b"n,,", "SCRAM-SHA-256"
        if is_plus:
            end_point = hashlib.sha256(self.socket.getpeercert(binary_form=True)).digest()
            binding, mechanism = b"p=tls-server-end-point,,", "SCRAM-SHA-256-PLUS"
        nonce = base64.b64encode(os.urandom(18))
        bare = b"n=" + name.encode() + b",r=" + nonce
        header = binding if not is_plus else binding
        first = self.challenge(f"AUTH {mechanism} " + base64.b64encode(header + bare).decode())
        if first is None:
            return
        said = dict(part.split(b"=", 1) for part in first.split(b","))
        assert said[b"r"].startswith(nonce)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(said[b"s"]), int(said[b"i"]))
        sealed = base64.b64encode(header + (end_point if is_plus else b""))
        final = b"c=" + sealed + b",r=" + said[b"r"]
        whole = bare + b"," + first + b"," + final
        key = hmac.digest(salted, b"Client Key", "sha256")
        sign = hmac.digest(hashlib.sha256(key).digest(), whole, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, sign))
        last = self.challenge(base64.b64encode(final + b",p=" + base64.b64encode(proof)).decode())
        if last is None:
            return
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), whole, "sha256")
        assert last == b"v=" + base64.b64encode(server), last
        self.ask("")

    def bear(self, is_bearer, name, token):
        """A server that refuses a token says why in a challenge, and wants an answer to it."""
        text = f"n,a={name},\x01auth=Bearer {token}\x01\x01" if is_bearer else f"user={name}\x01auth=Bearer {token}\x01\x01"
        mechanism = "OAUTHBEARER" if is_bearer else "XOAUTH2"
        if self.ask(f"AUTH {mechanism} " + base64.b64encode(text.encode()).decode()).startswith("334"):
            self.ask("AQ==" if is_bearer else "")

    def step(self, step):
        word, _, rest = step.partition(":")
        if word == "@starttls":
            if self.ask("STARTTLS").startswith("220"):
                self.handshake()
        elif word == "@handshake":
            self.handshake()
        elif word == "@raw":
            self.send(rest.encode().decode("unicode_escape").encode("latin-1"))
        elif word == "@reply":
            self.reply()
        elif word in ("@message", "@file"):
            if word == "@file":
                with open(rest, "rb") as file:
                    octets = file.read()
            else:
                octets = rest.encode().decode("unicode_escape").encode("latin-1")
            if self.ask("DATA").startswith("354"):
                self.send(octets + b"\r\n.\r\n")
                self.reply()
        elif word == "@cut":
            os.close(self.socket.detach())
            sys.exit(0)
        elif word == "@close":
            self.socket.unwrap()
        elif word == "@login":
            for text in ("AUTH LOGIN", *(base64.b64encode(part.encode()).decode() for part in rest.split(":", 1))):
                if not self.ask(text).startswith("334"):
                    break
        elif word in ("@bearer", "@xoauth2"):
            name, _, key = rest.partition(":")
            self.bear(word == "@bearer", name, token(name, key.encode()))
        elif word == "@user":
            name, _, password = rest.partition(":")
            self.ask("AUTH PLAIN " + base64.b64encode(f"\0{name}\0{password}".encode()).decode())
        elif word in ("@scram", "@plus"):
            name, _, password = rest.partition(":")
            self.scram(name, password, word == "@plus")
        elif word == "@certificate":
            print("certificate", hashlib.sha256(self.socket.getpeercert(binary_form=True)).hexdigest())
        elif word == "@wait":
            print("waiting", flush=True)
            sys.stdin.readline()
        elif word == "@rest":
            print(self.file.read().decode("ascii", "replace"))
        else:
            self.ask(step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--implicit", action="store_true")
    parser.add_argument("--tls12", action="store_true")
    parser.add_argument("--name")
    parser.add_argument("--certificate")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("port", type=int)
    parser.add_argument("steps", nargs="*")
    options = parser.parse_args()
    try:
        sessions = [Session(options) for _ in range(options.sessions)]
        for step in options.steps:
            for session in sessions[:1] if step == "@wait" else sessions:
                session.step(step)
    except (ssl.SSLError, ConnectionError) as error:
        print("broken", type(error).__name__, error)


main()
