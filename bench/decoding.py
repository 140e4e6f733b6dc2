"""Messages and encoded words as Python's email and charset libraries read them, to hold beside `stentor mime`.

What Python reads otherwise on purpose is in ARGUED: each name with why, and a reading of Python's own that shows that nothing else
differs. A difference that no entry explains counts.
"""

import base64
import email
import email.header
import email.utils
import random
import re

ARGUED = {
    "web-charset": "mail programs follow the Encoding Standard: iso-8859-1 and us-ascii are windows-1252, gb2312 is GBK, "
    "shift_jis and euc-jp have Microsoft's signs, tis-620 is windows-874",
    "undeclared": "octets over 127 whose charset nobody names are UTF-8, or else windows-1252; Python puts U+FFFD",
    "invalid": "how many U+FFFD stand for octets that are no character is each decoder's choice",
    "bad-word": "a word that cannot be decoded is shown as it is; Python leaves octets out, or fails",
    "loose-base64": "what follows padding in base64 is decoded, too; Python drops it",
    "encoding-name": "white space behind the name of an encoding is none of it; Python then decodes nothing",
    "uuencode": "uuencoded parts are not decoded: mail programs have not written them since MIME",
    "message-types": "of message/* only rfc822, global and news are read as messages (RFC 2046 section 5.2); Python reads all",
    "trailing-space": "white space before a line end is none of quoted-printable text (RFC 2045 section 6.7 rule 3); quopri keeps it",
    "file-name": "encoded words in the name of a file are decoded, against the standard and as mail programs do",
    "broken-structure": "a message of the collection's folder `malformed`: what its parts are is each reader's choice",
    "folded-boundary": "a boundary that its header field folds is unfolded (RFC 5322 section 2.2.3)",
    "encoded-message": "a message/rfc822 that is encoded itself is decoded and read; Python has it as a part without text",
}

# Charsets of the generated words, with the ranges that their characters are drawn from.
LATIN, GREEK, CYRILLIC, HEBREW, ARABIC, THAI = (0xA1, 0x17F), (0x391, 0x3CE), (0x401, 0x45F), (0x5D0, 0x5EA), (0x621, 0x64A), (0xE01, 0xE3A)
HAN, KANA, HANGUL = (0x4E00, 0x9FA5), (0x3041, 0x30FE), (0xAC00, 0xD7A3)
CHARSETS = {
    "utf-8": (LATIN, CYRILLIC, HAN, HANGUL, (0x1F300, 0x1F5FF)),
    "utf-7": (LATIN, HAN, (0x1F300, 0x1F5FF)),
    "iso-8859-1": (LATIN,), "iso-8859-2": (LATIN,), "iso-8859-5": (CYRILLIC,), "iso-8859-7": (GREEK,), "iso-8859-8": (HEBREW,),
    "iso-8859-9": (LATIN,), "iso-8859-15": (LATIN, (0x20AC, 0x20AC)), "windows-1250": (LATIN,), "windows-1251": (CYRILLIC,),
    "windows-1252": (LATIN, (0x2018, 0x2026)), "windows-1256": (ARABIC,), "koi8-r": (CYRILLIC,), "koi8-u": (CYRILLIC,), "tis-620": (THAI,),
    "gb2312": (HAN,), "gbk": (HAN,), "gb18030": (HAN, LATIN, (0x1F300, 0x1F5FF)), "hz-gb-2312": (HAN,), "big5": (HAN,),
    "shift_jis": (HAN, KANA), "euc-jp": (HAN, KANA), "iso-2022-jp": (HAN, KANA), "euc-kr": (HAN, HANGUL), "iso-2022-kr": (HANGUL,),
}
CODECS = {"hz-gb-2312": "hz", "tis-620": "tis_620"}
# What the Encoding Standard decodes them as, in Python's names.
WEB_CODECS = {
    "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "gb2312": "gbk", "shift_jis": "cp932",
    "euc-kr": "cp949", "big5": "big5hkscs", "tis-620": "cp874", "iso-8859-9": "cp1254",
}


def alphabet(charset):
    codec = CODECS.get(charset, charset)
    found = []
    for first, last in CHARSETS[charset]:
        for point in range(first, last + 1):
            try:
                octets = chr(point).encode(codec)
                # Python writes hangul that KS X 1001 lacks as eight octets that only Python reads.
                if octets.decode(codec) == chr(point) and len(octets.strip(b"\x1b$)C\x0e\x0f")) < 8:
                    found.append(chr(point))
            except UnicodeError:
                pass
    return found


def q_encoded(octets):
    return "".join("_" if o == 32 else chr(o) if chr(o).isascii() and chr(o).isalnum() else f"={o:02X}" for o in octets)


def encoded(octets, label, form):
    text = base64.b64encode(octets).decode() if form in "bB" else q_encoded(octets)
    return f"=?{label}?{form}?{text}?="


def words(count, seed):
    """(field value, what it says, whether it is as RFC 2047 wants it) of so many words, all charsets in turn."""
    dice = random.Random(seed)
    names = sorted(CHARSETS)
    alphabets = {name: alphabet(name) for name in names}
    for n in range(count):
        charset = names[n % len(names)]
        letters = alphabets[charset]
        text = "".join(dice.choice(letters) if dice.random() < 0.8 else dice.choice("abc XYZ 09") for _ in range(dice.randint(1, 12)))
        octets = text.encode(CODECS.get(charset, charset))
        label = charset.upper() if dice.random() < 0.3 else charset
        label += "*en" if dice.random() < 0.1 else ""
        form = dice.choice("bBqQ")
        cut = dice.randrange(len(octets))
        if dice.random() < 0.2 and cut:
            # Anywhere, also within a character.
            value = encoded(octets[:cut], label, form) + " " + encoded(octets[cut:], label, dice.choice("bq"))
        else:
            value = encoded(octets, label, form)
        before, behind = dice.choice(["", "Re: "]), dice.choice(["", " ok"])
        yield before + value + behind, before + text + behind


def decoded(octets, charset, web=False):
    name = (charset or "").split("*")[0].strip().lower()
    codec = WEB_CODECS.get(name) if web else None
    try:
        return octets.decode(codec or CODECS.get(name, name) or "ascii", "replace")
    except LookupError:
        return None


def undeclared(octets):
    """UTF-8 where it is, windows-1252 where it is not."""
    text = ""
    while octets:
        try:
            return text + octets.decode()
        except UnicodeDecodeError as error:
            text += octets[: error.start].decode() + octets[error.start : error.start + 1].decode("latin-1" if octets[error.start] in b"\x81\x8d\x8f\x90\x9d" else "cp1252")
            octets = octets[error.start + 1 :]
    return text


def field(value, web=False):
    """A header field as Python decodes it; None: it cannot."""
    octets = re.sub(r"[\r\n]", "", value).encode("utf-8", "surrogateescape")
    try:
        parts = email.header.decode_header(undeclared(octets) if web else octets.decode("ascii", "replace"))
    except (email.errors.HeaderParseError, ValueError):
        return None
    text = ""
    for part, charset in parts:
        if charset is not None:
            part = decoded(part, charset, web)
            if part is None:
                return None
        text += part if isinstance(part, str) else part.decode("raw-unicode-escape")
    return text.strip()


def loose(text):
    """Without what each decoder chooses: how many U+FFFD, signs that two tables have at different places."""
    return re.sub("\ufffd+", "\ufffd", (text or "").translate(SIGNS)).strip()


# JIS X 0208 in Microsoft's table and in others.
SIGNS = str.maketrans("\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\u2015", "\u301c\u2016\u2212\u00a2\u00a3\u00ac\u2014")


def why_text(ours, plain, web):
    """None: as Python has it; a name of ARGUED; "": a difference that nobody argues."""
    if ours == plain:
        return None
    if web is None:
        return "bad-word"
    if ours == web:
        return "undeclared" if "\ufffd" in (plain or "") else "web-charset"
    return "invalid" if loose(ours) == loose(web) else ""


def why_field(ours, value):
    return why_text(ours.strip(), field(value), field(value, web=True))


def parsed(path):
    with open(path, "rb") as file:
        return email.message_from_bytes(file.read())


def leaves(message):
    """The parts without parts: type, names, octets, text, and text by the Encoding Standard."""
    for part in message.walk():
        if part.is_multipart():
            continue
        octets = part.get_payload(decode=True) or b""
        charset = email.utils.collapse_rfc2231_value(part.get_param("charset", "") or "").lower() if "content-type" in part else ""
        is_text = part.get_content_maintype() in ("text", "message")
        web = decoded(octets, charset, web=True) if charset else undeclared(octets)
        yield {
            "type": part.get_content_type(), "name": part.get_filename() or "", "octets": len(octets),
            "encoding": part.get("content-transfer-encoding", "").strip(), "raw": part.get_payload(), "is_text": is_text,
            "plain": decoded(octets, charset or "ascii"), "web": undeclared(octets) if web is None else web,
        }


def why_parts(message, path):
    """Why a message's parts are others than Python's, if that is argued."""
    if "/malformed/" in path:
        return "broken-structure"
    kinds = [part.get_content_type() for part in message.walk() if part.get_content_maintype() == "message"]
    encoded_ones = [part for part in message.walk() if part.get_content_type() == "message/rfc822" and part.get("content-transfer-encoding", "7bit").lower() in ("base64", "quoted-printable")]
    if encoded_ones:
        return "encoded-message"
    if any("\n" in str(part.get_param("boundary", "")) for part in message.walk()):
        return "folded-boundary"
    return "message-types" if set(kinds) - {"message/rfc822"} else ""


def why_name(ours, theirs):
    octets = theirs.encode("utf-8", "surrogateescape")
    if ours == theirs:
        return None
    if ours == undeclared(octets) or "\ufffd" in theirs:
        return "undeclared"
    return "file-name" if ours == field(theirs) else ""


def why_body(ours, theirs):
    """Of the octets or the text of a part."""
    if theirs["encoding"].lower() in ("x-uuencode", "uuencode", "uue", "x-uue"):
        return "uuencode" if ours["size"] != theirs["octets"] else None
    if not theirs["is_text"]:
        return None if ours["size"] == theirs["octets"] else ""
    why = why_text(ours["text"], theirs["plain"], theirs["web"])
    if why != "":
        return why
    text, web = (re.sub(r"[ \t]+(?=\r?\n)", "", text) for text in (ours["text"], theirs["web"]))
    if loose(text) == loose(web):
        return "trailing-space"
    if ours["encoding"] == "base64" and ours["text"].startswith(theirs["web"]):
        return "loose-base64"
    if ours["encoding"] == "quoted-printable" and theirs["web"].strip() == str(theirs["raw"]).strip():
        return "encoding-name"
    return ""
