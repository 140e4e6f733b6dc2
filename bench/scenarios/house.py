"""What the source costs those who build and read it: crates in the dependency trees, import cycles, names with two meanings, lengths
of documents, seconds of `make demo` from a fresh clone, sizes of the programs. There is no peer: the goal stands in its place."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

from measure import BenchError
from results import SHOWN, Goal

SERVER_CRATES_GOAL = 220
SERVER_MIB_GOAL = 20
DEMO_S_GOAL = 180
ARCHITECTURE_OCTETS_GOAL = 15_000
CHANGELOG_OCTETS_GOAL = 4_096
README_LINES_GOAL = 100
OPERATE_LINES_GOAL = 250
BUILD = ["cargo", "build", "--locked", "--profile", "demo", "-p", "stentor", "-p", "stentor-kit", "--no-default-features"]
# If not: without sizes and `make demo`, which take a release build and minutes.
IS_FULL = True


class Cycles:
    """Import cycles between the files and folders of each crate, none of them allowed."""

    name = "house.cycles"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        import_checks(bench)
        import cycles
        import workspace

        sys.setrecursionlimit(10_000)
        found = [text for crate in workspace.crates() for text in cycles.cycles(workspace.ROOT / crate / "src")]
        record(bench, self.name, "cycles", len(found), "testing/checks/cycles.py", 0, found=found)


class Twins:
    """Public types of the server's crates with the name of another crate's, apart from idiomatic local names, none of them allowed."""

    name = "house.twins"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        import_checks(bench)
        import twins

        found = twins.faults(twins.server_crates())
        record(bench, self.name, "names", len(found), "testing/checks/twins.py", 0, found=found)


class Tuples:
    """Functions that take a tuple apart in their signature, none of them allowed."""

    name = "house.tuples"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        import_checks(bench)
        import signatures

        found = [f"{place}: {function}" for place, function in signatures.places(signatures.tuples)]
        record(bench, self.name, "functions", len(found), "testing/checks/signatures.py", 0, found=found)


class Participles:
    """Types called by a participle, a pronoun or an adverb alone, none of them allowed."""

    name = "house.participles"
    entries = ("",)
    smoke = {}

    def run(self, bench):
        import_checks(bench)
        import signatures

        found = [f"{place}: {word}" for place, word in signatures.places(signatures.nameless)]
        record(bench, self.name, "types", len(found), "testing/checks/signatures.py", 0, found=found)


class Documents:
    """Lengths of the pages that everybody reads."""

    name = "house.documents"
    entries = (".architecture", ".changelog", ".readme", ".operate")
    smoke = {}

    def run(self, bench):
        for entry, page, goal in zip(self.entries, ["ARCHITECTURE.md", "CHANGELOG.md"], [ARCHITECTURE_OCTETS_GOAL, CHANGELOG_OCTETS_GOAL]):
            octets = os.path.getsize(os.path.join(root(bench), page))
            record(bench, self.name + entry, "octets", octets, f"wc -c {page}", goal)
        record(bench, self.name + ".readme", "lines", lines(bench, "README.md"), "wc -l README.md", README_LINES_GOAL)
        folder = "docs/operate"
        pages = {page: lines(bench, f"{folder}/{page}") for page in os.listdir(os.path.join(root(bench), folder)) if page.endswith(".md")}
        longest = max(pages, key=pages.get)
        record(bench, self.name + ".operate", "lines", pages[longest], f"wc -l {folder}/*.md", OPERATE_LINES_GOAL, page=longest)


class Walk:
    """Files to open for four changes that people make (docs/design/walks.md), at most as many as before the server was cut into crates."""

    name = "house.walk"
    entries = (".retry", ".reply", ".key", ".column")
    smoke = {}

    def run(self, bench):
        with open(os.path.join(root(bench), "docs/design/walks.md")) as page:
            table, *sections = page.read().split("\n## ")
        before = [int(row.rsplit("|", 2)[1].split()[0].rstrip(",")) for row in table.splitlines() if row.startswith("| [")]
        for entry, section, goal in zip(self.entries, sections, before, strict=True):
            files = re.findall(r"^- `([^`]+)`", section, re.M)
            counts = {file: lines(bench, file) for file in files}
            record(bench, self.name + entry, "files", len(files), "docs/design/walks.md", goal, lines=counts)


class Build:
    """Crates in each tree; in full also sizes, and `make demo` from a fresh clone with an empty registry cache."""

    name = "house.build"
    entries = (".crates.server", ".crates.kit")
    smoke = {"IS_FULL": False}

    def run(self, bench):
        record(bench, "house.build.crates.server", "crates", crates(bench, "stentor"), tree("stentor"), SERVER_CRATES_GOAL)
        record(bench, "house.build.crates.kit", "crates", crates(bench, "stentor-kit"), tree("stentor-kit"))
        if IS_FULL:
            self.sizes(bench)
            self.demo(bench)

    def sizes(self, bench):
        for name, program, goal in [("server", "stentor", SERVER_MIB_GOAL), ("kit", "stentor-kit", None)]:
            stripped = os.path.join(bench.work, f"{program}.stripped")
            subprocess.run(["strip", "-o", stripped, bench.tool(program)], check=True)
            mib = os.path.getsize(stripped) / 2**20
            os.remove(stripped)
            record(bench, f"house.build.size.{name}", "MiB stripped", mib, f"strip {bench.tool(program)}", goal)

    def demo(self, bench):
        """As a newcomer has it: `git clone`, then what `make demo` does, step by step."""
        folder = os.path.join(bench.work, "house")
        shutil.rmtree(folder, ignore_errors=True)
        clone = os.path.join(folder, "clone")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_TARGET")}
        environment["CARGO_HOME"] = os.path.join(folder, "cargo")
        os.makedirs(environment["CARGO_HOME"])
        keep_configuration(environment["CARGO_HOME"])

        def step(argv):
            begin = time.monotonic()
            done = subprocess.run(argv, cwd=clone, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                raise BenchError(f"{' '.join(argv)}: {done.stderr[-2000:]}")
            return time.monotonic() - begin

        subprocess.run(["git", "clone", "-q", "--no-hardlinks", root(bench), clone], check=True)
        try:
            # `cargo build` would fetch by the way; only what this platform needs.
            host = re.search(r"host: (\S+)", subprocess.check_output(["rustc", "-vV"], text=True)).group(1)
            parts = {"fetch": step(["cargo", "fetch", "--locked", "--target", host])}
            built = step([*BUILD, "--timings"])
            parts["dependencies"], parts["ours"] = compiled(clone, built)
            parts["demo"] = step([os.path.join("target", "demo", "stentor-kit"), "demo"])
            units = slowest(clone)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for part, seconds in parts.items():
            record(bench, f"house.build.demo.{part}", "s", seconds, "parts of make demo")
        total = sum(parts.values())
        record(bench, "house.build.demo", "s", total, "make demo, fresh clone, empty CARGO_HOME", DEMO_S_GOAL, slowest=units)


def record(bench, name, unit, value, command, goal=None, **detail):
    """A figure without a peer; without a goal it is shown only."""
    peer, judged, peer_name = (value, SHOWN, "none") if goal is None else (goal, Goal(most=goal), "the goal")
    bench.results.record(name, unit, [[value, peer]], command, judged, peer_name=peer_name, **detail)


def root(bench):
    return os.path.dirname(os.path.dirname(bench.folder))


def import_checks(bench):
    """Makes the modules of testing/checks importable."""
    folder = os.path.join(root(bench), "testing", "checks")
    if folder not in sys.path:
        sys.path.insert(0, folder)


def lines(bench, file):
    with open(os.path.join(root(bench), file)) as text:
        return sum(1 for _ in text)


def keep_configuration(cargo_home):
    """Registries and mirrors as this machine's user has them."""
    own = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    for name in ("config.toml", "config"):
        if os.path.exists(os.path.join(own, name)):
            shutil.copy(os.path.join(own, name), cargo_home)


def tree(package):
    return f"cargo tree -p {package} --no-default-features -e normal"


def crates(bench, package):
    """Crates of a program and of all that is linked into it, ours and itself included, by name and version."""
    argv = [*tree(package).split(), "--locked", "--prefix", "none"]
    done = subprocess.run(argv, cwd=root(bench), capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {done.stderr[-2000:]}")
    return len({" ".join(line.split()[:2]) for line in done.stdout.splitlines() if line})


def units(clone):
    """What `cargo build --timings` compiled: dictionaries with `name`, `start` and `duration`."""
    folder = os.path.join(clone, "target", "cargo-timings")
    with open(os.path.join(folder, "cargo-timing.html")) as file:
        found = re.search(r"UNIT_DATA = (\[.*?\]);\n", file.read(), re.S)
    if not found:
        raise BenchError("cargo's timings have another form than expected: no UNIT_DATA")
    return json.loads(found.group(1))


def compiled(clone, total_s):
    """Seconds until the last dependency was compiled, and from then to the end."""
    others = [unit for unit in units(clone) if not unit["name"].startswith("stentor")]
    dependencies_s = max(unit["start"] + unit["duration"] for unit in others)
    return dependencies_s, total_s - dependencies_s


def slowest(clone):
    found = sorted(units(clone), key=lambda unit: -unit["duration"])[:10]
    return {f"{unit['name']} {unit['target'].strip()}".strip(): round(unit["duration"], 1) for unit in found}
