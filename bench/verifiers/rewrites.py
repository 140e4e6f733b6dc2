"""What verifiers of others do not read, although the standards have it, each with why.

A rewrite turns a message into another with the same canonical form (RFC 6376 section 3.4), so that the same signatures are valid. If the
verifier then accepts all of them, the signatures are right, and the rewrite names what it could not read. A miss that no entry explains
counts.
"""

import re

END = b"\r\n\r\n"
SPACE_BEFORE_COLON = re.compile(rb"^([!-9;-~]+)[ \t]+:", re.MULTILINE)
BLANK_TAIL = re.compile(rb"\r\n(?:[ \t]*\r\n)+\Z")


def drop_space_before_colon(content):
    header, end, body = content.partition(END)
    return SPACE_BEFORE_COLON.sub(rb"\1:", header) + end + body


def add_empty_line(content):
    return content if END in content else content + b"\r\n"


def drop_blank_tail(content):
    header, end, body = content.partition(END)
    # The first line end is that of the header or of the last line with text.
    return header + end + BLANK_TAIL.sub(b"\r\n", b"\r\n" + body)[2:]


class Rewrite:
    """`verifiers`: the names of those that need it."""

    def __init__(self, name, why, verifiers, apply):
        self.name, self.why, self.verifiers, self.apply = name, why, verifiers, apply


REWRITES = (
    Rewrite(
        "space before the colon", "white space behind a field's name is obsolete (RFC 5322 section 4.5), and none of the canonical form",
        ("dkimpy", "OpenDKIM", "rspamd"), drop_space_before_colon,
    ),
    Rewrite(
        "no empty line", "a message without a body need not have the empty line (RFC 5322 section 3.5)",
        ("mailauth", "go-msgauth"), add_empty_line,
    ),
    Rewrite(
        "blank tail", "lines of spaces at the end of a body are ignored; old rspamd hashes some (its issue 5590)",
        ("rspamd",), drop_blank_tail,
    ),
)
# Words with which a verifier says that it refuses a message by a rule of its own, whatever its signatures.
REFUSALS = {
    "repeated field": "intended to be unique by email standards",  # rspamd: two of a field that RFC 5322 section 3.6 allows once.
}


def rewrite(verifier, content):
    """The message as this verifier can read it, and the names of the rewrites that have changed it."""
    names = []
    for one in REWRITES:
        if verifier in one.verifiers and (changed := one.apply(content)) != content:
            content = changed
            names.append(one.name)
    return content, names


def refusal(results):
    """The name of the rule by which results refuse a message; None: there is none."""
    return next((name for name, words in REFUSALS.items() if results and all(words in result for result in results)), None)
