"""Authentication of incoming mail by a running server: the cases of others, and senders and name servers that do their worst."""

import concurrent.futures
import os
import re
import time

from field.hosts import Host
from field.names import NameServer
from field.server import Server, wait_for
from inbound_cases import Key, SuiteNames, dmarc_cases, key_name, message_cases, spf_groups
from lying_names import LIES, VICTIM, VICTIM_RECORD, LyingNames
from measure import BenchError
from results import Goal

# Groups of the suite, DMARC cases; None: all.
GROUPS = None
CASES = None
# Messages sent at the same time, of each hostile kind.
MESSAGES = 10
LARGE_MIB = 50
SIGNATURES = 500
LARGE_SIGNATURES = 20
# The server's `timeout_s`, and what a message may take: seconds from its end to the reply, queries (16 questions for these messages;
# the longest way to an answer follows 8 aliases, each by UDP and TCP), CPU, and memory beyond that of the idle server. Large messages
# have bounds of their own.
TIMEOUT_S = 3
SECONDS_MAX = TIMEOUT_S + 1
QUERIES_MAX = 16 * 16
CPU_MS_MAX = 50
LARGE_CPU_MS_MAX = 40 * LARGE_MIB
MEMORY_MIB_MAX = 4
LARGE_MEMORY_MIB_MAX = 16
ARRIVAL_S_MAX = 60
DOMAIN = "one.example"
SMALL_KINDS = ["signatures", "unknown_keys", *LIES]
LARGE_KINDS = ["large_lines", "large_blanks", "large_empty_lines"]
LINE = b"x" * 76 + b"\r\n"


class Inbound:
    """The suite of RFC 7208 and mail-auth's cases through XCLIENT; then, of each hostile kind, messages at the same time from untrusted
    clients whose domain asks to reject: a DNS failure must never refuse a message. Two forged messages of each run must be refused."""

    name = "identity.inbound"
    entries = (".suite", ".cases", ".refused", ".seconds", ".queries", ".cpu", ".memory", ".large_cpu", ".large_memory")
    smoke = {
        "GROUPS": 3, "CASES": 4, "MESSAGES": 2, "LARGE_MIB": 2, "TIMEOUT_S": 1,
        "SMALL_KINDS": ["signatures", "silent", "wrong_question", "other_names"], "LARGE_KINDS": LARGE_KINDS[:1],
    }

    def run(self, bench):
        self.bench, self.key = bench, Key(bench.work)
        wrong, right, unsent = self.cases(list(spf_groups())[:GROUPS], SuiteNames)
        self.record(".suite", "wrong results", len(wrong), Goal(most=0), right=right, wrong=wrong, not_accepted_as_address=unsent)
        groups = [[case] for case in (*message_cases(), *list(dmarc_cases(self.key))[:CASES])]
        wrong, right, unsent = self.cases(groups, NameServer)
        self.record(".cases", "wrong results", len(wrong) + len(unsent), Goal(most=0), right=right, wrong=wrong, unsent=unsent)
        self.hostile()

    def record(self, entry, unit, value, goal, **detail):
        command = f"{MESSAGES} messages at the same time, {TIMEOUT_S} s for the DNS"
        self.bench.results.record(self.name + entry, unit, [[value, goal.most]], command, goal, peer_name="the goal", **detail)

    def cases(self, groups, names):
        """The cases with wrong results, the number of right ones, and those whose addresses SMTP does not have."""
        wrong, right, unsent = [], 0, []
        for group in groups:
            host = Host("127.0.0.1", 0)
            sections = self.sections(host.port, "tag")
            try:
                with Server(self.bench.binary, names(group[0].zone).address, sections=sections, listen=XCLIENT) as server:
                    for case in group:
                        results = self.results_of(case, server, host)
                        if results is None:
                            unsent.append(case.name)
                        elif case.is_right(results):
                            right += 1
                        else:
                            wrong.append(f"{case.name}: {case.wanted}, not: {results}")
            finally:
                host.stop()
        for line in wrong:
            print(f"    {line}", flush=True)
        return wrong, right, unsent

    def sections(self, port, action):
        return (
            f'[domains]\nrelay = ["{DOMAIN}"]\n[routes]\n"{DOMAIN}" = ["127.0.0.1:{port}"]\n'
            f'[message_authentication]\ncheck = true\ntimeout_s = {TIMEOUT_S}\ndmarc = "{action}"\n'
        )

    def results_of(self, case, server, host):
        """The field Authentication-Results of the case's message; None: HELO, MAIL or their names were refused."""
        before = len(host.mails)
        family = "IPV6:" if ":" in case.client else ""
        with server.client(ehlo="proxy.test") as client:
            asked = [f"XCLIENT ADDR={family}{case.client} NAME=[UNAVAILABLE]", f"EHLO {case.helo}", f"MAIL FROM:<{case.sender}>"]
            for line in (*asked, f"RCPT TO:<a@{DOMAIN}>"):
                reply = client.ask(line)
                if reply[0] != "2":
                    return None
            reply = client.data(case.content)
        if not reply.startswith("250"):
            raise BenchError(f"{case.name}: {reply}")
        if not wait_for(lambda: len(host.mails) > before, ARRIVAL_S_MAX):
            raise BenchError(f"{case.name}: the copy did not arrive")
        return host.mails[before].fields("Authentication-Results")[0].decode()

    def hostile(self):
        found = {kind: self.storm(kind) for kind in (*SMALL_KINDS, *LARGE_KINDS)}
        refused = [line for one in found.values() for line in one.wrong]
        self.record(".refused", "wrong replies", len(refused), Goal(most=0), replies=refused[:40])
        small, large = ({kind: found[kind] for kind in kinds} for kinds in (SMALL_KINDS, LARGE_KINDS))
        for entry, unit, field, most, kinds in (
            (".seconds", "s", "seconds", SECONDS_MAX, small),
            (".queries", "queries/message", "queries", QUERIES_MAX, found),
            (".cpu", "ms/message", "cpu_ms", CPU_MS_MAX, small),
            (".memory", "MiB/message", "memory_mib", MEMORY_MIB_MAX, small),
            (".large_cpu", "ms/message", "cpu_ms", LARGE_CPU_MS_MAX, large),
            (".large_memory", "MiB/message", "memory_mib", LARGE_MEMORY_MIB_MAX, large),
        ):
            figures = {kind: round(getattr(one, field), 2) for kind, one in kinds.items()}
            self.record(entry, unit, max(figures.values()), Goal(most=most), by_kind=figures)

    def storm(self, kind):
        """Sends the messages of a kind; then the forged ones, with DNS that tells the truth about the victim."""
        # The top level has no record, and answers.
        zone = {(VICTIM, "TXT"): [VICTIM_RECORD], ("_dmarc.example", "TXT"): []}
        messages = [self.message(kind, number, zone) for number in range(MESSAGES)]
        names = LyingNames(kind if kind in LIES else "truth", zone)
        host = Host("127.0.0.1", 0)
        try:
            with Server(self.bench.binary, names.address, sections=self.sections(host.port, "reject")) as server:
                # The first message costs more than others; trusted clients are not authenticated.
                server.send("a@warm.example", [f"a@{DOMAIN}"], "Subject: x\r\n\r\ntext\r\n")
                process = Process(server.process.pid)
                with concurrent.futures.ThreadPoolExecutor(MESSAGES) as pool:
                    replies = list(pool.map(lambda numbered: self.send(server, *numbered), enumerate(messages)))
                used = ResourceUse(replies, names.queries, process)
                self.check_forged(server, used)
        finally:
            host.stop()
        print(f"    {kind}: {used}", flush=True)
        return used

    def message(self, kind, number, zone):
        domain = f"h{number}.{kind.replace('_', '-')}.example"
        content = f"From: a@{domain}\r\nSubject: x\r\n\r\n".encode()
        if kind == "signatures":
            zone[(key_name(domain), "TXT")] = [self.key.record]
            return domain, self.key.signed(content + b"text\r\n", domain, SIGNATURES)
        if kind in LARGE_KINDS:
            size = LARGE_MIB * 1024 * 1024 - 64 * 1024
            line = {"large_lines": LINE, "large_blanks": b" " * 900 + b"x\r\n", "large_empty_lines": b"\r\n"}[kind]
            zone[(key_name(domain), "TXT")] = [self.key.record]
            # Both forms of the body are hashed; nothing of it is signed rightly, which costs the same.
            signatures = b"".join(self.key.signed(content + b"text\r\n", domain, LARGE_SIGNATURES // 2, form)[: -len(content + b"text\r\n")] for form in ("simple", "relaxed"))
            return domain, signatures + content + line * (size // len(line)) + b"end\r\n"
        field = f"DKIM-Signature: v=1; a=rsa-sha256; d={{}}.{domain}; s=s; h=from; bh=AAAA; b=AAAA\r\n"
        return domain, b"".join(field.format(f"k{n}").encode() for n in range(SIGNATURES)) + content + b"text\r\n"

    def send(self, server, number, message):
        """The reply, and the seconds to it from the end of the data."""
        domain, content = message
        with server.client(source=f"127.0.1.{number + 1}", ehlo=f"mail.{domain}") as client:
            for line in (f"MAIL FROM:<a@{domain}>", f"RCPT TO:<a@{DOMAIN}>"):
                reply = client.ask(line)
                if reply[0] != "2":
                    return f"{line}: {reply}", 0
            reply = client.ask("DATA")
            if reply[0] != "3":
                return reply, 0
            client.socket.sendall(content)
            begin = time.monotonic()
            return client.ask("."), time.monotonic() - begin

    def check_forged(self, server, used):
        content = f"From: a@{VICTIM.partition('.')[2]}\r\nSubject: x\r\n\r\nforged\r\n".encode()
        for number in (0, 1):
            reply, _ = self.send(server, MESSAGES + number, ("attacker.example", content))
            if not reply.startswith("550 5.7.26"):
                used.wrong.append(f"forged: {reply}")


XCLIENT = 'xclient_clients = ["127.0.0.1/32"]'


class Process:
    """CPU and memory of a process since this was made."""

    def __init__(self, pid):
        self.pid = pid
        # The peak begins again.
        with open(f"/proc/{pid}/clear_refs", "w") as file:
            file.write("5")
        self.cpu_begin_s, self.memory_begin_kib = self._cpu_s(), self._memory_kib("VmRSS")

    def _cpu_s(self):
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _memory_kib(self, field):
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(rf"{field}:\s+(\d+)", file.read())[1])

    def cpu_s(self):
        return self._cpu_s() - self.cpu_begin_s

    def memory_mib(self):
        return (self._memory_kib("VmHWM") - self.memory_begin_kib) / 1024


class ResourceUse:
    """Use per message of one kind."""

    def __init__(self, replies, queries, process):
        self.wrong = [reply for reply, _ in replies if not reply.startswith("250")]
        self.seconds = max(seconds for _, seconds in replies)
        self.queries = queries / len(replies)
        self.cpu_ms = process.cpu_s() * 1000 / len(replies)
        self.memory_mib = process.memory_mib() / len(replies)

    def __str__(self):
        return f"{self.seconds:.1f} s, {self.queries:.0f} queries, {self.cpu_ms:.0f} ms CPU, {self.memory_mib:.1f} MiB; wrong: {self.wrong[:3]}"
