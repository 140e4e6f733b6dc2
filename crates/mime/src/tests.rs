//! Tests of whole messages.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;

use crate::charset::Charset;
use crate::walk::{Defect, FIELD_BYTES_MAX, LEVELS_MAX, NESTED_MAX, Part, Visitor, Walker};
use crate::words;

/// All reports as lines; pieces of one text are joined.
#[derive(Default)]
struct Transcript {
    lines: Vec<String>,
    text: String,
    defects: BTreeSet<Defect>,
}

impl Transcript {
    fn of(pieces: &[&[u8]]) -> (Vec<String>, BTreeSet<Defect>) {
        let (mut walker, mut told) = (Walker::new(), Transcript::default());
        for piece in pieces {
            walker.push(piece, &mut told);
        }
        walker.finish(&mut told);
        (told.lines, told.defects)
    }
}

fn number(path: &[u32]) -> String {
    let path: Vec<String> = path.iter().map(|n| (n + 1).to_string()).collect();
    if path.is_empty() { "-".to_owned() } else { path.join(".") }
}

impl Visitor for Transcript {
    fn field(&mut self, path: &[u32], name: &[u8], value: &[u8], fallback: Charset) {
        if name.eq_ignore_ascii_case(b"subject") {
            self.lines.push(format!("{} subject {}", number(path), words::decode(value, fallback).text.trim()));
        }
    }

    fn part(&mut self, part: &Part) {
        let named = if part.names.is_empty() { String::new() } else { format!(" {:?}", part.names) };
        self.lines.push(format!("{} {}{named}", number(&part.path), part.content_type.value));
    }

    fn text(&mut self, _: &Part, text: &str) {
        self.text.push_str(text);
    }

    fn file(&mut self, part: &Part, name: &str, size: u64) {
        self.lines.push(format!("{} file {name} {size}", number(&part.path)));
    }

    fn defect(&mut self, _: &[u32], defect: Defect) {
        self.defects.insert(defect);
    }

    fn end(&mut self, part: &Part, size: u64) {
        let text = std::mem::take(&mut self.text);
        let shown = if text.is_empty() { String::new() } else { format!(" {text:?}") };
        self.lines.push(format!("{} end {size}{shown}", number(&part.path)));
    }
}

fn told(message: &str) -> Vec<String> {
    Transcript::of(&[message.as_bytes()]).0
}

#[test]
fn a_plain_message() {
    let message = "Subject: =?gbk?B?x+s=?=\r\nContent-Type: text/plain; charset=gb2312\r\nContent-Transfer-Encoding: base64\r\n\r\nx+uy\r\n6crV\r\n";
    assert_eq!(told(message), ["- subject 请", "- text/plain", "- end 6 \"请查收\""]);
    assert_eq!(told(&message.replace("\r\n", "\n")), told(message));
    assert_eq!(told("a: b\n\nx\r\ny\n"), ["- text/plain", "- end 5 \"x\\r\\ny\\n\""]);
    assert_eq!(told("From a@b Mon\nSubject: x\n\nbody"), ["- subject x", "- text/plain", "- end 4 \"body\""]);
    assert_eq!(
        told("Subject: x\nno field\n\nSubject: y"),
        ["- subject x", "- text/plain", "- end 20 \"no field\\n\\nSubject: y\""]
    );
    assert_eq!(told(""), ["- text/plain", "- end 0"]);
    assert_eq!(told("Subject: x"), ["- subject x", "- text/plain", "- end 0"]);
}

#[test]
fn octets_over_127_in_a_header_are_of_the_messages_charset() {
    let gbk = b"Subject: \xc7\xeb\r\nContent-Type: text/plain; charset=gb2312\r\n\r\n";
    assert_eq!(Transcript::of(&[gbk]).0[0], "- subject 请");
    assert_eq!(Transcript::of(&[b"Subject: \xe9\r\n\r\n"]).0[0], "- subject é");
    assert_eq!(
        Transcript::of(&[b"Content-Type: text/plain; charset=koi8-r\r\nSubject: \xc3\xa9\r\n\r\n"]).0[0],
        "- subject é"
    );
}

const NESTED: &str = "Content-Type: multipart/mixed; boundary=\"a b\"\n\npreamble\n--a b\nContent-Type: text/html; charset=koi8-r\n\
    Content-Transfer-Encoding: quoted-printable\n\n=F0=D2=C9\n\n--a b  \n\
    Content-Type: message/rfc822\n\nSubject: inner\nContent-Type: multipart/alternative; boundary=c\n\n--c\n\none\n--c\n\ntwo\n--c--\nepilogue\n--a b\n\
    Content-Type: application/pdf; name=x.pdf\nContent-Disposition: attachment; filename*=utf-8''%E8%AF%B7.pdf\n\
    Content-Transfer-Encoding: base64\n\nAAEC\nAwQ=\n--a b--\nepilogue\n";

#[test]
fn parts_within_parts() {
    assert_eq!(
        told(NESTED),
        [
            "- multipart/mixed",
            "1 text/html",
            "1 end 4 \"При\\n\"",
            "2 message/rfc822",
            "2.1 subject inner",
            "2.1 multipart/alternative",
            "2.1.1 text/plain",
            "2.1.1 end 3 \"one\"",
            "2.1.2 text/plain",
            "2.1.2 end 3 \"two\"",
            "2.1 end 0",
            "2 end 0",
            "3 application/pdf [\"请.pdf\", \"x.pdf\"]",
            "3 end 5",
            "- end 0",
        ]
    );
}

#[test]
fn what_is_broken_is_told_all_the_same() {
    // No boundary, one that never occurs, no closing delimiter.
    assert_eq!(told("Content-Type: multipart/mixed\n\n--x\nA: b"), ["- multipart/mixed", "- end 8 \"--x\\nA: b\""]);
    assert_eq!(told("Content-Type: multipart/mixed; boundary=x\n\ntext"), ["- multipart/mixed", "- end 0"]);
    assert_eq!(
        told("Content-Type: multipart/mixed; boundary=x\n\n--x\n\nopen\n"),
        ["- multipart/mixed", "1 text/plain", "1 end 5 \"open\\n\"", "- end 0"]
    );
    // A message that is itself encoded.
    let inner = crate::transfer::base64(b"Subject: within\r\n\r\ntext");
    let outer = format!("Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{inner}\n");
    assert_eq!(told(&outer), ["- message/rfc822", "1 subject within", "1 text/plain", "1 end 4 \"text\"", "- end 23"]);
    // Parts of a digest are messages.
    let digest = "Content-Type: multipart/digest; boundary=x\n\n--x\n\nSubject: s\n\nb\n--x--\n";
    assert!(told(digest).contains(&"1.1 subject s".to_owned()));
}

#[test]
fn limits_are_named_and_hide_nothing() {
    let mut deep = String::new();
    for n in 0..LEVELS_MAX + 5 {
        let _ = write!(deep, "Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
    }
    deep.push_str("\nhidden\n");
    let (lines, defects) = Transcript::of(&[deep.as_bytes()]);
    assert!(defects.contains(&Defect::Nested) && lines.iter().any(|line| line.contains("hidden")));
    let mut message = b"Content-Type: message/rfc822\nContent-Transfer-Encoding: 8bit\n\n".repeat(LEVELS_MAX + 1);
    message.extend_from_slice(b"hidden");
    let (lines, defects) = Transcript::of(&[&message]);
    assert!(defects.contains(&Defect::Nested) && lines.iter().any(|line| line.contains("hidden")));
    let mut encoded = "hidden".to_owned();
    for n in 0..=NESTED_MAX {
        assert!(!Transcript::of(&[encoded.as_bytes()]).1.contains(&Defect::Nested), "{n}");
        let inner = crate::transfer::base64(encoded.as_bytes());
        encoded = format!("Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{inner}\n");
    }
    assert!(Transcript::of(&[encoded.as_bytes()]).1.contains(&Defect::Nested));
    let large = [b"A: ".to_vec(), vec![b'x'; 2 * FIELD_BYTES_MAX], b"\n\nbody".to_vec()].concat();
    let (lines, defects) = Transcript::of(&[&large]);
    assert_eq!(defects, BTreeSet::from([Defect::Header]));
    assert_eq!(lines.last().unwrap(), "- end 4 \"body\"");
}

/// A message with one part and this Content-Type.
fn one_part(content_type: &str, delimiter: &str, part: &str) -> String {
    format!("Content-Type: {content_type}\n\n--{delimiter}\n{part}\n--{delimiter}--\n")
}

const PROGRAM: &str = "Content-Type: application/x; name=x.exe\n\nx";

#[test]
fn what_hides_a_part_is_seen_through() {
    let long = "b".repeat(900);
    let many = format!("multipart/mixed{}; boundary=b", "; a=b".repeat(190));
    let late = format!("multipart/mixed; a=\"{}\"; boundary=b", "x".repeat(20_000));
    let padded = format!("b{}", " ".repeat(5_000));
    for (content_type, delimiter) in [
        ("multipart/mixed; boundary=b(comment)", "b"),
        ("multipart/mixed; boundary=b(comment)", "b(comment)"),
        ("multipart/mixed; boundary=b (comment)", "b"),
        ("multipart/mixed; boundary=a; boundary=b", "a"),
        ("multipart/mixed; boundary=a; boundary=b", "b"),
        ("multipart/mixed; boundary=a; boundary*=us-ascii''b", "a"),
        ("text/plain\nContent-Type: multipart/mixed; boundary=b", "b"),
        ("multipart/mixed; boundary=b\nContent-Type: multipart/mixed; boundary=c", "c"),
        ("multipart/mixed; boundary=b", &padded),
        (&format!("multipart/mixed; boundary={long}"), &long),
        (&many, "b"),
        (&late, "b"),
    ] {
        let (lines, _) = Transcript::of(&[one_part(content_type, delimiter, PROGRAM).as_bytes()]);
        assert!(
            lines.contains(&"1 application/x [\"x.exe\"]".to_owned()),
            "{content_type:.60} {delimiter:.20}: {lines:?}"
        );
    }
}

#[test]
fn what_may_hide_something_is_noted() {
    let of = |message: &str| Transcript::of(&[message.as_bytes()]).1;
    let long = format!("multipart/mixed; boundary={}", "b".repeat(1_000));
    for (header, wanted) in [
        (long.as_str(), Defect::Boundary),
        ("multipart/mixed", Defect::Boundary),
        ("text/plain\nContent-Type: text/html", Defect::Ambiguous),
        ("text/plain\nContent-Transfer-Encoding: 7bit\nContent-Transfer-Encoding: base64", Defect::Ambiguous),
        ("text/plain\nContent-Transfer-Encoding: \"base64\"", Defect::Ambiguous),
        ("text/plain\nContent-Disposition: inline\nContent-Disposition: attachment", Defect::Ambiguous),
        ("text/plain; name=\"a\"; name=\"b\"", Defect::Ambiguous),
        ("text/plain\nContent-Transfer-Encoding: base32", Defect::Encoding),
        ("multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64", Defect::Encoding),
        ("text/plain; charset=nobodys", Defect::Charset),
        ("application/x; name*=us-ascii''a%00b", Defect::Name),
        (&format!("application/x; name={}", "n".repeat(256)), Defect::Name),
        ("text/plain\nno field", Defect::Header),
    ] {
        assert_eq!(of(&format!("Content-Type: {header}\n\nx\n")), BTreeSet::from([wanted]), "{header:.60}");
    }
    // Common and harmless fields are not defects.
    for header in [
        "text/plain; charset=us-ascii (Plain text); format=flowed",
        "text/plain; charset=utf-8\nContent-Type: text/plain; charset=utf-8",
        "application/pdf; name=\"a.pdf\"\nContent-Disposition: attachment; filename=\"a.pdf\"; filename*=utf-8''a.pdf; size=3",
        "multipart/mixed; boundary=\"b\"\nContent-Transfer-Encoding: 8bit",
        "application/octet-stream; name=a b.doc\nContent-Transfer-Encoding: base64 (x)",
    ] {
        assert_eq!(of(&format!("Content-Type: {header}\n\nx\n")), BTreeSet::new(), "{header}");
    }
}

#[test]
fn names_of_files_are_all_that_programs_show() {
    let names = |content_type: &str| told(&format!("Content-Type: {content_type}\n\nx"))[0].clone();
    assert_eq!(names("a/b; name=\"x.exe. .\""), "- a/b [\"x.exe. .\", \"x.exe\"]");
    assert_eq!(names("a/b; name*=us-ascii''x.exe%00.txt"), "- a/b [\"x.exe\\0.txt\", \"x.exe\"]");
    let long = names(&format!("a/b; name=\"{}.exe\"", "n".repeat(300)));
    assert!(long.ends_with("n.exe\"]") && long.contains('…') && long.len() < 300, "{long}");
    let texts = told("Subject: x\n\nbegin 644 cat.exe\n#0V%T\n`\nend\n");
    assert!(texts.contains(&"- file cat.exe 3".to_owned()), "{texts:?}");
}

/// A part with its header: a leaf of some kind, or a multipart of such parts.
fn entity() -> impl Strategy<Value = String> {
    let kind = proptest::sample::select(vec![
        "",
        "Content-Type: text/plain; charset=koi8-r\r\n",
        "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n",
        "Content-Transfer-Encoding: base64\r\n",
        "Content-Type: application/x; name=\"a\"\r\n",
    ]);
    let leaf = (kind, "([a-zé=. \t\u{4e00}-]{0,90}\r\n){1,5}").prop_map(|(kind, body)| format!("{kind}\r\n{body}"));
    leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 1..4), "[a-z]{6,8}", 0usize..3).prop_map(|(parts, boundary, message)| {
            let kind = [
                "",
                "Content-Type: message/rfc822\r\n\r\n",
                "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
            ];
            let mut out = format!("{}Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n", kind[message]);
            for part in parts {
                let _ = write!(out, "\r\n--{boundary}\r\n{part}");
            }
            out + &format!("\r\n--{boundary}--\r\n")
        })
    })
}

proptest! {
    #[test]
    fn cuts_do_not_matter(entity in entity(), cut in 1usize..50) {
        let message = format!("Subject: =?gbk?q?=C7=EB?=\r\n{entity}");
        let pieces: Vec<&[u8]> = message.as_bytes().chunks(cut).collect();
        prop_assert_eq!(Transcript::of(&pieces), Transcript::of(&[message.as_bytes()]));
    }

    #[test]
    fn anything_is_taken(text in "(\r\n|\r|\n|--a|Content-Type: multipart/(x|digest); boundary=a\r\n|message/rfc822|Content-Transfer-Encoding: base64|To: |[ -~é\\x00]){0,40}", cut in 1usize..9) {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
        let lines = Transcript::of(&pieces);
        prop_assert_eq!(&lines, &Transcript::of(&[text.as_bytes()]));
        // Every part that begins also ends.
        let ends = lines.0.iter().filter(|line| line.contains(" end ")).count();
        let begun = lines.0.iter().filter(|line| ![" end ", " subject ", " file "].iter().any(|other| line.contains(other))).count();
        prop_assert_eq!(ends, begun);
    }
}

/// The number of parts reported for a message in pieces of this size, and whether the limit was exceeded.
fn counted(message: &[u8], size: usize) -> (usize, bool) {
    struct Parts(usize);
    impl Visitor for Parts {
        fn part(&mut self, _: &Part) {
            self.0 += 1;
        }
    }
    let (mut walker, mut parts) = (Walker::new(), Parts(0));
    message.chunks(size).for_each(|piece| walker.push(piece, &mut parts));
    walker.finish(&mut parts);
    (parts.0, walker.has_too_many_parts())
}

#[test]
fn parts_and_fields_that_no_mail_has_are_not_looked_at() {
    const HEAD: &str = "Content-Type: multipart/mixed; boundary=b\n\n";
    let many = |count: usize, part: &str| format!("{HEAD}{}--b--\n", format!("--b\n{part}").repeat(count)).into_bytes();
    let base64 = |text: &[u8]| {
        format!(
            "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{}\n",
            crate::transfer::base64(text)
        )
    };
    for size in [1, 7, 8_192, 1 << 20] {
        // Parts of a digest, and no more without a text.
        assert_eq!(counted(&many(199, "\n"), size), (200, false), "{size}");
        let (parts, has_more) = counted(&many(20_000, "\n"), size);
        // 200, and one for each 192 of 100,000 octets.
        assert!(has_more && parts < 1_000, "{size}: {parts}");
        assert_eq!(counted(&many(2_000, &format!("\n{}\n", "x".repeat(600))), size), (2_001, false), "{size}");
        // Parts in an encoded message count for the outer message, too.
        let nested = base64(&many(90, "\n"));
        assert!(!counted(&many(1, &nested), size).1 && counted(&many(20, &nested), size).1, "{size}");
        for head in ["", HEAD, "Content-Type: message/rfc822\n\n"] {
            let fields =
                |count: usize| format!("{head}{}{}\n", if head == HEAD { "--b\n" } else { "" }, "A: b\n".repeat(count));
            assert!(
                !counted(fields(1_200).as_bytes(), size).1 && counted(fields(1_500).as_bytes(), size).1,
                "{size} {head}"
            );
        }
        // What a field has counts, too: a word as one and a half, a parameter as two, a fold as half of one, octets
        // that are not UTF-8 as one.
        let in_parts: &[u8] = b"Content-Type: a/b;c=;c=;c=;c=;c=;c=;c=;c=;c=;c=;c=;c=\n\n--b";
        for (field, most, too_many) in
            [(&b"A: =?x?q?a?="[..], 550, 600), (b"A: b\n\t", 900, 1_200), (in_parts, 80, 100), (b"A: \xe9", 650, 700)]
        {
            let fields =
                |count: usize| [HEAD.as_bytes(), b"--b\n", &[field, b"\n"].concat().repeat(count), b"\n"].concat();
            assert!(!counted(&fields(most), size).1, "{size} {}", field.escape_ascii());
            assert!(counted(&fields(too_many), size).1, "{size} {}", field.escape_ascii());
        }
        let long = format!("A: {}\n", "b".repeat(200)).repeat(10_000);
        assert_eq!(counted(long.as_bytes(), size), (1, false), "{size}");
    }
}

#[test]
fn digests_of_many_short_posts_are_looked_at_as_a_whole() {
    let fields = "References: <1@x.test>\n".repeat(14);
    let post = format!("--b\nContent-Type: message/rfc822\nMIME-Version: 1.0\n\n{fields}\n+1, please merge it.\n\n");
    for posts in [40, 100, 300] {
        let digest = format!("Content-Type: multipart/digest; boundary=b\n\n{}--b--\n", post.repeat(posts));
        assert_eq!(counted(digest.as_bytes(), 8_192), (1 + 2 * posts, false), "{posts}");
    }
}

/// A message is refused where it has too many of them, but for the last field, behind which nobody asks: that one is
/// read.
#[test]
fn the_field_with_too_many_words_is_read() {
    struct Fields(Vec<usize>);
    impl Visitor for Fields {
        fn field(&mut self, _: &[u32], _: &[u8], value: &[u8], _: Charset) {
            self.0.push(value.len());
        }
    }
    let words = "=?x?q?a?=".repeat(2_000);
    for (message, wanted) in
        [(format!("A: {words}\nB: c\nC: de\n\n"), vec![18_001, 3]), (format!("B: c\nA: {words}"), vec![2, 18_001])]
    {
        let (mut walker, mut fields) = (Walker::new(), Fields(Vec::new()));
        walker.push(message.as_bytes(), &mut fields);
        walker.finish(&mut fields);
        assert!(walker.has_too_many_parts());
        assert_eq!(fields.0, wanted);
    }
}

#[test]
fn recipients_with_encoded_names_are_never_too_many() {
    let to = "=?utf-8?q?J=C3=B6rg?= <joerg@x.example>,\n ".repeat(10_000);
    assert_eq!(counted(format!("To: {to}x@y\n\nx").as_bytes(), 8_192), (1, false));
}

#[test]
fn recipients_with_padded_words_are_never_too_many() {
    let name = "=?gb2312?B?1cXI/Q==?= <zhang0001@corp.com.cn>,\n ";
    for count in [500, 640, 700, 1_000, 10_000] {
        let all = name.repeat(count);
        let (to, cc) = (format!("To: {all}x@y\n"), format!("Cc: {all}x@y\n"));
        assert_eq!(counted(format!("{to}\nx").as_bytes(), 8_192), (1, false), "{count}");
        assert_eq!(counted(format!("{to}{cc}Subject: x\n\nx").as_bytes(), 8_192), (1, false), "{count}");
    }
}

const FLOWED_POST: &str = "\n--b\nContent-Type: message/rfc822\n\nFrom: jane@x.example\nTo: list@x.example\nSubject: Re: the merge\n\
    Date: Mon, 30 Nov 2026 03:24:14 +0000\nMessage-ID: <f3ab@x.example>\nMIME-Version: 1.0\n\
    Content-Type: text/plain; charset=utf-8; format=flowed\nContent-Transfer-Encoding: 8bit\n\n+1\n";
const MAILMAN_POST: &str = "\n--b\nContent-Type: message/rfc822\nMIME-Version: 1.0\n\nFrom: jane@example.org (Jane Roe)\n\
    Date: Mon, 30 Nov 2026 03:24:14 +0000\nSubject: [users] merge\nMessage-ID: <f3ab12@example.org>\n\
    Content-Type: text/plain; charset=\"us-ascii\"\nMessage: 12\n\n+1, please merge.\n";
/// The same in one section.
const BARE_POST: &str = "\n--b\nFrom: j@x.org\nTo: l@x.org\nDate: 30 Nov 2026 03:24\nSubject: ok\nMessage: 12\n\
    Content-Type: text/plain; charset=us-ascii\n\n+1\n";
const CHINESE_POST: &str = "\n--b\nContent-Type: message/rfc822\n\nFrom: =?gb2312?B?1cXI/Q==?= <zhang@corp.cn>\n\
    To: =?gb2312?B?wO7LxA==?= <li@corp.cn>\nSubject: =?gb2312?B?u9i4tDq74dLp?=\nDate: Mon, 30 Nov 2026 03:24:14 +0800\n\
    Message-ID: <f3ab@corp.cn>\nMIME-Version: 1.0\nContent-Type: text/plain; charset=gb2312; format=flowed\n\
    Content-Transfer-Encoding: base64\n\ntPrHtcThoaM=\n";
const IMAGE: &str = "\n--b\nContent-Type: image/gif; name=\"a001.gif\"\nContent-Description: a001.gif\n\
    Content-Disposition: attachment; filename=\"a001.gif\"; size=43;\n\tcreation-date=\"Mon, 30 Nov 2026 03:24:14 GMT\";\n\
    \tmodification-date=\"Mon, 30 Nov 2026 03:24:14 GMT\"\nContent-ID: <a001@x>\nContent-Transfer-Encoding: base64\n\n\
    R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs=\n";

/// A message of so many parts.
fn of_parts(sub: &str, part: &str, count: usize) -> Vec<u8> {
    format!("Subject: x\nContent-Type: multipart/{sub}; boundary=b\n{}\n--b--\n", part.repeat(count)).into_bytes()
}

#[test]
fn usual_headers_of_many_parts_are_not_too_many() {
    for (sub, part, sections) in [
        ("digest", FLOWED_POST, 2),
        ("mixed", MAILMAN_POST, 2),
        ("mixed", BARE_POST, 1),
        ("digest", MAILMAN_POST, 2),
        ("mixed", CHINESE_POST, 2),
        ("mixed", IMAGE, 1),
    ] {
        for form in [part.to_owned(), part.replace('\n', "\r\n")] {
            assert_eq!(counted(&of_parts(sub, &form, 300), 8_192), (1 + sections * 300, false), "{form}");
            // As many as the limit of parts lets pass.
            let most = (1..5_000).rev().find(|count| sections * count < 198 + form.len() * (count - 1) / 192);
            let most = most.unwrap_or_default();
            assert_eq!(counted(&of_parts(sub, &form, most), 8_192), (1 + sections * most, false), "{most} {form}");
        }
    }
}

#[test]
fn headers_that_nobody_writes_are_too_many() {
    let part = |header: &str| format!("\n--b\n{header}\nx\n");
    let disposition = "Content-Disposition: a; b=c; d=e\n".repeat(4);
    for header in [
        "A: b\n".repeat(2_000),
        format!("Content-Type: a/b{}\n", "; c=d".repeat(200)).repeat(4) + &disposition,
        format!("Content-Type: a/b{}\n", ";\n\tc=d".repeat(200)).repeat(4),
        format!("Subject: {}\n", "=?x?q?a?=".repeat(1_200)),
        format!("To: {}x@y\n", "=?x?q?a?=,\n ".repeat(1_000)),
    ] {
        assert!(counted(format!("{header}\nx").as_bytes(), 8_192).1, "{header:.80}");
        assert!(counted(&of_parts("mixed", &part(&header), 1), 8_192).1, "{header:.80}");
    }
    // In all parts, and in one behind others that leave what they bring.
    let short = |fields: usize| part(&("A: b\n".repeat(fields) + "\n" + &"x".repeat(200 - 5 * fields)));
    for (fields, is_too_many) in [(16, false), (25, true)] {
        assert_eq!(counted(&of_parts("mixed", &short(fields), 300), 8_192).1, is_too_many, "{fields}");
    }
    for (fields, is_too_many) in [(6_000, false), (7_000, true)] {
        let last = part(&"A: b\n".repeat(fields));
        let message = of_parts("mixed", &format!("{}{last}", short(0).repeat(300)), 1);
        assert_eq!(counted(&message, 8_192), (302, is_too_many), "{fields}");
    }
}
