"""What a verifier makes of a signature, and the keys that it is given."""

import dataclasses
import re

RSA, ED25519 = "rsa-sha256", "ed25519-sha256"
# As a record's `k=` has it.
ALGORITHMS = {"rsa": RSA, "ed25519": ED25519}
PASS = "pass"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature that a message is to have."""

    domain: str
    algorithm: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`result`: PASS, or why the signature is not valid."""

    signature: Signature
    result: str


class Records:
    """The TXT records of keys, as `stentor dkim new` prints them."""

    def __init__(self, zone):
        self.zone = zone
        self.texts = {}
        for line in zone.splitlines():
            name, strings = line.split(". IN TXT ")
            self.texts[name] = "".join(re.findall(r'"([^"]*)"', strings))

    def domains(self):
        return {name.partition("._domainkey.")[2] for name in self.texts}

    def algorithm(self, domain, selector):
        """The algorithm of a key; None: there is no such key."""
        text = self.texts.get(f"{selector}._domainkey.{domain}", "")
        kind = re.search(r"\bk=(\w+)", text)
        return ALGORITHMS.get(kind[1]) if kind else None

    def verdict(self, domain, selector, result):
        """Verdict on the signature that names this key; None: the key is not one of ours."""
        algorithm = self.algorithm(domain, selector)
        return Verdict(Signature(domain, algorithm), result) if algorithm else None
