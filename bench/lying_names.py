"""A name server that does its worst: late, silent, malformed, truncated, endless, or with records that nobody asked for."""

import os
import struct
import threading
import time

from field.names import TTL_S, TYPES, NameServer, encode_name, encode_value, read_question

SLOW_S = 5
CHAIN = 50
HUGE_OCTETS = 60_000
RECORDS = 500
UDP_OCTETS_MAX = 1232
IN, TC, QR = 1, 0x0200, 0x8580
# What is said about it by the side, and the truth.
VICTIM = "_dmarc.bank.example"
VICTIM_RECORD, FORGED_RECORD = "v=DMARC1; p=reject", "v=DMARC1; p=none"


def record(owner, kind, value):
    data = value if isinstance(value, bytes) else encode_value(kind, value)
    return encode_name(owner) + struct.pack(">HHIH", TYPES[kind], IN, TTL_S, len(data)) + data


class LyingNames(NameServer):
    """`lie`: the name of a method below; names of the zone are answered truly."""

    def __init__(self, lie, zone):
        self.lie = getattr(self, lie)
        super().__init__(zone)

    def _serve_udp(self):
        while True:
            try:
                query, client = self.udp.recvfrom(4096)
            except OSError:
                return
            threading.Thread(target=self._answer_udp, args=(query, client), daemon=True).start()

    def _answer_udp(self, query, client):
        answer = self.answer(query)
        if answer and len(answer) > UDP_OCTETS_MAX:
            # The rest comes over TCP.
            question = read_question(query)[2]
            answer = query[:2] + struct.pack(">HHHHH", QR | TC, 1, 0, 0, 0) + question
        if answer:
            self.udp.sendto(answer, client)

    def answer(self, query):
        try:
            return super().answer(query)
        except (IndexError, struct.error):
            return None

    def _answer_from_zone(self, name, kind, reply):
        if any(owner == name for owner, _ in self.zone):
            return super()._answer_from_zone(name, kind, reply)
        return self.lie(name, kind, reply)

    def truth(self, name, kind, reply):
        return super()._answer_from_zone(name, kind, reply)

    def slow(self, name, kind, reply):
        time.sleep(SLOW_S)
        return reply(0, record(name, "TXT", "v=spf1 -all"), 1)

    def silent(self, *_):
        return None

    def wrong_id(self, name, kind, reply):
        answer = reply(0, record(name, "TXT", "v=spf1 -all"), 1)
        return bytes([answer[0] ^ 0x55]) + answer[1:]

    def wrong_question(self, name, kind, reply):
        answer = reply(3)
        question = encode_name("other.example") + struct.pack(">HH", TYPES["TXT"], IN)
        return answer[:6] + b"\0\0\0\0\0\0" + question

    def truncated(self, name, kind, reply):
        return reply(0, flags=QR | TC)

    def cut(self, name, kind, reply):
        """A record that is longer than the packet."""
        return reply(0, record(name, "TXT", "v=spf1 -all")[:-5], 1)

    def garbage(self, name, kind, reply):
        return reply(0)[:2] + os.urandom(200)

    def loop(self, name, kind, reply):
        return reply(0, record(name, "CNAME", name), 1)

    def loop_of_two(self, name, kind, reply):
        other = name[2:] if name.startswith("z.") else f"z.{name}"
        return reply(0, record(name, "CNAME", other), 1)

    def endless_chain(self, name, kind, reply):
        names = [name, *(f"c{n}.{name[-100:].lstrip('.')}" for n in range(CHAIN))]
        return reply(0, b"".join(record(owner, "CNAME", to) for owner, to in zip(names, names[1:])), CHAIN)

    def new_chain(self, name, kind, reply):
        """Each answer leads to a new name."""
        return reply(0, record(name, "CNAME", f"n{self.queries}.chain.example"), 1)

    def huge(self, name, kind, reply):
        return reply(0, record(name, "TXT", "v=spf1 " + "a" * HUGE_OCTETS), 1)

    def many(self, name, kind, reply):
        return reply(0, b"".join(record(name, "TXT", f"v=DMARC1; p=reject; n={n}") for n in range(RECORDS)), RECORDS)

    def other_names(self, name, kind, reply):
        """Nothing about the name, but a record of the victim."""
        return reply(0, record(VICTIM, "TXT", FORGED_RECORD), 1)

    def fails(self, name, kind, reply):
        return reply(2)

    def refuses(self, name, kind, reply):
        return reply(5)

    def deep_spf(self, name, kind, reply):
        """Every record includes ten others, with macros of the sender."""
        if kind != "TXT" or "_domainkey" in name or name.startswith("_dmarc"):
            return reply(3)
        terms = " ".join(f"include:i{n}.%{{l}}.{name[-60:].lstrip('.')}" for n in range(10))
        return reply(0, record(name, "TXT", f"v=spf1 {terms} mx ptr exists:%{{ir}}.{name[-60:].lstrip('.')} -all"), 1)


LIES = [
    "slow", "silent", "wrong_id", "wrong_question", "truncated", "cut", "garbage", "loop", "loop_of_two", "endless_chain", "new_chain",
    "huge", "many", "other_names", "fails", "refuses", "deep_spf",
]
