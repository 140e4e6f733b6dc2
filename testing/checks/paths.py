#!/usr/bin/env python3
"""What ARCHITECTURE.md says and is not so: `paths.py`. Paths that are not there (`engine/core/hub.rs` stands for
`crates/engine/src/core/hub.rs`), and crates whose dependencies on others of ours are not those of the table."""

import re
import sys
import tomllib

import workspace

QUOTED = re.compile(r"`([\w./-]+/[\w./-]*)`")


def exists(path, root=workspace.ROOT):
    crate, _, rest = path.partition("/")
    return (root / path).exists() or (root / "crates" / crate / "src" / rest).exists()


def missing(text, root=workspace.ROOT):
    return [path for path in QUOTED.findall(text) if not exists(path, root)]


def dependencies(crate, root=workspace.ROOT):
    """Crates of ours that a crate in `crates/` uses."""
    manifest = tomllib.loads((root / "crates" / crate / "Cargo.toml").read_text())
    return {name.removeprefix("stentor-") for name in manifest["dependencies"] if name.startswith("stentor-")}


def untrue(text, root=workspace.ROOT):
    """Rows of the table of crates whose last column is not what the manifest has; `all above` may be anything."""
    for line in text.partition("| crate |")[2].partition("\n\n")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        crate = cells[0].strip("` ")
        if len(cells) != 4 or not (root / "crates" / crate / "Cargo.toml").exists() or "all above" in cells[3]:
            continue
        said, used = set(re.findall(r"`(\w+)`", cells[3])), dependencies(crate, root)
        if said != used:
            yield f"{crate} uses {', '.join(sorted(used)) or 'none of ours'}, not {', '.join(sorted(said)) or 'none'}"


def main():
    text = (workspace.ROOT / "ARCHITECTURE.md").read_text()
    found = [f"{path} is not there" for path in missing(text)] + list(untrue(text))
    for what in found:
        print(f"ARCHITECTURE.md: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
