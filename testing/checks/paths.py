#!/usr/bin/env python3
"""Checks ARCHITECTURE.md and the pages behind it against the workspace: `paths.py [--write]`.

- Each quoted path exists (`core/hub.rs` stands for `crates/core/src/hub.rs`).
- ARCHITECTURE.md has at most OCTETS_MAX octets and one row for each crate; a crate depends only on crates in rows below its own.
- The table of dependencies in docs/design/crates.md is that of the manifests; --write makes it so.
"""

import re
import sys
import tomllib

import workspace

OCTETS_MAX = 15_000
ARCHITECTURE = "ARCHITECTURE.md"
CRATES = "docs/design/crates.md"
PAGES = [ARCHITECTURE, CRATES, *(f"docs/design/{name}.md" for name in ["failures", "flow", "invariants", "locks"])]

QUOTED = re.compile(r"`([\w./-]+/[\w./-]*)`")
TABLE = re.compile(r"^\| crate \|.*\n\|[-|]+\|\n((?:\|.*\n)*)", re.MULTILINE)
DEPENDENCIES = re.compile(r"^(\| crate \| uses \|\n\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def exists(path, root=workspace.ROOT):
    crate, _, rest = path.partition("/")
    return (root / path).exists() or (root / "crates" / crate / "src" / rest).exists()


def missing(text, root=workspace.ROOT):
    return [path for path in QUOTED.findall(text) if not exists(path, root)]


def named(folder):
    """A crate as the tables name it: those in `crates/` without their folder."""
    return str(folder).removeprefix("crates/")


def dependencies(folder, root=workspace.ROOT):
    """Crates of ours that a crate uses, by their folders; not those of its tests."""
    manifest = tomllib.loads((root / folder / "Cargo.toml").read_text())
    ours = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["dependencies"]
    used = set()
    for name, wanted in manifest.get("dependencies", {}).items():
        base = root / folder
        if "workspace" in wanted:
            base, wanted = root, ours[name]
        if "path" in wanted:
            used.add(str((base / wanted["path"]).resolve().relative_to(root.resolve())))
    return sorted(used)


def rows(text):
    """The crates of all tables of crates, in their order."""
    return re.findall(r"^\| `([\w/-]+)` \|", "".join(TABLE.findall(text)), re.MULTILINE)


def wrong_rows(text, folders, root=workspace.ROOT):
    """Crates without a row, with several, and rows without a crate; crates that depend on one that is not below them."""
    listed, known = rows(text), {named(folder): folder for folder in folders}
    for crate in sorted(known.keys() | set(listed)):
        if (count := listed.count(crate)) != 1 or crate not in known:
            yield f"{crate} has {count} rows" if crate in known else f"{crate}: no such crate"
    # `kit/` and `testing/` may use `crates/`, wherever their rows are.
    place = {crate: (known[crate].startswith("crates/"), at) for at, crate in enumerate(listed) if crate in known}
    for crate, at in place.items():
        for used in map(named, dependencies(known[crate], root)):
            if used in place and place[used] < at:
                yield f"{crate} uses {used}, which is not below it"


def table(folders, root=workspace.ROOT):
    """The rows of the table of dependencies."""
    lines = []
    for folder in folders:
        used = ", ".join(f"`{named(used)}`" for used in dependencies(folder, root)) or "none of ours"
        lines.append(f"| `{named(folder)}` | {used} |\n")
    return "".join(lines)


def with_table(text, folders, root=workspace.ROOT):
    return DEPENDENCIES.sub(lambda found: found[1] + table(folders, root), text)


def main(arguments):
    folders = [str(folder) for folder in workspace.crates()] + ["testing/fuzz"]
    texts = {page: (workspace.ROOT / page).read_text() for page in PAGES}
    made = with_table(texts[CRATES], folders)
    if arguments == ["--write"]:
        (workspace.ROOT / CRATES).write_text(made)
        texts[CRATES] = made
    found = [f"{page}: {path} is not there" for page, text in texts.items() for path in missing(text)]
    found += [f"{ARCHITECTURE}: {what}" for what in wrong_rows(texts[ARCHITECTURE], folders)]
    if (octets := len(texts[ARCHITECTURE].encode())) > OCTETS_MAX:
        found.append(f"{ARCHITECTURE}: {octets} octets, more than {OCTETS_MAX}")
    if made != texts[CRATES]:
        found.append(f"{CRATES}: the table of dependencies is stale: python3 -B testing/checks/paths.py --write")
    for what in found:
        print(what)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
