"""Paths and names in the envelope as programs in the field write them."""

from field.hosts import Host
from field.names import NameServer
from field.rows import row, taken
from field.server import Server, message, wait_for

LISTS = """
[lists.news]
address = "News@lists.test"
subscribers = "news"
owner = "own@one.test"
post = "anyone"
"""


def sloppy_paths(binary):
    """MAIL and RCPT without angle brackets, with blanks, from a trusted client."""
    names = NameServer().add_host("one.test", "127.0.3.1")
    host = Host("127.0.3.1", 0)
    with Server(binary, names.address, host.port) as server:
        pairs = [
            ("MAIL FROM: <me@home.test>", "RCPT TO: <a0@one.test>"),
            ("mail from:<me@home.test>  SIZE=100 ", "rcpt to:<a1@one.test> "),
            ("MAIL FROM:me@home.test", "RCPT TO:a2@one.test"),
            ("MAIL FROM: me@home.test SIZE=100", "RCPT TO: a3@one.test"),
            ("MAIL FROM:   <me@home.test>", "RCPT TO:   <a4@one.test>"),
            ('MAIL FROM:"me.too"@home.test BODY=8BITMIME', "RCPT TO:<a5@one.test>"),
            ("MAIL FROM:<me@home.test.>", "RCPT TO:<a6@one.test.>"),
        ]
        for n, (mail, rcpt) in enumerate(pairs):
            with server.client() as client:
                replies = [client.ask(mail), client.ask(rcpt)]
                replies.append(client.data(message(f"path {n}")))
            yield row("paths", f"{mail} / {rcpt}", "250", " / ".join(replies), all(reply[0] == "2" for reply in replies))
        found = wait_for(lambda: len(host.mails) == len(pairs), 10)
        yield row("paths", "all of them", f"{len(pairs)} delivered", len(host.mails), found)
        wrong = [one for mail in host.mails for one in mail.to if not one.endswith("@one.test")]
        yield row("paths", "recipients as they go out", [], wrong)


def dots(binary):
    """Local parts with two dots in a row or one at an end: Japanese carriers gave them out."""
    names = NameServer().add_host("docomo.test", "127.0.3.2")
    host = Host("127.0.3.2", 0)
    locals_ = ["user..name", "user.", ".user", "a...b", ".."]
    lists = '[lists.news]\naddress = "news@lists.test"\nsubscribers = "news"\nowner = "own@docomo.test"\npost = "anyone"\n'
    files = {"news": "".join(f"{one}l@docomo.test\n" for one in ("sub..", ".")) + "plain@docomo.test\n"}
    with Server(binary, names.address, host.port, lists, files) as server:
        for one in locals_:
            reply = server.send(f"{one}@docomo.test", [f"{one}@docomo.test"], message(f"dots {one}"))
            yield taken("dots", f"{one}@docomo.test", reply)
        server.send("me@home.test", ["news@lists.test"], message("a post"))
        right = sorted(f"{one}@docomo.test" for one in [*locals_, "sub..l", ".l", "plain"])
        got = lambda: sorted(one.replace('"', "") for mail in host.mails for one in mail.to)
        wait_for(lambda: len(got()) == len(right), 10)
        yield row("dots", "delivered, senders and subscribers too", right, got())
        bare = [one for mail in host.mails for one in [*mail.to, mail.sender] if not one.startswith('"') and (".." in one or ".@" in one)]
        yield row("dots", "goes out quoted (RFC 5321 4.1.2)", [], bare)


def ehlo_names(binary):
    """Names in EHLO as programs and machines send them."""
    names = NameServer()
    with Server(binary, names.address) as server:
        for name in (
            "[IPV6:2a01:cb06:b841:bf5d:38ff:861a:1646:ab77]", "[2001:7c0:2041:8::19]", "my_host-1", "cabinet-maitre-.domain", "host.local.",
            "[127.0.0.1]", "localhost", "[IPv6:fe80::1%en0]", "[fe80::1%eth0.2]", "[IPv6:FE80::AB%12]", "a", "host",
        ):
            with server.client(ehlo=None) as client:
                yield taken("ehlo", f"EHLO {name}", client.ask(f"EHLO {name}"))


def source_routes(binary):
    """Routes are taken and left out of account (RFC 5321 appendix C)."""
    names = NameServer().add_host("one.test", "127.0.5.1")
    host = Host("127.0.5.1", 0)
    with Server(binary, names.address, host.port) as server:
        forms = ["@relay.test:b0@one.test", "@relay.test,@two.test:b1@one.test", "@[127.0.0.1]:b2@one.test", '@relay.test:"b3"@one.test', "@A.TEST,@b.test:b4@ONE.TEST"]
        for form in forms:
            yield taken("routes", f"RCPT TO:<{form}>", server.send("me@home.test", [form], message(form)))
        yield taken("routes", "MAIL FROM:<@relay.test:me@home.test>", server.send("@relay.test:me@home.test", ["b5@one.test"], message("from")))
        to = lambda: sorted(one.replace('"', "").lower() for mail in host.mails for one in mail.to)
        wait_for(lambda: len(to()) == 6, 10)
        yield row("routes", "recipients as they go out", [f"b{n}@one.test" for n in range(6)], to())
        with server.client("127.0.0.9") as client:
            client.ask("MAIL FROM:<me@home.test>")
            reply = client.ask("RCPT TO:<@mx.stentor.test:victim@one.test>")
        yield row("routes", "the same from outside, to a domain that is not ours", "550", reply, reply.startswith("55"))


def unqualified(binary):
    """Envelopes without a domain, as cron, smartd and monit send them."""
    names = NameServer().add_host("one.test", "127.0.32.1")
    host = Host("127.0.32.1", 0)
    sections = '[domains]\nlocal = ["stentor.test"]\n[addresses]\norigin = "stentor.test"\n[aliases]\n"root@stentor.test" = ["ann@one.test"]\n'
    with Server(binary, names.address, host.port, sections) as server:
        pairs = [("<root>", "<c0@one.test>"), ("<me@home.test>", "<root>"), ("root", "<c1@one.test>"), ("<me@home.test>", "root"), ("<>", "<c2@one.test>"), ("<me@home.test>", "<c3@one.test.>")]
        for mail, rcpt in pairs:
            with server.client() as client:
                replies = [client.ask(f"MAIL FROM:{mail}"), client.ask(f"RCPT TO:{rcpt}"), client.data(message(mail + rcpt))]
            yield row("unqualified", f"{mail} to {rcpt}", "250", " / ".join(replies), all(reply[0] == "2" for reply in replies))
        wait_for(lambda: len(host.mails) == len(pairs), 10)
        senders = {mail.sender for mail in host.mails}
        yield row("unqualified", "senders as they go out", {"", "root@stentor.test", "me@home.test"}, senders)
        bare = [one for mail in host.mails for one in mail.to if "@" not in one or one.endswith(".")]
        yield row("unqualified", "recipients as they go out", [], bare)
        with server.client("127.0.0.9") as client:
            reply = client.ask("MAIL FROM:<root>")
            reply = client.ask("RCPT TO:<root>") if reply[0] == "2" else reply
        yield row("unqualified", "a client that is not trusted", "5xx", reply, reply[0] == "5")


def own_literal(binary):
    """postmaster at an address of ours is our postmaster; mail to it never loops."""
    names = NameServer().add_host("home.test", "127.0.6.1")
    sections = '[domains]\npostmaster = "boss@home.test"\nlocal = ["stentor.test"]\n'
    with Server(binary, names.address, None, sections) as server:
        home = Host("127.0.6.1", server.port)
        for source in ("127.0.0.1", "127.0.0.9"):
            for rcpt in ("postmaster@[127.0.0.1]", "POSTMASTER@[127.0.0.1]", "postmaster", "Postmaster@stentor.test", '"postmaster"@[127.0.0.1]'):
                subject = f"{rcpt} of {source}"
                yield taken("literal", subject, server.send("me@home.test", [rcpt], message(subject), source))
                got = wait_for(lambda: [mail.to for mail in home.mails if subject.encode() in mail.content], 8)
                yield row("literal", f"{subject}: reaches", [["boss@home.test"]], got)


def spellings(binary):
    """Lists and aliases by case, quotes and detail; domains in Unicode."""
    names = NameServer().add_host("one.test", "127.0.21.1")
    host = Host("127.0.21.1", 0)
    sections = (
        '[domains]\nlocal = ["Example.ORG"]\nrelay = ["Bücher.test", "Relay.TEST"]\n[routes]\n'
        f'"bücher.test" = "127.0.21.1:{host.port}"\n"Relay.Test" = "127.0.21.1:{host.port}"\n'
        '[aliases]\n"Team@example.org" = ["ann@one.test"]\n' + LISTS
    )
    with Server(binary, names.address, host.port, sections, {"news": "sub@one.test\n"}) as server:
        for rcpt, mail in [
            ("TEAM@EXAMPLE.ORG", ""), ("team@example.org", ""), ('"team"@example.org', ""), ("team+x@example.org", ""), ("TEAM+X+y@example.org", ""),
            ("NEWS@LISTS.TEST", ""), ('"news"@lists.test', ""), ("news+detail@lists.test", ""), ("news-owner@lists.test", ""), ("OWNER-NEWS@lists.test", ""),
            ("a@xn--bcher-kva.test", ""), ("a@BÜCHER.test", " SMTPUTF8"), ("a@RELAY.test", ""), ("postmaster+x@example.org", ""),
        ]:
            with server.client("127.0.0.5") as client:
                client.ask(f"MAIL FROM:<me@home.test>{mail}")
                yield taken("spellings", f"RCPT TO:<{rcpt}>", client.ask(f"RCPT TO:<{rcpt}>"))
        with server.client("127.0.0.5") as client:
            client.ask("MAIL FROM:<me@home.test>")
            reply = client.ask("RCPT TO:<nobody+x@example.org>")
        yield row("spellings", "RCPT TO:<nobody+x@example.org>", "550", reply, reply.startswith("550"))


CASES = (sloppy_paths, dots, ehlo_names, source_routes, unqualified, own_literal, spellings)
