"""A host that is out for a time and ends sessions in one way meanwhile; else it takes every message and notes when.

`WAYS` are the ways in which a session can end before MAIL is answered. Failure: a socket that cannot be bound is an OSError.
"""

import socket
import struct
import threading
import time

BACKLOG = 100
# name: at which step the session ends, and what is said before that.
WAYS = {
    "refused": ("connect", None),
    "reset": ("accept", "reset"),
    "fin": ("accept", None),
    "greeting421": ("accept", b"421 4.3.2 shutting down\r\n"),
    "greeting450": ("accept", b"450 4.3.0 later\r\n"),
    "fin_ehlo": ("ehlo", None),
    "ehlo421": ("ehlo", b"421 4.3.2 shutting down\r\n"),
    "ehlo451": ("ehlo", b"451 4.3.0 later\r\n"),
    "mail421": ("mail", b"421 4.3.2 shutting down\r\n"),
    "mail451": ("mail", b"451 4.3.0 later\r\n"),
    "fin_mail": ("mail", None),
    "starttls421": ("starttls", b"421 4.3.2 shutting down\r\n"),
}


class Restarting:
    """One host; `taken` has the times at which it took a message, `tried` those of connections while it was out."""

    def __init__(self, way, address="127.0.0.1"):
        self.step, self.says = WAYS[way]
        self.is_out = False
        self.taken, self.tried, self.open = [], [], set()
        self.lock = threading.Lock()
        self.socket = socket.create_server((address, 0), backlog=BACKLOG)
        self.address = self.socket.getsockname()
        self._serve()

    def _serve(self):
        threading.Thread(target=self._accept, args=(self.socket,), daemon=True).start()

    def go_out(self):
        """Its sessions end, and each new one does so in its way."""
        self.is_out = True
        if self.step == "connect":
            self._shut(self.socket)
        with self.lock:
            for connection in list(self.open):
                self._shut(connection)

    def come_back(self):
        self.is_out = False
        if self.step == "connect":
            self.socket = socket.create_server(self.address, backlog=BACKLOG)
            self._serve()

    def stop(self):
        self.is_out = True
        self._shut(self.socket)
        self.go_out()

    @staticmethod
    def _shut(sock):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        sock.close()

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if self.is_out:
                self.tried.append(time.monotonic())
            with self.lock:
                self.open.add(connection)
            threading.Thread(target=self._session, args=(connection,), daemon=True).start()

    def _session(self, connection):
        try:
            with connection, connection.makefile("rb") as lines:
                self._talk(connection, lines)
        except (OSError, ValueError):
            pass
        with self.lock:
            self.open.discard(connection)

    def _ends(self, connection, step):
        if not self.is_out or self.step != step:
            return False
        if self.says == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif self.says:
            connection.sendall(self.says)
        return True

    def _talk(self, connection, lines):
        if self._ends(connection, "accept"):
            return
        connection.sendall(b"220 host.example\r\n")
        offers = b"250-host.example\r\n250 STARTTLS\r\n" if self.step == "starttls" else b"250 host.example\r\n"
        for line in lines:
            verb = line[:4].upper()
            step = {b"EHLO": "ehlo", b"MAIL": "mail", b"STAR": "starttls"}.get(verb)
            if step and self._ends(connection, step):
                return
            if verb == b"EHLO":
                connection.sendall(offers)
            elif verb == b"STAR":
                connection.sendall(b"454 4.7.0 TLS not available\r\n")
            elif verb == b"DATA":
                connection.sendall(b"354 go\r\n")
                while lines.readline() not in (b".\r\n", b""):
                    pass
                self.taken.append(time.monotonic())
                connection.sendall(b"250 ok\r\n")
            elif verb == b"QUIT":
                connection.sendall(b"221 bye\r\n")
                return
            else:
                connection.sendall(b"250 ok\r\n")
