#!/usr/bin/env python3
"""Fails for a page of docs/ beyond PAGE_LINES_MAX lines, one that its folder's README.md does not list, and a link to a file or heading that
is not there: `pages.py`."""

import re
import sys

import workspace

PAGE_LINES_MAX = 250
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"#{1,6} (.*)")


def headings(text):
    """Anchors of a page's headings, as GitHub makes them."""
    anchors, is_fenced = set(), False
    for line in text.splitlines():
        is_fenced ^= line.startswith("```")
        heading = HEADING.match(line)
        if heading and not is_fenced:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            anchors.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return anchors


def too_long(page, root):
    lines = len(page.read_text().splitlines())
    return [f"{page.relative_to(root)}: {lines} lines, more than {PAGE_LINES_MAX}"] if lines > PAGE_LINES_MAX else []


def unlisted(page, root):
    """A line if the index of the page's folder has no link to it; a folder without an index has nothing to list."""
    index = page.parent / "README.md"
    is_listed = page == index or not index.exists() or f"]({page.name})" in index.read_text()
    return [] if is_listed else [f"{page.relative_to(root)}: not in {index.relative_to(root)}"]


def broken_links(page, root):
    for target, anchor in LINK.findall(page.read_text()):
        if ":" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"{page.relative_to(root)}: {target} is not there"
        elif anchor and path.suffix == ".md" and anchor not in headings(path.read_text()):
            yield f"{page.relative_to(root)}: {target or page.name} has no heading #{anchor}"


def faults(root=workspace.ROOT):
    pages = sorted((root / "docs").rglob("*.md"))
    return [line for page in pages for check in (too_long, unlisted, broken_links) for line in check(page, root)]


def main():
    found = faults()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
