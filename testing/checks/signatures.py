#!/usr/bin/env python3
"""Fails for a function that takes a bundle of parameters as a tuple without a name, and for a type called by a participle, a pronoun or an
adverb alone: `signatures.py`. What travels together has a name, and a type is a noun of the field (CONTRIBUTING.md)."""

import re
import sys

import workspace

FUNCTION = re.compile(r"\bfn\s+(\w+)")
PATTERN = re.compile(r"(?:^|,)\s*(?:mut\s+)?\(")
TYPE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|type|union)\s+([A-Z][a-z]+)\b(?!\w)", re.MULTILINE)
# Words that say nothing of what they name.
NOT_NOUNS = set(
    """Again Ahead Also Asked Asks Audited Because Before Begun Below Besides Carried Changed Checked Chosen Copied Crowded Damaged Decided
    Detached Does Entered Followed Found Fed Gathered Given Goes Gone Handed Have Heard Here How Instead Is Kept Known Lasts Learned Left
    Listed Loaded Looked Made Meant Measured Merged Met Moved Named Noted Of Offered Opened Over Owned Past Plain Planned Played Posted
    Prepared Printed Read Recovered Refreshed Released Reloaded Remembered Reported Said Says Seen Seldom Sent Served Shown Spoke Standing
    Stopped Stored Suspended Takes Taken Told Tried Until Used Varies Via Wanted Watched What When Who Whole Whom Why Wished Within Worth
    Would Written""".split()
)


def parameters(text, at):
    """The parameters of a function whose name ends at `at`."""
    angles = 0
    # Generics first: they may have parentheses of their own (`F: Fn(u8) -> u8`).
    while at < len(text) and (angles or text[at] != "("):
        if text[at] in ";{" and not angles:
            return ""
        angles += {"<": 1, ">": -1}.get(text[at], 0) if text[at - 1 : at + 1] != "->" else 0
        at += 1
    begin, depth = at + 1, 1
    while depth and at + 1 < len(text):
        at += 1
        depth += {"(": 1, ")": -1}.get(text[at], 0)
    return text[begin:at]


def tuples(text):
    """Line and name of each function that takes a tuple apart in its signature."""
    for function in FUNCTION.finditer(text):
        inside = parameters(text, function.end())
        # Tests of properties have patterns of values there (`x in "(a|b)"`).
        if PATTERN.search(inside) and " in " not in inside:
            yield text.count("\n", 0, function.start()) + 1, function[1]


def nameless(text):
    """Line and name of each type that is called by such a word alone."""
    for found in TYPE.finditer(text):
        if found[1] in NOT_NOUNS:
            yield text.count("\n", 0, found.start(1)) + 1, found[1]


def places(check):
    """File, line and name of each finding of `check` in the sources of all crates."""
    for crate in workspace.crates():
        for file in sorted((workspace.ROOT / crate).rglob("*.rs")):
            for line, name in check(file.read_text()):
                yield f"{file.relative_to(workspace.ROOT)}:{line}", name


def main():
    found = [f"{place}: {function} takes a tuple: name what travels together" for place, function in places(tuples)]
    found += [f"{place}: the type {word} has no noun for a name" for place, word in places(nameless)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
