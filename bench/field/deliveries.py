"""Name servers, hosts and lists that are not as one wishes: where mail goes all the same."""

import re
import socket
import struct
import threading
import time

from field.hosts import Close, Host
from field.names import NameServer
from field.rows import row, taken
from field.server import Server, free_port, message, wait_for

OUTAGE_S = 3
# From a healthy host to the last message: the goal of `field.restart`, and as much again for a busy machine.
RETURN_S_MAX = 5


def second_name_server(binary):
    """A useless name server beside a good one: the next one is asked."""
    good = NameServer().add_host("one.test", "127.0.7.1")
    host = Host("127.0.7.1", 0)
    for fault in ("REFUSED", "SERVFAIL", "NOTIMP", "FORMERR", "silent", "lame", "wrong-id", "away"):
        first = f"127.0.0.1:{free_port()}" if fault == "away" else NameServer(fault=fault).address
        with Server(binary, [first, good.address], host.port) as server:
            server.send("me@home.test", ["ann@one.test"], message(fault))
            found = wait_for(lambda: any(fault.encode() in mail.header for mail in host.mails), 12)
            yield row("name servers", f"the first one: {fault}", True, found)


def edns(binary):
    """A name server that knows no EDNS is asked without (RFC 6891 section 7)."""
    host = Host("127.0.8.1", 0)
    for kind in ("ok", "FORMERR", "NOTIMP", "SERVFAIL", "REFUSED", "silent"):
        names = NameServer(edns=kind).add_host("one.test", "127.0.8.1")
        with Server(binary, names.address, host.port) as server:
            server.send("me@home.test", ["ann@one.test"], message(f"edns {kind}"))
            found = wait_for(lambda: any(f"edns {kind}".encode() in mail.header for mail in host.mails), 15)
            yield row("EDNS", f"answered by: {kind}", True, found)


def forward(address, port, to):
    """A port forward: connections to address:port go to 127.0.0.1:to. Returns their count, which grows."""
    listener, count = socket.socket(), [0]
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(64)

    def copy(source, sink):
        try:
            while octets := source.recv(65536):
                sink.sendall(octets)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            source, _ = listener.accept()
            count[0] += 1
            sink = socket.create_connection(("127.0.0.1", to))
            for pair in ((source, sink), (sink, source)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return count


def own_name(binary):
    """A host that greets with our name, behind a port forward, is us: 5.4.6 at the first attempt."""
    names = NameServer().add_host("customer.test", "127.0.11.1").add_host("home.test", "127.0.11.2")
    home = Host("127.0.11.2", 0)
    with Server(binary, names.address, home.port, '[domains]\nrelay = ["customer.test"]\n') as server:
        count = forward("127.0.11.1", home.port, server.port)
        server.send("me@home.test", ["ann@customer.test"], message("loop"))
        wait_for(lambda: home.mails, 20)
        content = home.mails[0].content if home.mails else b""
        yield row("loops", "our name in the greeting: the sender is told", "5.4.6", content[-300:], b"5.4.6" in content)
        accepted = server.read("mail.log").count("nrcpts=")
        yield row("loops", "messages accepted for it", "at most 3", (accepted, count), accepted <= 3)
    yield from other_spellings(binary)


# What a host says first, what it calls itself in its reply to EHLO, and whether it is us.
NAMES_OF_HOSTS = (
    ("220 MX.Stentor.TEST ESMTP ready", "host.test", True),
    ("220 mx.stentor.test. ESMTP", "host.test", True),
    ("220-mx.stentor.test ESMTP\r\n220 no advertising", "host.test", True),
    ("220 host.test ESMTP", "mx.stentor.test", True),
    ("220 host.test ESMTP", "Mx.Stentor.Test", True),
    ("220 mx.stentor.test.example ESMTP", "host.test", False),
    ("220 welcome to the friends of mx.stentor.test", "host.test", False),
    ("220 other.mx.stentor.test ESMTP", "other.mx.stentor.test", False),
)


def other_spellings(binary):
    """Our name as hosts may write it, and names that are like it."""
    names = NameServer().add_host("home.test", "127.0.11.2")
    home = Host("127.0.11.2", 0)
    hosts = []
    for number, (greeting, name, _) in enumerate(NAMES_OF_HOSTS):
        names.add_host(f"d{number}.test", f"127.0.11.{number + 10}")
        replies = {"CONNECT": greeting, "EHLO": f"250-{name}\r\n250 8BITMIME"}
        hosts.append(Host(f"127.0.11.{number + 10}", home.port, reply=lambda session, verb, line, replies=replies: replies.get(verb)))
    with Server(binary, names.address, home.port) as server:
        for number, (greeting, name, is_us) in enumerate(NAMES_OF_HOSTS):
            server.send("me@home.test", [f"ann@d{number}.test"], message(f"spelling {number}"))
        heard = lambda number: any(b"5.4.6" in mail.content and f"ann@d{number}.test".encode() in mail.content for mail in home.mails)
        for number, (greeting, name, is_us) in enumerate(NAMES_OF_HOSTS):
            wait_for(lambda: heard(number) or hosts[number].mails, 20)
            found = "us" if heard(number) else "taken" if hosts[number].mails else "neither"
            yield row("loops", f"{greeting.splitlines()[0]}, EHLO: {name}", "us" if is_us else "taken", found)


def local_subscribers(binary):
    """Subscribers that are addresses of ours: whom they stand for has one copy each, and nothing loops."""
    names = NameServer().add_host("one.test", "127.0.16.1")
    names.zone[("lists.test", "MX")] = [(10, "mx.stentor.test")]
    names.zone[("mx.stentor.test", "A")] = ["127.0.0.1"]
    host = Host("127.0.16.1", 0)
    sections = '[domains]\npostmaster = "boss@one.test"\n[aliases]\n"team@lists.test" = ["ann@one.test", "bob@one.test"]\n"both@lists.test" = ["team@lists.test", "cid@one.test"]\n'
    sections += '[addresses]\nvirtual = ["users"]\n[tables.users]\ninline = { "vic@lists.test" = "vic@one.test" }\nas = "virtual"\n'
    subscribers = {
        "all": "team@lists.test\nout@one.test\nvic@lists.test\nsub@lists.test\npostmaster@lists.test\nboth@lists.test\nteam+x@lists.test\n",
        "sub": "eve@one.test\nfay@one.test\nall@lists.test\n",
    }
    for name in subscribers:
        sections += f'[lists.{name}]\naddress = "{name}@lists.test"\nsubscribers = "{name}"\nowner = "own@one.test"\npost = "anyone"\n'
    with Server(binary, names.address, host.port, sections, subscribers) as server:
        yield taken("local subscribers", "the post", server.send("me@one.test", ["all@lists.test"], message("umbrella")))
        posts = lambda: sorted(one for mail in host.mails if b"Subject: umbrella\r\n" in mail.content and mail.sender for one in mail.to)
        right = sorted(f"{one}@one.test" for one in ("out", "ann", "bob", "cid", "vic", "eve", "fay", "boss"))
        wait_for(lambda: len(posts()) >= len(right), 10)
        got = posts()
        yield row("local subscribers", "each has it", right, sorted(set(got)))
        direct = [one for one in got if one not in ("eve@one.test", "fay@one.test")]
        yield row("local subscribers", "and once", sorted(set(direct)), sorted(direct))
        wait_for(lambda: server.log_line("5.4.6", seconds=0), 2)
        failed = [mail.to for mail in host.mails if mail.sender == "" and "me@one.test" in mail.to]
        yield row("local subscribers", "what the poster hears of it", [], failed)
        yield row("local subscribers", "rounds of the two lists", "at most 2 copies for eve", got.count("eve@one.test"), got.count("eve@one.test") <= 2)


def notify(binary):
    """A list answers NOTIFY for itself and hands nothing on (RFC 3461 section 6.2.7); a null sender gets no DSN."""
    names = NameServer().add_host("one.test", "127.0.17.1").add_host("home.test", "127.0.17.2")
    offers = ("PIPELINING", "8BITMIME", "DSN")
    host = Host("127.0.17.1", 0, ehlo=offers)
    home = Host("127.0.17.2", host.port, ehlo=offers)
    sections = '[aliases]\n"team@lists.test" = ["ann@one.test", "bob@one.test"]\n[lists.news]\naddress = "news@lists.test"\nsubscribers = "news"\nowner = "own@home.test"\npost = "anyone"\n'
    with Server(binary, names.address, host.port, sections, {"news": "sub1@one.test\nsub2@one.test\n"}) as server:
        server.send("poster@home.test", ["news@lists.test"], message("list"), mail=" RET=HDRS ENVID=abc", rcpt=" NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;news@lists.test")
        wait_for(lambda: sum(len(mail.to) for mail in host.mails) == 2, 10)
        lines = [line for mail in host.mails for line in [mail.mail_line, *mail.rcpt_lines]]
        yield row("NOTIFY", "what subscribers' hosts see of it", [], [line for line in lines if "SUCCESS" in line or "ORCPT" in line or "ENVID" in line])
        mine = wait_for(lambda: [mail for mail in home.mails if mail.to == ["poster@home.test"]], 8)
        text = mine[0].content.decode("latin-1") if mine else ""
        action = re.findall(r"(?im)^Action: *(\w+)", text)
        yield row("NOTIFY", "the poster's DSN", ["delivered"], action, action in (["delivered"], ["expanded"]))
        yield row("NOTIFY", "it names the list, the envelope id, no subscriber", True, "news@lists.test" in text and "abc" in text and "sub1@" not in text)
        server.send("poster@home.test", ["news@lists.test"], message("never"), rcpt=" NOTIFY=NEVER")
        server.send("poster@home.test", ["news@lists.test"], message("failure"), rcpt=" NOTIFY=FAILURE")
        server.send("", ["ann@one.test"], message("null"), rcpt=" NOTIFY=SUCCESS,DELAY")
        server.send("poster@home.test", ["team@lists.test"], message("alias"), rcpt=" NOTIFY=SUCCESS")
        wait_for(lambda: any(b"alias" in mail.header for mail in host.mails), 10)
        time.sleep(1)
        more = [(mail.sender, mail.to) for mail in home.mails if mail is not (mine or [None])[0]]
        handed = [line for mail in host.mails for line in mail.rcpt_lines if "NOTIFY=SUCCESS" in line]
        yield row("NOTIFY", "NEVER, FAILURE and a null sender: reports", "at most one, of the alias", more, more in ([], [("", ["poster@home.test"])]))
        yield row("NOTIFY", "an alias hands it on, or answers", True, len(handed) == 2 or len(more) == 1)


def session_limits(binary):
    """Hosts that take ten messages a connection, in the words of several: a new connection goes on at once."""
    words = {
        "exim": ("421 too many messages in this connection", False), "ses": ("421 Too many messages in this connection", True),
        "452": ("452 4.3.2 Too many messages for this session, please reconnect", False), "gmx": ("421 Too many mails in this session", True),
        "postfix": ("421 4.7.0 mx.test Error: too many mail transactions in this session", True), "plain": ("421 4.4.5 closing, start another session", True),
        "451": ("451 4.7.1 Maximum number of messages per connection exceeded", False), "transactions": ("421 4.5.3 maximum transactions per session reached", True),
    }
    names, hosts = NameServer(), {}

    def limit(text, closes):
        def reply(session, verb, _):
            if verb != "MAIL" or session.mails < 10:
                return None
            if closes:
                session.send(text)
                raise Close
            return text

        return reply

    port = free_port()
    for n, (name, word) in enumerate(words.items()):
        hosts[name] = Host(f"127.0.34.{n + 1}", port, limit(*word))
        names.add_host(f"{name}.test", hosts[name].address)
    with Server(binary, names.address, port, retry="") as server:
        server.command("queue-only", "--all", "--for", "1h")
        with server.client() as client:
            for n in range(100):
                for name in words:
                    client.ask("MAIL FROM:<me@home.test>")
                    client.ask(f"RCPT TO:<m{n}@{name}.test>")
                    client.data(message(f"{n}"))
        server.command("queue-only", "--end", "--all")
        wait_for(lambda: all(len(host.mails) >= 100 for host in hosts.values()), 20)
        for name, host in hosts.items():
            yield row("session limits", words[name][0], 100, len(host.mails))


def short_outages(binary):
    """A host that fails for three seconds and is healthy again, whichever way its sessions ended."""
    names, hosts, failing = NameServer(), {}, threading.Event()
    port = free_port()
    ways = {
        "reset": ("CONNECT", None), "end": ("CONNECT", ""), "421 greeting": ("CONNECT", "421 4.3.2 shutting down"), "end at EHLO": ("EHLO", ""),
        "421 to EHLO": ("EHLO", "421 4.3.2 down"), "451 to EHLO": ("EHLO", "451 4.3.0 down"), "421 to MAIL": ("MAIL", "421 4.3.2 down"),
        "end at MAIL": ("MAIL", ""), "451 to MAIL": ("MAIL", "451 4.3.0 try later"),
    }

    def fail(verb, text):
        def reply(session, spoken, _):
            if not failing.is_set() or spoken != verb:
                return None
            if text is None:
                session.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif text:
                session.send(text)
            raise Close

        return reply

    for n, (name, way) in enumerate(ways.items()):
        hosts[name] = Host(f"127.0.42.{n + 1}", port, fail(*way))
        names.add_host(f"w{n}.test", hosts[name].address)
    with Server(binary, names.address, port, retry="") as server:
        every = [f"ann@w{n}.test" for n in range(len(ways))]
        server.send("me@home.test", every, message("before"))
        wait_for(lambda: all(host.mails for host in hosts.values()), 10)
        failing.set()
        for n in range(6):
            server.send("me@home.test", every, message(f"during {n}"))
            time.sleep(OUTAGE_S / 6)
        failing.clear()
        healthy = time.monotonic()
        back = {}
        while time.monotonic() < healthy + 30 and len(back) < len(hosts):
            for name, host in hosts.items():
                if len(host.mails) >= 7:
                    back.setdefault(name, time.monotonic() - healthy)
            time.sleep(0.05)
        for name in hosts:
            seconds = back.get(name)
            yield row("outages", f"{OUTAGE_S} s, {name}", f"all within {RETURN_S_MAX} s", seconds and round(seconds, 1), seconds is not None and seconds <= RETURN_S_MAX)


# A subscribers file, and who has a copy of a post.
ONE_AND_THE_SAME = (
    ("Ann@one.test\nann@one.test\nANN@ONE.TEST\nbob@one.test\n", ["ann", "bob"]),
    ('"ann"@one.test\nann@one.test\n', ["ann"]),
    ("Ann Lee <ann@one.test>\n<ann@One.Test> # again\n", ["ann"]),
    ("a.b@one.test\na.B@one.test\nab@one.test\n", ["a.b", "ab"]),
    ("ann+x@one.test\nann@one.test\nANN+X@one.test\n", ["ann", "ann+x"]),
    ("\ufeffann@one.test\r\nann@ONE.test\r\n# ann@one.test\r\n", ["ann"]),
)


def same_subscriber(binary):
    """Subscribers that differ in case or in needless quotes alone have one copy, and `check` says so."""
    names = NameServer().add_host("one.test", "127.0.40.1")
    host = Host("127.0.40.1", 0)
    sections, files = "", {}
    for number, (text, _) in enumerate(ONE_AND_THE_SAME):
        files[f"l{number}"] = text
        sections += f'[lists.l{number}]\naddress = "l{number}@lists.test"\nsubscribers = "l{number}"\nowner = "own@one.test"\npost = "anyone"\n'
    with Server(binary, names.address, host.port, sections, files) as server:
        for number in range(len(ONE_AND_THE_SAME)):
            server.send("me@home.test", [f"l{number}@lists.test"], message(f"post {number}"))
        copies = lambda number: sorted(
            one.lower().removesuffix("@one.test") for mail in host.mails if f"Subject: post {number}\r\n".encode() in mail.content for one in mail.to
        )
        for number, (text, right) in enumerate(ONE_AND_THE_SAME):
            wait_for(lambda: len(copies(number)) >= len(right), 10)
        time.sleep(0.5)
        for number, (text, right) in enumerate(ONE_AND_THE_SAME):
            yield row("same subscriber", text.replace("\r", "").replace("\n", ", "), right, copies(number))
        said = server.command("check")[1]
        yield row("same subscriber", "check", "names the line", said[-300:], "ann@one.test" in said.lower())


def bare_hostnames(binary):
    """`check` names a hostname with which EHLO is refused widely."""
    for name in ("15b0717dc4c2", "localhost", "localhost.localdomain", "LOCALHOST", "mailserver"):
        with Server(binary, "127.0.0.1:9", hostname=name, start=False) as server:
            said = server.command("check")[1]
            yield row("hostname", name, "named", said[-200:], "hostname" in said.split("ok;")[-1])


CASES = (second_name_server, edns, own_name, local_subscribers, notify, session_limits, short_outages, same_subscriber, bare_hostnames)
