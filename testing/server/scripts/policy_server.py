"""Web servers of MTA-STS policies, of those who want TLS reports, and token endpoints of OAuth 2.0, for tests: one port, a folder for each
host.

    policy_server.py FOLDER     prints its port, then serves until it is killed

FOLDER/HOST/chain.pem and key.pem are what the host shows (by SNI; a name without a folder ends the handshake). FOLDER/HOST/policy is the body, and
beside it may be status, type and location. FOLDER/HOST/requests gets a line for each request.

A POST gets the next word of FOLDER/HOST/answers as its status, the last one for ever; FOLDER/HOST/posts gets a line for each, which is JSON.

Where FOLDER/HOST/tokens is, a POST is one for a token: its lines are answers, `{"status": 200, "body": {}, "head": {}}`, the next for each,
the last one for ever; the line in FOLDER/HOST/posts has the form.
"""

import gzip
import json
import pathlib
import ssl
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
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

    def do_POST(self):
        host = FOLDER / self.headers.get("Host", "").split(":")[0]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (host / "tokens").exists():
            return self.token(host, body)
        posts, answers = host / "posts", (host / "answers").read_text().split()
        count = len(posts.read_text().splitlines()) if posts.exists() else 0
        status = int(answers[min(count, len(answers) - 1)])
        post = {"path": self.path, "type": self.headers.get("Content-Type"), "status": status, "report": json.loads(gzip.decompress(body))}
        with open(posts, "a") as file:
            file.write(json.dumps(post) + "\n")
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def token(self, host, body):
        form = {key: value for key, [value] in urllib.parse.parse_qs(body.decode(), strict_parsing=True).items()}
        with LOCK:
            posts, answers = host / "posts", (host / "tokens").read_text().splitlines()
            count = len(posts.read_text().splitlines()) if posts.exists() else 0
            with open(posts, "a") as file:
                file.write(json.dumps({"path": self.path, "type": self.headers.get("Content-Type"), "form": form}) + "\n")
        answer = json.loads(answers[min(count, len(answers) - 1)])
        body = json.dumps(answer["body"]).encode()
        self.send_response(answer["status"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in answer.get("head", {}).items():
            self.send_header(name, value)
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
