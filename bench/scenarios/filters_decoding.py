"""What `stentor mime` reads beside Python's email and charset libraries: encoded words in 26 charsets, and whole messages."""

import collections
import glob
import json
import os
import subprocess

import decoding
from measure import BenchError
from results import Goal

WORDS = 5_000
MESSAGES = 1_000
SEED = 15
RUN_S_MAX = 600
# Messages that the tests have: those of the mail-parser crate, where cargo keeps it, and ours.
COLLECTIONS = ("registry/src/*/mail-parser-*/resources/eml/**/*.eml",)


def collection(root):
    cargo = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    found = [path for pattern in COLLECTIONS for path in glob.glob(os.path.join(cargo, pattern), recursive=True)]
    return sorted(found)[:MESSAGES] + [os.path.join(root, "examples", "demo.eml")]


class Decoding:
    """Differences that nobody argues: encoded words, header fields, names of files, texts."""

    name = "filters.decoding"
    entries = ("", ".words")
    smoke = {"WORDS": 500, "MESSAGES": 20}

    def run(self, bench):
        self.words(bench)
        self.messages(bench)

    def words(self, bench):
        wanted = list(decoding.words(WORDS, SEED))
        command = [bench.binary, "mime", "decode", "--lines", "--json", "--as", "word"]
        given = "".join(value + "\n" for value, _ in wanted).encode()
        done = subprocess.run(command, input=given, capture_output=True, timeout=RUN_S_MAX)
        lines = done.stdout.splitlines()
        if done.returncode or len(lines) != len(wanted):
            raise BenchError(f"stentor mime decode: {len(lines)} answers; {done.stderr.decode()[-800:]}")
        argued, differ = collections.Counter(), []
        for (value, text), line in zip(wanted, lines):
            ours = json.loads(line)["text"]
            why = decoding.why_field(ours, value)
            if why == "" or ours.strip() != text.strip():
                differ.append([value, ours, text])
            argued[why or "same"] += 1
        self.record(bench, ".words", "words that differ", len(differ), "stentor mime decode --lines", argued, differ)

    def messages(self, bench):
        paths = collection(os.path.dirname(os.path.dirname(bench.folder)))
        if len(paths) < 20:
            raise BenchError("the messages of mail-parser are not in cargo's registry: cargo fetch")
        argued, differ = collections.Counter(), []
        for path in paths:
            command = [bench.binary, "mime", "show", "--json", "--text", path]
            done = subprocess.run(command, capture_output=True, timeout=RUN_S_MAX)
            if done.returncode:
                raise BenchError(f"stentor mime show {path}: {done.stderr.decode()[-800:]}")
            for what, why in compare(json.loads(done.stdout)["parts"], path):
                argued[why or "same"] += 1
                if why == "":
                    differ.append([os.path.relpath(path, os.path.dirname(os.path.dirname(path))), what])
        self.record(bench, "", "differences", len(differ), "stentor mime show --json --text", argued, differ, messages=len(paths))

    def record(self, bench, entry, unit, count, command, argued, differ, **detail):
        unknown = set(argued) - set(decoding.ARGUED) - {"same", ""}
        if unknown:
            raise BenchError(f"nothing is said about {', '.join(sorted(unknown))}")
        bench.results.record(
            self.name + entry, unit, [[count, 0]], command, Goal(most=0), peer_name="Python's email", argued=dict(argued),
            differ=differ[:20], **detail,
        )


def compare(parts, path):
    """What was compared, and why it differs: None, a name of `decoding.ARGUED`, or "" where nothing argues it."""
    message = decoding.parsed(path)
    for ours, (name, value) in zip(parts[0]["header"], message.raw_items()):
        yield f"{name}: {value}", decoding.why_field(ours["value"], value)
    numbers = [part["part"] for part in parts]
    leaves = [part for part in parts if not has_parts(part["part"], numbers)]
    theirs = list(decoding.leaves(message))
    if [leaf["type"] for leaf in leaves] != [leaf["type"] for leaf in theirs]:
        yield f"parts {[leaf['type'] for leaf in leaves]}", decoding.why_parts(message, path)
        return
    for ours, other in zip(leaves, theirs):
        yield f"names {ours['names']}", decoding.why_name((ours["names"] or [""])[0], other["name"])
        why = decoding.why_body(ours, other)
        yield f"body of {ours['part']}", decoding.why_parts(message, path) if why == "" else why


def has_parts(number, numbers):
    return any(other != number and (number == "-" or other.startswith(number + ".")) for other in numbers)
