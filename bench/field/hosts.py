"""SMTP hosts on loopback that answer as a case wants, and keep what they have taken."""

import re
import socket
import threading

PATH = re.compile(r":\s*<?([^>]*)>?", re.ASCII)
EHLO = ("PIPELINING", "8BITMIME", "SIZE 50000000")


class Close(Exception):
    """The host closes the connection."""


class Mail:
    """A message that a host has taken: its envelope and its content as octets, dots removed."""

    def __init__(self, mail, rcpts, content):
        self.mail_line, self.rcpt_lines, self.content = mail, rcpts, content
        self.sender = path_of(mail)
        self.to = [path_of(line) for line in rcpts]

    @property
    def header(self):
        return self.content.split(b"\r\n\r\n", 1)[0]

    def fields(self, name):
        """The values of all fields of that name, unfolded."""
        lines = re.sub(rb"\r\n(?=[ \t])", b"", self.header).split(b"\r\n")
        pairs = [line.split(b":", 1) for line in lines if b":" in line]
        return [value.strip() for field, value in pairs if field.strip().lower() == name.lower().encode()]

    def longest_line(self):
        return max(map(len, self.content.split(b"\r\n")))


def path_of(line):
    """The address of a MAIL or RCPT line."""
    bracketed = re.search(r"<(.*)>", line)
    return bracketed.group(1) if bracketed else line.split(":", 1)[1].split()[0]


class Host:
    """Takes mail at `address`:`port`. `reply(session, verb, line)` may return a reply without its line end, or raise Close.

    `line_octets_max`: lines of content that are longer are answered with 500, and the connection is closed.
    """

    def __init__(self, address, port, reply=None, ehlo=EHLO, line_octets_max=None):
        self.address, self.reply, self.ehlo, self.line_octets_max = address, reply, list(ehlo), line_octets_max
        self.mails, self.lines, self.connections = [], [], 0
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, port))
        self.port = self.listener.getsockname()[1]
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            connection.settimeout(60)
            try:
                Session(self, connection).run()
            except (Close, OSError, EOFError):
                pass

    def judge(self, mail):
        """The reply to a message's content; None: the usual one."""

    def stop(self):
        # Wakes the thread that accepts: closed under it, it may go on with the next listener of the same descriptor.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Session:
    """One connection. `mails` counts the messages that it has brought."""

    def __init__(self, host, connection):
        self.host, self.connection, self.file = host, connection, connection.makefile("rb")
        self.mail, self.rcpts, self.chunks, self.mails = None, [], b"", 0

    def send(self, reply):
        self.connection.sendall(reply.encode("utf-8", "surrogateescape") + b"\r\n")

    def run(self):
        self.send(self._reply("CONNECT", "") or "220 host.test ESMTP")
        while line := self.file.readline():
            text = line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
            verb = text.split(" ")[0].upper()
            self.host.lines.append(text)
            chunk = self.file.read(int(text.split()[1])) if verb == "BDAT" else b""
            if verb == "MAIL":
                self.mail, self.rcpts = None, []
            reply = self._reply(verb, text)
            if verb in ("DATA", "BDAT") and not self.rcpts:
                self.send("554 5.5.1 no valid recipients")
            elif verb == "DATA" and reply is None:
                self._take_data()
            elif verb == "BDAT" and reply is None:
                self._take_chunk(chunk, text)
            else:
                self.send(reply or self._usual(verb, text))
            if verb == "QUIT":
                return

    def _reply(self, verb, line):
        return self.host.reply(self, verb, line) if self.host.reply else None

    def _usual(self, verb, line):
        if verb == "EHLO":
            words = ["host.test", *self.host.ehlo]
            return "\r\n".join(f"250{'-' if n + 1 < len(words) else ' '}{word}" for n, word in enumerate(words))
        if verb == "MAIL":
            self.mail, self.rcpts = line, []
        if verb == "RCPT":
            if self.mail is None:
                return "503 5.5.1 MAIL first"
            self.rcpts.append(line)
        if verb == "RSET":
            self.mail, self.rcpts = None, []
        return {"QUIT": "221 2.0.0 bye"}.get(verb, "250 2.0.0 ok")

    def _take_data(self):
        self.send("354 go on")
        lines = []
        while (line := self.file.readline()) != b".\r\n":
            if not line:
                raise EOFError
            limit = self.host.line_octets_max
            if limit and len(line) > limit + 2:
                self.send("500 5.5.2 line too long")
                raise Close
            lines.append(line[1:] if line.startswith(b".") else line)
        self._finish(b"".join(lines))

    def _take_chunk(self, chunk, line):
        self.chunks += chunk
        if line.upper().endswith("LAST"):
            content, self.chunks = self.chunks, b""
            self._finish(content)
        else:
            self.send("250 2.0.0 ok")

    def _finish(self, content):
        limit = self.host.line_octets_max
        if limit and any(len(line) > limit for line in content.split(b"\r\n")):
            self.send("500 5.5.2 line too long")
            raise Close
        mail = Mail(self.mail, self.rcpts, content)
        self.mail, self.rcpts = None, []
        reply = self.host.judge(mail) or self._reply("END", "")
        if reply is None or reply.startswith("2"):
            self.host.mails.append(mail)
            self.mails += 1
        self.send(reply or "250 2.0.0 taken")
