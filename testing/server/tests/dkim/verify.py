"""Verifies messages with dkimpy: prints a line for each signature, with file, domain, algorithm and result.

Usage: verify.py RECORDS FILE...; RECORDS is what `stentor dkim show` prints.
"""

import re
import sys

import dkim


def records(path):
    """Text of each record by its name."""
    found = {}
    for line in open(path, encoding="ascii"):
        name, strings = line.split(". IN TXT ")
        found[name] = "".join(re.findall(r'"([^"]*)"', strings)).encode()
    return found


def main():
    known = records(sys.argv[1])

    def answer(name, timeout=5):
        text = name.decode() if isinstance(name, bytes) else name
        return known.get(text.rstrip("."))

    for path in sys.argv[2:]:
        message = open(path, "rb").read()
        try:
            header = dkim.rfc822_parse(message)[0]
        except dkim.MessageFormatError as error:
            print(path, "-", "-", f"error: {error}")
            continue
        fields = [value for name, value in header if name.lower() == b"dkim-signature"]
        for index, value in enumerate(fields):
            tags = dkim.parse_tag_value(value)
            try:
                is_valid = dkim.DKIM(message, minkey=2048).verify(index, dnsfunc=answer)
                result = "pass" if is_valid else "fail"
            except dkim.DKIMException as error:
                result = f"error: {error}"
            print(path, tags[b"d"].decode(), tags[b"a"].decode(), result)


main()
