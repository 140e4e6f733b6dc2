"""Cases of inbound authentication by others, for a running server: the suite of RFC 7208, and mail-auth's DKIM, ARC and DMARC cases
(crates/message-auth/tests). Each is a Case: what the DNS says, who sends, the message, and what Authentication-Results must have."""

import base64
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import time

from field.names import NameServer

FOLDER = os.path.join(os.path.dirname(__file__), "..", "crates", "message-auth", "tests")
CLIENT = "192.0.2.1"
SELECTOR = "s"
FAILS = "SERVFAIL"
EXPIRED = 'fail reason="signature expired"'


@dataclasses.dataclass
class Case:
    name: str
    # {(name, type): [values], or an rcode}
    zone: dict
    content: bytes
    # A regular expression, and the words that its first group may be; without a match the word is "none".
    pattern: str
    wanted: list
    sender: str = ""
    helo: str = "client.test"
    client: str = CLIENT

    def is_right(self, results):
        found = re.findall(self.pattern, results)
        return (found[-1] if found else "none") in self.wanted


class SuiteNames(NameServer):
    """The suite's names that begin with `error.` fail unless they have records."""

    def _answer_from_zone(self, name, kind, reply):
        if name.startswith("error.") and not any(owner == name for owner, _ in self.zone):
            return reply(2)
        return super()._answer_from_zone(name, kind, reply)


def spf_groups():
    """Lists of Cases; those of a list have one zone."""
    with open(os.path.join(FOLDER, "rfc7208.json")) as file:
        groups = json.load(file)
    for group in groups:
        zone = suite_zone(group["zonedata"])
        yield [spf_case(test, zone, f"{group['description']} / {test['name']}") for test in group["tests"]]


def spf_case(test, zone, name):
    sender = test["mailfrom"] if "@" in test["mailfrom"] else ""
    pattern = r"spf=(\w+) smtp\.mailfrom=" if sender else r"spf=(\w+) smtp\.helo="
    content = b"From: a@author.invalid\r\nSubject: x\r\n\r\ntext\r\n"
    return Case(name, zone, content, pattern, test["result"], sender, test["helo"], test["host"])


def suite_zone(data):
    """The suite's records: SPF records stand for TXT records unless the name has those; TIMEOUT is for all types without records."""
    zone = {}
    for name, records in data.items():
        by_type = {}
        for kind, value in records:
            by_type.setdefault(kind, []).append("".join(value) if kind in ("TXT", "SPF") and isinstance(value, list) else value)
        by_type.setdefault("TXT", by_type.pop("SPF", []))
        is_failing = by_type.pop("TIMEOUT", None)
        for kind in ("A", "AAAA", "MX", "PTR", "TXT", "CNAME"):
            values = [value for value in by_type.get(kind, []) if value != "NONE"]
            if values:
                zone[(name.lower(), kind)] = values
            elif is_failing and kind != "CNAME":
                zone[(name.lower(), kind)] = FAILS
    return zone


def message_cases():
    """mail-auth's messages with DKIM signatures and ARC sets. Its clock stands in 2022: what has expired since must fail for that."""
    for folder, pattern in (("dkim", rf"dkim=({EXPIRED}|\w+)"), ("arc", r"arc=(\w+)")):
        folder = os.path.join(FOLDER, "mail_auth", folder)
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name)) as file:
                records, _, content = file.read().partition("\n\n")
            zone = {(line.split(" ")[0].lower(), "TXT"): [line.split(" ", 1)[1]] for line in records.splitlines()}
            expires = [int(time_s) for time_s in re.findall(r"\bx=(\d{10});", content)]
            wanted = ["pass"] if all(time_s > time.time() for time_s in expires) else [EXPIRED]
            octets = content.replace("\n", "\r\n").encode()
            yield Case(f"{os.path.basename(folder)}/{name}", zone, octets, pattern, wanted)


def dmarc_cases(key):
    """mail-auth's DMARC cases, with signatures made by OpenSSL."""
    with open(os.path.join(FOLDER, "mail_auth", "dmarc.json")) as file:
        cases = json.load(file)
    for case in cases:
        zone = {}
        for name, kind, value in case["records"]:
            for one in ("A", "AAAA", "MX", "TXT") if kind == "FAIL" else (kind,):
                zone[(name, one)] = FAILS if kind == "FAIL" else [value]
        content = f"From: {case['from']}\r\nSubject: x\r\n\r\ntext\r\n".encode()
        if "dkim" in case:
            result, domain = case["dkim"]
            content = key.signed(content, domain) + (b"changed\r\n" if result == "fail" else b"")
            zone[(key_name(domain), "TXT")] = FAILS if result == "temperror" else [key.record]
        sender = ""
        if "spf" in case:
            result, domain = case["spf"]
            zone[(domain.lower(), "TXT")] = FAILS if result == "temperror" else [f"v=spf1 {'+' if result == 'pass' else '-'}all"]
            sender = f"a@{domain}"
        policy = f" policy.dmarc={case['policy']}" if "policy" in case and case["result"] in ("pass", "fail") else ""
        pattern = rf"\sdmarc=(\w+) header\.from=\S+?{policy};" if policy else r"\sdmarc=(\w+)"
        yield Case(f"dmarc/{case['name']}", zone, content, pattern, [case["result"]], sender)


def key_name(domain):
    return f"{SELECTOR}._domainkey.{domain}".lower()


class Key:
    """An RSA key, and relaxed/relaxed signatures with it."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "inbound.pem")
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.path)
        public = openssl("pkey", "-in", self.path, "-pubout", "-outform", "DER")
        self.record = f"v=DKIM1; k=rsa; p={base64.b64encode(public).decode()}"

    def signed(self, content, domain, count=1, form="relaxed"):
        """The message behind `count` equal signatures of From and Subject. `form`: of the body, whose lines must have neither repeated
        nor trailing blanks, and which must not end in empty lines."""
        header, _, body = content.partition(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in header.split(b"\r\n"))
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        field = (
            f"v=1; a=rsa-sha256; c=relaxed/{form}; d={domain}; s={SELECTOR}; h=from:subject; bh={digest}; b="
        )
        canonical = b"".join(b"%s:%s\r\n" % (name.lower(), fields[name]) for name in (b"From", b"Subject"))
        signature = openssl("dgst", "-sha256", "-sign", self.path, given=canonical + b"dkim-signature:" + field.encode())
        whole = f"DKIM-Signature: {field}{base64.b64encode(signature).decode()}\r\n".encode()
        return whole * count + content


def openssl(*words, given=None):
    return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True, timeout=60).stdout
