"""Look-up tables: our answers beside those of Debian's `postmap -q` for the same files and keys, and how long a look-up takes."""

import json
import os
import random
import shutil
import subprocess

from measure import BenchError, CannotHere
from results import Goal

KEYS = 10_000
ENTRIES = 1_000_000
PATTERNS = 1_000
SECONDS = 5
SEED = 14
RUN_S_MAX = 1_800
MAIN_CF = """\
compatibility_level = 3.6
queue_directory = /var/spool/postfix
data_directory = {work}
lmdb_map_size = 268435456
"""


def postmap(bench):
    """The command with a configuration of its own. It needs the packages of each table type."""
    if not shutil.which("postmap"):
        raise CannotHere("postmap is missing: testing/install.sh installs postfix, postfix-cdb, postfix-lmdb and postfix-pcre")
    folder = os.path.join(bench.work, "postmap")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "main.cf"), "w") as file:
        file.write(MAIN_CF.format(work=folder))
    types = subprocess.run(["postconf", "-c", folder, "-m"], capture_output=True, text=True).stdout.split()
    missing = {"hash", "btree", "texthash", "cdb", "lmdb", "regexp", "pcre", "cidr"} - set(types)
    if missing:
        raise CannotHere(f"postfix does not have {', '.join(sorted(missing))}: testing/install.sh installs them")
    return ["postmap", "-c", folder]


def domain(chance):
    names = ["example", "Example", "mail", "sub", "MÜNCHEN", "straße", "xn--p1ai", "a-b", "0"]
    return ".".join(chance.choice(names) for _ in range(chance.randint(1, 3))) + chance.choice([".com", ".ORG", ".net", ".lab"])


def key(chance):
    """What tables hold: addresses, domains, networks, quoted keys."""
    user = f"user{chance.randint(0, KEYS)}"
    return chance.choice([
        lambda: f"{user}@{domain(chance)}",
        lambda: f"User{chance.randint(0, KEYS)}+ext@{domain(chance)}",
        lambda: f"@{domain(chance)}",
        lambda: f".{domain(chance)}",
        lambda: f"{chance.randint(0, 255)}.{chance.randint(0, 255)}.{chance.randint(0, 255)}",
        lambda: f'"{user} {chance.randint(0, 9)}"@{domain(chance)}',
        lambda: f"{user}\\ x{chance.randint(0, 9)}",
        lambda: f"ſ{user}ΣΑΣ{chance.choice(['', 'İ', 'ı', 'ŉ', 'ﬁ', 'Ω'])}@{domain(chance)}",
    ])()


def value(chance, number):
    return chance.choice([
        f"OK {number}",
        f'550 5.7.1 "You" wrote to sales@; you meant support@example.com! (#{number})',
        f"smtp:[192.0.2.{number % 256}]:25",
        f"first{number},\n    second\n# not this\n\n\tthird",
        f"Grüße {number}\t\t x ",
    ])


def text_table(chance):
    """A table with everything that postmap reads or skips, and keys to look up."""
    lines, keys = [], []
    for number in range(KEYS // 2):
        one = key(chance)
        keys += [one, chance.choice([one.upper(), one.lower(), one.swapcase(), one[1:], one.split("@")[0]])]
        lines.append(f"{one}{chance.choice([' ', chr(9), '   ', chr(9) * 2])}{value(chance, number)}")
        lines.append(chance.choice(["", "# comment", "   ", "  # comment", f"nothing{number}", f'"open{number} x', ""]))
    return "\n".join(lines) + "\n", keys


def pattern_table(chance, is_pcre):
    """Rules as administrators write them, with blocks, and keys of which about half match."""
    lines, keys = [], []
    classes = [r"[0-9]+", r"[[:digit:]]{1,4}", r"[^@]*", r"[a-z.]+", r"[]a-z0-9.[-]+"] + ([r"\d+", r"\w+?", r"[\w.-]+"] if is_pcre else [])
    for number in range(KEYS // 10):
        part = chance.choice(classes)
        flags = chance.choice(["", "", "", "i", "m"] + (["s", "x", "U", "A"] if is_pcre else []))
        lines.append(chance.choice([
            f"/^user{number}({part})@(.*)\\.example\\.com$/{flags} {number} $1 at ${{2}}",
            f"/^Subject: .*offer{number}\\.({part})/{flags} REJECT $(1)$$",
            f"|^host{number}(\\.|-)({part})\\.|{flags} $2$1",
            f"!/user|host|offer/ neither {number}",
            f"/^(to|cc|from): <?(user|other){number}{part}@/{flags} $1 of $2",
            f"/(^|\\.)dyn{number}\\.({part})?$/{flags} DUNNO",
        ]))
        if chance.random() < 0.05:
            lines += [f"if /{chance.choice(['example', 'host', '@'])}/", f"/{number}x/ in block {number}", "endif"]
        if chance.random() < 0.02:
            lines += [f"# comment {number}", f"/unclosed{number} x", "/a/q flag", "/(/ no", f"/{number}y/\n  continued $0"]
    for _ in range(KEYS):
        number = chance.randint(0, KEYS // 10)
        keys.append(chance.choice([
            f"user{number}{chance.randint(0, 99)}@{domain(chance)}",
            f"USER{number}{chance.choice(['7', 'abc', '.x'])}@mx.example.com",
            f"Subject: an offer{number}.{chance.choice(['12', 'xyz', ']['])}",
            f"host{number}-{chance.choice(['99', 'abc', 'a.b'])}.example",
            f"From: <other{number}12@x", f"a.dyn{number}.", f"dyn{number}.77", f"{number}x@host", f"nobody{number}", f"{number}y",
        ]))
    return "\n".join(lines) + "\n", keys


def address(chance):
    if chance.random() < 0.25:
        return f"2001:db8:{chance.randint(0, 3):x}::{chance.randint(0, 65535):x}"
    return f"10.{chance.randint(0, 15)}.{chance.randint(0, 255)}.{chance.randint(0, 255)}"


def network(chance):
    one = address(chance)
    if ":" in one:
        return chance.choice([one, f"2001:db8:{chance.randint(0, 3):x}::/48", f"[{one}]", "2001:db8::/33"])
    first, second, third, _ = one.split(".")
    return chance.choice([one, f"{first}.{second}.{third}.0/24", f"[{first}.{second}.0.0]/16", f"{one}/24", f"{first}.{second}.{third}.128/25"])


def cidr_table(chance):
    lines = []
    for number in range(KEYS // 20):
        lines.append(f"{network(chance)} net {number}")
        if chance.random() < 0.02:
            lines += [f"if {chance.choice(['', '!'])}10.{chance.randint(0, 15)}.0.0/16", f"{network(chance)} in block {number}", "endif"]
        if chance.random() < 0.01:
            lines += [f"1.2.3/8 bad {number}", "# comment", f"{network(chance)}", "10.0.0.0/33 long"]
    lines += ["!10.0.0.0/9 not low"]
    return "\n".join(lines) + "\n", [address(chance) for _ in range(KEYS - 50)] + ["", "x", "10.1", "::1", "010.1.1.1"] * 10


class Tables:
    """postmap -q and `stentor table get` with the same keys, for each table type."""

    name = "policy.tables"
    entries = tuple(f".{kind}" for kind in ("hash", "btree", "texthash", "cdb", "lmdb", "regexp", "pcre", "cidr", "inline", "static"))
    smoke = {"KEYS": 400}

    def run(self, bench):
        command = postmap(bench)
        folder = os.path.join(bench.work, "tables")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        chance = random.Random(SEED)
        text, text_keys = text_table(chance)
        pairs = ", ".join(f"{{ key{number} = value {number} }}" for number in range(500))
        tables = {kind: (text, text_keys) for kind in ("hash", "btree", "texthash", "cdb", "lmdb")}
        tables["regexp"], tables["pcre"] = pattern_table(chance, False), pattern_table(chance, True)
        tables["cidr"] = cidr_table(chance)
        tables["inline"] = (None, [f"Key{chance.randint(0, 1000)}" for _ in range(KEYS)])
        tables["static"] = (None, [key(chance) for _ in range(KEYS)])
        names = {"inline": f"inline:{{{pairs}}}", "static": "static:{OK then}"}
        for kind, (content, keys) in tables.items():
            if content is not None:
                names[kind] = f"{kind}:{os.path.join(folder, kind)}"
                with open(os.path.join(folder, kind), "w") as file:
                    file.write(content)
                if kind in ("hash", "btree", "cdb", "lmdb"):
                    done = subprocess.run([*command, names[kind]], capture_output=True, text=True)
                    if done.returncode:
                        raise BenchError(f"postmap {kind}: {done.stderr[-300:]}")
            self.compare(bench, command, kind, names[kind], keys)

    def compare(self, bench, command, kind, name, keys):
        asked = "".join(f"{one}\n" for one in keys)
        theirs = subprocess.run([*command, "-q", "-", name], input=asked, capture_output=True, text=True)
        ours = subprocess.run([bench.binary, "table", "get", name, "-"], input=asked, capture_output=True, text=True)
        if ours.returncode not in (0, 1):
            raise BenchError(f"stentor table get {kind}: {ours.stderr[-800:]}")
        if theirs.returncode not in (0, 1) or (theirs.returncode and not ours.returncode):
            raise BenchError(f"postmap -q {kind}: {theirs.stderr[-800:]}")
        # In the order of the keys; one that is not found is in neither.
        different = diff(theirs.stdout, ours.stdout)
        for line in different[:10]:
            print(f"    {kind}: {line}", flush=True)
        bench.results.record(
            f"{self.name}.{kind}", "answers that differ", [[len(different), 0]], f"stentor table get {kind}:... -", Goal(most=0),
            peer_name="postmap -q", keys=len(keys), found=theirs.stdout.count("\n"),
        )


def diff(theirs, ours):
    """Lines that only one has."""
    a, b = theirs.splitlines(), ours.splitlines()
    if a == b:
        return []
    left, right = set(a), set(b)
    found = [f"postmap: {line}" for line in a if line not in right] + [f"stentor: {line}" for line in b if line not in left]
    return found or ["the same answers in another order or number"]


class Lookup:
    """A look-up in a million entries or a thousand patterns, alone and while the table is replaced."""

    name = "policy.lookup"
    entries = tuple(f".{kind}{what}" for kind in ("hash", "cdb", "lmdb", "cidr", "makemap", "regexp", "pcre") for what in ("", ".replaced"))
    smoke = {"ENTRIES": 2_000, "PATTERNS": 50, "SECONDS": 0.2}

    def run(self, bench):
        command = postmap(bench)
        folder = os.path.join(bench.work, "lookup")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for kind in ("hash", "cdb", "lmdb", "makemap", "cidr", "regexp", "pcre"):
            path = os.path.join(folder, kind)
            make = {"cidr": self.cidr, "regexp": self.patterns, "pcre": self.patterns}.get(kind, self.text)
            make(path)
            if kind in ("cdb", "lmdb"):
                subprocess.run([*command, f"{kind}:{path}"], check=True, capture_output=True, timeout=RUN_S_MAX)
            arguments = [f"{kind}:{path}", f"{path}.keys", str(SECONDS)]
            done = subprocess.run([bench.tool("stentor-lookup"), *arguments], capture_output=True, text=True, timeout=RUN_S_MAX)
            if done.returncode:
                raise BenchError(f"{kind}: {done.stderr[-500:]}")
            seen = json.loads(done.stdout)
            if seen["wrong"]:
                raise BenchError(f"{kind}: {seen['wrong']} of {seen['lookups']} look-ups are wrong")
            goal = 100 if kind in ("regexp", "pcre") else 5
            text = f"stentor-lookup {kind}:..."
            bench.results.record(
                f"{self.name}.{kind}", "us at p99", [[seen["p99_us"], goal]], text, Goal(most=goal), peer_name="the goal", **seen,
            )
            bench.results.record(
                f"{self.name}.{kind}.replaced", "wrong answers", [[seen["wrong_meanwhile"], 0]], text, Goal(most=0),
                peer_name="the goal", replaced=seen["replaced"], lookups=seen["lookups_meanwhile"],
            )
        shutil.rmtree(folder)

    def text(self, path):
        with open(path, "w") as table, open(f"{path}.keys", "w") as keys:
            for number in range(ENTRIES):
                table.write(f"user{number}@host{number % 977}.example.com\tvalue {number}\n")
                keys.write(f"User{number}@host{number % 977}.Example.com\tvalue {number}\nnobody{number}@example.com\n")

    def cidr(self, path):
        with open(path, "w") as table, open(f"{path}.keys", "w") as keys:
            for number in range(ENTRIES):
                net = f"{number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"
                table.write(f"{net}.{'0/25' if number % 2 else 17} net {number}\n")
                keys.write(f"{net}.17\tnet {number}\n{net}.200\n")

    def patterns(self, path):
        chance = random.Random(SEED)
        with open(path, "w") as table, open(f"{path}.keys", "w") as keys:
            for number in range(PATTERNS):
                kind = number % 4
                table.write((
                    f"/^user{number}-([0-9]+)@(.*)\\.example\\.com$/ route{number}:$2\n",
                    f"/^(.*)\\.dyn{number}\\.isp\\.net$/ REJECT dynamic $1\n",
                    f"/offer{number} .*(now|today)/ REJECT {number}\n",
                    f"/(^|\\.)host{number}[a-z]*\\.lab$/ OK {number}\n",
                )[kind])
                for _ in range(20):
                    one = chance.randint(0, 999)
                    keys.write((
                        f"user{number}-{one}@mx{one}.example.com\troute{number}:mx{one}\n",
                        f"10-0-{one}.dyn{number}.isp.net\tREJECT dynamic 10-0-{one}\n",
                        f"Subject: an offer{number} for {one}, today\tREJECT {number}\n",
                        f"a{one}.host{number}x.lab\tOK {number}\n",
                    )[kind])
                    keys.write(f"someone{one}@other{number}.example.org\n")
