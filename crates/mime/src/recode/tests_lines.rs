//! Checks short lines with another MIME reader: every body and every subject reads as before.

// Test texts are built for readability, not for speed.
#![allow(clippy::format_collect, clippy::format_push_string)]

use mail_parser::MessageParser;
use proptest::prelude::*;

use super::tests::{bodies, nested};
use super::*;
use crate::transfer::base64;

fn shortened(pieces: &[&[u8]]) -> Vec<u8> {
    let (mut converter, mut out) = (Converter::of_lines(), Vec::new());
    for piece in pieces {
        converter.push(piece, &mut out).unwrap();
    }
    converter.finish(&mut out).unwrap();
    out
}

/// The converted message, after checking that it is the same in pieces, unchanged by a second conversion, and has
/// only short lines.
fn short(message: &str) -> String {
    let out = shortened(&[message.as_bytes()]);
    for cut in [1, 7, 998, 1000, 4096] {
        assert_eq!(shortened(&message.as_bytes().chunks(cut).collect::<Vec<_>>()), out, "in pieces of {cut}");
    }
    assert!(longest_line(&out) <= LINE_BYTES_MAX, "{}", String::from_utf8_lossy(&out));
    assert_eq!(shortened(&[&out]), out, "a second time");
    String::from_utf8_lossy(&out).into_owned()
}

fn header(message: &str) -> &str {
    message.split("\r\n\r\n").next().unwrap()
}

fn unfolded(message: &str) -> String {
    header(message).replace("\r\n ", " ").replace("\r\n\t", "\t")
}

#[test]
fn what_is_short_stays_as_it_is() {
    let line = "é".repeat(499);
    for message in [
        String::new(),
        format!("Subject: {}\r\n\r\n{line}\r\n{line}", "x".repeat(989)),
        format!("A: b\r\n\r\n{}\r\n", "x".repeat(998)),
        format!("Content-Transfer-Encoding: base64\r\n\r\n{}\r\n{}", "A".repeat(998), "=".repeat(998)),
        format!("Content-Transfer-Encoding: quoted-printable\r\n\r\n{}\r\n", "=3D".repeat(332)),
    ] {
        assert_eq!(short(&message), message);
    }
}

#[test]
fn texts_become_quoted_printable() {
    let long = "x".repeat(999);
    let message = format!("Subject: x\r\n\r\nbegin\r\n{long}\r\nend é\r\n");
    let converted = short(&message);
    assert!(converted.starts_with(
        "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nbegin\r\n"
    ));
    assert_eq!(bodies(message.as_bytes()), bodies(converted.as_bytes()));
    assert!(short(&format!("A: b\r\n\r\n{long}")).contains("charset=us-ascii\r\n"));
    // Other parts of the message are unchanged.
    let mixed = |text: &str, encoding: &str| {
        format!(
            "Content-Type: multipart/mixed; boundary=m\r\nContent-Transfer-Encoding: 8bit\r\n\r\npré\r\n--m\r\n\r\né\r\n--m\r\n\
             Content-Type: text/html\r\n{encoding}\r\n{text}\r\n--m--\r\n"
        )
    };
    let converted = short(&mixed(&long, "Content-Transfer-Encoding: 8bit\r\n"));
    let lines = format!("{}=\r\n", "x".repeat(75)).repeat(13);
    let encoded = format!("{lines}{}", "x".repeat(24));
    assert_eq!(converted, mixed(&encoded, "Content-Transfer-Encoding: quoted-printable\r\n"));
}

/// One long line of the header made 26 MB of short lines quoted-printable, three times as large: refused by size for
/// good.
#[test]
fn large_parts_of_short_lines_stay_as_they_are() {
    let ids: String = (0..120).map(|n| format!(" <{n}.abcdef@x.example>")).collect();
    let text = "日本語のテキスト\r\n".repeat(2 * HOLD_BYTES_MAX / 26);
    let head = "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n";
    let long = "x".repeat(2_000);
    let folded = short(&format!("References:{ids}\r\n{head}\r\n{text}"));
    assert_eq!(folded.split_once("\r\n\r\n").unwrap().1, text);
    assert!(header(&folded).ends_with(head.trim_end()));
    // Beside a part that is encoded, and followed by a delimiter.
    let mixed = |last: &str, encoding: &str| {
        format!(
            "Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n{head}\r\n{text}--m\r\n\
             Content-Type: text/plain\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{last}\r\n--m--\r\n"
        )
    };
    let lines = format!("{}=\r\n", "x".repeat(75)).repeat(26);
    assert_eq!(short(&mixed(&long, "7bit")), mixed(&format!("{lines}{}", "x".repeat(50)), "quoted-printable"));
    // A long line within the held part is encoded as usual; a first one after it is broken.
    let early = format!("{head}\r\n{long}\r\n{text}");
    let converted = short(&early);
    assert!(converted.contains("Content-Transfer-Encoding: quoted-printable\r\n"));
    assert_eq!(bodies(early.as_bytes()), bodies(converted.as_bytes()));
    let broken = format!("{}\r\n {}\r\n {}", &long[..998], &long[..997], &long[..5]);
    assert_eq!(short(&format!("{head}\r\n{text}{long}\r\nend")), format!("{head}\r\n{text}{broken}\r\nend"));
}

#[test]
fn encoded_parts_get_other_line_breaks() {
    for body in [vec![b'a'; 800], (0..=255).cycle().take(75_000).collect::<Vec<u8>>()] {
        let encoded: String = base64(&body).replace("\r\n", "");
        let message = format!("Content-Type: application/x\r\nContent-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n");
        let converted = short(&message);
        assert_eq!(bodies(message.as_bytes()), bodies(converted.as_bytes()));
        assert_eq!(converted.replace("\r\n", ""), message.replace("\r\n", ""));
        assert!(converted.lines().all(|line| line.len() <= 76));
    }
    let quoted = |body: &str| {
        format!(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{body}\r\nend\r\n"
        )
    };
    for body in [
        "=C3=A9".repeat(500),
        "a=3D ".repeat(400),
        format!("{}=", "word ".repeat(400)),
        format!("{}{}", "x".repeat(990), "=C3=A9".repeat(20)),
        format!("a{}b", " ".repeat(3_000)),
    ] {
        let message = quoted(&body);
        let converted = short(&message);
        assert_eq!(bodies(message.as_bytes()), bodies(converted.as_bytes()), "{converted}");
    }
    // White space at the end of a line is padding, and must not become text by a break before it.
    let decode = |body: &str| Encoding::QuotedPrintable.decode(body.as_bytes());
    for body in
        [format!("{}{}", "a".repeat(900), " ".repeat(200)), format!("{}=3D={}", "a".repeat(900), " \t".repeat(200))]
    {
        assert_eq!(decode(&short(&quoted(&body))), decode(&quoted(&body)));
    }
    // Malformed escapes stay within bounds, too.
    for body in ["=".repeat(5_000), "= ".repeat(5_000), format!("={}", "é".repeat(2_000))] {
        short(&quoted(&body));
    }
}

#[test]
fn text_of_fields_is_folded_or_encoded() {
    let subject =
        |message: &str| MessageParser::default().parse(message.as_bytes()).unwrap().subject().map(str::to_owned);
    for text in [
        "word ".repeat(300).trim_end().to_owned(),
        "x".repeat(5_000),
        format!("{} {} end", "short ".repeat(100).trim_end(), "y".repeat(2_000)),
        format!("{} {}", "a".repeat(500), "b".repeat(600)),
        format!("a{}b", " ".repeat(2_000)),
        "é".repeat(700),
    ] {
        let message = format!("Subject: {text}\r\nFrom: a@b.example\r\n\r\nbody\r\n");
        let converted = short(&message);
        assert_eq!(subject(&converted).as_deref(), Some(text.as_str()));
        assert!(converted.ends_with("From: a@b.example\r\n\r\nbody\r\n"));
    }
    let words = format!("X-Words: {}", "word ".repeat(300));
    assert_eq!(unfolded(&short(&format!("{words}\r\n\r\n"))), words.trim_end(), "only folds are new");
    assert!(!short(&format!("A:{}b\r\n\r\n", " ".repeat(3_000))).contains("\r\n \r\n"));
}

/// Encoded words made keys and tokens of programs unreadable.
#[test]
fn long_words_of_unknown_fields_are_broken_and_not_encoded() {
    let key = "mQENBF/abc+d".repeat(125);
    let word = format!("keydata={key}");
    let begin = "Autocrypt: addr=a@x.example; prefer-encrypt=mutual;";
    let message = format!("{begin} {word}\r\n\r\nhello\r\n");
    let broken = format!("{begin}\r\n {}\r\n {}\r\n\r\nhello\r\n", &word[..997], &word[997..]);
    assert_eq!(short(&message), broken);
    // Nor in a conversion to 7 bits.
    let mut seven_bit = Vec::new();
    let mut converter = Converter::new();
    converter.push(message.as_bytes(), &mut seven_bit).unwrap();
    converter.finish(&mut seven_bit).unwrap();
    assert_eq!(String::from_utf8(seven_bit).unwrap(), broken);
    for name in ["subject", "Comments", "Keywords", "Content-Description"] {
        assert!(short(&format!("{name}: {key}\r\n\r\n")).starts_with(&format!("{name}: =?utf-8?Q?mQENBF=2Fabc=2Bd")));
    }
    for field in
        [format!("X-Token: {key}"), format!("Face: {}", "é".repeat(900)), format!("X: a{}b", "\t".repeat(1_500))]
    {
        assert!(!short(&format!("{field}\r\n\r\n")).contains("=?"), "{field}");
    }
}

#[test]
fn addresses_stay_what_they_are() {
    let addresses = |message: &str| {
        let message = MessageParser::default().parse(message.as_bytes()).unwrap().into_owned();
        let all: Vec<_> = message
            .to()
            .unwrap()
            .iter()
            .map(|a| (a.name().map(str::to_owned), a.address().map(str::to_owned)))
            .collect();
        all
    };
    let many =
        |separator: &str| (0..200).map(|n| format!("user{n}@lists.example.org")).collect::<Vec<_>>().join(separator);
    for to in [
        many(", "),
        many(","),
        format!("\"{}\" <a@b.example>", "Very, long; name ".repeat(100).trim_end()),
        format!("{} <a@b.example>", "n".repeat(1_500)),
        format!("\"{}\" <a@b.example>,c@d.example", "n".repeat(1_500)),
    ] {
        let message = format!("To: {to}\r\nSubject: x\r\n\r\n");
        assert_eq!(addresses(&short(&message)), addresses(&message), "{}", short(&message));
    }
    // Addresses are never changed.
    let endless = format!("To: <{}@b.example>\r\n\r\n", "a".repeat(2_000));
    assert_eq!(short(&endless).replace("\r\n ", ""), endless.replace(": <", ":<"));
}

#[test]
fn parameters_and_machine_fields() {
    let name = "long name ".repeat(150);
    let message = format!(
        "Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\nContent-Type: application/x; name=\"{name}\"\r\n\
         Content-Disposition: attachment; filename=\"{name}\";size=3\r\n\r\nabc\r\n--m--\r\n"
    );
    let parse = |message: &str| {
        let message = MessageParser::default().parse(message.as_bytes()).unwrap().into_owned();
        let part = message.parts[1].clone();
        (format!("{:?}", part.body), mail_parser::MimeHeaders::attachment_name(&part).map(str::to_owned))
    };
    assert_eq!(parse(&short(&message)), parse(&message));
    let ids: String = (0..90).map(|n| format!("<{n}.abcdef@host.example.org>\t")).collect();
    let references = format!("References: {}", ids.trim_end());
    assert_eq!(unfolded(&short(&format!("{references}\r\n\r\n"))), references);
    for field in [
        format!("DKIM-Signature: v=1;d=x.example;b={}", "A".repeat(3_000)),
        format!("List-Unsubscribe: <https://x.example/{}>", "u".repeat(3_000)),
        format!("Message-ID:{}", "m".repeat(3_000)),
    ] {
        let spaceless = |text: &str| text.replace(['\r', '\n', ' '], "");
        let converted = short(&format!("{field}\r\n\r\n"));
        assert_eq!(spaceless(&converted), spaceless(&field));
        assert!(!converted.contains("=?"));
    }
    let endless = short(&format!("{}: x\r\n\r\n", "N".repeat(990)));
    assert!(endless.starts_with(&format!("{}:", "N".repeat(990))), "a name is not broken");
}

#[test]
fn what_nobody_may_encode_is_broken() {
    let long = "s".repeat(2_500);
    let signed = |text: &str| {
        format!(
            "Content-Type: multipart/signed; boundary=s\r\n\r\n{text}\r\n--s\r\nContent-Type: text/plain\r\n\r\n{text}\r\n--s\r\n\
             Content-Type: application/pgp-signature\r\n\r\nAAAA\r\n--s--\r\n"
        )
    };
    let broken = format!("{}\r\n {}\r\n {}", &long[..998], &long[..997], &long[..505]);
    assert_eq!(short(&signed(&long)), signed(&broken));
    for header in [
        "Content-Type: multipart/encrypted; boundary=s\r\n",
        "Content-Type: multipart/mixed\r\n",
        "Content-Type: message/partial; id=1\r\n",
        "Content-Transfer-Encoding: x-uuencode\r\n",
    ] {
        assert_eq!(short(&format!("{header}\r\n{long}\r\n")), format!("{header}\r\n{broken}\r\n"));
    }
    // A character is not split.
    let wide = short(&format!("Content-Transfer-Encoding: x-a\r\n\r\n{}\r\n", "é\u{4e00}\u{1f600}".repeat(300)));
    assert!(wide.contains("\r\n "));
}

#[test]
fn fields_of_a_status_are_folded_and_not_encoded() {
    let report = |text: &str| {
        format!(
            "Content-Type: multipart/report; report-type=delivery-status; boundary=r\r\n\r\n--r\r\n\
             Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; a\r\n\r\nDiagnostic-Code: smtp; 550 {text}\r\n\
             Action: failed\r\n\r\n--r\r\nContent-Type: text/rfc822-headers\r\n\r\nSubject: {text}\r\n\r\n--r--\r\n"
        )
    };
    let converted = short(&report("word ".repeat(300).trim_end()));
    let (status, headers) = converted.split_once("text/rfc822-headers").unwrap();
    assert!(!status.contains("quoted-printable") && headers.contains("quoted-printable"), "{converted}");
    let unfolded = status.replace("\r\n ", " ");
    assert!(unfolded.contains(&format!("smtp; 550 {}\r\nAction: failed\r\n\r\n--r", "word ".repeat(300).trim_end())));
}

#[test]
fn messages_within_are_converted() {
    let long = "w".repeat(2_000);
    let inner = format!("Subject: {long}\r\nTo: é@x\r\n\r\n{long}\r\n");
    let message = format!("Content-Type: message/rfc822\r\n\r\n{inner}");
    let converted = short(&message);
    assert_eq!(bodies(message.as_bytes()), bodies(converted.as_bytes()));
    assert!(converted.contains("To: é@x\r\n"), "8-bit octets stay");
}

/// Long lines alone never make a message undeliverable.
#[test]
fn nothing_fails() {
    let long = "l".repeat(3_000);
    short(&format!("{}A: é\r\n\r\n{long}", "Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX + 1)));
    short(&format!(
        "Content-Type: multipart/x; boundary=b\r\n\r\n--b\r\n{}\r\n--b\r\n\r\n{long}\r\n--b--\r\n",
        "é".repeat(600)
    ));
    let huge = format!("A: b\r\n{}{long}\r\n\r\nbody {long}\r\n", "X: y\r\n".repeat(HEADER_BYTES_MAX / 6));
    let out = shortened(&[huge.as_bytes()]);
    assert!(longest_line(&out) <= LINE_BYTES_MAX);
    assert_eq!(shortened(&huge.as_bytes().chunks(1_000).collect::<Vec<_>>()), out);
}

/// A line that is broken must not become a delimiter: readers would see the rest as another part, which no filter has
/// examined.
#[test]
fn no_break_makes_a_delimiter() {
    let part = "Content-Type: text/html\r\n\r\n<script>\r\n";
    for boundary in ["b".to_owned(), "b".repeat(69), format!("{}=", "b".repeat(72))] {
        for encoding in ["7bit", "base64", "quoted-printable", "x-a"] {
            for before in [String::new(), "x".repeat(75), "x".repeat(76), "x".repeat(997), "x".repeat(998)] {
                for behind in [String::new(), " ".repeat(1_000)] {
                    let line = format!("{before}--{boundary}{behind}{}", "y".repeat(1_200));
                    let message = format!(
                        "Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n{line}\r\n--{boundary}\r\n\
                         Content-Type: text/plain\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{line}\r\n{part}--{boundary}--\r\n{line}\r\n"
                    );
                    let converted = short(&message);
                    let delimiters = |text: &str| {
                        text.split("\r\n")
                            .filter(|line| line.trim_end().trim_end_matches('-') == format!("--{boundary}"))
                            .count()
                    };
                    assert_eq!(delimiters(&converted), delimiters(&message), "{converted}");
                }
            }
        }
    }
}

#[test]
fn long_lines_are_found() {
    for (text, wanted) in [
        (String::new(), false),
        ("x".repeat(998), false),
        ("x".repeat(999), true),
        (format!("{}\r\n", "x".repeat(998)), false),
        (format!("{}\r\n", "x".repeat(999)), true),
        (format!("{}\r\na", "x".repeat(998)), false),
        (format!("{}{}\r\nb\r\n", "a\r\n".repeat(900), "x".repeat(999)), true),
        (format!("{}{}\r\nb\r\n", "a\r\n".repeat(900), "x".repeat(998)), false),
        (format!("{}{}", "abcdefgh\r\n".repeat(900), "x".repeat(999)), true),
    ] {
        for cut in [1, 2, 7, 997, 998, 999, 1000, 1001, 100_000] {
            let mut scan = LineScan::default();
            text.as_bytes().chunks(cut).for_each(|piece| scan.push(piece));
            assert_eq!(scan.has_long_line(), wanted, "{} octets in pieces of {cut}", text.len());
        }
    }
}

/// A leaf whose lines may be long.
fn entity() -> impl Strategy<Value = Vec<u8>> {
    let encoding = proptest::sample::select(vec![
        "",
        "Content-Transfer-Encoding: 8bit\r\n",
        "Content-Transfer-Encoding: 7bit\r\n",
    ]);
    let kind = proptest::sample::select(vec![
        "Content-Type: text/plain; charset=utf-8\r\n",
        "Content-Type: application/x; name=\"a\"\r\n",
        "",
    ]);
    let body = "([a-zé=. \u{4e00}-]{0,90}\r\n|[a-z=]{500}[ a-z]{480,520}é?\r\n|[a-z]{1200} ?\r\n){1,5}";
    let leaf = (encoding, kind, "[a-z ]{0,9}|([a-z]{1,40} ){26}|[a-z]{1020}", "[a-z]{0,3000}", body).prop_map(
        |(encoding, kind, text, token, body)| {
            format!("{encoding}{kind}Subject: {text}\r\nX-Token: {token}\r\n\r\n{body}").into_bytes()
        },
    );
    nested(leaf)
}

/// Values of the field `X-Token`, without white space.
fn tokens(message: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(message).replace("\r\n ", "");
    let values = text.split("\r\n").filter_map(|line| line.strip_prefix("X-Token:"));
    values.map(|value| value.replace(' ', "")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_structure_keeps_its_bodies(entity in entity(), cut in 1usize..3000) {
        let raw = [b"MIME-Version: 1.0\r\n".as_slice(), &entity].concat();
        for converter in [Converter::of_lines as fn() -> Converter, Converter::new, Converter::lossy] {
            let convert = |raw: &[u8], cut: usize| {
                let (mut converter, mut out) = (converter(), Vec::new());
                raw.chunks(cut).for_each(|piece| converter.push(piece, &mut out).unwrap());
                converter.finish(&mut out).unwrap();
                out
            };
            let out = convert(&raw, raw.len());
            prop_assert!(longest_line(&out) <= LINE_BYTES_MAX);
            prop_assert_eq!(bodies(&raw), bodies(&out), "{}", String::from_utf8_lossy(&out));
            prop_assert_eq!(tokens(&raw), tokens(&out), "{}", String::from_utf8_lossy(&out));
            prop_assert_eq!(&convert(&raw, cut), &out);
            prop_assert_eq!(&convert(&out, cut), &out);
        }
    }

    #[test]
    fn any_octets_give_short_lines(
        text in "(\r\n|\r|\n|--a|Content-Type: multipart/(x|signed); boundary=a\r\n|message/(rfc822|delivery-status)|Content-Transfer-Encoding: (base64|quoted-printable|x)\r\n|To: |Subject: |[ -~éÿ\\x00]|x{400}|(=[0-9A-F]{2}){200}|[ \t]{300}|-{400}|[(\"]){0,40}",
        cut in 1usize..2000,
    ) {
        let whole = shortened(&[text.as_bytes()]);
        prop_assert!(longest_line(&whole) <= LINE_BYTES_MAX);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
        prop_assert_eq!(&whole, &shortened(&pieces));
        prop_assert_eq!(&whole, &shortened(&[&whole]));
        let mut scan = LineScan::default();
        for piece in &pieces {
            scan.push(piece);
        }
        let longest = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).len()).max().unwrap_or(0);
        if !text.replace("\r\n", "").contains(['\r', '\n']) {
            prop_assert_eq!(scan.has_long_line(), longest > LINE_BYTES_MAX);
        }
    }
}

/// Checks any split: the last octets of a message without a line end may be white space held back in
/// quoted-printable.
#[test]
fn white_space_at_the_end_of_a_message_stays() {
    let spaces = " \t".repeat(150);
    for encoding in ["quoted-printable", "base64", "8bit", "x-unknown"] {
        for body in
            [format!("{}{spaces}", "x".repeat(1_100)), format!("{}{spaces}", "=C2".repeat(400)), spaces.repeat(4)]
        {
            for end in ["", "\r", "\n", "\r\n"] {
                let message = format!("Content-Transfer-Encoding: {encoding}\r\n\r\n{body}{end}");
                let out = short(&message);
                let is_ended = matches!(end, "" | "\r\n") && encoding == "quoted-printable";
                assert!(!is_ended || out.trim_end_matches("\r\n").ends_with([' ', '\t']), "{end:?}: {out:?}");
            }
        }
    }
}

/// Unclosed quotes, comments and angle brackets end with their field.
#[test]
fn what_nobody_closes_ends_with_its_field() {
    let long = "x".repeat(1_200);
    for begin in [
        "To: \"",
        "To: (",
        "To: <",
        "To: a (b \"",
        "From: \"a\\",
        "Content-Type: text/plain; name=\"",
        "Subject: \"",
        "X-Any: \"",
        "List-Id: <",
    ] {
        let out = short(&format!("{begin}{long}\r\nX-Next: whole\r\n\r\nbody\r\n"));
        assert!(out.ends_with("\r\nX-Next: whole\r\n\r\nbody\r\n"), "{begin}: {out}");
    }
}
