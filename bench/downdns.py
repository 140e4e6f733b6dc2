"""A name server for very many domains whose hosts are all down: `python3 bench/downdns.py PORT`.

`dN.down.example` has one mail host, `mx.dN.down.example`, at an address of its own in 127.0.0.0/8, where nothing listens.
(The lab's DNS makes a host of each, with a descriptor; this makes none.) UDP only; nothing else exists here.
"""

import re
import socket
import struct
import sys

A, MX, IN = 1, 15, 1
TTL_S = 86_400
NAME = re.compile(rb"^(mx\.)?d(\d+)\.down\.example$")
# From 127.1.0.0 on: 127.0.0.x is the servers' own.
FIRST_ADDRESS = 0x7F010000


def question(query):
    """(name, type, end of the question section)."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length])
        at += 1 + length
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    return b".".join(labels).lower(), kind, at + 5


def answer(query):
    name, kind, end = question(query)
    found = NAME.match(name)
    data = None
    if found and kind == MX and not found[1]:
        # "mx" and a pointer to the question's name.
        data = struct.pack("!H", 10) + b"\x02mx\xc0\x0c"
    elif found and kind == A and found[1]:
        data = struct.pack("!I", FIRST_ADDRESS + int(found[2]))
    code = 0 if found else 3
    head = query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, 1 if data else 0, 0, 0)
    record = b"\xc0\x0c" + struct.pack("!HHIH", kind, IN, TTL_S, len(data)) + data if data else b""
    return head + query[12:end] + record


def main():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        server.bind(("127.0.0.1", int(sys.argv[1])))
        while True:
            query, peer = server.recvfrom(4096)
            server.sendto(answer(query), peer)


if __name__ == "__main__":
    main()
