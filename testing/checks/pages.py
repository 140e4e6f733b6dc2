#!/usr/bin/env python3
"""Fails for a page of docs/ beyond PAGE_LINES_MAX lines, and for one that its folder's README.md does not list: `pages.py`. Links are
checked by kit/stentor-kit/tests/links_in_docs.rs."""

import sys

import workspace

PAGE_LINES_MAX = 250


def too_long(page, root):
    lines = len(page.read_text().splitlines())
    return [f"{page.relative_to(root)}: {lines} lines, more than {PAGE_LINES_MAX}"] if lines > PAGE_LINES_MAX else []


def unlisted(page, root):
    """A line if the index of the page's folder has no link to it; a folder without an index has nothing to list."""
    index = page.parent / "README.md"
    is_listed = page == index or not index.exists() or f"]({page.name})" in index.read_text()
    return [] if is_listed else [f"{page.relative_to(root)}: not in {index.relative_to(root)}"]


def faults(root=workspace.ROOT):
    pages = sorted((root / "docs").rglob("*.md"))
    return [line for page in pages for check in (too_long, unlisted) for line in check(page, root)]


def main():
    found = faults()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
