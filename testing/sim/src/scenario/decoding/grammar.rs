//! Messages that make a decoder work: a header, and tokens over and over in lines.

/// One decoder, and what to write for it.
pub struct Decoder {
    pub name: &'static str,
    /// What stands before the tokens.
    pub heads: &'static [&'static [u8]],
    pub tokens: &'static [&'static [u8]],
    /// Heads and tokens that are known to be expensive: tried first.
    pub seeds: &'static [(usize, &'static [&'static [u8]])],
}

/// One message: `unit` is repeated.
#[derive(Debug, Clone)]
pub struct Sample {
    head: &'static [u8],
    unit: Vec<Vec<u8>>,
    /// Octets of a line, at least; 0: lines are the tokens' own.
    width: usize,
}

const UNIT_TOKENS_MAX: usize = 12;
/// Longest line that is written (RFC 5322 section 2.1.1: 998), and the usual ones.
const WIDTHS: [usize; 6] = [900, 900, 76, 400, 16, 0];

const HTML: &[u8] = b"Subject: x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n";
const HTML_1252: &[u8] = b"Subject: x\r\nContent-Type: text/html\r\n\r\n<p>";
const TEXT: &[u8] = b"Subject: x\r\n\r\n";
const UTF_8: &[u8] = b"Subject: x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n";
const BASE64: &[u8] = b"Subject: x\r\nContent-Transfer-Encoding: base64\r\n\r\n";
const BASE64_HTML: &[u8] = b"Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n";
const QUOTED: &[u8] = b"Subject: x\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n";
const QUOTED_HTML: &[u8] = b"Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n";
const NESTED: &[u8] = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n";
const MIXED: &[u8] = b"Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n";
const DIGEST: &[u8] = b"Subject: x\r\nContent-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n";
const TWO_LEVELS: &[u8] = b"Content-Type: multipart/mixed; boundary=b; boundary=bb; boundary=b--\r\n\r\n--b\r\n\
    Content-Type: multipart/mixed; boundary=ba; boundary=bab\r\n\r\n--ba\r\n\r\nx\r\n";
/// Four boundaries on each of many levels.
const DEEP: &[u8] = b"@deep";

pub const DECODERS: [Decoder; 15] = [
    Decoder {
        name: "html.references",
        heads: &[HTML, HTML_1252, BASE64_HTML, QUOTED_HTML],
        tokens: &[
            b"&",
            b"&a",
            b"&#",
            b"&#x",
            b";",
            b"&lt",
            b"&lt;",
            b"&amp",
            b"&ampx",
            b"&notit;",
            b"&CounterClockwiseContourIntegral;",
            b"&ab;",
            b"&#1;",
            b"&#65;",
            b"&#x41;",
            b"&#128;",
            b"&#0",
            b"&#99999999999;",
            b"&nbsp;",
            b"&shy;",
            b"&yuml",
            b"&frac1",
            b"a",
            b" ",
            b"&aaaaaa",
            b"&sup",
            b"&zwnj;",
            b"&NotEqualTilde;",
        ],
        seeds: &[
            (0, &[b"&"]),
            (0, &[b"&a"]),
            (0, &[b"&aaaaaa"]),
            (0, &[b"&ab "]),
            (0, &[b"&#1;"]),
            (0, &[b"&lt;"]),
            (0, &[b"&#128;"]),
            (0, &[b"&nbsp;"]),
            (0, &[b"&frac1"]),
            (0, &[b"&NotEqualTilde;"]),
            (0, &[b"&#"]),
        ],
    },
    Decoder {
        name: "html.tags",
        heads: &[HTML, HTML_1252],
        tokens: &[
            b"<",
            b">",
            b"<b>",
            b"</b>",
            b"<p>",
            b"<a ",
            b"='",
            b"'",
            b"\"",
            b"=",
            b"/",
            b"<!--",
            b"-->",
            b"--",
            b"-",
            b"!",
            b"<!",
            b"<?",
            b"</",
            b"<script>",
            b"</script>",
            b"<style",
            b"</style>",
            b"<svg>",
            b"a",
            b" ",
            b"x=y ",
            b"\r\n",
            b"<b/>",
            b"<br>",
        ],
        seeds: &[
            (0, &[b"<"]),
            (0, &[b"<b>"]),
            (0, &[b"<p>a"]),
            (0, &[b"<a b='c' d=\"\">"]),
            (0, &[b"<!---->"]),
            (0, &[b"<a ''"]),
            (0, &[b"<script><"]),
            (0, &[b"<!--", b"-"]),
            (0, &[b"a "]),
            (0, &[b"</"]),
        ],
    },
    Decoder {
        name: "encoded_words",
        heads: &[
            b"Subject: ",
            b"X-A: ",
            b"From: ",
            b"Content-Description: ",
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nSubject: ",
        ],
        tokens: &[
            b"=?utf-8?q?=41?= ",
            b"=?utf-8?b?QQ==?= ",
            b"=?",
            b"?=",
            b"?",
            b"=",
            b"q?",
            b"=?a?q??=",
            b"=?gb2312?b?x+s=?= ",
            b"=?x?x?a?=",
            b"=?iso-2022-jp?b?GyRC?=",
            b"=?utf-7?q?+AGE-?= ",
            b"=?koi8-r?q?a?= =?utf-8?q?b?= ",
            b"=?c1?q?a?=",
            b"=?c2?q?a?=",
            b"=?c3?q?a?=",
            b"=?utf-8?q?",
            b"_",
            b"\r\n ",
            b"\r\nX-B: ",
            b"\r\nSubject: ",
            b"=?utf-8?q??=",
            b"=?hz?q?~{<:~}?=",
            b"\xc3\xa9",
            b"\x80",
        ],
        seeds: &[
            (0, &[b"=?utf-8?q?=41?= ", b"\r\n "]),
            (0, &[b"=?a?q??=", b"\r\n "]),
            (1, &[b"=?c1?q?a?==?c2?q?a?==?c3?q?a?=", b"\r\n "]),
            (1, &[b"=", b"=?", b"\r\n "]),
            (4, &[b"=?utf-8?q??= =?gbk?q??= ", b"\r\nX-B: "]),
            (0, &[b"=?koi8-r?q?a?= =?utf-8?q?b?= ", b"\r\n "]),
            (0, &[b"?", b"?", b"?", b"?", b"\r\n "]),
        ],
    },
    Decoder {
        name: "parameters",
        heads: &[
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: a/b",
            b"Content-Type: a/b",
            b"Content-Disposition: attachment",
        ],
        tokens: &[
            b";a=",
            b"; name=a",
            b"; name*0=a",
            b"; name*1*=%41",
            b"; filename*=utf-8''%41",
            b"; boundary=q",
            b"; boundary=\"q r\"",
            b";charset=x",
            b"(",
            b")",
            b"(())",
            b"\"",
            b"\\",
            b"\\\"",
            b";",
            b"=",
            b"; name=\"=?utf-8?q?a?=\"",
            b"\r\n ",
            b"\r\nContent-Type: a/b",
            b"\r\n\r\n\r\n--b\r\nContent-Type: a/b",
            b"\r\nContent-Disposition: x",
            b"; x*99=y",
            b" ",
            b"aaaaaaaa",
        ],
        seeds: &[
            (1, &[b";a=", b"\r\n "]),
            (1, &[b"; name=a", b"\r\n "]),
            (2, &[b"; filename*=utf-8''%41", b"\r\n "]),
            (1, &[b"(())", b"\r\n "]),
            (
                0,
                &[
                    b"; name=\"=?utf-8?q?a?=\"",
                    b"; name*0=a; name*1*=%41",
                    b"\r\nContent-Disposition: x",
                    b"; name=b",
                    b"\r\n\r\n\r\n--b\r\nContent-Type: a/b",
                ],
            ),
            (0, &[b";a=;a=;a=;a=;a=;a=;a=;a=;a=;a=;a=;a=", b"\r\n\r\n\r\n--b\r\nContent-Type: a/b"]),
        ],
    },
    Decoder {
        name: "base64",
        heads: &[BASE64, BASE64_HTML],
        tokens: &[
            b"A", b"=", b"!", b"QQ==", b"QUJD", b"A=!", b"\r\n", b"-", b"\x80", b"gICA", b"Jibm", b"4oCL", b"PGI+",
        ],
        seeds: &[
            (0, &[b"A=!"]),
            (0, &[b"A="]),
            (0, &[b"gICA"]),
            (0, &[b"QUJD"]),
            (1, &[b"JiYm"]),
            (1, &[b"PDw8"]),
            (0, &[b"QQ=="]),
            (0, &[b"!"]),
        ],
    },
    Decoder {
        name: "quoted_printable",
        heads: &[QUOTED, QUOTED_HTML],
        tokens: &[
            b"=41",
            b"=",
            b"=z",
            b"=4",
            b" ",
            b"\t",
            b"\r\n",
            b"=\r\n",
            b"= \r\n",
            b"=80",
            b"=E2=80=8B",
            b"a",
            b"=C2=AD",
            b"=3C",
            b"=26",
            b" \r\n",
        ],
        seeds: &[
            (0, &[b"=41="]),
            (0, &[b" "]),
            (0, &[b"=z"]),
            (0, &[b"=80"]),
            (0, &[b"=", b" ", b"a"]),
            (0, &[b" \r\n"]),
            (1, &[b"=26=61"]),
            (0, &[b"a "]),
            (0, &[b"=\r\n"]),
        ],
    },
    Decoder {
        name: "charset.undeclared",
        heads: &[TEXT, HTML_1252],
        tokens: &[
            b"\x80",
            b"\xf0\x90\x80",
            b"\xc3\xa9",
            b"\xe2\x80\x8b",
            b"\xc2\xad",
            b"a",
            b"\xff",
            b"\xe2\x82",
            b"\xed\xa0\x80",
            b"\xd0\x90",
            b"\xe8\xaf\xb7",
            b"\xc3",
        ],
        seeds: &[
            (0, &[b"\x80"]),
            (0, &[b"\xf0\x90\x80"]),
            (0, &[b"\xc3a"]),
            (0, &[b"\xff"]),
            (0, &[b"\xe2\x82\xc3"]),
            (0, &[b"\xc2\xada"]),
            (1, &[b"\x80"]),
        ],
    },
    Decoder {
        name: "charset.utf-8",
        heads: &[UTF_8, HTML],
        tokens: &[
            b"\xc2\xad",
            b"\xe2\x80\x8b",
            b"a",
            b"\x80",
            b"\xe2\x80",
            b"\xd0\x90",
            b"\xe8\xaf\xb7",
            b"\xf0\x9f\x90\x91",
            b"\xc3\xa9",
            b"\xff",
            b"\xe0\xa4\x85",
            b"\xce\x91",
            b"\xd4\xb1",
            b"\xd7\x90",
            b"\xd8\xa7",
            b"\xdc\x90",
            b"\xde\x80",
            b"\xe0\xa6\x85",
            b"\xe1\x82\xa0",
            b"\xe1\x8e\xa0",
            b"\xe1\x90\x81",
            b"\xe1\x9a\x81",
            b"\xe1\xa0\xa0",
            b"\xe0\xb8\x81",
            b"\xe0\xbd\x80",
            b"\xe1\x9e\x80",
            b" ",
            b"\xc2\xa0",
            b"\xe2\x80\xa8",
        ],
        seeds: &[
            (0, &[b"\xc2\xada"]),
            (0, &[b"\xe2\x80\x8b"]),
            (0, &[b"\x80"]),
            (0, &[b"\xce\x91\xd4\xb1\xd7\x90\xd8\xa7\xdc\x90\xde\x80\xe0\xa6\x85\xe1\x82\xa0\xe1\x8e\xa0"]),
            (0, &[b"\xe1\x9a\x81"]),
            (0, &[b"\xe0\xa4\x85"]),
            (1, &[b"\xc2\xa0"]),
            (0, &[b"\xd0\x90"]),
        ],
    },
    Decoder {
        name: "charset.others",
        heads: &[
            b"Content-Type: text/plain; charset=utf-7\r\n\r\n",
            b"Content-Type: text/plain; charset=hz-gb-2312\r\n\r\n",
            b"Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n",
            b"Content-Type: text/plain; charset=iso-2022-kr\r\n\r\n",
            b"Content-Type: text/plain; charset=gb18030\r\n\r\n",
            b"Content-Type: text/plain; charset=big5\r\n\r\n",
            b"Content-Type: text/plain; charset=shift_jis\r\n\r\n",
            b"Content-Type: text/plain; charset=euc-jp\r\n\r\n",
            b"Content-Type: text/plain; charset=euc-kr\r\n\r\n",
            b"Content-Type: text/plain; charset=utf-16le\r\n\r\n",
            b"Content-Type: text/plain; charset=koi8-r\r\n\r\n",
            b"Content-Type: text/html; charset=iso-2022-jp\r\n\r\n",
        ],
        tokens: &[
            b"+AGE-",
            b"+",
            b"-",
            b"+AGEAYg-",
            b"+2D3cEQ-",
            b"~{",
            b"~}",
            b"~",
            b"VPND",
            b"\x1b$B",
            b"\x1b(B",
            b"\x1b",
            b"\x0e",
            b"\x0f",
            b"\x1b$)C",
            b"\xc7\xeb",
            b"\x81",
            b"\x810\x810",
            b"\xff",
            b"\xa4",
            b"a",
            b"\xd8",
            b"\x84",
            b"%O",
            b"\x8f\xa2",
            b"\x1b(J",
            b"\x1b$",
            b"\x82\xa0",
            b" ",
            b"0",
        ],
        seeds: &[
            (0, &[b"+AGEAYg-"]),
            (0, &[b"+-"]),
            (0, &[b"+A"]),
            (1, &[b"~{VPND~}"]),
            (1, &[b"~{~}"]),
            (2, &[b"\x1b$B", b"\x1b(B"]),
            (2, &[b"\x1b"]),
            (2, &[b"\x81"]),
            (3, &[b"\x0e%O\x0f"]),
            (3, &[b"\x1b$"]),
            (4, &[b"\x810\x810"]),
            (4, &[b"\x81"]),
            (5, &[b"\x81a"]),
            (6, &[b"\x82\xff"]),
            (7, &[b"\x8f"]),
            (8, &[b"\xc7a"]),
            (9, &[b"\xd8\xd8"]),
            (10, &[b"\xd8"]),
            (4, &[b"\xc7\xeb"]),
        ],
    },
    Decoder {
        name: "multiparts",
        heads: &[MIXED, DIGEST, TWO_LEVELS],
        tokens: &[
            b"\r\n--b\r\n\r\n",
            b"\r\n--b\r\n",
            b"x",
            b"\r\n",
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n",
            b"Content-Type: message/rfc822\r\n\r\n",
            b"Content-Type: text/html\r\n\r\n&",
            b"\r\n--b--\r\n",
            b"Content-Type: a/b; name=x\r\n\r\n",
            b"\r\n--ba\r\n",
            b"a: b\r\n",
            b"Content-Transfer-Encoding: base64\r\n",
            b"Subject: =?gbk?q?a?=\r\n\r\n",
        ],
        seeds: &[
            (0, &[b"\r\n--b\r\n\r\n"]),
            (0, &[b"\r\n--b\r\n\r\nx"]),
            (0, &[b"\r\n--b\r\n"]),
            (1, &[b"\r\n--b\r\n\r\nx"]),
            (0, &[b"\r\n--b\r\n", b"a: b\r\n"]),
            (0, &[b"\r\n--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"]),
            (0, &[b"\r\n--b\r\n", b"Content-Type: a/b; name=x\r\n\r\n"]),
            (0, &[b"\r\n--b\r\n", b"Content-Type: text/html\r\n\r\n&"]),
        ],
    },
    Decoder {
        name: "boundaries",
        heads: &[MIXED, TWO_LEVELS, DEEP, TEXT],
        tokens: &[
            b"--\r\n",
            b"--b",
            b"--a\r\n",
            b"--b1\r\n",
            b"--bb \r\n",
            b"-",
            b"\r\n",
            b"x",
            b"--b10--\r\n",
            b" ",
            b"\r",
            b"--b29x\r\n",
            b"--ba--x\r\n",
            b"begin ",
        ],
        seeds: &[
            (2, &[b"--\r\n"]),
            (2, &[b"--b\r\n"]),
            (2, &[b"--b29\r\n"]),
            (0, &[b"\r\n"]),
            (3, &[b"\r\n"]),
            (0, &[b"x\r\n--\r\n"]),
            (2, &[b"\r\n--b15"]),
            (0, &[b"-\r\n"]),
        ],
    },
    Decoder {
        name: "uuencode",
        heads: &[TEXT, UTF_8],
        tokens: &[
            b"begin 644 a\r\n",
            b"#86)C\r\n",
            b"`\r\n",
            b"end\r\n",
            b"begin 644 =?x?q?a?=\r\n",
            b"begin ",
            b"begin\r\n",
            b"x",
            b"\r\n",
            b"begin 0644 a.exe\r\n#86)C\r\nend\r\n",
            b"begin 644 =?utf-8?q?=41?=.exe\r\n",
        ],
        seeds: &[
            (0, &[b"begin 644 a\r\n#86)C\r\n"]),
            (0, &[b"begin 644 =?x?q?a?=\r\n#86)C\r\n"]),
            (0, &[b"begin \r\n"]),
            (0, &[b"begin 644 a\r\n", b"`\r\n", b"`\r\n", b"`\r\n", b"`\r\n"]),
        ],
    },
    Decoder {
        name: "header_fields",
        heads: &[
            b"",
            b"X-A: b\r\n",
            b"From: ",
            b"Authentication-Results: mx.example.org; ",
            b"Content-Type: message/rfc822\r\n\r\n",
            b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n",
        ],
        tokens: &[
            b"a:\r\n",
            b"A: b\r\n",
            b" x\r\n",
            b"\t\r\n",
            b"Subject: a\r\n",
            b"From: a@b\r\n",
            b"To: a@b, c@d\r\n",
            b"Received: a\r\n",
            b"List-Id: <a>\r\n",
            b"<a@b>, ",
            b"(",
            b")",
            b"\"",
            b"\\",
            b"X: pills\r\n",
            b"X: a pill\r\n",
            b"Content-Type: a\r\n",
            b"Content-Transfer-Encoding: x\r\n",
            b"\r\n ",
            b"X: \x80\r\n",
            b"Precedence: bulk\r\n",
            b"Message-ID: <a>\r\n",
            b"a",
            b"aaaaaaaaaaaaaaaa",
            b"spf=fail; ",
            b"X-Mailer: b\r\n",
            b"DKIM-Signature: a=b\r\n",
        ],
        seeds: &[
            (0, &[b"a:\r\n"]),
            (0, &[b"A: b\r\n"]),
            (1, &[b" x\r\n"]),
            (1, &[b"\t\r\n"]),
            (0, &[b"Subject: a\r\n"]),
            (0, &[b"From: a@b\r\n"]),
            (2, &[b"<a@b>, ", b"\r\n "]),
            (2, &[b"(", b"\r\n "]),
            (3, &[b"spf=fail; ", b"\r\n "]),
            (4, &[b"a:\r\n"]),
            (5, &[b"a:\r\n"]),
            (0, &[b"X: \x80\r\n"]),
            (1, &[b" aaaaaaaaaaaaaaaa\r\n"]),
            (5, &[b"X: \x80\r\n"]),
            (5, &[b"Content-Type: a\r\n"]),
            (0, &[b"X: a pill\r\n"]),
        ],
    },
    Decoder {
        name: "expressions",
        heads: &[TEXT, UTF_8, HTML],
        tokens: &[
            b"cash",
            b"aB1",
            b"prize",
            b"priz",
            b"you ",
            b"won",
            b"you   wo",
            b"https://a",
            b".bad",
            b"http://",
            b"viagr",
            b"a",
            b" ",
            b"\r\n",
            b"\xd0\xbf\xd1\x80\xd0\xb5\xd0\xb4",
            b"\xd0\xbb\xd0\xbe\xd0\xb6",
            b"cashcash",
            b"c",
            b"\xc5\xbf",
            b"\xe2\x84\xaa",
            b"cashx",
            b"_",
            b"7",
            b"-",
            b".",
        ],
        seeds: &[
            (0, &[b"cash", b"aB1aB1aB1aB1aB1aB1aB1", b"xprizcash"]),
            (0, &[b"cash"]),
            (0, &[b"cashc"]),
            (0, &[b"you  you "]),
            (0, &[b"https://a.bad.bad"]),
            (0, &[b"c", b"a", b"s", b"h", b"c"]),
            (1, &[b"\xd0\xbf\xd1\x80\xd0\xb5\xd0\xb4"]),
            (1, &[b"cash\xc5\xbfcash"]),
        ],
    },
    Decoder {
        name: "nested",
        heads: &[
            NESTED,
            b"Content-Type: message/rfc822\r\n\r\n",
            b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
        ],
        tokens: &[
            b"U3ViamVjdDogeA0KDQp4",
            b"Q29udGVudC1UeXBlOiBtZXNzYWdlL3JmYzgyMgpDb250ZW50LVRyYW5zZmVyLUVuY29kaW5nOiBiYXNlNjQKCg==",
            b"Content-Type: message/rfc822\r\n\r\n",
            b"a: b\r\n",
            b"\r\n",
            b"=\r\n",
            b"=3D",
            b"x",
            b"JiYm",
            b"YTpiCg==",
            b"Content-Type: text/html\r\n\r\n",
            b"=3D41",
            b"&",
        ],
        seeds: &[
            (0, &[b"YTpiCg=="]),
            (0, &[b"U3ViamVjdDogeA0KDQp4"]),
            (1, &[b"Content-Type: message/rfc822\r\n\r\n"]),
            (2, &[b"=3D"]),
            (2, &[b"a: b=\r\n\r\n"]),
            (1, &[b"a: b\r\n"]),
        ],
    },
];

impl Sample {
    /// What all are held against: ordinary words.
    pub fn plain() -> Sample {
        let words = b"The quick brown fox jumps over the lazy dog and asks about the invoice of last month. ";
        Sample { head: TEXT, unit: vec![words.to_vec()], width: 76 }
    }

    pub fn seed(decoder: &Decoder, n: usize) -> Sample {
        let (head, tokens) = decoder.seeds[n];
        Sample { head: decoder.heads[head], unit: tokens.iter().map(|token| token.to_vec()).collect(), width: 900 }
    }

    pub fn random(decoder: &Decoder, dice: &mut fastrand::Rng) -> Sample {
        let count = dice.usize(1..=4);
        let unit = (0..count).map(|_| token(decoder, dice)).collect();
        Sample {
            head: decoder.heads[dice.usize(..decoder.heads.len())],
            unit,
            width: WIDTHS[dice.usize(..WIDTHS.len())],
        }
    }

    pub fn mutated(&self, decoder: &Decoder, dice: &mut fastrand::Rng) -> Sample {
        let mut next = self.clone();
        for _ in 0..dice.usize(1..=3) {
            let at = dice.usize(..next.unit.len());
            match dice.u8(0..8) {
                0 if next.unit.len() > 1 => drop(next.unit.remove(at)),
                1 | 2 if next.unit.len() < UNIT_TOKENS_MAX => next.unit.insert(at, token(decoder, dice)),
                3 if next.unit.len() < UNIT_TOKENS_MAX => next.unit.insert(at, next.unit[at].clone()),
                4 => next.head = decoder.heads[dice.usize(..decoder.heads.len())],
                5 => next.width = WIDTHS[dice.usize(..WIDTHS.len())],
                6 if !next.unit[at].is_empty() => {
                    let octet = dice.usize(..next.unit[at].len());
                    next.unit[at][octet] = any_octet(dice);
                }
                _ => next.unit[at] = token(decoder, dice),
            }
        }
        next
    }

    /// The tokens that are repeated.
    pub fn unit(&self) -> Vec<u8> {
        self.unit.concat()
    }

    /// Whether the tokens are in the message's own header, of which there may be a limited part.
    #[cfg(test)]
    pub fn is_header(&self) -> bool {
        !self.head.windows(4).any(|octets| octets == b"\r\n\r\n") && self.head != DEEP
    }

    /// So many octets or a few more.
    pub fn message(&self, bytes: usize) -> Vec<u8> {
        let mut out = if self.head == DEEP { deep() } else { self.head.to_vec() };
        let mut line = out.len();
        let unit = self.unit();
        if unit.is_empty() {
            return out;
        }
        while out.len() < bytes {
            out.extend_from_slice(&unit);
            if let Some(end) = memchr_end(&unit) {
                line = out.len() - (unit.len() - end);
            }
            if self.width > 0 && out.len() - line >= self.width {
                // A header goes on in its next line.
                let is_header = !out.windows(4).take(2_000).any(|octets| octets == b"\r\n\r\n");
                out.extend_from_slice(if is_header { b"\r\n " } else { b"\r\n" });
                line = out.len();
            }
        }
        out.extend_from_slice(b"\r\n");
        well_framed(&out)
    }
}

/// Behind the last line end.
fn memchr_end(unit: &[u8]) -> Option<usize> {
    unit.iter().rposition(|octet| *octet == b'\n').map(|at| at + 1)
}

/// Bare line ends would end the session: they become CRLF (RFC 5321 section 2.3.8), and NULs go.
fn well_framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 16);
    for (at, octet) in message.iter().enumerate() {
        match octet {
            b'\n' if at == 0 || message[at - 1] != b'\r' => out.extend_from_slice(b"\r\n"),
            b'\r' if message.get(at + 1) != Some(&b'\n') => out.push(b' '),
            0 => out.push(b'0'),
            octet => out.push(*octet),
        }
    }
    out
}

fn token(decoder: &Decoder, dice: &mut fastrand::Rng) -> Vec<u8> {
    match dice.u8(0..10) {
        0 => (0..dice.usize(1..=3)).map(|_| any_octet(dice)).collect(),
        _ => decoder.tokens[dice.usize(..decoder.tokens.len())].to_vec(),
    }
}

fn any_octet(dice: &mut fastrand::Rng) -> u8 {
    match dice.u8(0..3) {
        0 => dice.u8(0x20..0x7f),
        _ => dice.u8(1..=0xff),
    }
}

fn deep() -> Vec<u8> {
    let mut out = b"Subject: x\r\n".to_vec();
    for n in 0..30 {
        let field = format!(
            "Content-Type: multipart/mixed; boundary=b{n}x; boundary=c{n}x; boundary=d{n}x; boundary=e{n}x\r\n\r\n--b{n}x\r\n"
        );
        out.extend_from_slice(field.as_bytes());
    }
    out.extend_from_slice(b"Content-Type: text/plain\r\n\r\n");
    out
}

/// Gives each decoder dice of its own.
pub fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3))
}
