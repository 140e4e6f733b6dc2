"""Rules on content: what 200 of them cost for a message of 100 KiB, and whether one each finds spam as it comes, and only that."""

import base64
import collections
import http.client
import json
import os
import quopri
import random
import re
import smtplib
import subprocess

from measure import BenchError, wait_until
from recorder import Recorder
from results import Goal
from sinks import free_port

RULES = 200
OCTETS = 100 * 1024
ROUNDS = 2_000
RUN_S_MAX = 600
MESSAGES = 100
SEED = 15


class Rules:
    """The search of one message for all tests of all rules, decoding included, as the server does it."""

    name = "filters.rules"
    entries = ("",)
    smoke = {"ROUNDS": 3}

    def run(self, bench):
        command = ["content", f"rules={RULES}", f"bytes={OCTETS}", f"rounds={ROUNDS}"]
        done = subprocess.run([bench.tool("stentor-sim"), *command], capture_output=True, text=True, timeout=RUN_S_MAX)
        if done.returncode:
            raise BenchError(f"stentor-sim: {done.stderr.strip()[-800:]}")
        seen = json.loads(done.stdout)
        shown = " ".join(["stentor-sim", *command])
        del seen["rounds"]
        bench.results.record(self.name, "us", [[seen.pop("us"), 1_000]], shown, Goal(most=1_000), peer_name="the goal", **seen)


# One rule for each kind of spam.
RULES_OF = {
    "part": r"""header = 'Content-Type: /charset="?gb2312(\W|$)/'""",
    "word": "raw_header = '*: =?gb2312?'",
    "gbk": 'charset = "gbk"',
    "gb18030": 'charset = "gb18030"',
    "koi8": 'charset = "koi8-r"',
    "utf8": 'script = "Han"\nnot = { charset = "gb*" }',
}
CONFIGURATION = "".join(
    f'[[rules]]\nname = "{kind}"\n{when}\ndo = ["prepend X-Rule: {kind}", "%s {kind}"]\n' for kind, when in RULES_OF.items()
)
# Recipients are told by digests, and press the buttons of their links.
DIGESTS = """
[domains]
relay = ["held.example"]
[quarantine]
digest_at = "00:00"
link_base = "https://links.example"
"""
CHINESE = "请查收附件中的发票，如需代开各种税票请与我们联系，价格优惠，长期有效。"
RUSSIAN = "Здравствуйте! Предлагаем бухгалтерские услуги и семинары для руководителей предприятий."
ORDINARY = [
    ("utf-8", "Grüße aus Zürich, die Rechnung liegt bei"), ("iso-8859-1", "Révision du contrat à signer"),
    ("windows-1251", RUSSIAN), ("utf-8", RUSSIAN), ("koi8-u", "Доброго дня, зустріч о третій"), ("euc-kr", "안녕하세요 회의 자료입니다"),
    ("iso-2022-jp", "こんにちは、ありがとうございます"), ("utf-8", "Plain words about gb2312, GBK and koi8-r"), ("us-ascii", "Lunch tomorrow?"),
]


def word(text, charset, dice):
    octets = text.encode(charset)
    if dice.random() < 0.7:
        return f"=?{dice.choice([charset, charset.upper()])}?B?{base64.b64encode(octets).decode()}?="
    return f"=?{charset}?Q?{quopri.encodestring(octets, header=True, quotetabs=True).decode().replace('=' + chr(10), '')}?="


def message(kind, dice):
    """One of a kind of spam, or one that is none."""
    begin, length = dice.randrange(20), dice.randrange(6, 14)
    text = (RUSSIAN if kind == "koi8" else CHINESE)[begin : begin + length]
    charset = {"part": "gb2312", "word": "gb2312", "koi8": "koi8-r", "utf8": "utf-8"}.get(kind, kind)
    subject, content_type, body = "A message", "text/plain; charset=us-ascii", b"see charset=gb2312 and =?GBK?\r\n"
    in_word, in_part = kind != "part" and dice.random() < 0.6, kind not in ("word", "gbk") and dice.random() < 0.6
    if kind is None:
        charset, text = dice.choice(ORDINARY)
        in_word = in_part = charset != "us-ascii"
    if kind == "part" or not in_word and kind not in ("word", "gbk", None):
        in_part = True
    if kind in ("word", "gbk"):
        in_word = True
    if in_word:
        subject = word(text, charset, dice)
    if in_part:
        quoted = dice.choice(['"{}"', "{}"]).format(dice.choice([charset, charset.upper()]))
        content_type, body = f"text/plain; charset={quoted}", base64.encodebytes(text.encode(charset)).replace(b"\n", b"\r\n")
    elif kind is not None:
        content_type, body = "text/plain; charset=us-ascii", b"nothing here\r\n"
    encoding = "base64" if in_part else "7bit"
    header = f"From: Someone <a@source.example>\r\nSubject: {subject}\r\nMIME-Version: 1.0\r\nContent-Type: {content_type}\r\n"
    return header.encode() + f"Content-Transfer-Encoding: {encoding}\r\n\r\n".encode() + body


class Charsets:
    """Spam by charset and script: messages that a rule misses, or holds and should not; all are released and come. Then the same in the
    quarantine, where their recipients release them by the links of their digests."""

    name = "filters.charsets"
    entries = ("", ".quarantine")
    smoke = {"MESSAGES": 4}

    def run(self, bench):
        dice = random.Random(SEED)
        kinds = [kind for kind in [*RULES_OF, *[None] * len(RULES_OF)] for _ in range(MESSAGES)]
        dice.shuffle(kinds)
        wires = [message(kind, dice) for kind in kinds]
        self.held(bench, kinds, wires)
        self.kept(bench, kinds, wires)

    def held(self, bench, kinds, wires):
        sink = Recorder()
        server = bench.stentor(sink, name="charsets", more=CONFIGURATION % (("hold",) * len(RULES_OF)))
        with bench.running(sink, server):
            hand_in(server, kinds, wires)
            seen = []

            def have(count):
                seen.extend(sink.take())
                return len(seen) >= count

            wait_until(lambda: have(kinds.count(None)), 120, "ordinary mail comes")
            early = [name_of(copy) for copy in seen if not name_of(copy).startswith("None-")]
            server.operate("release", "--all")
            wait_until(lambda: have(len(kinds)), 120, "what was held comes once it is released")
        self.judge(bench, self.name, kinds, seen, early)

    def kept(self, bench, kinds, wires):
        sink, port = Recorder(), free_port()
        more = CONFIGURATION % (("quarantine",) * len(RULES_OF)) + DIGESTS
        server = bench.stentor(sink, name="charsets-kept", more=more, http=port)
        with bench.running(sink, server):
            hand_in(server, kinds, wires)
            seen, digests = [], []

            def have(count, told=0):
                for copy in sink.take():
                    (seen if copy[0] else digests).append(copy)
                return len(seen) >= count and len(digests) >= told

            ordinary = kinds.count(None)
            wait_until(lambda: have(ordinary), 120, "ordinary mail comes")
            early = [name_of(copy) for copy in seen if not name_of(copy).startswith("None-")]
            make_due(server)
            wait_until(lambda: have(ordinary, len(kinds) - ordinary), 120, "each recipient has a digest")
            links = [(name_of(copy), link) for copy in digests for link in re.findall(r"Release: <https://links\.example(/kept/[^>]+)>", copy[2].decode())]
            looked = [visit(port, "GET", link) for _, link in links]
            have(0)
            early += [name_of(copy) for copy in seen[ordinary:]]
            pressed = [visit(port, "POST", link) for _, link in links]
            again = [visit(port, "POST", link) for _, link in links]
            wait_until(lambda: have(len(kinds)), 120, "what was kept comes once its recipient has released it")
            left = server.status()["recipients"]
        wrong = [f"{name} has no digest of its own" for name, count in collections.Counter(name for name, _ in links).items() if count != 1]
        for said, answers in (("Release</button>", looked), ("is released", pressed), ("already", again)):
            wrong += [f"{name}: not {said!r}" for (name, _), answer in zip(links, answers) if said not in answer]
        wrong += [f"{left['quarantined']} left in the quarantine"] * bool(left["quarantined"])
        self.judge(bench, self.name + ".quarantine", kinds, seen, early, wrong)

    def judge(self, bench, name, kinds, seen, early, more=()):
        wrong = [f"{name} came before it was released" for name in early]
        counts = collections.Counter()
        for copy in seen:
            kind = name_of(copy).partition("-")[0]
            header = copy[2].partition(b"\r\n\r\n")[0].decode("latin-1")
            found = [line.partition(": ")[2] for line in header.split("\r\n") if line.startswith("X-Rule: ")]
            counts[kind] += 1
            if found != ([] if kind == "None" else [kind]):
                wrong.append(f"{name_of(copy)}: {found}")
        missing = len(kinds) - len({name_of(copy) for copy in seen})
        wrong += [f"{missing} did not come"] * bool(missing)
        wrong += [f"{len(seen) - len(kinds)} came twice"] * (len(seen) > len(kinds))
        wrong += more
        bench.results.record(
            name, "wrong", [[len(wrong), 0]], f"{len(kinds)} messages, {len(RULES_OF)} rules", Goal(most=0), peer_name="the goal",
            messages=dict(counts), named=wrong[:10],
        )


def hand_in(server, kinds, wires):
    with smtplib.SMTP("127.0.0.1", server.port, timeout=60) as smtp:
        for number, (kind, wire) in enumerate(zip(kinds, wires)):
            smtp.sendmail("a@source.example", [f"{kind}-{number}@held.example"], wire)


def make_due(server):
    """As if the last digests had been sent long ago: what is kept is due at the start."""
    server.crash()
    path = os.path.join(server.folder, "data", "quarantine.digests")
    with open(path) as file:
        state = json.load(file)
    with open(path, "w") as file:
        json.dump({**state, "last": 0}, file)
    server.restart()


def visit(port, method, link):
    """What the page says behind a link, as a proxy hands it on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, link, headers={"Host": "links.example"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def name_of(copy):
    return copy[1].partition("@")[0]
