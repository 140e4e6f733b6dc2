#!/usr/bin/env python3
"""Fails for a link in a doc comment to something of a name that the file's code does not have: `doc_links.py`. A renamed type takes its links
along: the first name of each [`X::Y`] stands in the code of the same file."""

import re
import sys

import workspace

COMMENT = re.compile(r"^\s*//[/!](.*)$", re.MULTILINE)
ANY_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
# A link with a target of its own (`[`X::y`](z::X::y)`) says where the name is.
LINK = re.compile(r"(\[`(\w+)::[\w:]+(?:\(\))?`\])(?!\()")
# Paths that say where the name is.
PLACES = {"Self", "core", "crate", "self", "std", "super"}


def stale(text):
    """Line and target of each such link."""
    words = set(re.findall(r"\w+", ANY_COMMENT.sub("", text))) | PLACES
    for comment in COMMENT.finditer(text):
        for link, name in LINK.findall(comment[1]):
            if name not in words and not name.startswith("stentor_") and f"{link}: " not in text:
                yield text.count("\n", 0, comment.start(1)) + 1, link


def main():
    found = []
    for file in sorted((workspace.ROOT / "crates").rglob("*.rs")):
        found += [f"{file.relative_to(workspace.ROOT)}:{line}: {link}: no such name here" for line, link in stale(file.read_text())]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
