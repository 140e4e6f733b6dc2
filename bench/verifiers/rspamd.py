"""rspamd as a daemon with its DKIM module alone, in a private folder; it looks the keys up in a name server on loopback."""

import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile

from field.names import NameServer
from measure import BenchError, wait_until
from sinks import free_port
from verifiers.verdicts import ED25519, PASS, RSA

START_S_MAX = 60
STOP_S_MAX = 30
SCAN_S_MAX = 60
CONFIGURATION = """
options {{
    pidfile = "{folder}/pid"; control_socket = "{folder}/control mode=0600"; stats_file = "{folder}/stats"; hs_cache_dir = "{folder}";
    tempdir = "{folder}"; filters = "dkim"; local_addrs = []; dns {{ nameserver = ["{name_server}"]; timeout = 2s; retransmits = 5; }}
}}
logging {{ type = "file"; filename = "{folder}/log"; level = "info"; }}
worker "normal" {{ bind_socket = "127.0.0.1:{port}"; count = 1; task_timeout = 60s; }}
dkim {{ trusted_only = false; check_local = true; max_sigs = 10; }}
actions {{ reject = 1000; }}
"""
# What the module calls the results of signatures.
SYMBOLS = {"R_DKIM_ALLOW": PASS, "R_DKIM_REJECT": "reject", "R_DKIM_PERMFAIL": "permfail", "R_DKIM_TEMPFAIL": "tempfail"}
# A line of the log that the DKIM module writes, without the signature that it may end with.
REASON = re.compile(r"; dkim; \w+: ([^;\n]*)")


class Rspamd:
    name = "rspamd"
    algorithms = (RSA, ED25519)

    def is_there(self):
        return bool(shutil.which("rspamd"))

    def verify(self, folder, files, records):
        """{file: its Verdicts} of files in a folder."""
        zone = {(name, "TXT"): [text] for name, text in records.texts.items()}
        with tempfile.TemporaryDirectory(prefix="rspamd-") as private, Daemon(private, NameServer(zone)) as daemon:
            return {file: daemon.scan(os.path.join(folder, file), records) for file in files}


class Daemon:
    """Runs until the `with` ends."""

    def __init__(self, folder, names):
        self.folder, self.port, self.process = folder, free_port(), None
        # How much of the log has been read.
        self.log_end = 0
        os.chmod(folder, 0o777)
        self.configuration = os.path.join(folder, "conf")
        with open(self.configuration, "w") as file:
            file.write(CONFIGURATION.format(folder=folder, port=self.port, name_server=names.address))

    def __enter__(self):
        with open(os.path.join(self.folder, "output"), "wb") as output:
            argv = ["rspamd", "-f", "-i", "-c", self.configuration]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_until(self._answers, START_S_MAX, "rspamd answering")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S_MAX)

    def _answers(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "output"), errors="replace") as output:
                raise BenchError(f"rspamd has exited: {output.read()[-800:]}")
        try:
            return self._ask("GET", "/ping").startswith(b"pong")
        except OSError:
            return False

    def _ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SCAN_S_MAX)
        try:
            connection.request(method, path, body, headers or {})
            return connection.getresponse().read()
        finally:
            connection.close()

    def scan(self, path, records):
        """Verdicts on the signatures of one message with keys of ours."""
        with open(path, "rb") as file:
            answer = json.loads(self._ask("POST", "/checkv2", file.read(), {"IP": "192.0.2.1"}))
        reasons = self._reasons()
        symbols, found = answer.get("symbols", {}), []
        for symbol, result in SYMBOLS.items():
            for option in symbols.get(symbol, {}).get("options", []):
                # DOMAIN:s=SELECTOR
                domain, _, selector = option.partition(":s=")
                found.append(records.verdict(domain, selector, result if result == PASS else f"{result}: {reasons}"))
        return [verdict for verdict in found if verdict]

    def _reasons(self):
        """What the module has logged since the last call: why it rejects."""
        with open(os.path.join(self.folder, "log"), errors="replace") as log:
            log.seek(self.log_end)
            text = log.read()
            self.log_end = log.tell()
        return "; ".join(sorted(set(REASON.findall(text))))
