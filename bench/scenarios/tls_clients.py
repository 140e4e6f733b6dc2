"""Other people's clients log in and send a message by each mechanism that both sides have, over STARTTLS and over TLS from the first octet:
at users of our own file and at those of a real Dovecot, which brings OAUTHBEARER and XOAUTH2. With a wrong password none of them may
get anywhere."""

import os
import shutil
import subprocess
import sys

from dovecot import Dovecot
from encryption import PASSWORD, Certificate, add_users
from measure import BenchError, CannotHere, wait_until
from results import Goal
from sinks import SmtpSink, free_port

USER, TO = "ann@source.example", "reader@sink.example"
TEXT = f"From: {USER}\nTo: {TO}\nSubject: x\n\nx\n"
LISTENERS = ("submission", "smtps")
SOURCES = ("users", "dovecot")
# Of programs that have it; what they have and we offer nowhere (CRAM-MD5, NTLM, ...) is left out. None can bind a login to its session:
# mutt knows SCRAM-SHA-256-PLUS, and gives up before it says anything.
PASSWORDS = {
    "msmtp": ("plain", "login", "scram-sha-256"),
    "swaks": ("PLAIN", "LOGIN"),
    "mutt": ("plain", "login", "scram-sha-256"),
    "s-nail": ("plain", "login"),
    "curl": ("PLAIN", "LOGIN"),
    "smtplib": ("PLAIN", "LOGIN", "PLAIN later", "LOGIN later"),
}
TOKENS = {
    "msmtp": ("oauthbearer", "xoauth2"), "mutt": ("oauthbearer", "xoauth2"), "s-nail": ("oauthbearer",), "curl": ("OAUTHBEARER", "XOAUTH2"),
}
CLIENT_S_MAX = 30
COPY_S_MAX = 20
# `later`: without an initial response, which is then asked for.
SMTPLIB = """
import smtplib, ssl, sys
port, implicit, user, mechanism, later = int(sys.argv[1]), sys.argv[2] == "smtps", *sys.argv[3:6]
context = ssl._create_unverified_context()
client = smtplib.SMTP_SSL("127.0.0.1", port, context=context) if implicit else smtplib.SMTP("127.0.0.1", port)
implicit or client.starttls(context=context)
client.ehlo()
client.user, client.password = user, sys.stdin.readline().rstrip()
client.auth(mechanism, getattr(client, "auth_" + mechanism.lower()), initial_response_ok=not later)
client.sendmail(user, [sys.argv[6]], sys.stdin.read())
client.quit()
"""


class Clients:
    """Logins and messages that did not end as they should."""

    name = "tls.clients"
    entries = ("",)
    smoke = {"LISTENERS": ("submission",), "SOURCES": ("users",), "PASSWORDS": {program: mechanisms[-1:] for program, mechanisms in PASSWORDS.items()}}

    def run(self, bench):
        if missing := [program for program in PASSWORDS if program != "smtplib" and not shutil.which(program)]:
            raise CannotHere(f"{', '.join(missing)}: not installed: testing/install.sh")
        self.bench, self.faults, self.made = bench, [], {}
        self.certificate = Certificate(os.path.join(bench.work, "tls-clients"), name="localhost")
        self.sink = SmtpSink(bench.work, free_port())
        with bench.running(self.sink):
            for source in SOURCES:
                self.source(source)
        bench.results.record(
            self.name, "faults", [[len(self.faults), 0]], f"{sum(self.made.values())} logins by {', '.join(PASSWORDS)}", Goal(most=0),
            peer_name="the goal", logins=self.made, faults=self.faults,
        )

    def source(self, source):
        bench, self.ports = self.bench, {listener: free_port() for listener in LISTENERS}
        listen = "".join(f'{listener} = ["127.0.0.1:{port}"]\n' for listener, port in self.ports.items())
        dovecot = Dovecot(bench.work, USER, PASSWORD) if source == "dovecot" else None
        if dovecot:
            place = dovecot.socket
        else:
            place = os.path.join(bench.work, "tls-clients", "users")
            add_users(bench, place, USER)
        server = bench.stentor(
            self.sink, name=f"clients-{source}", listen=listen, more=f'{self.certificate.for_stentor()}[auth]\n{source} = "{place}"\n',
            top='client_networks = ["192.0.2.1"]',
        )
        with bench.running(*filter(None, (dovecot, server))):
            for listener in LISTENERS:
                for program, mechanisms in PASSWORDS.items():
                    for mechanism in mechanisms:
                        self.case(server, source, listener, program, mechanism, PASSWORD)
                for program, mechanisms in TOKENS.items() if dovecot else ():
                    for mechanism in mechanisms:
                        self.case(server, source, listener, program, mechanism, dovecot.token())
            for program, mechanisms in PASSWORDS.items():
                self.case(server, source, LISTENERS[0], program, mechanisms[0], "a wrong password", is_good=False)

    def case(self, server, source, listener, program, mechanism, secret, is_good=True):
        what = f"{program}, {mechanism}, {source}, {listener}" + ("" if is_good else ", wrong password")
        before, lines = self.sink.counts()["copies"], accepted(server)
        argv, given, environment = CALLS[program](self, listener, mechanism, secret)
        try:
            done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=CLIENT_S_MAX, env={**os.environ, **environment})
        except subprocess.TimeoutExpired:
            self.faults.append(f"{what}: no end")
            return
        self.made[program] = self.made.get(program, 0) + 1
        said = (done.stdout + done.stderr).strip()[-300:]
        if (done.returncode == 0) != is_good:
            self.faults.append(f"{what}: exit code {done.returncode}: {said}")
        elif is_good:
            try:
                wait_until(lambda: self.sink.counts()["copies"] > before, COPY_S_MAX, what)
                wait_until(lambda: accepted(server) > lines, COPY_S_MAX, what)
            except BenchError:
                self.faults.append(f"{what}: no message, or not as the user's in TLS: {said}")

    def file(self, name, text):
        path = os.path.join(self.bench.work, "tls-clients", name)
        # Some refuse one that others may read.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        return path

    def msmtp(self, listener, mechanism, secret):
        argv = ["msmtp", "--host=127.0.0.1", f"--port={self.ports[listener]}", "--tls=on", f"--tls-starttls={'off' if listener == 'smtps' else 'on'}"]
        argv += ["--tls-certcheck=off", f"--auth={mechanism}", f"--user={USER}", f"--passwordeval=cat {self.file('secret', secret)}"]
        return [*argv, f"--from={USER}", TO], TEXT, {}

    def swaks(self, listener, mechanism, secret):
        argv = ["swaks", "--server", "127.0.0.1", "--port", str(self.ports[listener]), "-tlsc" if listener == "smtps" else "-tls"]
        argv += ["--auth", mechanism, "--auth-user", USER, "--auth-password", secret]
        return [*argv, "--from", USER, "--to", TO], "", {}

    def mutt(self, listener, mechanism, secret):
        scheme = "smtps" if listener == "smtps" else "smtp"
        lines = [
            f'set smtp_url="{scheme}://{USER}@127.0.0.1:{self.ports[listener]}/"', f'set smtp_authenticators="{mechanism}"', f'set smtp_pass="{secret}"',
            f'set smtp_oauth_refresh_command="cat {self.file("secret", secret)}"', f'set certificate_file="{self.certificate.chain}"',
            "set ssl_verify_host=no", "set ssl_starttls=yes", "set ssl_force_tls=yes", f'set from="{USER}"', "set use_from=yes", "set use_envelope_from=yes",
            f'set envelope_from_address="{USER}"', 'set record=""', "set copy=no",
        ]
        return ["mutt", "-n", "-F", self.file("muttrc", "\n".join(lines) + "\n"), "-s", "x", "--", TO], "x\n", {"HOME": self.bench.work}

    def s_nail(self, listener, mechanism, secret):
        user, secret = USER.replace("@", "%40"), secret.replace(" ", "%20")
        scheme = "smtps" if listener == "smtps" else "smtp"
        argv = ["s-nail", "-:/", "-Sv15-compat", "-Stls-verify=ignore", "-Ssendwait", f"-Smta={scheme}://{user}:{secret}@127.0.0.1:{self.ports[listener]}"]
        argv += ["-Ssmtp-use-starttls"] if listener != "smtps" else []
        return [*argv, f"-Ssmtp-auth={mechanism}", f"-Sfrom={USER}", f"-r{USER}", "-sx", TO], "x\n", {}

    def curl(self, listener, mechanism, secret):
        scheme = "smtps" if listener == "smtps" else "smtp"
        login = ["--user", USER, "--oauth2-bearer", secret] if "OAUTH" in mechanism else ["--user", f"{USER}:{secret}"]
        argv = ["curl", "-sS", "-k", "--ssl-reqd", "--url", f"{scheme}://127.0.0.1:{self.ports[listener]}", *login, "--login-options", f"AUTH={mechanism}"]
        return [*argv, "--mail-from", USER, "--mail-rcpt", TO, "--upload-file", self.file("message", TEXT.replace("\n", "\r\n"))], "", {}

    def smtplib(self, listener, mechanism, secret):
        mechanism, _, later = mechanism.partition(" ")
        return [sys.executable, "-c", SMTPLIB, str(self.ports[listener]), listener, USER, mechanism, later, TO], f"{secret}\n{TEXT}", {}


CALLS = {
    "msmtp": Clients.msmtp, "swaks": Clients.swaks, "mutt": Clients.mutt, "s-nail": Clients.s_nail, "curl": Clients.curl, "smtplib": Clients.smtplib,
}


def accepted(server):
    """Messages of the user that the log has, as taken in TLS."""
    with open(os.path.join(server.folder, server.log_name)) as log:
        return sum(f"from=<{USER}>" in line and "tls=TLS" in line and f"user={USER}" in line for line in log)
