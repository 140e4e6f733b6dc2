"""A mail host on loopback that keeps what it is given: for comparisons of whole messages, not for speed."""

import contextlib
import socketserver
import threading

from sinks import free_port


class Recorder:
    """A mail host that keeps what it is given: copies of (sender, recipient, octets)."""

    def __init__(self):
        self.port, self.copies, self.lock = free_port(), [], threading.Lock()

    def start(self):
        recorder = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self):
                # A server that is killed leaves in the middle.
                with contextlib.suppress(OSError):
                    recorder.serve(self.rfile, self.wfile)

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        socketserver.ThreadingTCPServer.daemon_threads = True
        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", self.port), Session)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, lines, out):
        def say(text):
            out.write(text.encode() + b"\r\n")

        say("220 recorder")
        sender, recipients = None, []
        for line in lines:
            verb, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            verb = verb.upper()
            path = rest.partition("<")[2].partition(">")[0]
            if verb == "EHLO":
                say("250-recorder\r\n250 8BITMIME")
            elif verb == "MAIL":
                sender, recipients = path, []
                say("250 ok")
            elif verb == "RCPT":
                recipients.append(path)
                say("250 ok")
            elif verb == "DATA":
                say("354 go")
                data = bytearray()
                for text in lines:
                    if text == b".\r\n":
                        break
                    data += text[1:] if text.startswith(b".") else text
                else:
                    return
                with self.lock:
                    self.copies += [(sender, to, bytes(data)) for to in recipients]
                say("250 ok")
            elif verb == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")

    def take(self):
        with self.lock:
            taken, self.copies = self.copies, []
        return taken
