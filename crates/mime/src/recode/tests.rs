//! Checks conversions with another MIME reader: every body decodes to the original octets.

use std::path::{Path, PathBuf};

use mail_parser::{Message, MessageParser, PartType};
use proptest::prelude::*;

use super::*;

fn convert_pieces(pieces: &[&[u8]]) -> Result<Vec<u8>, ConvertError> {
    let (mut converter, mut out) = (Converter::new(), Vec::new());
    for piece in pieces {
        converter.push(piece, &mut out)?;
    }
    converter.finish(&mut out)?;
    Ok(out)
}

fn convert(message: &str) -> String {
    String::from_utf8(convert_pieces(&[message.as_bytes()]).unwrap()).unwrap()
}

/// The decoded body of each part, in order, as another reader sees it. With `line_ends`, those of text become LF,
/// since readers of quoted-printable differ in them.
pub(super) fn bodies(raw: &[u8]) -> Vec<Vec<u8>> {
    fn collect(message: &Message<'_>, out: &mut Vec<Vec<u8>>) {
        for part in &message.parts {
            match &part.body {
                PartType::Text(text) | PartType::Html(text) => out.push(text.replace("\r\n", "\n").into_bytes()),
                PartType::Binary(bytes) | PartType::InlineBinary(bytes) => out.push(bytes.to_vec()),
                PartType::Message(message) => {
                    out.push(b"message".to_vec());
                    collect(message, out);
                }
                PartType::Multipart(children) => out.push(format!("multipart {}", children.len()).into_bytes()),
            }
        }
    }
    let mut out = Vec::new();
    if let Some(message) = MessageParser::default().parse(raw) {
        collect(&message, &mut out);
    }
    out
}

fn longest_line(bytes: &[u8]) -> usize {
    bytes.split(|&b| b == b'\n').map(<[u8]>::len).max().unwrap_or(0)
}

fn check(raw: &[u8], converted: &[u8]) {
    assert!(converted.is_ascii());
    assert!(longest_line(converted) <= longest_line(raw).max(998));
    assert_eq!(bodies(raw), bodies(converted), "{}", String::from_utf8_lossy(converted));
}

#[test]
fn seven_bit_messages_stay_as_they_are() {
    for message in [
        "",
        "Subject: x",
        "Subject: x\r\n\r\n",
        "A: b\r\n\r\nc = d \r\n.\r\n\r\ne",
        "Content-Type: multipart/mixed; boundary=a\r\n\r\np\r\n--a\r\n\r\nx\r\n--a--\r\ne\r\n",
    ] {
        assert_eq!(convert(message), message);
    }
}

#[test]
fn plain_text_gets_what_it_lacks() {
    assert_eq!(
        convert("Subject: x\r\n\r\né = 1 \r\n"),
        "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A9 =3D 1=20\r\n"
    );
    let latin = convert_pieces(&[b"A: b\r\n\r\n\xe9"]).unwrap();
    assert!(String::from_utf8(latin).unwrap().contains("charset=unknown-8bit\r\n"));
    assert_eq!(
        convert(
            "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-transfer-encoding: 8bit\r\nX: y\r\n\r\né"
        ),
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\
         Content-Transfer-Encoding: quoted-printable\r\nX: y\r\n\r\n=C3=A9"
    );
    assert!(
        convert("Content-Transfer-Encoding: 8bit\r\n\r\nascii\r\n").starts_with("Content-Transfer-Encoding: 7bit\r\n")
    );
}

#[test]
fn only_leaves_that_need_it_are_encoded() {
    let message = "Content-Type: multipart/mixed; boundary=\"o u\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
        pré\r\n--o u\r\n\r\na = b\r\n--o u  \r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
        Subject: inner\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\nX: y\r\n\r\né=\r\n--i\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--o u--\r\népilogue\r\n";
    assert_eq!(
        convert(message),
        "Content-Type: multipart/mixed; boundary=\"o u\"\r\nContent-Transfer-Encoding: 7bit\r\n\r\n\
         pr??\r\n--o u\r\n\r\na = b\r\n--o u  \r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 7bit\r\n\r\n\
         Subject: inner\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\nX: y\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A9=3D\r\n\
         --i\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--o u--\r\n??pilogue\r\n"
    );
}

#[test]
fn digests_hold_messages() {
    let digest = "Content-Type: multipart/digest; boundary=d\r\n\r\n--d\r\n\r\nSubject: x\r\n\r\né\r\n--d--\r\n";
    let converted = convert(digest);
    assert!(converted.contains("--d\r\n\r\nSubject: x\r\nMIME-Version: 1.0\r\n"), "{converted}");
}

#[test]
fn large_leaves_are_encoded_in_bounded_memory() {
    let line = "é and something more to fill the line, 0123456789\r\n";
    let mut converter = Converter::new();
    let mut converted = Vec::new();
    let mut raw = b"Content-Type: text/plain; charset=utf-8\r\n\r\n".to_vec();
    converter.push(&raw, &mut converted).unwrap();
    for _ in 0..40_000 {
        converter.push(line.as_bytes(), &mut converted).unwrap();
        raw.extend_from_slice(line.as_bytes());
        if let State::Hold { body, .. } = &converter.state {
            assert!(body.len() <= HOLD_BYTES_MAX + line.len());
        }
    }
    converter.finish(&mut converted).unwrap();
    check(&raw, &converted);
    // One endless line.
    let mut converter = Converter::new();
    let mut converted = Vec::new();
    converter.push(b"A: b\r\n\r\n", &mut converted).unwrap();
    for _ in 0..1000 {
        converter.push(&[0xe9; 1000], &mut converted).unwrap();
        assert!(converter.line.len() <= WHOLE_LINE_BYTES_MAX + 1);
    }
    converter.finish(&mut converted).unwrap();
    assert!(converted.is_ascii() && longest_line(&converted) <= 77);
    assert_eq!(converted.windows(3).filter(|w| w == b"=E9").count(), 1_000_000);
}

#[test]
fn what_cannot_be_converted_is_an_error() {
    let error = |message: &str| convert_pieces(&[message.as_bytes()]).unwrap_err();
    assert_eq!(error("To: é@x\r\n\r\n"), ConvertError::EightBitAddress);
    assert_eq!(error("Content-Type: multipart/mixed\r\n\r\né"), ConvertError::NotEncodable);
    assert_eq!(error("Content-Transfer-Encoding: x-uue\r\n\r\né"), ConvertError::NotEncodable);
    assert_eq!(error(&"Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX + 1)), ConvertError::TooDeep);
    assert!(convert_pieces(&["Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX).as_bytes()]).is_ok());
    let header = "X: y\r\n".repeat(HEADER_BYTES_MAX / 6 + 1);
    assert_eq!(error(&header), ConvertError::HeaderTooLarge);
}

/// RFC 1847 2.1: signed content must not change in transit, including its encoding.
#[test]
fn what_is_signed_or_encrypted_is_left_alone() {
    for kind in ["signed; protocol=\"application/pgp-signature\"", "encrypted"] {
        let part = "Content-Type: text/plain\r\nContent-Transfer-Encoding: 8bit\r\n\r\nfrom = \r\n";
        let sealed = format!(
            "Content-Type: multipart/{kind}; boundary=s\r\n\r\n--s\r\n{part}--s\r\n\
             Content-Type: application/pgp-signature\r\n\r\nAAAA\r\n--s--\r\n"
        );
        assert_eq!(convert(&sealed), sealed);
        // The parts beside it are converted.
        let mixed = |beside: &str| {
            format!("Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n{sealed}--m\r\n{beside}\r\n--m--\r\n")
        };
        let qp = "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A9";
        assert_eq!(convert(&mixed("\r\né")), mixed(qp));
        let eight_bit = sealed.replace("from", "fröm");
        assert_eq!(convert_pieces(&[eight_bit.as_bytes()]), Err(ConvertError::NotEncodable));
    }
}

/// NULs received by BDAT (RFC 3030) cannot be sent by DATA in any other way.
#[test]
fn nul_is_encoded_or_refused() {
    assert!(convert("A: b\r\n\r\n\0.\r\n.\0\r\n").ends_with("quoted-printable\r\n\r\n=00.\r\n.=00\r\n"));
    let base64 = "Content-Transfer-Encoding: base64\r\n\r\nAA";
    assert_eq!(convert(&format!("{base64}\0A\r\n")), format!("{base64}A\r\n"));
    let quoted = "Content-Transfer-Encoding: quoted-printable\r\n\r\n\0.\r\n";
    assert_eq!(convert(quoted), quoted.replace('\0', "=00"));
    assert_eq!(convert_pieces(&[b"Content-Transfer-Encoding: x-uue\r\n\r\n\0.\r\n"]), Err(ConvertError::NotEncodable));
}

#[test]
fn a_message_of_rfc_6532_is_encoded_as_a_whole() {
    let global = "Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\nContent-Type: message/global\r\n\r\n\
                  From: é@x\r\n\r\né\r\n--m--\r\n";
    let converted = convert(global);
    assert!(converted.contains("quoted-printable\r\n\r\nFrom: =C3=A9@x\r\n\r\n=C3=A9\r\n--m--"), "{converted}");
}

#[test]
fn internationalized_headers_are_found_at_any_level() {
    let has = |message: &str| {
        let (mut converter, mut out) = (Converter::lossy(), Vec::new());
        message.as_bytes().chunks(5).for_each(|piece| converter.push(piece, &mut out).unwrap());
        converter.finish(&mut out).unwrap();
        assert!(out.is_ascii());
        converter.has_eight_bit_header()
    };
    let nested =
        |part: &str| format!("Content-Type: multipart/mixed; boundary=m\r\n\r\né\r\n--m\r\n{part}\r\n--m--\r\n");
    assert!(!has("Subject: x\r\n\r\né\r\n"));
    assert!(!has(&nested("Subject: x\r\n\r\né")));
    assert!(has("To: é@x\r\n\r\n"));
    assert!(has(&nested("Content-Disposition: attachment; filename=é\r\n\r\nx")));
    assert!(has(&nested("Content-Type: message/rfc822\r\n\r\nSubject: é\r\n\r\nx")));
    assert!(has(&nested("Content-Type: message/global\r\n\r\nSubject: é\r\n\r\nx")));
}

#[test]
fn a_lossy_conversion_does_not_fail() {
    for message in [
        "To: é@x\r\n\r\n",
        "Content-Type: multipart/signed; boundary=m\r\n\r\n--m\r\n\r\né\0",
        "Content-Transfer-Encoding: x-uue\r\n\r\né",
        &("Content-Type: message/rfc822\r\n\r\n".repeat(LEVELS_MAX + 1) + "A: é\r\n\r\né"),
    ] {
        let (mut converter, mut out) = (Converter::lossy(), Vec::new());
        converter.push(message.as_bytes(), &mut out).unwrap();
        converter.finish(&mut out).unwrap();
        assert!(is_plain(&out) && !out.is_empty());
    }
}

#[test]
fn noise_in_encoded_parts() {
    assert_eq!(
        convert("Content-Transfer-Encoding: base64\r\n\r\nAAéAA\r\n"),
        "Content-Transfer-Encoding: base64\r\n\r\nAAAA\r\n"
    );
    let quoted = "Content-Transfer-Encoding: Quoted-Printable\r\n\r\n=41é\r\n";
    assert_eq!(convert(quoted), quoted.replace('é', "=C3=A9"));
}

/// The messages that mail-parser ships for its own tests, wherever the registry has put them.
pub(super) fn shipped_messages() -> Vec<PathBuf> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "eml") {
                out.push(path);
            }
        }
    }
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
        .unwrap_or_default();
    let mut found = Vec::new();
    for index in std::fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten() {
        for package in std::fs::read_dir(index.path()).into_iter().flatten().flatten() {
            if package.file_name().to_string_lossy().starts_with("mail-parser-") {
                walk(&package.path().join("resources"), &mut found);
            }
        }
    }
    found.sort();
    found
}

pub(super) fn with_crlf(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + raw.len() / 32);
    for line in raw.split_inclusive(|&b| b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        out.extend(text.iter().filter(|&&b| b != b'\r'));
        if text.len() < line.len() {
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

#[test]
fn real_messages_keep_their_bodies() {
    let (mut eight_bit, mut refused) = (0, 0);
    for path in shipped_messages() {
        let raw = with_crlf(&std::fs::read(&path).unwrap());
        match convert_pieces(&[&raw]) {
            Ok(converted) => {
                eight_bit += u32::from(!raw.is_ascii());
                println!("{}", path.display());
                // Readers differ about malformed structures, so only the form can be checked.
                if path.components().any(|part| part.as_os_str() == "malformed") {
                    assert!(converted.is_ascii());
                } else {
                    check(&raw, &converted);
                }
                let pieces: Vec<&[u8]> = raw.chunks(7).collect();
                assert_eq!(convert_pieces(&pieces).unwrap(), converted);
            }
            Err(error) => {
                println!("{}: {error}", path.display());
                refused += 1;
            }
        }
    }
    println!("{eight_bit} with 8-bit data, {refused} refused");
}

/// A part with its header: a leaf of some kind, or a multipart of such parts.
fn entity() -> impl Strategy<Value = Vec<u8>> {
    let encoding = proptest::sample::select(vec![
        "",
        "Content-Transfer-Encoding: 8bit\r\n",
        "CONTENT-TRANSFER-ENCODING: 7bit\r\n",
    ]);
    let charset = proptest::sample::select(vec![
        "Content-Type: text/plain; charset=utf-8\r\n",
        "Content-Type: application/x; name=\"a\"\r\n",
    ]);
    let leaf = (encoding, charset, "([a-zé=. \t\u{4e00}]{0,90}\r\n){1,5}")
        .prop_map(|(encoding, charset, body)| format!("{encoding}{charset}\r\n{body}").into_bytes());
    nested(leaf)
}

/// Parts, multiparts and messages nested in each other.
pub(super) fn nested(leaf: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    leaf.prop_recursive(4, 24, 4, |inner| {
        (proptest::collection::vec(inner, 1..4), "[a-z]{8}", any::<bool>()).prop_map(|(parts, boundary, message)| {
            let kind = if message { "Content-Type: message/rfc822\r\n\r\n" } else { "" };
            let mut out = format!("{kind}Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n").into_bytes();
            for part in parts {
                out.extend_from_slice(format!("\r\n--{boundary}\r\n").as_bytes());
                out.extend_from_slice(&part);
            }
            out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            out
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_structure_keeps_its_bodies(entity in entity(), cut in 1usize..50) {
        let raw = [b"MIME-Version: 1.0\r\nSubject: \xc3\xa9\r\n".as_slice(), &entity].concat();
        let converted = convert_pieces(&[&raw]).unwrap();
        check(&raw, &converted);
        let pieces: Vec<&[u8]> = raw.chunks(cut).collect();
        prop_assert_eq!(convert_pieces(&pieces).unwrap(), converted);
    }

    #[test]
    fn any_bytes_give_seven_bits_or_an_error(text in "(\r\n|\r|\n|--a|Content-Type: multipart/(x|signed); boundary=a\r\n|message/rfc822|To: |[ -~éÿ\\x00]){0,40}", cut in 1usize..9) {
        let whole = convert_pieces(&[text.as_bytes()]);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
        prop_assert_eq!(&whole, &convert_pieces(&pieces));
        if let Ok(converted) = whole {
            prop_assert!(is_plain(&converted));
        }
    }
}
