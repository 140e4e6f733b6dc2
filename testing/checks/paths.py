#!/usr/bin/env python3
"""Paths in ARCHITECTURE.md that are not there: `paths.py`. `engine/core/hub.rs` stands for `crates/engine/src/core/hub.rs`."""

import re
import sys

import workspace

QUOTED = re.compile(r"`([\w./-]+/[\w./-]*)`")


def exists(path, root=workspace.ROOT):
    crate, _, rest = path.partition("/")
    return (root / path).exists() or (root / "crates" / crate / "src" / rest).exists()


def missing(text, root=workspace.ROOT):
    return [path for path in QUOTED.findall(text) if not exists(path, root)]


def main():
    found = missing((workspace.ROOT / "ARCHITECTURE.md").read_text())
    for path in found:
        print(f"ARCHITECTURE.md: {path} is not there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
