//! Long header fields, and such with octets over 127: what readers decode from them is the same before and after.
//!
//! The readers are `mime`, `mail_parser` for addresses, and small ones here, which know no more than a syntax.

// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_collect)]

use mail_parser::{Address, MessageParser};
use proptest::prelude::*;

use super::{LINE_BYTES_MAX, Octets, field, longest_line};
use crate::charset::Charset;
use crate::params::{MimeField, ParamName};
use crate::transfer::{Encoding, base64};
use crate::words;

/// The value of a field that was written: its lines are short, and nothing but a space or tab begins those behind the
/// first.
fn written(name: &str, value: &str, octets: Octets) -> Option<String> {
    let mut out = Vec::new();
    field::write(format!("{name}:{value}\r\n").as_bytes(), octets, &mut out).ok()?;
    assert!(longest_line(&out) <= LINE_BYTES_MAX, "{}", String::from_utf8_lossy(&out));
    assert!(octets == Octets::Keep || out.is_ascii());
    let text = String::from_utf8(out).unwrap();
    let text = text.strip_suffix("\r\n").unwrap();
    assert!(text.split("\r\n").skip(1).all(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty()), "{text}");
    Some(text.strip_prefix(name).unwrap().strip_prefix(':').unwrap().to_owned())
}

fn unfolded(value: &str) -> String {
    value.replace("\r\n", "").trim().to_owned()
}

/// What must be equal: with lines made short, and toward 7 bits if that is possible.
fn is_kept<T: PartialEq + std::fmt::Debug>(name: &str, value: &str, read: impl Fn(&str) -> T) {
    let value = value.trim_end();
    let wanted = read(&unfolded(value));
    for octets in [Octets::Keep, Octets::SevenBit] {
        if let Some(out) = written(name, value, octets) {
            let got = read(&unfolded(&out));
            assert!(got == wanted, "{octets:?}: {}\n{name}:{value}\n{out}", difference(&got, &wanted));
        }
    }
}

/// Where two values begin to differ.
fn difference<T: std::fmt::Debug>(a: &T, b: &T) -> String {
    let (a, b) = (format!("{a:?}"), format!("{b:?}"));
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| text.chars().skip(same.saturating_sub(30)).take(90).collect::<String>();
    format!("{} in place of {}", around(&a), around(&b))
}

/// Encoded words by a small reader, to which no charset is unknown: octets in those that it cannot decode stand for
/// themselves.
fn text(value: &str) -> String {
    let (mut parts, mut rest): (Vec<(String, Vec<u8>)>, _) = (Vec::new(), value);
    let mut push = |label: &str, octets: &[u8]| match parts.last_mut() {
        Some((last, all)) if last == label && label != "iso-2022-jp" => all.extend_from_slice(octets),
        _ => parts.push((label.to_owned(), octets.to_vec())),
    };
    let mut plain = String::new();
    let mut was_word = false;
    while let Some(at) = rest.find("=?") {
        let found = (|| {
            let (label, behind) = rest[at + 2..].split_once('?')?;
            let (form, behind) = behind.split_once('?')?;
            let (text, behind) = behind.split_once("?=")?;
            let is_label = label.chars().all(|c| c.is_ascii_alphanumeric() || "-_*".contains(c));
            let octets = match form {
                "B" | "b" => Encoding::Base64.decode(text.as_bytes()),
                "Q" | "q" => Encoding::QuotedPrintable.decode(text.replace('_', "=20").as_bytes()),
                _ => return None,
            };
            is_label.then(|| (label.split('*').next().unwrap_or_default().to_ascii_lowercase(), octets, behind))
        })();
        let Some((label, octets, behind)) = found else {
            plain.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            was_word = false;
            continue;
        };
        plain.push_str(&rest[..at]);
        if !was_word || !plain.trim().is_empty() {
            push("utf-8", plain.as_bytes());
        }
        plain.clear();
        push(&label, &octets);
        (was_word, rest) = (true, behind);
    }
    plain.push_str(rest);
    push("utf-8", plain.as_bytes());
    let said = |(label, octets): &(String, Vec<u8>)| match Charset::named(label.as_bytes()) {
        Some(charset) => charset.decode(octets),
        None if octets.is_empty() => String::new(),
        None => format!("[{label} {}]", octets.escape_ascii()),
    };
    parts.iter().map(said).collect()
}

/// The same by our own reader, for which a word in an unknown charset is no word.
fn mime_text(value: &str) -> String {
    words::decode(value.as_bytes(), Charset::UNDECLARED).text
}

fn word(label: &str, form: char, text: &str) -> String {
    let charset = Charset::named(label.as_bytes()).unwrap_or(Charset::UTF_8);
    let octets = charset.encode(text).unwrap_or_else(|| text.as_bytes().to_vec());
    if form == 'B' {
        return format!("=?{label}?B?{}?=", base64(&octets).replace("\r\n", ""));
    }
    let plain = |b: u8| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("={b:02X}") };
    format!("=?{label}?Q?{}?=", octets.into_iter().map(plain).collect::<String>())
}

fn names(value: &str, name: ParamName) -> Option<String> {
    MimeField::parse(value.as_bytes()).param(name).map(|param| param.text(Charset::UNDECLARED))
}

fn ids(value: &str) -> Vec<String> {
    value.split('<').skip(1).map(|id| id.split('>').next().unwrap().to_owned()).collect()
}

/// Names as people see them, and addresses.
fn addresses(value: &str) -> Vec<(String, String, String)> {
    let message = format!("To: {value}\r\n\r\n");
    let message = MessageParser::default().parse(message.as_bytes()).unwrap();
    let said = |text: Option<&str>| text.map(mime_text).unwrap_or_default();
    let one = |group: Option<&str>, a: &mail_parser::Addr<'_>| {
        (said(group), said(a.name()), a.address().unwrap_or_default().to_owned())
    };
    match message.to() {
        None => Vec::new(),
        Some(Address::List(all)) => all.iter().map(|a| one(None, a)).collect(),
        Some(Address::Group(groups)) => {
            groups.iter().flat_map(|g| g.addresses.iter().map(|a| one(g.name.as_deref(), a))).collect()
        }
    }
}

/// Words, quoted strings, comments and separators, without the white space between them.
fn tokens(value: &str) -> Vec<String> {
    let (mut all, mut rest) = (Vec::new(), value.trim_start());
    while let Some(first) = rest.chars().next() {
        let octets = rest.as_bytes();
        let end = match first {
            '"' => crate::field::quoted_end(octets, b'"').unwrap(),
            '(' => crate::field::comment_end(octets).unwrap(),
            ';' | ',' => 1,
            _ => rest.find([' ', '\t', ';', ',', '(', '"']).unwrap_or(rest.len()),
        };
        all.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    all
}

/// Tags of a signature with what they mean (RFC 6376 section 3.5).
fn tags(value: &str) -> Vec<(String, Vec<String>)> {
    let tag = |tag: &str| {
        let (name, value) = tag.split_once('=').unwrap();
        let spaceless = |text: &str| text.replace([' ', '\t'], "");
        let parts = match name.trim() {
            "h" => value.split(':').map(|part| part.trim().to_owned()).collect(),
            "z" => value.split('|').map(spaceless).collect(),
            "b" => vec![spaceless(value)],
            _ => vec![value.trim().to_owned()],
        };
        (name.trim().to_owned(), parts)
    };
    value.split(';').filter(|text| !text.trim().is_empty()).map(tag).collect()
}

/// The field as its own signature covers it (RFC 6376 sections 3.4.2 and 3.7).
fn canonical(value: &str) -> String {
    let (before, behind) = value.split_once(" b=").unwrap();
    let behind = behind.find(';').map_or("", |at| &behind[at..]);
    format!("{before} b={behind}").split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_encoded_word_is_not_encoded_again() {
    let subject = |value: &str| {
        is_kept("Subject", value, text);
        is_kept("Subject", value, mime_text);
        is_kept("X-Subject", value, text);
        is_kept("X-Subject", value, mime_text);
        is_kept("To", &format!("{value} <a@b.example>"), text);
        is_kept("To", &format!("a@b.example (see {value})"), text);
    };
    for (label, sample) in [
        ("utf-8", "Grüße an alle, "),
        ("iso-8859-1", "Grüße an alle, "),
        ("koi8-r", "Привет всем "),
        ("gb2312", "请查收a"),
        ("iso-2022-jp", "日本語テキスト x "),
        ("shift_jis", "日本語ﾃｷｽﾄ"),
        ("euc-kr", "안녕하세요 "),
    ] {
        for form in ['B', 'Q'] {
            // One that is too long; many without spaces; too long in the middle of short ones.
            let long = word(label, form, &sample.repeat(150));
            let short = word(label, form, sample);
            assert!(long.len() > 998);
            for value in [
                format!(" {long}"),
                long.clone(),
                format!(" {}", short.repeat(90)),
                format!(" {short} {long}{short} {}", word("utf-8", 'Q', "é")),
                format!(" a {long} b {short}"),
                format!(" before{}behind", short.repeat(60)),
                format!(" {} {}", "é", word("utf-8", 'B', "ü").repeat(100)),
            ] {
                subject(&value);
            }
        }
    }
    let value = written("Subject", &format!(" {}", "=?utf-8?Q?abc?=".repeat(90)), Octets::Keep).unwrap();
    assert_eq!(value.split_ascii_whitespace().collect::<Vec<_>>(), vec!["=?utf-8?Q?abc?="; 90], "folds alone are new");
    // In a charset that only others know, and with a character in two words.
    for value in [
        format!(" =?x-secret?B?{}?=", "YWJj".repeat(400)),
        format!(" =?x-secret?q?{}?= =?x-secret?q?end?=", "a=E9_".repeat(400)),
    ] {
        is_kept("Subject", &value, text);
    }
    subject(&format!(" =?utf-8?b?{}6K8=?= =?utf-8?b?tw==?=", "6K+3".repeat(300)));
    let wide = format!(" =?utf-8?Q?a{}b?= {}", " ".repeat(700), "c ".repeat(300));
    is_kept("Subject", &wide, text);
    is_kept("Subject", &wide, mime_text);
    // No encoding is sound: shown as it is.
    is_kept("Subject", &format!(" =?utf-8?q?=ZZ{}?=", "a".repeat(1_500)), mime_text);
}

/// White space beside an encoded word is none of the text, so that a neighbour that became one lost its space.
#[test]
fn spaces_beside_encoded_words_stay() {
    let long = "x".repeat(1_200);
    for value in [
        " é =?utf-8?Q?abc?= é".to_owned(),
        " =?utf-8?Q?abc?=  é  b".to_owned(),
        format!(" {long} =?utf-8?Q?abc?= {long}"),
        format!(" {}  é", "a ".repeat(200)),
        format!(" {}   {}", "é".repeat(300), "a ".repeat(500)),
        " né=?utf-8?Q?=C3=A9?=".to_owned(),
        " =?utf-8?Q?né é?= b".to_owned(),
        " =?utf-8?Q?no end é".to_owned(),
    ] {
        is_kept("Subject", &value, text);
        is_kept("Subject", &value, mime_text);
    }
    for value in [
        " Zoé Müller <a@b.example>, Zoé \"Müller\" Q <c@d.example>",
        " =?utf-8?Q?Zo=C3=A9?= Müller <a@b.example>",
        " \"=?utf-8?Q?Zo=C3=A9?= é\" <a@b.example>",
        " Zoé =?utf-8?Q?M=C3=BCller?= <a@b.example>",
    ] {
        is_kept("From", value, |value| mime_text(value).replace('"', ""));
    }
    let comment = written("From", " a@b.example (né \\(x\\) é)", Octets::SevenBit).unwrap();
    assert_eq!(mime_text(&unfolded(&comment)), "a@b.example (né \\(x\\) é)");
    let comment = written("From", " a@b.example (né\\) é)", Octets::SevenBit).unwrap();
    assert_eq!(mime_text(&unfolded(&comment)), "a@b.example (né) é)", "a quoted pair is what it quotes");
}

#[test]
fn parameters_keep_their_values() {
    let (long, chinese) = ("a".repeat(1_100), "%E4%B8%80".repeat(150));
    let sections = |count: usize, form: &str| -> String {
        (0..count).map(|n| format!("; filename*{n}{form}", form = form.replace('N', &n.to_string()))).collect()
    };
    for value in [
        format!("; filename*=UTF-8''{chinese}.pdf"),
        format!("; filename*=GB2312'zh'{}; size=3", "%C7%EB".repeat(300)),
        format!("; filename*=x-secret''{}", "%C7%EB".repeat(300)),
        format!("; filename*0=\"{long}\"; filename*1=\"tail.pdf\""),
        format!("; filename*1=\"tail.pdf\"; size=3; filename*0=\"{long}\""),
        format!("; filename*0*=utf-8''{chinese}; filename*1*={chinese}; filename*2=\"{long} 100%25.pdf\""),
        format!("; filename*0*=utf-8'en'a; filename*1=\"{long}\""),
        sections(40, "=\"section N of some length, \"") + &format!("; filename*40={long}"),
        // In both forms, and in forms that contradict each other.
        format!("; filename=\"{long}\"; filename*=utf-8''{chinese}"),
        format!("; filename=\"{long}\"; filename*0*=utf-8''{chinese}; filename*1=b"),
        format!("; filename=\"{long}\"; filename=other"),
        format!("; filename=a; filename*0=\"{}\"", "word ".repeat(300)),
        format!("; filename=short; filename=\"{long}\""),
        format!("; filename*=utf-8''short; filename*0=\"{}\"", "word ".repeat(300)),
        format!("; filename*0=a; filename*2=\"{}\"", "word ".repeat(300)),
        // Encoded words, as many programs write.
        format!("; filename=\"=?utf-8?B?{}?=\"", "6K+3".repeat(300)),
        format!("; filename=\"{}\"", "=?utf-8?Q?abc?=".repeat(90)),
        format!("; filename=\"=?utf-8?Q?a?= =?x-secret?Q?{}?=\"", "abc".repeat(400)),
        // What is around a value is none of it.
        format!("; filename=\"{long}\" (a comment)"),
        format!(" ({} a=b); filename=\"{long}\"", "c".repeat(400)),
        format!("; size=1 ({} a=\"b\"); filename=x", "word ".repeat(300)),
        format!("; filename=\"C:\\TEMP\\é{long}\""),
        format!("; filename=\"a\r\n b é{long}\r\n c\""),
        format!("; filename=\"a{}b\"; x={long}", " ".repeat(700)),
        format!("; filename=a,b,c.pdf; x=\"{}\"", "y".repeat(955)),
        format!("; filename=\"{}\"", "é".repeat(20_000)),
        format!("; filename=\"{}\"", "x".repeat(44_000)),
    ] {
        is_kept("Content-Disposition", &format!(" attachment{value}"), |value| names(value, ParamName::FileName));
        let value = value.replace("filename", "name");
        is_kept("Content-Type", &format!(" text/x{value}; charset=utf-8"), |value| {
            (MimeField::parse(value.as_bytes()).value, names(value, ParamName::Name), names(value, ParamName::Charset))
        });
    }
    let value = format!(" attachment; FileName*=UTF-8'de'{}", "%C3%BC".repeat(170));
    let out = written("Content-Disposition", &value, Octets::Keep).unwrap();
    assert!(out.starts_with(" attachment; FileName*0*=UTF-8'de'%C3%BC") && out.contains(";\r\n FileName*1*=%C3%BC"));
    let boundary = format!(" multipart/mixed; boundary=\"{}\"", "b c ".repeat(300));
    is_kept("Content-Type", &boundary, |value| names(value, ParamName::Boundary));
}

#[test]
fn identifiers_stay_whole() {
    let id = |n: usize| format!("<{n}.{}@host.example.org>", ["a", "b,c", "d;e", "f(g)h"][n % 4].repeat(9));
    let joined = |by: &str| (0..90).map(id).collect::<Vec<_>>().join(by);
    for name in ["References", "In-Reply-To", "Message-ID", "resent-message-id", "Content-ID"] {
        for value in
            [joined(""), joined(","), joined(" "), joined("\t"), format!("(see {})", joined("")), joined(" (x) ")]
        {
            is_kept(name, &value, ids);
            is_kept(name, &format!(" {value}"), ids);
        }
    }
    // One that no line can hold is broken, as the page says, and those beside it are not.
    let value = format!(" <{}@x>{}", "a".repeat(1_200), joined(""));
    let out = written("References", &value, Octets::Keep).unwrap();
    assert_eq!(ids(&unfolded(&out))[1..], ids(&value)[1..]);
}

#[test]
fn addresses_and_names_stay() {
    let many =
        |separator: &str| (0..60).map(|n| format!("user{n}@lists.example.org")).collect::<Vec<_>>().join(separator);
    let (long, words) = ("n".repeat(1_100), "Some, of: a \\\"name\\\"; ".repeat(60));
    for value in [
        many(","),
        format!("Team:{};", many(",")),
        format!("{long}:{};,b@c.example", many(",")),
        format!("\"{words}\"<a@b.example>,c@d.example"),
        format!("{} <a@b.example>", "word ".repeat(250)),
        format!("a@b.example ({}), c@d.example", "comment ".repeat(200)),
        format!("{} <a@b.example>", word("iso-2022-jp", 'B', &"日本語 x".repeat(90))),
        format!("{} <a@b.example>, c@d.example", "=?utf-8?Q?a=2Cb?=".repeat(90)),
        format!("\"a,b\"@x.example,{}", many(",")),
    ] {
        for name in ["To", "Resent-Cc"] {
            is_kept(name, &value, addresses);
            is_kept(name, &format!(" {value}"), addresses);
        }
    }
    // What looks like an encoded word may be of an address.
    for value in [
        format!("=?utf-8?Q?{}?=@b.example", "a".repeat(900)),
        format!("a@=?utf-8?Q?{}?=", "a".repeat(900)),
        format!("=?utf-8?Q?x <a@b.example>, c@d.example, {}?=", many(",")),
    ] {
        is_kept("To", &value, |value| value.replace(' ', ""));
    }
}

#[test]
fn signatures_and_results_stay() {
    let names = "From:To:Subject:X-Some-Longer-Name:".repeat(40);
    for (name, is_spaced) in
        [("DKIM-Signature", true), ("ARC-Message-Signature", true), ("X-Google-DKIM-Signature", false)]
    {
        let separator = if is_spaced { "; " } else { ";" };
        for value in [
            [
                "v=1",
                "a=rsa-sha256",
                "d=b.example",
                "s=x",
                "h=From:To",
                "bh=AAAA=",
                &format!("b={}", "AbC+/d".repeat(500)),
            ],
            ["v=1", "a=rsa-sha256", "d=b.example", "s=x", &format!("h={names}Date"), "bh=AAAA=", "b=AAAA"],
            [
                "v=1",
                "d=b.example",
                "s=x",
                "h=From",
                &format!("z={}", "From:a=20@b|To:(c\"@d|".repeat(90)),
                "b=AAAA",
                "t=1",
            ],
            [
                "v=1",
                "d=b.example",
                "s=x",
                &format!("h={}Date", &names[..700]),
                "bh=AAAA=",
                &format!("b={}", "A".repeat(684)),
                "t=1",
            ],
        ] {
            let value = format!(" {}", value.join(separator));
            is_kept(name, &value, tags);
            let is_folded_at_spaces = is_spaced && value.split(' ').all(|tag| tag.len() < 990 || tag.starts_with("b="));
            if is_folded_at_spaces {
                is_kept(name, &value, canonical);
            }
        }
    }
    // Without any space the signature itself still has a place.
    let value = format!(" v=1;d=b.example;h=From;b={};t=1", "A".repeat(3_000));
    let out = written("DKIM-Signature", &value, Octets::Keep).unwrap();
    assert!(out.starts_with("\r\n v=1;d=b.example;h=From;b=AAAA") && out.ends_with("A;t=1"), "{out}");
    for (name, value) in [
        (
            "Authentication-Results",
            format!(" x.example;{}", "dkim=pass(a;b) reason=\"x;y,z\" header.d=a,b.example;".repeat(60)),
        ),
        ("Received", format!("from a({})by b(c)(d)for<a,b@c>;Mon, 1 Jan 2024 00:00:00 +0000", "word ".repeat(250))),
        ("Received", format!(" from a by b {};Mon, 1 Jan 2024 00:00:00 +0000", "with(x)".repeat(300))),
    ] {
        is_kept(name, &value, |value| tokens(value).concat());
    }
}

/// Words of a text: plain ones, and encoded ones in several charsets, some too long for a line.
fn any_word() -> impl Strategy<Value = String> {
    let label = proptest::sample::select(vec![
        "utf-8",
        "ISO-8859-1",
        "koi8-r",
        "GB2312",
        "iso-2022-jp",
        "x-secret",
        "UTF-8*de",
    ]);
    let form = proptest::sample::select(vec!['B', 'Q']);
    let repeat = prop_oneof![5 => 1usize..4, 1 => 100usize..300];
    let sample = proptest::sample::select(vec!["word", "a_b =", "é ü", "Привет ", "日本 x", "a?b"]);
    prop_oneof![
        3 => "[a-zA-Zé.,=_]{1,12}",
        1 => "[a-zé]{300,1300}",
        4 => (label, form, sample, repeat).prop_map(|(label, form, sample, n)| {
            let is_known = Charset::named(label.as_bytes()).is_some_and(|charset| charset.encode(sample).is_some());
            word(label, form, &if is_known || label == "x-secret" { sample } else { "plain " }.repeat(n))
        }),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    let gap = proptest::sample::select(vec!["", " ", "  ", "\t", "\r\n ", " "]);
    let many = prop_oneof![1usize..8, 20usize..120];
    many.prop_flat_map(move |n| proptest::collection::vec((any_word(), gap.clone()), n..=n))
        .prop_map(|words| words.into_iter().flat_map(|(word, gap)| [word, gap.to_owned()]).collect())
}

fn any_parameter() -> impl Strategy<Value = String> {
    let value = || prop_oneof!["[a-zA-Z0-9. ]{1,30}", "[a-z0-9 ,;é()']{900,1300}", "[a-zé]{400,1300}"];
    let percent = || prop_oneof!["(%[2-9A-F][0-9A-F]|[a-z]){1,20}", "(%C3%A9|[a-z]){300,500}"];
    let charset = proptest::sample::select(vec!["utf-8''", "ISO-8859-1'de'", "x-secret''", "''", ""]);
    let name = || proptest::sample::select(vec!["filename", "name", "FileName", "title"]);
    prop_oneof![
        3 => (name(), value()).prop_map(|(name, value)| format!("{name}=\"{value}\"")),
        1 => (name(), "[a-z0-9.]{1,20}|[a-z0-9]{900,1100}").prop_map(|(name, value)| format!("{name}={value}")),
        3 => (name(), charset.clone(), percent()).prop_map(|(name, charset, value)| format!("{name}*={charset}{value}")),
        3 => (name(), charset, proptest::collection::vec((any::<bool>(), value(), percent()), 1..5), any::<bool>()).prop_map(
            |(name, charset, sections, is_back)| {
                let mut all: Vec<String> = sections.into_iter().enumerate().map(|(n, (is_encoded, value, percent))| {
                    let charset = if n == 0 { charset } else { "" };
                    if is_encoded { format!("{name}*{n}*={charset}{percent}") } else { format!("{name}*{n}=\"{value}\"") }
                }).collect();
                if is_back {
                    all.reverse();
                }
                all.join("; ")
            }),
        1 => "size=[0-9]{1,5}( \\([a-z ;]{1,1200}\\))?",
        1 => (name(), any_text()).prop_map(|(name, text)| format!("{name}=\"{}\"", text.replace(['"', '\\', '\r', '\n'], "").chars().take(20_000).collect::<String>())),
    ]
}

fn any_address() -> impl Strategy<Value = String> {
    let phrase = prop_oneof![
        "[a-zA-Z]{1,9}( [a-zA-Zé]{1,9}){0,3}",
        "\"[a-zA-Zé,;:@() ]{1,30}\"",
        "\"[a-zA-Z,;:@ ]{900,1200}\"",
        "[a-z]{950,1200}",
        "([a-z]{1,20} ){60}",
        (proptest::sample::select(vec!["utf-8", "iso-2022-jp"]), 1usize..200, 1usize..60).prop_map(
            |(label, n, times)| {
                let word = word(label, 'B', &"日本 x".repeat(n));
                word.repeat(if n > 20 { 1 } else { times })
            }
        ),
    ];
    let address = "[a-z]{1,9}(\\.[a-z]{1,9})?@[a-z]{1,9}\\.example";
    let comment = prop_oneof![3 => "", 1 => "\\([a-z ,;]{1,30}\\)", 1 => "\\(([a-z]{1,9} ){120}\\)"];
    prop_oneof![
        2 => address,
        3 => (phrase, "[ ]?", address, comment).prop_map(|(phrase, gap, address, comment)| format!("{phrase}{gap}<{address}>{comment}")),
    ]
}

fn any_addresses() -> impl Strategy<Value = String> {
    let list = proptest::collection::vec((any_address(), ",[ ]?"), 1..40);
    let list = list.prop_map(|all| {
        let text: String = all.into_iter().flat_map(|(address, comma)| [address, comma]).collect();
        text.trim_end_matches([',', ' ']).to_owned()
    });
    (list, proptest::option::of("[a-zA-Z ]{1,30}|[a-z]{1000}"))
        .prop_map(|(list, group)| group.map_or(list.clone(), |group| format!("G{group}: {list};")))
}

/// Whether a parameter is given in several encoded forms, or a section twice, or several times with encoded words,
/// or encoded without the charset that RFC 2231 wants there beside another form.
fn contradicts_itself(value: &str) -> bool {
    let all = crate::params::written(value.as_bytes());
    ["filename", "name"].iter().any(|base| {
        let members: Vec<_> =
            all.iter().filter(|param| param.name.base.eq_ignore_ascii_case(base.as_bytes())).collect();
        let wholes = members.iter().filter(|param| param.name.number.is_none() && param.name.is_encoded).count();
        let firsts = members.iter().filter(|param| param.name.number == Some(0)).count();
        let is_bare = |param: &crate::params::RawParameter<'_>| {
            param.name.is_encoded
                && param.name.number.unwrap_or(0) == 0
                && param.value.split(|b| *b == b'\'').count() < 3
        };
        let is_odd = value.contains("=?") || members.iter().any(|param| is_bare(param));
        wholes + firsts > 1 || members.len() > 1 && is_odd
    })
}

/// Whether plain text in a field of which nobody knows whether it is text has words that no line can hold.
fn has_endless_word(value: &str) -> bool {
    unfolded(value).split([' ', '\t']).any(|word| word.len() > 900 && !word.contains("=?"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_text_stays(value in any_text()) {
        let is_known = !value.contains("x-secret");
        is_kept("Subject", &format!(" {value}"), text);
        if is_known {
            is_kept("Comments", &value, mime_text);
        }
        if !has_endless_word(&value) {
            is_kept("X-Text", &format!(" {value}"), text);
        }
        let phrase = value.replace(['"', '(', ')', ',', '.', '@', '?', '='], "");
        let from = format!(" \"{phrase}\" <a@b.example>");
        // Some lines may have been points alone.
        if from.split("\r\n").all(|line| !line.trim().is_empty()) {
            is_kept("From", &from, |value| mime_text(value).replace('"', ""));
        }
    }

    #[test]
    fn any_parameters_stay(all in proptest::collection::vec((any_parameter(), ";[ ]?"), 1..4)) {
        let value: String = all.into_iter().flat_map(|(parameter, separator)| [separator, parameter]).collect();
        let mut wanted = None;
        if contradicts_itself(&value) {
            // Left as it stands, perhaps broken.
            written("Content-Disposition", &format!(" attachment{value}"), Octets::Keep).unwrap();
            return Ok(());
        }
        for octets in [Octets::Keep, Octets::SevenBit] {
            if octets == Octets::SevenBit && value.contains("=?x-secret") {
                // Both what nobody here can decode and octets that have to be encoded: nothing says both.
                continue;
            }
            let out = written("Content-Disposition", &format!(" attachment{value}"), octets).unwrap();
            let read = |value: &str| (names(value, ParamName::FileName), names(value, ParamName::Name));
            let wanted = wanted.get_or_insert_with(|| read(&unfolded(&format!("attachment{value}"))));
            let got = read(&unfolded(&out));
            // What is read in two ways, or breaks the syntax, stays as it stands: broken, or without its octets over
            // 127.
            let is_left = |got: &Option<String>, wanted: &Option<String>| {
                let spaceless = |text: &Option<String>| text.as_deref().unwrap_or_default().replace([' ', '?'], "").replace(|c: char| !c.is_ascii(), "");
                spaceless(got) == spaceless(wanted) && MimeField::parse(unfolded(&format!("attachment{value}")).as_bytes()).params.len() > 1
            };
            prop_assert!(got.0 == wanted.0 || is_left(&got.0, &wanted.0), "{octets:?}: {}\n{}\n{}", difference(&got.0, &wanted.0), value, out);
            prop_assert!(got.1 == wanted.1 || is_left(&got.1, &wanted.1), "{octets:?}: {}\n{}\n{}", difference(&got.1, &wanted.1), value, out);
        }
    }

    #[test]
    fn any_addresses_stay(value in any_addresses()) {
        is_kept("To", &format!(" {value}"), addresses);
    }

    #[test]
    fn any_identifiers_stay(all in proptest::collection::vec(("<[a-z,;()\"]{1,80}@[a-z.]{1,20}>|<[a-z]{900}@x>", "|,| |\t|\r\n | \\(x\\) "), 1..80)) {
        let value: String = all.into_iter().flat_map(|(id, gap)| [id, gap]).collect();
        is_kept("References", &value, ids);
    }

    #[test]
    fn any_signatures_and_results_stay(
        tags_ in proptest::collection::vec("[acdisqtvx]=[a-z0-9@./-]{1,60}|h=([A-Z][a-z-]{1,40}:){1,60}Date|z=([A-Z][a-z]{1,9}:[a-z=20\"(]{1,90}\\|){1,30}T:a|b=[A-Za-z0-9+/]{1,1500}=", 1..12),
        gap in "[ ]?",
        results in proptest::collection::vec("[ ]?(spf|dkim)=(pass|fail)( ?\\([a-z ;,]{1,90}\\))? smtp\\.mailfrom=[a-z,]{1,30}@[a-z.]{1,90}( reason=\"[a-z;,( ]{1,90}\")?", 1..40),
    ) {
        is_kept("DKIM-Signature", &format!(" {}", tags_.join(&format!(";{gap}"))), tags);
        is_kept("Authentication-Results", &format!(" a.example;{}", results.join(";")), tokens);
        is_kept("Received", &format!("from a {};Mon, 1 Jan 2024 00:00:00 +0000", results.concat().replace(';', "")), tokens);
    }
}
