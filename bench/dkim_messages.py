"""Messages for `identity.verify`, from a seed, in forms that make signing hard. A kind is a function of a random generator that returns the
Parts of a message."""

import base64
import email.charset
import quopri
import random

AUTHOR_DOMAIN, LIST_DOMAIN, REPORT_DOMAIN = "example.org", "lists.test", "stentor.test"
AUTHOR = f"ann@{AUTHOR_DOMAIN}"
GONE = "nobody@gone.example"
# What the hosts that store the copies offer.
HOSTS = {"full": ("8BITMIME", "SMTPUTF8", "CHUNKING"), "eight": ("8BITMIME",), "plain": ()}
DATE = "Sat, 28 Nov 2026 12:00:00 +0000"
ASCII_WORDS = ("Hello", "a=b", "-- ", "From", ".", "..", "<b>bold</b>", "=3D", "end", "x" * 70, "tab\there", "two  spaces", "=")
WORDS = (*ASCII_WORDS, "Gr\u00fc\u00dfe", "\u4e2d\u6587", "\u041f\u0440\u0438\u0432\u0435\u0442", "\U0001f4e8", "na\u00efve")
NAMES = ("Ann Lee", '"Lee, Ann"', "=?utf-8?q?Ann_L=C3=A9e?=", "=?utf-8?B?QW5uIEzDqWU=?=", "")
SPACES = (" ", "  ", "\t", " \t ", "\r\n ", "\r\n\t", " \r\n  ", "\t\r\n\t\t")
TAB = "\t"
REPEATED = ("To", "Cc", "Subject", "Reply-To", "References", "List-Unsubscribe", "Resent-To", "Precedence", "Auto-Submitted")
UTF8_TEXT = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n"


class Parts:
    """`body` begins with the empty line after the header. `usual` replaces From, To and Subject, `fields` come after them. `values` are for
    the placeholders of a message that is submitted over HTTP."""

    def __init__(self, body, fields="", usual=None, values=None):
        self.body, self.fields, self.usual, self.values = body, fields, usual, values


class Message:
    """A message to send, and the domains that sign its copy."""

    def __init__(self, number, kind, host, octets, values=None):
        self.number, self.host, self.octets, self.values = number, host, octets, values
        self.kind = kind.__name__
        self.domains, self.sender, self.recipient = (AUTHOR_DOMAIN,), AUTHOR, address(number, host)
        if kind in (list_post, own_copy):
            prefix = "news" if kind is list_post else "own"
            self.domains, self.recipient = (AUTHOR_DOMAIN, LIST_DOMAIN), list_address(prefix, host)
        if kind is dsn:
            # The host that stores copies gets the DSN.
            self.domains, self.sender, self.recipient = (REPORT_DOMAIN,), address(number, host), GONE
        self.parameters = " BODY=8BITMIME" + (" SMTPUTF8" if kind is smtputf8 else "")


def address(number, host):
    return f"m{number}@{host}.example"


def list_address(prefix, host):
    return f"{prefix}-{host}@{LIST_DOMAIN}"


def messages(count, seed):
    """`count` messages: all kinds by turns, and each kind to the hosts by turns."""
    rng = random.Random(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        turn = number // len(KINDS)
        host = "full" if kind is smtputf8 else list(HOSTS)[turn % len(HOSTS)]
        made = kind(rng)
        usual = made.usual or (
            f"From: {rng.choice(NAMES)} <{AUTHOR}>\r\nTo: all@{host}.example\r\nSubject: message {number} of kind {kind.__name__}\r\n"
        )
        # X-Number identifies the message in a copy that goes to another address.
        header = f"X-Number: {number}\r\n{usual}Date: {DATE}\r\nMessage-ID: <{number}@{AUTHOR_DOMAIN}>\r\n{made.fields}"
        yield Message(number, kind, host, f"{header}{made.body}".encode("utf-8", "surrogateescape"), made.values)


def line(rng, words=WORDS, most=12):
    return " ".join(rng.choices(words, k=rng.randrange(most)))


def text(rng, words=WORDS, most=20):
    return "".join(f"{line(rng, words)}\r\n" for _ in range(rng.randrange(1, most)))


def blanks(rng):
    """Empty lines, and lines of spaces and tabs."""
    return "".join(rng.choice(("\r\n", " \r\n", "\t\r\n", "  \t \r\n")) for _ in range(rng.randrange(1, 8)))


def folds(rng, words=ASCII_WORDS, most=30):
    """Words between which there are spaces and folds of all kinds."""
    return "".join(word + rng.choice(SPACES) for word in rng.choices(words, k=rng.randrange(1, most))) + "end"


def part(kind, body, encoding="8bit"):
    return f"Content-Type: {kind}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}"


def multipart(rng, parts, kind="mixed"):
    boundary = f"=_{rng.randrange(10**9)}"
    preamble = rng.choice(("", "This is MIME.  \r\n"))
    inner = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts)
    epilogue = rng.choice(("", "\r\n", "epilogue  \r\n\r\n"))
    fields = f'MIME-Version: 1.0\r\nContent-Type: multipart/{kind}; boundary="{boundary}"\r\n'
    return Parts(f"\r\n{preamble}{inner}--{boundary}--\r\n{epilogue}", fields)


def base64_lines(rng, octets_max, line_octets=76):
    whole = base64.b64encode(rng.randbytes(rng.randrange(octets_max))).decode()
    return "".join(f"{whole[at : at + line_octets]}\r\n" for at in range(0, len(whole), line_octets))


def empty_body(rng):
    return Parts(rng.choice(("", "\r\n")))


def blank_body(rng):
    return Parts(f"\r\n{blanks(rng)}")


def blank_tail(rng):
    return Parts(f"\r\n{text(rng)}{blanks(rng)}", UTF8_TEXT)


def dot_lines(rng):
    lines = rng.choices((".", "..", ". ", ".x", "...", ".\t", "text", ""), k=rng.randrange(1, 30))
    return Parts("\r\n" + "\r\n".join(lines) + "\r\n")


def spaces_in_lines(rng):
    lines = ("".join(word + " " * rng.randrange(4) + "\t" * rng.randrange(3) for word in rng.choices(WORDS, k=8)) for _ in range(12))
    return Parts("\r\n" + "\r\n".join(lines) + "\r\n", UTF8_TEXT)


def folded_fields(rng):
    author = f'{rng.choice(SPACES)}"{folds(rng, ("Ann", "Lee"), 5)}"{rng.choice(SPACES)}<{AUTHOR}>'
    usual = f"From:{author}\r\nTo: bob@x.example,\r\n\tcid@y.example\r\nSubject: {folds(rng)}\r\n"
    return Parts(f"\r\n{text(rng, ASCII_WORDS)}", f"References: {folds(rng, ('<a@b.example>', '<c@d.example>'))}\r\n", usual)


def eight_bit_header(rng):
    """UTF-8 or Latin-1, without SMTPUTF8: such mail exists."""
    words = rng.choice((WORDS, ("Gr\udcfc\udcdfe", "caf\udce9", "text")))
    usual = f"From: Z\u00fcrich <{AUTHOR}>\r\nTo: all@x.example\r\nSubject: {folds(rng, words, 12)}\r\n"
    return Parts(f"\r\n{text(rng)}", UTF8_TEXT, usual)


def encoded_word(rng):
    charset = email.charset.Charset("utf-8")
    charset.header_encoding = rng.choice((email.charset.BASE64, email.charset.QP))
    return rng.choice((charset.header_encode(rng.choice(WORDS)), "=?iso-8859-1?q?caf=E9?=", "plain"))


def encoded_words(rng):
    subject = "".join(encoded_word(rng) + rng.choice(SPACES) for _ in range(rng.randrange(1, 12))) + "end"
    usual = f"From: {encoded_word(rng)} <{AUTHOR}>\r\nTo: {encoded_word(rng)} <all@x.example>\r\nSubject: {subject}\r\n"
    return Parts(f"\r\n{text(rng, ASCII_WORDS)}", usual=usual)


def alternative(rng):
    plain = part("text/plain; charset=utf-8", text(rng))
    html = part("text/html; charset=utf-8", f"<p>{text(rng)}</p>")
    return multipart(rng, [plain, html], "alternative")


def attachment(rng):
    octets = part('application/octet-stream; name="a.bin"', base64_lines(rng, 20_000), "base64")
    return multipart(rng, [part("text/plain; charset=utf-8", text(rng)), octets])


def quoted_printable(rng):
    body = quopri.encodestring(text(rng).replace("\r\n", "\n").encode()).decode().replace("\n", "\r\n")
    return Parts(f"\r\n{body}", UTF8_TEXT.replace("8bit", "quoted-printable"))


def long_lines(rng):
    """Lines over 998 octets, which are converted."""
    lines = [line(rng, WORDS, rng.choice((10, 400))) for _ in range(5)] + ["word " * 300]
    rng.shuffle(lines)
    body = "".join(f"{one}\r\n" for one in lines)
    if rng.random() < 0.5:
        return Parts(f"\r\n{body}", UTF8_TEXT)
    octets = part("application/pdf", base64_lines(rng, 5_000, 2_000), "base64")
    return multipart(rng, [part("text/plain; charset=utf-8", body), octets])


def long_header_lines(rng):
    to = ", ".join(f"user{n}@x.example" for n in range(rng.randrange(60, 200)))
    usual = f"From: Ann <{AUTHOR}>\r\nTo: {to}\r\nSubject: {'word ' * rng.randrange(200, 400)}\r\n"
    return Parts(f"\r\n{text(rng, ASCII_WORDS)}", usual=usual)


def long_fields(rng):
    """Folded fields of up to 30,000 octets."""
    references = "\r\n ".join(f"<{rng.randrange(10**12)}@x.example>" for _ in range(rng.randrange(50, 1_000)))
    to = ",\r\n\t".join(f"User {n} <user{n}@x.example>" for n in range(rng.randrange(20, 500)))
    usual = f"From: Ann <{AUTHOR}>\r\nTo: {to}\r\nSubject: long\r\n"
    return Parts(f"\r\n{text(rng)}", f"References: {references}\r\n{UTF8_TEXT}", usual)


def odd_field(rng, name, value):
    """A field in any case, with white space wherever it is allowed."""
    name = rng.choice((name, name.upper(), name.lower()))
    before, after = rng.choice(("", "", " ", "\t")), rng.choice(("", " ", "   ", "\t", "\r\n "))
    return f"{name}{before}:{after}{value}{rng.choice(('', ' ', TAB, '  '))}\r\n"


def odd_spacing(rng):
    subject = odd_field(rng, "Subject", rng.choice(("a  subject", "x", "")))
    usual = odd_field(rng, "From", f"<{AUTHOR}>") + odd_field(rng, "To", "all@x.example") + subject
    more = odd_field(rng, "Cc", rng.choice(("", "b@x.example"))) + odd_field(rng, "Reply-To", "c@x.example")
    return Parts(f"\r\n{text(rng, ASCII_WORDS)}", more, usual)


def repeated_fields(rng):
    fields = "".join(f"{name}: <{rng.randrange(100)}@x.example>\r\n" for name in rng.choices(REPEATED, k=8))
    return Parts(f"\r\n{text(rng, ASCII_WORDS)}", fields)


def list_post(rng):
    fields = rng.choice(("", "List-Unsubscribe: <https://x.example/u>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"))
    return Parts(f"\r\n{text(rng)}{rng.choice(('', blanks(rng)))}", fields + UTF8_TEXT)


def own_copy(rng):
    """To a list whose copies have a link, a return path and fields of their own."""
    return rng.choice((alternative, blank_tail, long_fields, list_post))(rng)


def merge_fields(rng):
    """Placeholders in header and body, whose values are put in before the copy is signed."""
    values = {"name": rng.choice(("Ann", "J\u00f6rg", "\u4e2d\u6587", "a & b", "x" * 300)), "line": "".join(c for c in line(rng, WORDS) if c.isprintable())}
    usual = f"From: Ann <{AUTHOR}>\r\nTo: {{{{name}}}} <all@x.example>\r\nSubject: Hello {{{{name}}}}, {{{{line}}}}\r\n"
    body = f"Dear {{{{name}}}},\r\n{text(rng)}{{{{line}}}} \r\n{rng.choice(('', blanks(rng)))}"
    quoted = quopri.encodestring(body.replace("\r\n", "\n").encode()).decode().replace("\n", "\r\n")
    parts = multipart(rng, [
        part("text/plain; charset=utf-8", body), part("text/plain; charset=utf-8", quoted, "quoted-printable"),
        part("text/html; charset=utf-8", base64.encodebytes(f"<p>{body}</p>".encode()).decode().replace("\n", "\r\n"), "base64"),
    ], "alternative")
    return Parts(parts.body, parts.fields, usual, values)


def relay_fields(rng):
    """Mail that other servers have had: their fields, and a signature whose key is not published."""
    hops = range(rng.randrange(1, 6))
    trace = "".join(f"Received: from a{n}.example by b{n}.example\r\n\twith ESMTP; {DATE}\r\n" for n in hops)
    body_hash, signature = (base64.b64encode(rng.randbytes(octets)).decode() for octets in (32, 256))
    foreign = (
        "DKIM-Signature: v=1; a=rsa-sha256; c=simple/simple; d=elsewhere.example; s=x;\r\n\th=from:to:subject;\r\n"
        f"\tbh={body_hash};\r\n\tb={signature}\r\nAuthentication-Results: b0.example; dkim=pass\r\n"
    )
    usual = f"{trace}{foreign}From: Ann <{AUTHOR}>\r\nTo: all@x.example\r\nSubject: relayed\r\n"
    return Parts(f"\r\n{text(rng)}", UTF8_TEXT, usual)


def dsn(rng):
    """To a mailbox that does not exist: its DSN is what is stored."""
    kinds = (alternative, attachment, eight_bit_header, folded_fields, long_fields, odd_spacing, quoted_printable)
    return rng.choice(kinds)(rng)


def message_part(rng):
    inner = rng.choice((alternative, attachment, blank_tail, long_lines))(rng)
    header = f"From: x@y.example\r\nSubject: {line(rng, ASCII_WORDS)}\r\n{inner.fields}"
    attached = f"Content-Type: message/rfc822\r\n\r\n{header}{inner.body}"
    return multipart(rng, [part("text/plain; charset=utf-8", text(rng)), attached])


def smtputf8(rng):
    author = f"J\u00f6rg <j\u00f6rg@{AUTHOR_DOMAIN}>"
    usual = f"From: {author}\r\nTo: \u7528\u6237@x.example\r\nSubject: {folds(rng, WORDS, 10)}\r\n"
    return Parts(f"\r\n{text(rng)}", UTF8_TEXT, usual)


def large_body(rng):
    lines = rng.choices((".Gr\u00fc\u00dfe  aus\tdem Norden \r\n", "\r\n", "text\r\n", " \r\n"), k=5_000)
    return Parts("\r\n" + "".join(lines), UTF8_TEXT)


KINDS = (
    empty_body, blank_body, blank_tail, dot_lines, spaces_in_lines, folded_fields, eight_bit_header, encoded_words, alternative, attachment,
    quoted_printable, long_lines, long_header_lines, long_fields, odd_spacing, repeated_fields, list_post, own_copy, merge_fields, relay_fields, dsn,
    message_part, smtputf8, large_body,
)
