"""A name server on loopback with a zone in a dictionary, and the faults that name servers in the field have."""

import socket
import struct
import threading

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28}
WORDS = {number: word for word, number in TYPES.items()}
RCODES = {"FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
OPT = 41
TTL_S = 60
ANSWER_OCTETS_MAX = 4096
# Any SOA will do: it bounds how long a negative answer is kept.
SOA = b"\x02ns\0\x04root\0" + struct.pack(">IIIII", 1, 60, 60, 60, 1)


def encode_name(name):
    labels = [label.encode() for label in name.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def encode_value(kind, value):
    if kind == "A":
        return socket.inet_aton(value)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, value)
    if kind == "MX":
        return struct.pack(">H", value[0]) + encode_name(value[1])
    if kind == "TXT":
        octets = value.encode()
        # A string of a record has at most 255 octets.
        strings = [octets[at : at + 255] for at in range(0, len(octets), 255)] or [b""]
        return b"".join(bytes([len(string)]) + string for string in strings)
    return encode_name(value)


class NameServer:
    """Answers out of `zone`, {(name, type): [values]}, by UDP and TCP until the process ends.

    `fault`: an rcode for every question; "silent"; "lame" (no answer, not authoritative, refers to the root); "wrong-id".
    `edns`: "ok"; an rcode for queries with an OPT record, answered without one; "silent" for these (RFC 6891 section 7).
    """

    def __init__(self, zone=None, fault=None, edns="ok"):
        self.zone, self.fault, self.edns = zone if zone is not None else {}, fault, edns
        self.queries = 0
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.tcp = socket.socket()
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            self.udp.bind(("127.0.0.1", 0))
            self.port = self.udp.getsockname()[1]
            try:
                self.tcp.bind(("127.0.0.1", self.port))
                break
            except OSError:
                self.udp.close()
                self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.tcp.listen(32)
        for serve in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=serve, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def add_host(self, domain, *addresses):
        self.zone[(domain, "MX")] = [(10, f"mx.{domain}")]
        self.zone[(f"mx.{domain}", "A")] = list(addresses)
        return self

    def _serve_udp(self):
        while True:
            try:
                query, client = self.udp.recvfrom(ANSWER_OCTETS_MAX)
            except OSError:
                return
            answer = self.answer(query)
            if answer:
                self.udp.sendto(answer, client)

    def _serve_tcp(self):
        while True:
            try:
                client, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_stream, args=(client,), daemon=True).start()

    def _serve_stream(self, client):
        with client:
            client.settimeout(10)
            try:
                while size := client.recv(2, socket.MSG_WAITALL):
                    query = client.recv(struct.unpack(">H", size)[0], socket.MSG_WAITALL)
                    answer = self.answer(query)
                    if answer:
                        client.sendall(struct.pack(">H", len(answer)) + answer)
            except (OSError, struct.error):
                pass

    def answer(self, query):
        self.queries += 1
        ident, additional = struct.unpack(">H", query[:2])[0], struct.unpack(">H", query[10:12])[0]
        name, kind, question = read_question(query)
        if self.fault == "silent" or additional and self.edns == "silent":
            return None
        if self.fault == "wrong-id":
            ident ^= 0x5555

        def reply(rcode, answers=b"", count=0, authority=b"", flags=0x8580):
            counts = struct.pack(">HHHHHH", ident, flags | rcode, 1, count, int(bool(authority)), int(bool(additional and opt)))
            return counts + question + answers + authority + (opt if additional else b"")

        opt = b"\0" + struct.pack(">HHIH", OPT, 1232, 0, 0)
        if additional and self.edns != "ok":
            opt = b""
            return reply(RCODES[self.edns])
        if self.fault == "lame":
            referral = b"\0" + struct.pack(">HHIH", TYPES["NS"], 1, TTL_S, 1 + 4) + encode_name("ns")[:4] + b"\0"
            return reply(0, authority=referral, flags=0x8100)
        if self.fault in RCODES:
            return reply(RCODES[self.fault])
        return self._answer_from_zone(name, kind, reply)

    def _answer_from_zone(self, name, kind, reply):
        records, owner = [], name
        while (owner, "CNAME") in self.zone and (owner, kind) not in self.zone and len(records) < 10:
            target = self.zone[(owner, "CNAME")][0]
            records.append((owner, "CNAME", target))
            owner = target
        values = self.zone.get((owner, kind), [])
        if isinstance(values, str):
            return reply(RCODES[values])
        records += [(owner, kind, value) for value in values]
        if not values:
            authority = b"\0" + struct.pack(">HHIH", TYPES["SOA"], 1, 1, len(SOA)) + SOA
            exists = any(known == owner or known.endswith("." + owner) for known, _ in self.zone)
            return reply(0 if exists else RCODES["NXDOMAIN"], authority=authority)
        octets = b""
        for owner, kind, value in records:
            data = encode_value(kind, value)
            octets += encode_name(owner) + struct.pack(">HHIH", TYPES[kind], 1, TTL_S, len(data)) + data
        return reply(0, octets, len(records))


def read_question(query):
    """The name in lower case, the type's word, and the octets of the question section."""
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    number = struct.unpack(">H", query[at + 1 : at + 3])[0]
    return ".".join(labels).lower(), WORDS.get(number, str(number)), query[12 : at + 5]
