//! Checks conversions to 8 bits with another MIME reader: every part decodes to the original octets.

use proptest::prelude::*;

use super::tests::{bodies, nested, shipped_messages, with_crlf};
use super::*;
use crate::transfer::base64;

/// Runs both passes, in pieces. `None`: nothing changes.
fn recode(target: RecodeTarget, raw: &[u8], cut: usize) -> Result<Option<Vec<u8>>, ConvertError> {
    let mut survey = Survey::new(target);
    raw.chunks(cut).for_each(|piece| survey.push(piece));
    let (Some(Recoding { mut converter, size }), _) = survey.finish()? else { return Ok(None) };
    let mut out = Vec::new();
    for piece in raw.chunks(cut) {
        converter.push(piece, &mut out)?;
    }
    converter.finish(&mut out)?;
    assert!(size <= out.len() as u64);
    Ok(Some(out))
}

fn decoded(message: &str) -> String {
    let out = recode(RecodeTarget::EightBit, message.as_bytes(), 1_000_000).unwrap();
    String::from_utf8(out.unwrap_or_else(|| message.into())).unwrap()
}

fn stays(message: &str) {
    assert_eq!(recode(RecodeTarget::EightBit, message.as_bytes(), 7), Ok(None), "{message}");
}

fn text(encoding: &str, body: &str) -> String {
    format!("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}")
}

fn mixed(kind: &str, parts: &[&str]) -> String {
    let parts = parts.join("\r\n--b\r\n");
    format!("Content-Type: multipart/{kind}; boundary=b\r\n\r\npre\r\n--b\r\n{parts}\r\n--b--\r\nepi\r\n")
}

#[test]
fn text_is_written_as_it_is() {
    assert_eq!(decoded(&text("quoted-printable", "=C3=A9 =3D soft=\r\n=20\r\n")), text("8bit", "é = soft \r\n"));
    assert_eq!(decoded(&text("BASE64 (x)", &base64("é\r\n\r\n".as_bytes()))), text("8bit", "é\r\n\r\n"));
    // ASCII becomes 7bit, and other fields keep their octets.
    let header = "Subject: =?utf-8?q?=C3=A9?=\r\n folded  \r\nX: \u{e9}\r\n";
    assert_eq!(
        decoded(&format!("{header}{}", text("quoted-printable", "a=3Db\r\n"))),
        format!("{header}{}", text("7bit", "a=b\r\n"))
    );
    // Without a type it is text (RFC 2045 5.2).
    let bare = "Content-Transfer-Encoding: base64\r\n\r\nYQ0K\r\n";
    assert_eq!(decoded(bare), "Content-Transfer-Encoding: 7bit\r\n\r\na\r\n");
}

/// The line end before a delimiter belongs to it (RFC 2046 5.1.1): a text whose last line has no end can be written
/// there, but not at the end of a message.
#[test]
fn last_line_ends_are_kept() {
    for body in ["é", "é\r\n", "é\r\n\r\n"] {
        let encoded = text("base64", &base64(body.as_bytes()));
        assert_eq!(decoded(&mixed("mixed", &[&encoded])), labelled(&mixed("mixed", &[&text("8bit", body)])));
        let quoted = text("quoted-printable", &body.replace('é', "=C3=A9"));
        assert_eq!(decoded(&mixed("mixed", &[&quoted])), labelled(&mixed("mixed", &[&text("8bit", body)])));
    }
    assert_eq!(
        decoded(&mixed("mixed", &[&text("quoted-printable", "=C3=A9=\r\n")])),
        labelled(&mixed("mixed", &[&text("8bit", "é")]))
    );
    stays(&text("base64", &format!("{}\r\n", base64("é".as_bytes()))));
    stays(&text("quoted-printable", "=C3=A9=\r\n"));
    stays(&text("quoted-printable", "=C3=A9"));
    // The multipart is not closed.
    stays(&format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{}\r\n", text("base64", "w6k=")));
    stays(&mixed("mixed", &[&text("base64", ""), &text("quoted-printable", "=")]));
}

/// With the encoding required by its parts.
fn labelled(multipart: &str) -> String {
    multipart.replacen("boundary=b\r\n", "boundary=b\r\nContent-Transfer-Encoding: 8bit\r\n", 1)
}

/// RFC 2045 6.4: no part around 8-bit text may declare 7bit.
#[test]
fn what_is_around_names_the_highest_encoding() {
    let inner =
        |label: &str, part: &str| format!("{label}Content-Type: multipart/x; boundary=i\r\n\r\n--i\r\n{part}\r\n--i--");
    let ascii = text("base64", "YQ==");
    let message = |label: &str, part: &str| format!("Content-Type: message/rfc822\r\n{label}\r\n{part}");
    let label = "Content-Transfer-Encoding: 8bit\r\n";
    let encoded = mixed(
        "mixed",
        &[
            &inner("", &ascii),
            &message("", &text("quoted-printable", "=C3=A9")),
            &inner("Content-Transfer-Encoding: 7bit\r\n", &text("base64", "w6k=")),
            &inner("Content-Transfer-Encoding: binary\r\n", &text("base64", "w6k=")),
        ],
    );
    let wanted = labelled(&mixed(
        "mixed",
        &[
            &inner("", &text("7bit", "a")),
            &message(label, &text("8bit", "é")),
            &inner(label, &text("8bit", "é")),
            &inner("Content-Transfer-Encoding: binary\r\n", &text("8bit", "é")),
        ],
    ));
    assert_eq!(decoded(&encoded), wanted);
    // There is no 8-bit text inside, so nothing is declared.
    assert_eq!(decoded(&mixed("mixed", &[&ascii])), mixed("mixed", &[&text("7bit", "a")]));
}

#[test]
fn what_could_not_stand_by_itself_stays() {
    let of = |octets: &[u8]| text("base64", &base64(octets));
    let long = "x".repeat(998);
    for octets in [
        b"a\0\r\n".as_slice(),
        b"a\nb\r\n",
        b"a\rb\r\n",
        b"a\r\r\n",
        b"\n",
        format!("a\r\n{long}x\r\n").as_bytes(),
        b"",
    ] {
        stays(&of(octets));
        stays(&mixed("mixed", &[&of(octets)]));
    }
    assert_eq!(decoded(&of(format!("{long}\r\n").as_bytes())), text("7bit", &format!("{long}\r\n")));
    for charset in ["utf-16", "UTF-16BE", "\"utf-32\"", "ISO-10646-UCS-2"] {
        stays(&of("é\r\n".as_bytes()).replace("utf-8", charset));
    }
    stays(&of("é\r\n".as_bytes()).replace("text/plain", "application/json"));
    stays(&of("é\r\n".as_bytes()).replace("text/plain", "multipart/mixed; boundary=a"));
    stays(&of("é\r\n".as_bytes()).replace("text/plain", "message/rfc822"));
    // Readers interpret it differently.
    stays(&of("é\r\n".as_bytes()).replace("Content-Type", "no field\r\nContent-Type"));
    stays(&of("é\r\n".as_bytes()).replace("Content-Type", "Content-Transfer-Encoding: 7bit\r\nContent-Type"));
    stays(&text("quoted-printable", "sloppy \r\n=C3=A9\r\n"));
    stays(&text("quoted-printable", "a=b\r\n"));
    stays(&text("base64", "w6kN!Cg==\r\n"));
}

/// A text is not decoded if one of its lines would end a part, or might appear to for some readers.
#[test]
fn delimiters_stay_encoded() {
    let of = |octets: &str| text("base64", &base64(octets.as_bytes()));
    for line in ["--b", "--b--", "--b  ", "--bc", "é\r\n--b\r\nx", "x --b", "---b"] {
        stays(&mixed("mixed", &[&of(line)]));
        let nested =
            format!("Content-Type: multipart/mixed; boundary=other\r\n\r\n--other\r\n{}\r\n--other--", of(line));
        stays(&mixed("mixed", &[&nested]));
    }
    for line in ["-- b", " -b", "x-b", "--a"] {
        assert_eq!(decoded(&mixed("mixed", &[&of(line)])), mixed("mixed", &[&text("7bit", line)]));
    }
    // After its end a boundary has no meaning.
    let closed = "Content-Type: multipart/mixed; boundary=in\r\n\r\n--in\r\n\r\nx\r\n--in--";
    assert!(decoded(&mixed("mixed", &[closed, &of("--in")])).ends_with("\r\n--in\r\n--b--\r\nepi\r\n"));
}

/// RFC 1847 2.1: signed content must not change.
#[test]
fn what_is_signed_or_encrypted_is_not_touched() {
    let part = text("quoted-printable", "=C3=A9\r\n");
    for kind in ["signed", "encrypted"] {
        stays(&mixed(kind, &[&part]));
        let sealed = mixed(kind, &[&part]).replace("=b\r", "=s\r").replace("--b", "--s");
        let around = decoded(&mixed("mixed", &[&sealed, &part]));
        assert_eq!(around, labelled(&mixed("mixed", &[&sealed, &text("8bit", "é\r\n")])));
    }
}

#[test]
fn memory_is_bounded() {
    let line = format!("{}\r\n", base64("é".repeat(27).as_bytes()));
    let mut converter = Converter::decoding(Decoding::default());
    let (mut raw, mut out) = (text("base64", "").into_bytes(), Vec::new());
    converter.push(&raw, &mut out).unwrap();
    for _ in 0..10_000 {
        converter.push(line.as_bytes(), &mut out).unwrap();
        raw.extend_from_slice(line.as_bytes());
        if let State::Hold { body, .. } = &converter.state {
            assert!(body.len() <= HOLD_BYTES_MAX + line.len());
        }
    }
    converter.finish(&mut out).unwrap();
    assert!(out == raw, "a large text passes as it came");
    // Deeper than the limit, and more of them.
    stays(&("Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX + 1) + &text("quoted-printable", "=C3=A9\r\n")));
    let deep = "Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX) + &text("quoted-printable", "=C3=A9\r\n");
    assert_eq!(decoded(&deep).matches("8bit").count(), LEVELS_MAX + 1);
}

/// Compares every part as a strict reader and as mail-parser see it.
fn check(raw: &[u8], cut: usize) {
    let eight = recode(RecodeTarget::EightBit, raw, cut).unwrap();
    assert_eq!(recode(RecodeTarget::EightBit, raw, raw.len().max(1)).unwrap(), eight, "cuts do not matter");
    let Some(eight) = eight else { return };
    assert_ne!(eight, raw);
    assert_eq!(bodies(raw), bodies(&eight), "{}", String::from_utf8_lossy(&eight));
    assert_eq!(recode(RecodeTarget::EightBit, &eight, cut), Ok(None), "all that can be done is done at once");
    match recode(RecodeTarget::SevenBit, &eight, cut) {
        Ok(Some(seven)) => assert_eq!(bodies(raw), bodies(&seven)),
        Ok(None) => assert!(eight.is_ascii()),
        // Only for input that had 8-bit octets before.
        Err(error) => assert!(!raw.is_ascii(), "{error}"),
    }
}

#[test]
fn real_messages_keep_their_bodies() {
    let mut changed = 0;
    for path in shipped_messages() {
        // Readers differ about malformed structures.
        if path.components().any(|part| part.as_os_str() == "malformed") {
            continue;
        }
        println!("{}", path.display());
        let raw = with_crlf(&std::fs::read(&path).unwrap());
        changed += u32::from(recode(RecodeTarget::EightBit, &raw, 7).unwrap().is_some());
        check(&raw, 7);
    }
    println!("{changed} have changed");
}

/// The decoded octets of a text, with its line end.
fn leaf() -> impl Strategy<Value = Vec<u8>> {
    let kind = proptest::sample::select(vec!["text/plain; charset=utf-8", "application/x", "text/html"]);
    (kind, "([a-zé= .\u{4e00}-]{0,40}(\r\n|\r\n|--bound|\n)){0,4}[a-zé ]{0,3}", 0..3).prop_map(
        |(kind, body, encoding)| {
            let mut out = format!("Content-Type: {kind}\r\n").into_bytes();
            let (name, encoded) = match encoding {
                0 => ("base64", base64(body.as_bytes()).into_bytes()),
                1 => ("quoted-printable", quoted_of(&body)),
                _ => ("8bit", body.into_bytes()),
            };
            out.extend_from_slice(format!("Content-Transfer-Encoding: {name}\r\n\r\n").as_bytes());
            out.extend_from_slice(&encoded);
            out
        },
    )
}

fn quoted_of(body: &str) -> Vec<u8> {
    let (mut encoder, mut out) = (QuotedPrintable::default(), Vec::new());
    let mut lines = body.split("\r\n").peekable();
    while let Some(line) = lines.next() {
        encoder.push(line.as_bytes(), &mut out);
        if lines.peek().is_some() { encoder.end_line(&mut out) } else { encoder.finish(&mut out) }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_structure_keeps_its_bodies(entity in nested(leaf()), cut in 1usize..50) {
        check(&[b"MIME-Version: 1.0\r\n".as_slice(), &entity].concat(), cut);
    }

    /// A text that is converted to 7 bits and back to 8 bits is unchanged.
    #[test]
    fn there_and_back(body in "([a-zé= .-]{0,40}\r\n){1,5}", cut in 1usize..50) {
        let raw = format!("MIME-Version: 1.0\r\n{}", text("8bit", &body));
        if let Some(seven) = recode(RecodeTarget::SevenBit, raw.as_bytes(), cut).unwrap() {
            prop_assert!(seven.is_ascii());
            prop_assert_eq!(recode(RecodeTarget::EightBit, &seven, cut).unwrap(), Some(raw.into_bytes()));
        }
    }

    #[test]
    fn any_bytes(text in "(\r\n|\r|\n|--a|=|=C3=A9|w6k=|Content-Transfer-Encoding: (base64|quoted-printable)\r\n|Content-Type: multipart/(x|signed); boundary=a\r\n|message/rfc822|[ -~é\\x00]){0,40}", cut in 1usize..9) {
        let whole = recode(RecodeTarget::EightBit, text.as_bytes(), 1_000);
        prop_assert_eq!(&whole, &recode(RecodeTarget::EightBit, text.as_bytes(), cut));
        if let Ok(Some(out)) = whole {
            prop_assert_eq!(recode(RecodeTarget::EightBit, &out, cut), Ok(None));
        }
    }
}

#[test]
fn texts_that_stay_encoded_are_counted() {
    let stayed = |text: &str| {
        let mut survey = Survey::new(RecodeTarget::EightBit);
        survey.push(text.as_bytes());
        let (recoding, stayed) = survey.finish().unwrap();
        (recoding.is_some(), stayed)
    };
    // Bare LF line ends, as written by Python's email.
    let bare = "Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\nYQpiCg==\r\n";
    assert_eq!(stayed(bare), (false, 1));
    let clear = "Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ0KYg0K\r\n";
    assert_eq!(stayed(clear), (true, 0));
    let both = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{bare}--b\r\n{clear}--b--\r\n");
    assert_eq!(stayed(&both), (true, 1));
}
