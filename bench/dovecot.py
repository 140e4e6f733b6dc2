"""A Dovecot for AUTH alone, out of a folder of its own: passwords, SCRAM, and tokens of OAuth 2.0 that it verifies itself (JWT, HS256).

States: made -> started (its socket is there) -> stopped. Failure: a Dovecot that ends is a BenchError with its log."""

import base64
import hmac
import json
import os
import shutil
import subprocess
import time

from measure import BenchError, CannotHere, wait_until

PROGRAM = "/usr/sbin/dovecot"
START_S_MAX = 20
TOKEN_S = 3600
KEY = b"the key that tokens are signed with"
CONFIGURATION = """\
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols =
ssl = no
auth_mechanisms = plain login scram-sha-256 xoauth2 oauthbearer
auth_failure_delay = 0
default_internal_user = root
default_internal_group = root
default_login_user = root
first_valid_uid = 0
passdb {{
  driver = passwd-file
  args = {folder}/passwd
}}
passdb {{
  driver = oauth2
  mechanisms = xoauth2 oauthbearer
  args = {folder}/oauth2
}}
userdb {{
  driver = static
  args = uid=0 gid=0 home={folder}
}}
service auth {{
  unix_listener {folder}/auth {{
    mode = 0600
  }}
}}
service anvil {{
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
"""


class Dovecot:
    """Knows one user."""

    def __init__(self, work, user, password):
        if not os.path.exists(PROGRAM):
            raise CannotHere("Dovecot is missing: testing/install.sh")
        self.folder, self.user, self.password = os.path.join(work, "dovecot"), user, password
        self.socket, self.process = os.path.join(self.folder, "auth"), None

    def start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        # Where it looks for the key of a token that names neither a party nor a key.
        keys = os.path.join(self.folder, "keys", "default", "HS256")
        os.makedirs(keys)
        self.write("passwd", f"{self.user}:{{PLAIN}}{self.password}::::::\n")
        self.write("oauth2", f"introspection_mode = local\nlocal_validation_key_dict = fs:posix:prefix={self.folder}/keys/\nusername_attribute = email\n")
        self.write(os.path.join(keys, "default"), base64.b64encode(KEY).decode())
        self.write("dovecot.conf", CONFIGURATION.format(folder=self.folder))
        self.process = subprocess.Popen([PROGRAM, "-F", "-c", os.path.join(self.folder, "dovecot.conf")], stdin=subprocess.DEVNULL)
        wait_until(self.listens, START_S_MAX, "Dovecot's auth socket")
        return self

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def listens(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "log")) as log:
                raise BenchError(f"Dovecot has exited: {log.read()[-500:]}")
        return os.path.exists(self.socket)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def token(self):
        """For the user, good for an hour."""
        now = int(time.time())
        claims = {"sub": self.user, "email": self.user, "iat": now - 60, "nbf": now - 60, "exp": now + TOKEN_S}
        signed = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        return (signed + b"." + encoded(hmac.digest(KEY, signed, "sha256"))).decode()


def encoded(octets):
    return base64.urlsafe_b64encode(octets).rstrip(b"=")
