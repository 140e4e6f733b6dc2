"""Services that a mail server asks, as little of each as is needed, which can be stopped and started again at the same
place: a milter, a policy service, a socketmap, a name server, an HTTP endpoint, Dovecot's auth service."""

import contextlib
import os
import socket
import struct
import threading

from sinks import free_port


class Tcp:
    """Each connection has a thread of its own; `stop` closes them too."""

    def __init__(self, path=None):
        self.path, self.port = path, None if path else free_port()
        self.listener, self.open = None, set()

    def start(self):
        if self.path:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(self.path)
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(64)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()
        return self

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError, ValueError, struct.error), client, client.makefile("rb") as stream:
            self.serve(client, stream)
        self.open.discard(client)

    def stop(self):
        if self.listener:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for client in list(self.open):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


class Milter(Tcp):
    """Continues with everything, or defers each message at its end."""

    defers = False

    def serve(self, client, stream):
        while header := stream.read(4):
            packet = stream.read(struct.unpack(">I", header)[0])
            command = packet[:1]
            if command == b"O":
                # Version 6, no actions, and every step.
                self._send(client, b"O" + struct.pack(">III", 6, 0, 0))
            elif command == b"Q":
                return
            elif command == b"E" and self.defers:
                self._send(client, b"t")
            elif command not in (b"D", b"A", b"K"):
                self._send(client, b"c")

    def _send(self, client, packet):
        client.sendall(struct.pack(">I", len(packet)) + packet)


class Policy(Tcp):
    def serve(self, client, stream):
        for line in stream:
            if line == b"\n":
                client.sendall(b"action=DUNNO\n\n")


class Socketmap(Tcp):
    def serve(self, client, stream):
        length = b""
        while octet := stream.read(1):
            if octet != b":":
                length += octet
                continue
            stream.read(int(length) + 1)
            client.sendall(b"9:NOTFOUND ,")
            length = b""


class Listener(Tcp):
    """Takes each HTTP request."""

    def serve(self, client, stream):
        while stream.readline():
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            stream.read(length)
            client.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


class Dovecot(Tcp):
    """The handshake of the auth protocol, and no login."""

    def __init__(self, path):
        super().__init__(path)

    def serve(self, client, stream):
        client.sendall(
            b"VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nSPID\t1\nCUID\t1\nCOOKIE\t0123456789abcdef0123456789abcdef\nDONE\n"
        )
        for _ in stream:
            pass


class Dns:
    """Answers every question with NXDOMAIN, the root's name servers with nothing."""

    def __init__(self):
        self.port, self.socket = free_port(), None

    def start(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(self.socket,), daemon=True).start()
        return self

    def _serve(self, bound):
        with contextlib.suppress(OSError):
            while True:
                packet, client = bound.recvfrom(4096)
                if len(packet) < 12:
                    return
                # The header with a reply's flags, one question and no records.
                code = 0 if packet[12:13] == b"\0" else 3
                end = 12
                while packet[end]:
                    end += packet[end] + 1
                question = packet[12 : end + 5]
                header = packet[:2] + bytes((0x85, code)) + struct.pack(">HHHH", 1, 0, 0, 0)
                bound.sendto(header + question, client)

    def stop(self):
        if self.socket:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
            self.socket = None
