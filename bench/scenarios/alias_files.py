"""Whole alias files, as people write them: programs and files in every way of quoting, included files, aliases of aliases, owners. What
`sendmail -bv` and `stentor explain` say they expand to, in one form."""

import json
import re

DOMAIN = "mta.lab"
# Of every Debian; sendmail looks them up.
USERS = ["games", "man", "bin", "root"]
INCLUDED = 12
# What an alias may lead through stays below sendmail's MaxAliasRecursion.
LAYERS = 5
# Cases that chance might leave out: the name, and its line's value.
FIXED = [
    ("w-postmaster", "w-root"),
    ("w-root", "admin@final.lab"),
    ("w-quoted", "\"|/usr/bin/prog arg1 'q x'\", |\"/usr/bin/second -a\", p@final.lab"),
    ("w-bare", "|/usr/bin/bare"),
    ("w-escaped", '"|/usr/bin/prog \\"a b\\" c"'),
    ("w-shell", '"|/usr/bin/prog a!b $HOME ; true"'),
    ("w-comma", '"|/usr/bin/prog a,b"'),
    ("w-space", '"| /usr/bin/prog  a   b"'),
    ("w-file", '/var/mail/archive, "/var/mail/a b", /var/mail/dir/'),
    ("w-null", "/dev/null"),
    ("w-null-too", "/dev/null, z@final.lab"),
    ("w-self", "w-self-of@final.lab, \\games, games"),
    ("games", "games, also@final.lab"),
    ("w-host", f"Games@{DOMAIN}, man"),
    ("w-people", 'joe@final.lab (at work), Ann <ann@final.lab>, "Bob, B" <bob@final.lab>'),
    ("w-empty", "a@final.lab, , b@final.lab,"),
    ("w-up", "JOE@Final.LAB"),
    ("w-twice", "w-quoted, w-quoted, w-bare, \"|/usr/bin/bare\""),
    ("w-ring", "w-gnir"),
    ("w-gnir", "w-ring"),
    ("owner-w-quoted", "boss@final.lab"),
    ("owner-w-bare", '"|/usr/bin/bounced -x"'),
]


def written(chance, count, folder):
    """Lines of an alias file, the included files by their paths, and the names to ask for."""
    files = [f"{folder}/included-{number}" for number in range(INCLUDED)]
    included = {path: lines(chance, files[number + 1:]) for number, path in enumerate(files)}
    entries, layers = list(FIXED), [[] for _ in range(LAYERS)]
    for number in range(count):
        layer = chance.randrange(LAYERS)
        name = f"{chance.choice(['w', 'W-list', 'w.x'])}{number}"
        below = [name for names in layers[:layer] for name in names]
        values = [target(chance, below, files) for _ in range(chance.randint(1, 4))]
        entries.append((name, chance.choice([", ", ",", ",\n  "]).join(values)))
        layers[layer].append(name)
        if chance.random() < 0.2:
            entries.append((f"owner-{name}", target(chance, [], [])))
    chance.shuffle(entries)
    text = [f"{name}{chance.choice([':', ' : ', ':' + chr(9)])} {value}" for name, value in entries]
    names = [chance.choice([name, name.upper(), f"{name}+detail"]) for name, _ in entries if name != "games"]
    return ["# whole", *text], included, names


def target(chance, names, files):
    """One target, in one of the ways to write it."""
    number = chance.randint(0, 99)
    return chance.choice([
        lambda: f"u{number}@final.lab",
        lambda: f"User {number} <u{number}@Final.Lab>",
        lambda: chance.choice(USERS),
        lambda: "\\" + chance.choice(USERS),
        lambda: f'"|/usr/bin/prog{number} -a \'b c\' d,e"',
        lambda: f'|"/usr/bin/prog{number} -a"',
        lambda: f"|/usr/bin/prog{number}",
        lambda: f"/var/mail/file{number}",
        lambda: chance.choice(names) if names else f"n{number}@final.lab",
        lambda: chance.choice(names).upper() if names else f"m{number}@final.lab",
        lambda: chance.choice([":include:{}", '":include:{}"']).format(chance.choice(files)) if files else "/dev/null",
    ])()


def lines(chance, files):
    """An included file's; it includes only those that come later."""
    some = [target(chance, [], files) for _ in range(chance.randint(0, 4))]
    return "".join(f"{line}\n" for line in ["# people", "", *some, f"x{chance.randint(0, 9)}@final.lab, y@final.lab"])


def configuration(folder):
    return (
        f'hostname = "{DOMAIN}"\n[domains]\nrelay = ["{DOMAIN}"]\n[routes]\n"{DOMAIN}" = "local:"\n'
        f'[tables.whole]\nsource = "aliases:{folder}/whole"\nas = "aliases"\n'
        f'[addresses]\naliases = "whole"\nalias_domains = ["{DOMAIN}"]\norigin = "{DOMAIN}"\n'
    )


def plain(text):
    """A program or file without its quotes."""
    bar, text = ("|", text[1:]) if text.startswith("|") else ("", text)
    if text.startswith('"'):
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    text = bar + text
    return "|" + text[1:].strip() if text.startswith("|") else text


def person(text):
    """An address; a user of this system without the domain."""
    local, _, domain = text.rpartition("@")
    if domain.lower() == DOMAIN or not local:
        return (local or domain).lstrip("\\").lower()
    return f"{local}@{domain.lower()}"


def by_sendmail(said):
    """What -bv says of one name: the set of those who get mail, or None if it expands to nothing."""
    found = set()
    for line in said.splitlines():
        told = re.match(r"(.*)\.\.\. deliverable: mailer (\S+), (?:host \S+, )?user (.*)$", line)
        if told:
            text, mailer, user = told.groups()
            found.add(plain(text) if mailer in ("prog", "*file*") else person(user))
        elif "loop broken" in line:
            return None
        elif line.strip():
            return {line}
    return found or None


def by_us(said):
    """The same of `stentor explain --json`."""
    decision = json.loads(said)["decision"]
    if decision.startswith("deferred: 451 4.3.5"):
        return None
    kind, _, rest = decision.partition(": ")
    if kind != "alias":
        return {decision}
    found = set()
    for item in rest.split(", "):
        item = re.sub(r" \(from \S+\)$", "", item)
        text, tag, _ = item.partition(" as ")
        found.add(plain(text) if tag or text.startswith("/") else person(text))
    return found
