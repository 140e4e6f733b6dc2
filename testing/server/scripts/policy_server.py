"""Web servers of MTA-STS policies, for tests: one port, a folder for each host.

    policy_server.py FOLDER     prints its port, then serves until it is killed

FOLDER/HOST/chain.pem and key.pem are what the host shows (by SNI; a name without a folder ends the handshake). FOLDER/HOST/policy is the body, and
beside it may be status, type and location. FOLDER/HOST/requests gets a line for each request.
"""

import pathlib
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLDER = pathlib.Path(sys.argv[1])


def text(path, default):
    return path.read_text().strip() if path.exists() else default


class Policies(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        host = FOLDER / self.headers.get("Host", "").split(":")[0]
        with open(host / "requests", "a") as requests:
            requests.write(f"{self.path} {self.headers.get('Accept')}\n")
        is_policy = self.path == "/.well-known/mta-sts.txt" and (host / "policy").exists()
        body = (host / "policy").read_bytes() if is_policy else b"nothing here\n"
        self.send_response(int(text(host / "status", "200")) if is_policy else 404)
        self.send_header("Content-Type", text(host / "type", "text/plain"))
        self.send_header("Content-Length", str(len(body)))
        if (host / "location").exists():
            self.send_header("Location", text(host / "location", ""))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def context(host):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(FOLDER / host / "chain.pem", FOLDER / host / "key.pem")
    return made


def choose(socket, name, _context):
    if name is None or "/" in name or not (FOLDER / name / "chain.pem").exists():
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    socket.context = context(name)
    return None


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        # Handshakes that fail are what is tested.
        pass


server = Server(("127.0.0.1", 0), Policies)
chooser = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
chooser.sni_callback = choose
# Handshakes are made in the threads of requests.
server.socket = chooser.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
