"""Cost of the identity work: the build of `make demo`, the server's size, and its crates, beside an earlier revision."""

import os
import re
import shutil
import subprocess
import time

from measure import BenchError
from results import SHOWN, Goal

# The last revision before identity, bounces, copies and the registry.
BEFORE = "e9a2b32b"
# Builds both revisions, which takes minutes; else the binary at hand is measured.
IS_BUILT = True
BUILD_S_MAX = 3600
DEMO = ["build", "--locked", "--profile", "demo", "-p", "stentor", "-p", "stentor-kit", "--no-default-features"]
TREE = ["tree", "--locked", "-p", "stentor", "--no-default-features", "--edges", "normal", "--prefix", "none", "--format", "{p}"]


class Build:
    """Both revisions are built in worktrees of their own, from nothing, with dependencies fetched before. The sizes are of stripped
    programs. Each crate under crates/ must stand on ARCHITECTURE.md's map, in one row."""

    name = "identity.build"
    entries = (".time", ".size", ".crates", ".map")
    smoke = {"IS_BUILT": False}

    def run(self, bench):
        now = Revision(bench, "HEAD")
        if IS_BUILT:
            revisions = [now, Revision(bench, BEFORE)]
            try:
                for revision in revisions:
                    revision.check_out()
                pairs = [[revision.build(), revision.size_mib(), revision.crates()] for revision in revisions]
            finally:
                for revision in revisions:
                    revision.remove()
        else:
            now.tree, now.binary = bench.root, bench.binary
            pairs = [[0, now.size_mib(), now.crates()]] * 2
        command = f"cargo {' '.join(DEMO)}"
        for entry, unit, both in zip((".time", ".size", ".crates"), ("s", "MiB", "crates"), zip(*pairs)):
            bench.results.record(self.name + entry, unit, [both], command, SHOWN, peer_name=BEFORE if IS_BUILT else "itself")
        wrong = unmapped(bench.root)
        bench.results.record(self.name + ".map", "crates", [[len(wrong), 0]], "ARCHITECTURE.md", Goal(most=0), peer_name="the goal", wrong=wrong)


class Revision:
    """A commit, its worktree and its build."""

    def __init__(self, bench, commit):
        self.bench, self.commit = bench, commit
        self.folder = os.path.join(bench.work, f"build-{commit}")
        self.tree = os.path.join(self.folder, "tree")
        self.binary = os.path.join(self.folder, "target", "demo", "stentor")

    def check_out(self):
        self.remove()
        os.makedirs(self.folder)
        output(["git", "-C", self.bench.root, "worktree", "add", "--detach", self.tree, self.commit])

    def remove(self):
        if os.path.isdir(self.tree):
            output(["git", "-C", self.bench.root, "worktree", "remove", "--force", self.tree])
        shutil.rmtree(self.folder, ignore_errors=True)

    def build(self):
        """Seconds of the build."""
        self.cargo(["fetch", "--locked"])
        begin = time.monotonic()
        self.cargo(DEMO)
        return time.monotonic() - begin

    def size_mib(self):
        stripped = os.path.join(self.bench.work, "stripped")
        output(["strip", "-o", stripped, self.binary])
        size = os.path.getsize(stripped)
        os.remove(stripped)
        return size / 2**20

    def crates(self):
        """Crates that the server is made of, those of others included."""
        # `(*)` marks a crate that was listed before.
        return len({line.removesuffix(" (*)") for line in self.cargo(TREE).splitlines() if line})

    def cargo(self, words):
        environment = {**os.environ, "CARGO_TARGET_DIR": os.path.join(self.folder, "target")}
        return output(["cargo", *words], cwd=self.tree, env=environment)


def unmapped(root):
    """Crates of the server that have not exactly one row on the map."""
    with open(os.path.join(root, "ARCHITECTURE.md")) as file:
        rows = re.findall(r"^\| `([\w-]+)` \|", file.read(), re.MULTILINE)
    return [name for name in sorted(os.listdir(os.path.join(root, "crates"))) if rows.count(name) != 1]


def output(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S_MAX, **options)
    if done.returncode:
        raise BenchError(f"{' '.join(command[:3])}: {done.stderr.strip()[-800:]}")
    return done.stdout
