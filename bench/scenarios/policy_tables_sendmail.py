"""sendmail's tables: our answers beside those of Debian's sendmail, whose rules come from its own cf/m4, in test mode (`-bt`) and
with `-bv`. It is unpacked, not installed (testing/server/foreign/fetch.sh)."""

import os
import random
import re
import shutil
import socket
import subprocess

from measure import BenchError, CannotHere
from results import Goal
from scenarios import alias_files

KEYS = 10_000
ALIASES_A_CALL = 200
# Expanded one by one, each with a call of its own: this part of KEYS.
EXPANDED = 10
SEED = 8_17
ROOT = os.environ.get("STENTOR_FOREIGN_ROOT", "/var/cache/stentor-tests/foreign")
CF = os.path.join(ROOT, "usr/share/sendmail/cf")
LIBRARIES = ":".join(os.path.join(ROOT, place) for place in (
    "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu",
))
TABLES = ("access", "mailertable", "virtusertable", "genericstable")
MC = """\
divert(0)dnl
OSTYPE(`linux')dnl
define(`confDOMAIN_NAME', `mta.lab')dnl
define(`confDONT_PROBE_INTERFACES', `True')dnl
define(`confSERVICE_SWITCH_FILE', `FOLDER/switch')dnl
define(`confDONT_BLAME_SENDMAIL', `GroupWritableDirPathSafe,MapInUnsafeDirPath,IncludeFileInUnsafeDirPath,IncludeFileInUnsafeDirPathSafe')dnl
define(`ALIAS_FILE', `FOLDER/aliases,FOLDER/whole')dnl
define(`QUEUE_DIR', `FOLDER/queue')dnl
FEATURE(`nocanonify')dnl
FEATURE(`accept_unresolvable_domains')dnl
FEATURE(`access_db', `hash FOLDER/access')dnl
FEATURE(`blocklist_recipients')dnl
FEATURE(`mailertable', `hash FOLDER/mailertable')dnl
FEATURE(`virtusertable', `hash FOLDER/virtusertable')dnl
FEATURE(`genericstable', `hash FOLDER/genericstable')dnl
FEATURE(`generics_entire_domain')dnl
FEATURE(`virtuser_entire_domain')dnl
GENERICS_DOMAIN(`g.lab')dnl
VIRTUSER_DOMAIN(`v.lab')dnl
MAILER(`local')dnl
MAILER(`smtp')dnl
LOCAL_RULESETS
STestFrom
R$* @ $*	$@ $>SearchList <+ From> $| <F:$1@$2> <U:$1@> <D:$2> <>
STestTo
R$* @ $*	$@ $>SearchList <+ To> $| <F:$1@$2> <D:$2> <>
STestName
R$*	$@ $>D <$1> <?> <+ Connect> <>
STestAddress
R$*	$@ $>A <$1> <?> <+ Connect> <>
"""


def environment():
    return {**os.environ, "LD_LIBRARY_PATH": LIBRARIES}


class SendmailTables:
    """access, mailertable, virtusertable, genericstable beside `sendmail -bt`, aliases beside `sendmail -bv`; one by one, and a whole
    file expanded."""

    name = "policy.tables.sendmail"
    entries = (".access", ".mailertable", ".virtusertable", ".genericstable", ".aliases", ".expansion")
    smoke = {"KEYS": 200}

    def run(self, bench):
        self.sendmail = os.path.join(ROOT, "usr/libexec/sendmail/sendmail")
        if not (os.path.exists(self.sendmail) and os.path.exists(os.path.join(CF, "m4/cf.m4"))):
            raise CannotHere("sendmail and its cf are missing: testing/install.sh unpacks them")
        folder = os.path.join(bench.work, "sendmail-tables")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "queue"), mode=0o700)
        chance = random.Random(SEED)
        asked = {
            "access": access(chance), "mailertable": mailertable(chance), "virtusertable": addresses(chance, "v.lab"),
            "genericstable": addresses(chance, "g.lab"), "aliases": aliases(chance),
        }
        for name, (lines, _) in asked.items():
            write(folder, name, "".join(f"{line}\n" for line in lines))
        whole, included, names = alias_files.written(chance, KEYS // EXPANDED, folder)
        write(folder, "whole", "".join(f"{line}\n" for line in whole))
        for path, text in included.items():
            write(folder, os.path.basename(path), text)
        self.hosts = write(folder, "hosts", f"127.0.0.1 mta.lab {socket.gethostname()} localhost\n")
        self.configure(folder)
        for name in TABLES:
            _, keys = asked[name]
            self.compare(bench, folder, name, keys, self.in_test_mode(folder, name, keys))
        lines, keys = asked["aliases"]
        self.compare(bench, folder, "aliases", keys, self.verified(folder, lines, keys))
        self.compare_expansions(bench, folder, names)

    def compare_expansions(self, bench, folder, names):
        """Whom each name of an alias file stands for, to the last included program."""
        config = write(folder, "whole.toml", alias_files.configuration(folder))
        script = f'while read -r name; do echo "== $name"; "$0" -C{folder}/test.cf -bv "$name" || true; done'
        out = self.checked(["sh", "-c", script, self.sendmail], input="".join(f"{name}\n" for name in names))
        theirs = dict(part.split("\n", 1) for part in out.split("== ")[1:])
        different, programs = [], 0
        for name in names:
            command = [bench.binary, "explain", "--config", config, "--json", "--from", "a@final.lab", "--to", f"{name}@{alias_files.DOMAIN}"]
            done = subprocess.run(command, capture_output=True, text=True)
            them, us = alias_files.by_sendmail(theirs[name]), alias_files.by_us(done.stdout)
            programs += sum(1 for to in them or () if to.startswith(("|", "/")))
            if them != us:
                different.append(name)
                print(f"    {name}: sendmail {them!r}, stentor {us!r}", flush=True) if len(different) <= 10 else None
        bench.results.record(
            f"{self.name}.expansion", "expansions that differ", [[len(different), 0]], "stentor explain --json --to NAME",
            Goal(most=0), peer_name="sendmail", keys=len(names), programs=programs,
        )

    def configure(self, folder):
        write(folder, "switch", "hosts files\naliases files\npasswd files\n")
        write(folder, "test.mc", MC.replace("FOLDER", folder))
        m4 = [os.path.join(ROOT, "usr/bin/m4"), f"-D_CF_DIR_={CF}/", f"-I{CF}", f"{CF}/m4/cf.m4", os.path.join(folder, "test.mc")]
        write(folder, "test.cf", self.checked(m4))
        for name in TABLES:
            makemap = [os.path.join(ROOT, "usr/libexec/sendmail/makemap"), "-C", f"{folder}/test.cf", "hash", os.path.join(folder, name)]
            with open(os.path.join(folder, name)) as text:
                self.checked(makemap, stdin=text, codes=(0, 65))
        self.checked([self.sendmail, f"-C{folder}/test.cf", "-bi"])

    def checked(self, command, codes=(0,), **options):
        # With a hosts file of its own: sendmail waits a minute for its host's full name.
        command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self.hosts, *command]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), **options)
        if done.returncode not in codes:
            raise BenchError(f"{command[6]}: {done.stderr[-400:]}{done.stdout[-400:]}")
        return done.stdout

    def in_test_mode(self, folder, name, keys):
        """What each key comes to, in sendmail's own rules; None if nothing is found."""
        lines = ["/tryflags HS"] + [TEST[name][0](key) for key in keys]
        out = self.checked([self.sendmail, f"-C{folder}/test.cf", "-bt"], input="".join(f"{line}\n" for line in lines))
        # What follows each prompt; the last one waits for the end. A rule that calls others says its own result last.
        answers = re.split(r"^(?:> )+", out, flags=re.M)[1:-1]
        found = [re.findall(TEST[name][1], answer, re.M) for answer in answers]
        if len(found) != len(keys) or not all(found):
            raise BenchError(f"sendmail -bt answers {len(found)} of {len(keys)} keys of {name}: {out[-500:]}")
        return [TEST[name][2](results[-1]) for results in found]

    def verified(self, folder, lines, keys):
        """What -bv makes of each name. It says whom a name stands for, not the name: each value is of one line."""
        name_of = dict(reversed(re.match(r"([^: ]+) *:\s*(\S+)$", line).groups()) for line in lines if ":" in line)
        found = {}
        for begin in range(0, len(keys), ALIASES_A_CALL):
            some = keys[begin:begin + ALIASES_A_CALL]
            out = self.checked([self.sendmail, f"-C{folder}/test.cf", "-bv", *some], codes=(0, 67))
            for line in out.splitlines():
                name, _, rest = line.partition("...")
                if "deliverable: mailer esmtp" in rest:
                    found[name_of[name].lower()] = name
                elif "User unknown" in rest:
                    found[name.lower()] = None
        missing = [key for key in keys if key.lower() not in found]
        if missing:
            raise BenchError(f"sendmail -bv says nothing of {len(missing)} names: {missing[:5]}")
        return [found[key.lower()] for key in keys]

    def compare(self, bench, folder, name, keys, theirs):
        kind = "access-db" if name == "access" else name
        table = f"{'aliases' if name == 'aliases' else 'makemap'}:{os.path.join(folder, name)}"
        command = [bench.binary, "table", "get", table, "-", "--as", kind]
        done = subprocess.run(command, input="".join(f"{key}\n" for key in keys), capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise BenchError(f"{name}: {done.stderr[-500:]}")
        ours = dict(line.split("\t", 1) for line in done.stdout.splitlines())
        different = [(key, them, ours.get(key)) for key, them in zip(keys, theirs) if them != ours.get(key)]
        for one in different[:10]:
            print(f"    {name}: {one[0]}: sendmail {one[1]!r}, stentor {one[2]!r}", flush=True)
        bench.results.record(
            f"{self.name}.{name}", "answers that differ", [[len(different), 0]], f"stentor table get {table.split(':')[0]}:... - --as {kind}",
            Goal(most=0), peer_name="sendmail", keys=len(keys), found=sum(1 for them in theirs if them is not None),
        )


def access_line(key):
    tag, _, subject = key.partition(":")
    if tag == "Connect":
        return ("TestAddress " if re.fullmatch(r"[\d.]+|.*:.*", subject) else "TestName ") + subject
    return f"Test{tag} {subject}"


def triple(text):
    """`$# esmtp $@ [ a . b ] $: user < @ host . >` as the table has it; the mailer of our catch-all tells that nothing was found."""
    mailer, host = re.match(r"\$#(\w+)\$@(.*?)\$:", text.replace(" ", "")).groups()
    return f"{mailer}:{host}" if host.startswith("[") else None


def virtual(text):
    user, host = re.search(r"\$:(.*)<@(.*?)\.?>$", text.replace(" ", "")).groups()
    return f"{user}@{host}" if host.endswith("final.lab") else None


def generic(text):
    return text if text.endswith("final.lab") else None


# The line for a key, what shows its result, and that result as we have it.
TEST = {
    "access": (access_line, r"^Test\w+ +returns: < (.*?) >", lambda text: None if text == "?" else text.replace(" ", "")),
    "mailertable": (lambda key: f"3,0 user@{key}", r"^parse +returns: (.*)$", triple),
    "virtusertable": (lambda key: f"3,0 {key}", r"^parse +returns: (.*)$", virtual),
    "genericstable": (lambda key: f"/try esmtp {key}", r"^Rcode = 0, addr = (.*)$", generic),
}


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def some_domain(chance, most=3):
    return ".".join(chance.choice(["a", "b", "Mx", "c1", "d-e"]) for _ in range(chance.randint(1, most))) + chance.choice([".Org", ".lab", ".net"])


def some_user(chance):
    user = f"{chance.choice(['ann', 'Bob', 'c.d', 'e_f'])}{chance.randint(0, 60)}"
    return chance.choice([user, f"{user}+{chance.choice(['x', 'Y1', 'q'])}", f"{user}+x"])


def mixed(chance, text):
    return chance.choice([text, text.upper(), text.lower()])


def access(chance):
    def subject():
        return chance.choice([
            lambda: f"{some_user(chance)}@{some_domain(chance)}", lambda: f"{some_user(chance)}@", lambda: some_domain(chance),
            lambda: f"{chance.choice(['ann', 'Bob'])}{chance.randint(0, 60)}+*@{chance.choice([some_domain(chance), ''])}",
            lambda: ".".join(str(chance.randint(1, 9)) for _ in range(chance.randint(1, 4))),
            lambda: f"{chance.choice(['', 'IPv6:'])}2001:db8:{chance.randint(1, 9)}{chance.choice(['', ':0', ':0:0:0:0:' + str(chance.randint(1, 3))])}",
        ])()

    lines = ["# comment", "", " leading:space OK", "novalue"]
    for number in range(KEYS // 4):
        lines.append(f"{mixed(chance, chance.choice(['Connect:', 'From:', 'To:', '']))}{subject()}{chance.choice([' ', chr(9)])}V{number}")
    def host():
        return mixed(chance, some_domain(chance, 4) + chance.choice(["", "", ".none"]))

    keys = []
    for _ in range(KEYS):
        keys.append(chance.choice([
            lambda: f"{chance.choice(['From', 'To'])}:{some_user(chance)}@{host()}",
            lambda: f"Connect:{host()}",
            lambda: f"Connect:{chance.randint(1, 14)}.{'.'.join(str(chance.randint(1, 9)) for _ in range(3))}",
            lambda: f"Connect:2001:db{chance.randint(7, 8)}:{chance.randint(1, 9)}:{chance.randint(1, 9)}::{chance.randint(1, 9)}",
            lambda: f"Connect:IPv6:2001:db8:{chance.randint(1, 9)}:0:0:0:0:{chance.randint(1, 9)}",
        ])())
    return lines, keys


def mailertable(chance):
    lines = []
    for number in range(KEYS // 40):
        lines.append(f"{chance.choice(['', '.'])}{some_domain(chance)}\tesmtp:[v{number}-%1.lab]")
    return lines, [mixed(chance, some_domain(chance, 5)) for _ in range(KEYS)]


def addresses(chance, domain):
    """Of virtusertable and genericstable; values with their arguments."""
    hosts = [domain, f"a.{domain}", f"B.{domain}", f"c.{domain}"]
    lines = []
    for number in range(KEYS // 10):
        user = chance.choice([
            some_user(chance), some_user(chance).split("+")[0], f"{some_user(chance).split('+')[0]}+*",
            f"{some_user(chance).split('+')[0]}++" if domain == "v.lab" else "x",
        ])
        lines.append(f"{user}@{chance.choice(hosts)}\tn{number}_%1_%2_%3_@final.lab")
    lines += [f"@a.{domain}\tall_%1_@final.lab", f"+*@b.{domain}\tdetail_%1_%2_%3_@final.lab"]
    return lines, [f"{some_user(chance)}{chance.choice(['', '', '', '9'])}@{mixed(chance, chance.choice(hosts))}" for _ in range(KEYS)]


def aliases(chance):
    lines = ["# comment", "postmaster: post@final.lab"]
    for number in range(KEYS // 2):
        name = f"{chance.choice(['list', 'Owner-l', 'x.y', 'a_b'])}{number}"
        lines.append(f"{name}{chance.choice([':', ' :', ':	'])} {chance.choice(['', chr(10) + '    '])}n{number}@final.lab")
    keys = [mixed(chance, f"{chance.choice(['list', 'owner-l', 'x.y', 'a_b'])}{chance.randint(0, KEYS // 2)}") for _ in range(KEYS - 1)]
    # One line each: the same name twice would be one recipient.
    return lines, list({key.lower(): key for key in ["Postmaster", *keys]}.values())
