"""Header fields that are missing, twice, or not for everybody; lines that are too long."""

import email
import email.policy

from field.hosts import Host
from field.names import NameServer
from field.rows import row, taken
from field.server import Server, message, wait_for

NEWS = '[lists.news]\naddress = "news@lists.test"\nsubscribers = "news"\nowner = "own@one.test"\npost = "anyone"\narchive = "https://lists.test/"\n'
LINE_OCTETS_MAX = 998


def long_lines(binary):
    """Lines beyond 998 octets never go out, and the text is the same once decoded (RFC 5321 4.5.3.1.6)."""
    names = NameServer().add_host("strict.test", "127.0.4.1").add_host("loose.test", "127.0.4.2")
    strict = Host("127.0.4.1", 0, line_octets_max=LINE_OCTETS_MAX)
    loose = Host("127.0.4.2", strict.port)
    bodies = {
        "998": "x" * 998, "999": "y" * 999, "words": "word " * 1000, "one word": "z" * 5000, "8-bit": "ä" * 2000, "dots": "." * 1500,
    }
    headers = {"subject of words": "X-Long: " + "word " * 400 + "\r\n", "subject of one word": "X-Long: " + "w" * 3000 + "\r\n", "References": "References: " + " ".join(f"<{n}@home.test>" for n in range(300)) + "\r\n"}
    inputs = {name: message(f"body {name}", body=f"begin\r\n{line}\r\nend\r\n") for name, line in bodies.items()}
    inputs |= {name: message(f"field {name}", header=field) for name, field in headers.items()}
    with Server(binary, names.address, strict.port) as server:
        for n, (name, text) in enumerate(inputs.items()):
            to = [f"l{n}@strict.test", f"l{n}@loose.test"]
            yield taken("long lines", name, server.send("me@home.test", to, text, mail=" BODY=8BITMIME" if "8-bit" in name else ""))
        wait_for(lambda: len(strict.mails) == len(inputs) == len(loose.mails), 15)
        for n, (name, text) in enumerate(inputs.items()):
            for host in (strict, loose):
                mail = next((mail for mail in host.mails if mail.to[0].startswith(f"l{n}@")), None)
                yield row("long lines", f"{name}: longest line", "at most 998", mail and mail.longest_line(), mail and mail.longest_line() <= LINE_OCTETS_MAX)
                if name in bodies and mail:
                    read = email.message_from_bytes(mail.content, policy=email.policy.default).get_payload(decode=True)
                    same = read.replace(b"\r\n", b"\n") == text.split("\r\n\r\n", 1)[1].encode().replace(b"\r\n", b"\n")
                    yield row("long lines", f"{name}: decoded text", "the same", "the same" if same else read[:80])


def list_fields(binary):
    """A post that brings the fields of another list: each once in the copies, and ours (RFC 2369 section 3)."""
    names = NameServer().add_host("one.test", "127.0.14.1")
    host = Host("127.0.14.1", 0)
    parent = {
        "List-Id": "Parent <parent.lists.example>", "List-Post": "<mailto:parent@lists.example>", "List-Owner": "<mailto:o@lists.example>",
        "List-Archive": "<https://lists.example/>", "Precedence": "bulk", "List-Help": "<mailto:help@lists.example>",
    }
    forms = {
        "once": "".join(f"{name}: {value}\r\n" for name, value in parent.items()),
        "twice": "".join(f"{name}: {value}\r\n" * 2 for name, value in parent.items()),
        "lower case": "".join(f"{name.lower()}: {value}\r\n" for name, value in parent.items()),
        "folded": "".join(f"{name}:\r\n {value}\r\n" for name, value in parent.items()),
        "blank before the colon": "".join(f"{name} : {value}\r\n" for name, value in parent.items()),
    }
    with Server(binary, names.address, host.port, NEWS, {"news": "a@one.test\n"}) as server:
        for name, header in forms.items():
            yield taken("list fields", name, server.send("parent-bounces@lists.example", ["news@lists.test"], message(f"nested {name}", header)))
            mail = wait_for(lambda: [mail for mail in host.mails if f"nested {name}\r\n".encode() in mail.content], 10)
            for field in ("List-Id", "List-Post", "Precedence", "List-Archive", "List-Owner"):
                values = mail[0].fields(field) if mail else "no copy"
                yield row("list fields", f"{name}: {field}", "once", values, mail and len(values) <= 1)
            yield row("list fields", f"{name}: whose List-Id", "ours", mail and mail[0].fields("List-Id"), mail and b"news.lists.test" in mail[0].fields("List-Id")[0])


def blind_copies(binary):
    """Bcc and Return-Path of a trusted client's message reach nobody, posts too."""
    names = NameServer().add_host("one.test", "127.0.15.1")
    host = Host("127.0.15.1", 0)
    forms = ["Bcc: secret@one.test", "BCC: secret@one.test", "bcc:\r\n secret@one.test,\r\n\tother@one.test", "Bcc : secret@one.test", "Resent-Bcc: secret@one.test", "Return-Path: <old@elsewhere.test>", "return-path: <old@elsewhere.test>"]
    with Server(binary, names.address, host.port, NEWS, {"news": "sub@one.test\n"}) as server:
        for n, form in enumerate(forms):
            for to in (["ann@one.test", "secret@one.test"], ["news@lists.test"]):
                yield taken("blind copies", f"{form!r} to {to[0]}", server.send("app@home.test", to, message(f"blind {n} {to[0]}", form + "\r\n")))
        wait_for(lambda: len(host.mails) >= 2 * len(forms), 10)
        for mail in host.mails:
            seen = [name for name in ("Bcc", "Resent-Bcc", "Return-Path") if mail.fields(name)]
            yield row("blind copies", f"{mail.fields('Subject')} to {mail.to}", [], seen)


def missing_fields(binary):
    """Date and Message-ID are added for trusted clients, and left alone where they are."""
    names = NameServer().add_host("one.test", "127.0.33.1")
    host = Host("127.0.33.1", 0)
    header = "From: me@home.test\r\nTo: ann@one.test\r\n"
    date, ident = "Date: Sat, 28 Nov 2026 12:00:00 +0000\r\n", "Message-ID: <own@home.test>\r\n"
    forms = {"neither": "", "no Message-ID": date, "no Date": ident, "both": date + ident, "in lower case": (date + ident).lower()}
    with Server(binary, names.address, host.port) as server:
        for name, more in forms.items():
            server.send("me@home.test", ["ann@one.test"], f"{header}Subject: {name}\r\n{more}\r\nx\r\n")
        server.send("me@home.test", ["ann@one.test"], "x\r\n")
        wait_for(lambda: len(host.mails) == len(forms) + 1, 10)
        for mail in host.mails:
            counts = [len(mail.fields("Date")), len(mail.fields("Message-ID"))]
            yield row("missing fields", mail.fields("Subject") or "no header at all", [1, 1], counts)
        kept = [mail for mail in host.mails if mail.fields("Subject") == [b"both"]]
        yield row("missing fields", "a Message-ID that is there", [[b"<own@home.test>"]], [mail.fields("Message-ID") for mail in kept])


CASES = (long_lines, list_fields, blind_copies, missing_fields)
