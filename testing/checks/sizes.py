#!/usr/bin/env python3
"""Fails for a file beyond FILE_LINES_MAX lines and a comment line beyond COMMENT_COLUMNS_MAX columns, and warns of a crate beyond
CRATE_LINES_MAX: `sizes.py [CRATE...]`, all without arguments.

rustfmt wraps code at the same column, but leaves comments alone; table rows and lines with a URL may be longer. Files are
split long before their limit (CONTRIBUTING.md). A crate is split at a natural seam, which a line count cannot find.
"""

import re
import sys

import workspace

COMMENT = re.compile(r"\s*//[/!]?\s*(?P<text>.*)")
COMMENT_COLUMNS_MAX = 120
CRATE_LINES_MAX = 14_000
FILE_LINES_MAX = 800


def files_too_long(crate, root=workspace.ROOT):
    """A line for each file of the crate that is too long."""
    found = []
    for file in sorted((root / crate).rglob("*.rs")):
        lines = count_lines(file)
        if lines > FILE_LINES_MAX:
            found.append(f"{file.relative_to(root)}: {lines} lines, more than {FILE_LINES_MAX}")
    return found


def comments_too_long(crate, root=workspace.ROOT):
    """A line for each comment line of the crate that is too long."""
    found = []
    for file in sorted((root / crate).rglob("*.rs")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            comment = COMMENT.match(line)
            if comment and len(line) > COMMENT_COLUMNS_MAX and not comment["text"].startswith("|") and "://" not in line:
                found.append(f"{file.relative_to(root)}:{number}: comment of {len(line)} columns, more than {COMMENT_COLUMNS_MAX}")
    return found


def crate_too_long(crate, root=workspace.ROOT):
    """A line if the crate's sources are more than CRATE_LINES_MAX lines together."""
    lines = sum(count_lines(file) for file in (root / crate / "src").rglob("*.rs"))
    return [f"{crate}/src: {lines} lines, more than {CRATE_LINES_MAX}"] if lines > CRATE_LINES_MAX else []


def count_lines(file):
    with open(file, "rb") as text:
        return sum(1 for _ in text)


def main(names):
    crates = names or [str(crate) for crate in workspace.crates()]
    for crate in crates:
        for line in crate_too_long(crate):
            print(f"warning: {line}")
    found = [line for crate in crates for line in files_too_long(crate) + comments_too_long(crate)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
