#!/usr/bin/env python3
"""No crate beyond CRATE_LINES_MAX lines, no file beyond FILE_LINES_MAX: `sizes.py [CRATE...]`, all without arguments.

A crate that has grown further is cut in two; a file is cut long before (CONTRIBUTING.md: about 200 lines).
"""

import sys

import workspace

CRATE_LINES_MAX = 14_000
FILE_LINES_MAX = 800


def too_long(crate, root=workspace.ROOT):
    """What is too long in one crate, in words."""
    found, lines = [], 0
    for file in sorted((root / crate).rglob("*.rs")):
        with open(file, "rb") as text:
            count = sum(1 for _ in text)
        if count > FILE_LINES_MAX:
            found.append(f"{file.relative_to(root)}: {count} lines, more than {FILE_LINES_MAX}")
        if file.is_relative_to(root / crate / "src"):
            lines += count
    if lines > CRATE_LINES_MAX:
        found.append(f"{crate}/src: {lines} lines, more than {CRATE_LINES_MAX}")
    return found


def main(names):
    found = []
    for crate in names or map(str, workspace.crates()):
        found += too_long(crate)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
