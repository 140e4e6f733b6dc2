#!/usr/bin/env python3
"""Fails for the name of a public type in more than one crate of the server: `twins.py`. A noun of mail has one meaning in all of them
(CONTRIBUTING.md); LOCAL_NAMES may be repeated."""

import collections
import re
import sys

import workspace

PUBLIC = re.compile(r"^pub (?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
# A name is idiomatic if it is a noun of programming, not of mail, and says enough with its crate or module before it: `logs::Options`,
# `history::Decoder`. What is sent, received, queued, decided or proven is a noun of mail and gets a name of its own.
LOCAL_NAMES = set(
    """
    Config Limits Options Origin Scope Settings Source
    Counters Counts Histogram Ms Point Scale
    Decoder Diagnostic Field Fields Form Format Head Line Lines Name Names Parser Part ProtocolError Record Severity Subject
    Files Folder Reader Sink Socket StartError
    Column Kind Key Row Table View
    Event Run Shared State Step Turn Walk
    Places Slot Window
    """.split()
)


def public_types(crate, root=workspace.ROOT):
    """Names of the crate's public types, each with the files that define it."""
    found = collections.defaultdict(list)
    for file in sorted((root / crate / "src").rglob("*.rs")):
        for match in PUBLIC.finditer(file.read_text()):
            found[match[1]].append(str(file.relative_to(root)))
    return found


def twins(crates, root=workspace.ROOT):
    """Each name that stands in more than one crate, with its files."""
    files = collections.defaultdict(list)
    for crate in crates:
        for name, found in public_types(crate, root).items():
            files[name].append(found)
    return {name: sum(found, []) for name, found in sorted(files.items()) if len(found) > 1}


def faults(crates, root=workspace.ROOT, local_names=frozenset(LOCAL_NAMES)):
    found = twins(crates, root)
    lines = [f"{name} has more than one meaning: {', '.join(files)}" for name, files in found.items() if name not in local_names]
    return lines + [f"{name} stands in one crate: remove it from LOCAL_NAMES" for name in sorted(local_names - found.keys())]


def server_crates():
    return [crate for crate in workspace.crates() if crate.parts[0] == "crates"]


def main():
    found = faults(server_crates())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
