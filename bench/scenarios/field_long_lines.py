"""Lines over 998 octets, which SMTP does not allow (RFC 5321 section 4.5.3.1.6) and programs write all the same: to hosts that refuse them,
with and without 8BITMIME and CHUNKING. None is refused for it, and Python's email reads the same of what came as of what was sent."""

import base64
import email
import email.policy
import random
import smtplib
import threading

from field.hosts import Host
from measure import BenchError
from results import Goal

LINE_OCTETS_MAX = 998
LONGEST = 100_000
MESSAGES = 500
SENDER = "me@sender.example"
OFFERS = {"both": ("8BITMIME", "CHUNKING"), "eight": ("8BITMIME",), "chunks": ("CHUNKING",), "plain": ()}
DRAIN_S_MAX = 300
WORDS = ["word", "another", "Gr\u00fc\u00dfe", "\u4e2d\u6587", "a=b", "-- ", "From", ".", "<b>", "=3D"]
ASCII_WORDS = ["word", "another", "a=b", "-- ", "From", ".", "<b>", "=3D"]


class StrictHost(Host):
    """A mail host that refuses content with a line over 998 octets, 8-bit content without 8BITMIME, and keeps the rest."""

    def __init__(self, offers):
        super().__init__("127.0.0.1", 0, ehlo=("PIPELINING", *offers))
        self.taken, self.refused, self.lock = {}, [], threading.Lock()

    def judge(self, mail):
        data = mail.content
        longest = mail.longest_line()
        name = email.message_from_bytes(data)["Message-ID"]
        why = None
        if longest > LINE_OCTETS_MAX:
            why = f"554 5.6.0 a line of {longest} octets"
        elif "8BITMIME" not in self.ehlo and not data.isascii():
            why = "554 5.6.0 8-bit content"
        with self.lock:
            if why:
                self.refused.append((name, why))
            else:
                self.taken.setdefault(name, data)
        return why


def line(rng, words, longest=LONGEST):
    """A line of words, or one word; 999 octets to LONGEST, most of them near the lower end."""
    octets = int(LINE_OCTETS_MAX + 1 + (longest - LINE_OCTETS_MAX - 1) * rng.random() ** 4)
    if rng.random() < 0.3:
        return rng.choice("xyz=-") * octets
    text, length = [], 0
    while length < octets:
        text.append(rng.choice(words))
        length += len(text[-1].encode()) + 1
    return " ".join(text).strip()


def text(rng, words):
    lines = [rng.choice(words) for _ in range(rng.randrange(3))]
    lines.insert(rng.randrange(len(lines) + 1), line(rng, words))
    return "\r\n".join(lines) + "\r\n"


def leaf(kind, body, encoding="8bit"):
    return f"Content-Type: {kind}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}"


def in_text(rng):
    return leaf("text/plain; charset=utf-8", text(rng, WORDS))


def in_html(rng):
    html = leaf("text/html; charset=utf-8", f"<p>{text(rng, WORDS)}</p>\r\n")
    return f"Content-Type: multipart/alternative; boundary=alt\r\n\r\n--alt\r\n{leaf('text/plain', 'short' )}\r\n--alt\r\n{html}\r\n--alt--\r\n"


def in_base64(rng):
    octets = rng.randbytes(rng.randrange(750, LONGEST * 3 // 4))
    encoded = leaf('application/octet-stream; name="a"', base64.b64encode(octets).decode(), "base64")
    return f"Content-Type: multipart/mixed; boundary=mix\r\n\r\n--mix\r\n{leaf('text/plain', 'short')}\r\n--mix\r\n{encoded}\r\n--mix--\r\n"


def in_quoted(rng):
    body = "".join(f"={octet:02X}" if rng.random() < 0.5 else "a " for octet in rng.randbytes(rng.randrange(600, 20_000)))
    return leaf("text/plain; charset=iso-8859-1", f"{body.rstrip()}\r\nend\r\n", "quoted-printable")


def in_signed(rng):
    part = leaf("text/plain; charset=us-ascii", text(rng, ASCII_WORDS), "7bit")
    signature = leaf("application/pgp-signature", "-----BEGIN PGP SIGNATURE-----\r\nAAAA\r\n-----END PGP SIGNATURE-----", "7bit")
    return (
        "Content-Type: multipart/signed; micalg=pgp-sha256; protocol=\"application/pgp-signature\"; boundary=sig\r\n\r\n"
        f"--sig\r\n{part}\r\n--sig\r\n{signature}\r\n--sig--\r\n"
    )


def in_attached(rng):
    inner = f"Subject: {line(rng, ASCII_WORDS[:2], 5_000)}\r\nMIME-Version: 1.0\r\n{in_text(rng)}"
    return f"Content-Type: multipart/mixed; boundary=mix\r\n\r\n--mix\r\nContent-Type: message/rfc822\r\n\r\n{inner}\r\n--mix--\r\n"


def in_header(rng):
    del rng
    return leaf("text/plain", "short\r\n", "7bit")


KINDS = (in_header, in_text, in_html, in_base64, in_signed, in_quoted, in_attached)


def message(rng, number, kind):
    subject = line(rng, ASCII_WORDS[:2]) if kind is in_header else f"message {number}"
    to = ", ".join(f"user{n}@{name}.example" for n in range(60) for name in OFFERS) if kind is in_header else "all@both.example"
    return (
        f"From: Me <{SENDER}>\r\nTo: {to}\r\nSubject: {subject}\r\nMessage-ID: <{number}@sender.example>\r\n"
        f"Date: Sat, 28 Nov 2026 12:00:00 +0000\r\nMIME-Version: 1.0\r\n{KINDS[number % len(KINDS)](rng)}"
    ).encode()


def read(octets, is_signed):
    """What a reader sees: the header's texts, and each part's type and decoded content."""
    found = email.message_from_bytes(octets, policy=email.policy.default)
    seen = [(name, str(found[name])) for name in ("From", "To", "Subject", "Message-ID")]
    for part in found.walk():
        if part is not found and part.get("Subject"):
            seen.append(("Subject within", str(part["Subject"])))
        if part.is_multipart():
            seen.append((part.get_content_type(), len(part.get_payload())))
            continue
        content = part.get_payload(decode=True).replace(b"\r\n", b"\n").rstrip(b"\n")
        if is_signed:
            # Nobody on the way may encode it (RFC 1847 section 2.1): it is broken as by Postfix.
            content = content.replace(b"\n ", b"").replace(b"\n", b"")
        seen.append((part.get_content_type(), content))
    return seen


class LongLines:
    """Messages that a strict host refused, or that read otherwise than they were sent."""

    name = "field.long_lines"
    entries = ("",)
    smoke = {"MESSAGES": 14}

    def run(self, bench):
        rng = random.Random(998)
        hosts = {name: StrictHost(offers) for name, offers in OFFERS.items()}
        routes = {f"{name}.example": f"127.0.0.1:{host.port}" for name, host in hosts.items()}
        server = bench.stentor(hosts["plain"], routes=routes)
        sent, faults = {}, []
        try:
            with bench.running(server):
                for number in range(MESSAGES):
                    kind = KINDS[number % len(KINDS)]
                    octets = message(rng, number, kind)
                    sent[f"<{number}@sender.example>"] = (octets, kind)
                    with smtplib.SMTP("127.0.0.1", server.port, local_hostname="client.example", timeout=60) as smtp:
                        smtp.sendmail(SENDER, [f"bob@{name}.example" for name in hosts], octets, ["BODY=8BITMIME"])
                server.wait_drained(DRAIN_S_MAX)
        finally:
            for host in hosts.values():
                host.stop()
        for name, host in hosts.items():
            faults += [f"{name}: {which} {why}" for which, why in host.refused if which in sent]
            for which, (octets, kind) in sent.items():
                if which not in host.taken:
                    faults.append(f"{name}: {which} ({kind.__name__}) did not come")
                elif read(octets, kind is in_signed) != read(host.taken[which], kind is in_signed):
                    faults.append(f"{name}: {which} ({kind.__name__}) reads otherwise")
        for fault in faults[:20]:
            print(f"      {fault}", flush=True)
        if not sent:
            raise BenchError("nothing was sent")
        command = f"{MESSAGES} messages with lines of {LINE_OCTETS_MAX + 1} to {LONGEST} octets to {len(hosts)} strict hosts each"
        bench.results.record(
            self.name, "messages refused or changed", [[len(faults), 0]], command, Goal(most=0), peer_name="the goal",
            named=faults[:10], kinds=[kind.__name__ for kind in KINDS],
        )
