"""What scenarios of TLS and AUTH share: certificates, users, a sink in TLS, a source in TLS, clients in TLS, the server's metrics.

Certificates are signed by themselves (`certificate`), or by the lab's CA, which `TlsSink` writes beside its output (`ca`). Clients
trust anybody: what is measured is the server's. Failure: a program that fails is a BenchError with its last words.
"""

import base64
import os
import socket
import ssl
import subprocess
import urllib.request

from measure import BenchError, kit
from sinks import LabInternet, free_port
from sources import RECIPIENT, SENDER, lab_report

KEYS = {"ecdsa": ("ec", "ec_paramgen_curve:prime256v1"), "rsa": ("rsa", "rsa_keygen_bits:2048")}
PASSWORD = "correct horse battery"
TIMEOUT_S = 60
# One host, which takes mail for everybody.
SITE = """\
[[site]]
name = "sink.example"
relay = true
[[site.host]]
name = "mx1.sink.example"
address = "127.0.0.1"
behaviour = {{ {behaviour} }}
"""


class Certificate:
    """For a name, signed by itself: the files of the certificate, of its key, and of both for Postfix."""

    def __init__(self, folder, name="mx.test", key="ecdsa"):
        os.makedirs(folder, exist_ok=True)
        self.chain, self.key, self.both = (os.path.join(folder, f"{name}.{end}") for end in ("pem", "key", "both"))
        kind, option = KEYS[key]
        argv = ["openssl", "req", "-x509", "-newkey", kind, "-pkeyopt", option, "-nodes", "-days", "30", "-subj", f"/CN={name}"]
        run_tool([*argv, "-addext", f"subjectAltName=DNS:{name}", "-keyout", self.key, "-out", self.chain])
        with open(self.both, "w") as both:
            for part in (self.key, self.chain):
                with open(part) as file:
                    both.write(file.read())
        os.chmod(self.key, 0o600)

    def for_stentor(self):
        return f'[[tls.certificates]]\nchain = "{self.chain}"\nkey = "{self.key}"\n'

    def der(self):
        with open(self.chain) as file:
            return ssl.PEM_cert_to_DER_cert(file.read())


class TlsSink(LabInternet):
    """One host of the lab that takes everything, in TLS or not."""

    def __init__(self, bench, name, behaviour="tls = 'good'"):
        scenario = os.path.join(bench.work, f"{name}.toml")
        with open(scenario, "w") as file:
            file.write(SITE.format(behaviour=behaviour))
        super().__init__(bench.work, free_port(), bench.binary, scenario, record="counters")
        self.ca = os.path.join(bench.work, f"{name}.ca.pem")

    def argv(self):
        return [*super().argv(), "--ca", self.ca]


def kit_source(bench, port, messages, *options, sessions=20, length=4096):
    """`stentor-kit lab source`; its report ({accepted, accepted_per_s, cpu_us, ...}). One refusal is an error."""
    argv = [kit(bench.binary), "lab", "source", f"127.0.0.1:{port}", "--connections", str(sessions), "--messages", str(messages)]
    argv += ["--size", str(length), "--from", SENDER, "--to", RECIPIENT, "--json", "--quiet", *options]
    report = lab_report(run_tool(argv))["report"]
    if report["errors"] or report["accepted"] != messages:
        raise BenchError(f"lab source: {report}")
    return report


def source_text(messages, *options, sessions=20, length=4096):
    """The command as the results name it."""
    return " ".join(["stentor-kit lab source --connections", str(sessions), "--messages", str(messages), "--size", str(length), *options])


def run_tool(argv, given=None, timeout_s=600):
    done = subprocess.run(argv, capture_output=True, text=True, input=given, timeout=timeout_s)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {(done.stdout + done.stderr).strip()[-500:]} (exit code {done.returncode})")
    return done.stdout


def add_users(bench, path, *names):
    """A users file with these, who all have PASSWORD."""
    if os.path.exists(path):
        os.remove(path)
    run_tool([bench.binary, "user", "add", names[0], "--users", path], given=PASSWORD + "\n")
    with open(path) as file:
        block = file.read().partition(f"[{names[0]}]\n")[2]
    # Hashing is slow on purpose: all have the same hash.
    with open(path, "a") as file:
        file.writelines(f"\n[{name}]\n{block}" for name in names[1:])


def metrics(port):
    """{name and labels: value} of /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def trusting():
    """A context that judges no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Client:
    """A session in TLS, by STARTTLS or from the first octet."""

    def __init__(self, port, context, is_implicit=False, name="client.example"):
        self.name = name.encode()
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_implicit:
            self.secure(context)
            self.reply(b"220")
        else:
            self.replies = self.socket.makefile("rb")
            self.reply(b"220")
            self.ask(b"EHLO " + self.name, b"250")
            self.ask(b"STARTTLS", b"220")
            self.secure(context)
        self.ask(b"EHLO " + self.name, b"250")

    def secure(self, context):
        self.socket = context.wrap_socket(self.socket)
        self.replies = self.socket.makefile("rb")

    def reply(self, code=None):
        line = self.replies.readline()
        while line[3:4] == b"-":
            line = self.replies.readline()
        if not line or (code and not line.startswith(code)):
            raise BenchError(f"expected {code}, got {line!r}")
        return line

    def ask(self, command, code=None):
        self.socket.sendall(command + b"\r\n")
        return self.reply(code)

    def login(self, user, password=PASSWORD):
        plain = base64.b64encode(f"\0{user}\0{password}".encode())
        return self.ask(b"AUTH PLAIN " + plain, b"235")

    def close(self):
        self.replies.close()
        self.socket.close()
