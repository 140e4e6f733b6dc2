//! Formats commands. External input is checked before it is written: no address or parameter can end its line or its
//! argument.
//!
//! An address that cannot be written is an error. A parameter is never one: if the host does not support it or it
//! cannot be sent, it is left out, since a message without its ORCPT is better than no message.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

use stentor_mail::dsn::Ret;

use super::caps::{Caps, Extensions};
use super::types::{ClientError, TxRcpt, TxSpec};

/// Longest ORCPT (RFC 3461 4.2).
const ORCPT_BYTES_MAX: usize = 500;

/// Appends MAIL (RFC 5321 4.1.1.2) with the parameters that `caps` allows; returns the extensions used.
pub(super) fn write_mail(spec: &TxSpec<'_>, caps: &Caps, out: &mut Vec<u8>) -> Result<Extensions, ClientError> {
    check_path(spec.sender)?;
    let mut used = Extensions::NONE;
    out.extend_from_slice(b"MAIL FROM:<");
    out.extend_from_slice(spec.sender.as_bytes());
    out.push(b'>');
    if caps.size.is_some() {
        let _ = write!(out, " SIZE={}", spec.size);
        used = used.and(Extensions::SIZE);
    }
    if spec.eight_bit {
        out.extend_from_slice(b" BODY=8BITMIME");
        used = used.and(Extensions::EIGHT_BIT_MIME);
    }
    if spec.smtputf8 {
        out.extend_from_slice(b" SMTPUTF8");
        used = used.and(Extensions::SMTPUTF8);
    }
    if spec.require_tls {
        out.extend_from_slice(b" REQUIRETLS");
    }
    if caps.dsn {
        match spec.ret {
            Some(Ret::Full) => out.extend_from_slice(b" RET=FULL"),
            Some(Ret::Headers) => out.extend_from_slice(b" RET=HDRS"),
            None => {}
        }
        let envid = spec.envid.filter(|envid| is_parameter(envid));
        if let Some(envid) = envid {
            out.extend_from_slice(b" ENVID=");
            out.extend_from_slice(envid.as_bytes());
        }
        if spec.ret.is_some() || envid.is_some() {
            used = used.and(Extensions::DSN);
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(used)
}

/// Appends RCPT (RFC 5321 4.1.1.3); returns the extensions used. On an error nothing is appended.
pub(super) fn write_rcpt(
    rcpt: &TxRcpt<'_>,
    smtputf8: bool,
    caps: &Caps,
    out: &mut Vec<u8>,
) -> Result<Extensions, ClientError> {
    let mut used = Extensions::NONE;
    if rcpt.address.is_empty() {
        return Err(ClientError::BadAddress);
    }
    check_path(rcpt.address)?;
    out.extend_from_slice(b"RCPT TO:<");
    out.extend_from_slice(rcpt.address.as_bytes());
    out.push(b'>');
    if caps.dsn {
        let before = out.len();
        if let Some(bits) = rcpt.notify {
            write_notify(bits, out);
        }
        if let Some(orcpt) = rcpt.orcpt.and_then(|orcpt| orcpt_for(orcpt, smtputf8)) {
            out.extend_from_slice(b" ORCPT=");
            out.extend_from_slice(orcpt.as_bytes());
        }
        if out.len() > before {
            used = Extensions::DSN;
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(used)
}

/// Returns ORCPT in the form for a transaction with or without SMTPUTF8. An address of type utf-8 (RFC 6533 section 3)
/// has a form for each: UTF-8, or `\x{F6}` for non-ASCII characters, which is also valid xtext and may be sent to every
/// host with DSN. `None` if it is neither.
fn orcpt_for(orcpt: &str, smtputf8: bool) -> Option<Cow<'_, str>> {
    let (kind, address) = orcpt.split_once(';')?;
    if !kind.eq_ignore_ascii_case("utf-8") {
        return is_parameter(orcpt).then_some(Cow::Borrowed(orcpt));
    }
    let mut said = String::with_capacity(orcpt.len() + 16);
    said.push_str("utf-8;");
    for (at, c) in address.char_indices() {
        match c {
            // Existing escapes stay: those of xtext, which RFC 3461 requires, and those of RFC 6533.
            '+' if is_hexchar(&address[at + 1..]) => said.push(c),
            '\\' if is_embedded(&address[at + 1..]) => said.push(c),
            '+' | '=' | '\\' => _ = write!(said, "\\x{{{:02X}}}", u32::from(c)),
            c if c.is_ascii_graphic() || (smtputf8 && !c.is_ascii() && !c.is_control()) => said.push(c),
            c => _ = write!(said, "\\x{{{:02X}}}", u32::from(c)),
        }
    }
    (!address.is_empty() && said.len() <= ORCPT_BYTES_MAX).then_some(Cow::Owned(said))
}

fn is_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'A'..=b'F').contains(&b)
}

/// Whether the rest of an xtext escape follows (RFC 3461 section 4).
fn is_hexchar(rest: &str) -> bool {
    rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(|b| is_hex(*b)))
}

/// Whether the rest of an `EmbeddedUnicodeChar` follows.
fn is_embedded(rest: &str) -> bool {
    let digits = rest.strip_prefix("x{").and_then(|rest| rest.split_once('}'));
    digits.is_some_and(|(digits, _)| (2..=6).contains(&digits.len()) && digits.bytes().all(is_hex))
}

/// Writes NOTIFY. NEVER excludes the others (RFC 3461 4.1).
fn write_notify(bits: u8, out: &mut Vec<u8>) {
    let words: [(u8, &[u8]); 3] = [(2, b"SUCCESS"), (4, b"FAILURE"), (8, b"DELAY")];
    if bits & 0b1110 == 0 {
        if bits & 1 != 0 {
            out.extend_from_slice(b" NOTIFY=NEVER");
        }
        return;
    }
    let mut separator: &[u8] = b" NOTIFY=";
    for (bit, word) in words {
        if bits & bit != 0 {
            out.extend_from_slice(separator);
            out.extend_from_slice(word);
            separator = b",";
        }
    }
}

/// Checks a path: it may hold any printable character except those that end it: brackets, and spaces and backslashes
/// outside quotes.
fn check_path(path: &str) -> Result<(), ClientError> {
    let plain = |b: u8| b > b' ' && b != 0x7f && !matches!(b, b'<' | b'>' | b'"' | b'\\');
    if path.bytes().all(plain) {
        return Ok(());
    }
    let (mut quoted, mut escaped) = (false, false);
    for b in path.bytes() {
        match b {
            0..b' ' | 0x7f => return Err(ClientError::BadAddress),
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted || plain(b) => {}
            _ => return Err(ClientError::BadAddress),
        }
    }
    if quoted { Err(ClientError::BadAddress) } else { Ok(()) }
}

/// esmtp-value (RFC 5321 4.1.2): printable, no space, no `=`.
fn is_parameter(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && b != b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(sender: &str) -> TxSpec<'_> {
        TxSpec {
            tx: 1,
            sender,
            size: 10,
            size_exact: true,
            eight_bit: false,
            smtputf8: false,
            require_tls: false,
            ret: None,
            envid: None,
        }
    }

    fn everything() -> Caps {
        Caps { size: Some(0), dsn: true, eight_bit_mime: true, smtputf8: true, ..Caps::default() }
    }

    #[test]
    fn parameters_follow_what_is_offered() {
        let mut spec = spec("a@b.org");
        (spec.eight_bit, spec.smtputf8, spec.ret, spec.envid) = (true, true, Some(Ret::Headers), Some("q+2B1"));
        let mut out = Vec::new();
        let used = write_mail(&spec, &everything(), &mut out).unwrap();
        assert_eq!(used.to_string(), "SIZE, 8BITMIME, SMTPUTF8, DSN");
        let rcpt = TxRcpt { address: "c@d.org", notify: Some(6), orcpt: Some("rfc822;x@d.org") };
        write_rcpt(&rcpt, true, &everything(), &mut out).unwrap();
        write_rcpt(&TxRcpt { notify: Some(1), ..rcpt }, true, &Caps::default(), &mut out).unwrap();
        write_rcpt(&TxRcpt { notify: Some(1), orcpt: None, ..rcpt }, true, &everything(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "MAIL FROM:<a@b.org> SIZE=10 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=q+2B1\r\n\
             RCPT TO:<c@d.org> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;x@d.org\r\nRCPT TO:<c@d.org>\r\n\
             RCPT TO:<c@d.org> NOTIFY=NEVER\r\n"
        );
    }

    #[test]
    fn nothing_can_be_injected() {
        let mut out = Vec::new();
        for bad in ["a@b\r\nDATA", "a@b\n", "a@b>", "a b@c", "a@b\0", "\"a@b", "<a@b", "a\\b@c", "a\u{7f}@b"] {
            assert_eq!(write_mail(&spec(bad), &everything(), &mut out), Err(ClientError::BadAddress), "{bad:?}");
            let rcpt = TxRcpt::new(bad);
            assert_eq!(write_rcpt(&rcpt, true, &everything(), &mut out), Err(ClientError::BadAddress), "{bad:?}");
        }
        // A bad parameter does not prevent sending.
        for bad in ["rfc822;a b", "rfc822;é", "rfc822;a=b", "a\r\nDATA", "utf-8;", &format!("utf-8;{}", "é".repeat(99))]
        {
            out.clear();
            write_rcpt(&TxRcpt { orcpt: Some(bad), ..TxRcpt::new("a@b") }, false, &everything(), &mut out).unwrap();
            assert_eq!(out, b"RCPT TO:<a@b>\r\n", "{bad:?}");
        }
        out.clear();
        write_mail(&TxSpec { envid: Some("a b"), ..spec("a@b") }, &everything(), &mut out).unwrap();
        assert_eq!(out, b"MAIL FROM:<a@b> SIZE=10\r\n");
        assert_eq!(write_rcpt(&TxRcpt::new(""), true, &everything(), &mut out), Err(ClientError::BadAddress));
        for good in ["\"a b>\"@c", "\"a\\\"b\"@c", "a'b|c`d$e@f", "é@b", ""] {
            write_mail(&spec(good), &everything(), &mut out).unwrap();
        }
    }

    #[test]
    fn an_original_recipient_with_utf8_can_be_said_to_every_host() {
        let said = |orcpt: &str, smtputf8| orcpt_for(orcpt, smtputf8).unwrap().into_owned();
        for (orcpt, seven_bit, utf8) in [
            ("utf-8;j\u{f6}rg@x", "utf-8;j\\x{F6}rg@x", "utf-8;j\u{f6}rg@x"),
            ("UTF-8;\u{1f600}", "utf-8;\\x{1F600}", "utf-8;\u{1f600}"),
            // Already escaped, in either form.
            ("utf-8;\\x{F6}a+2Bb", "utf-8;\\x{F6}a+2Bb", "utf-8;\\x{F6}a+2Bb"),
            ("utf-8;a+b\\c\\x{", "utf-8;a\\x{2B}b\\x{5C}c\\x{5C}x{", "utf-8;a\\x{2B}b\\x{5C}c\\x{5C}x{"),
            ("utf-8;a=b c\r\n", "utf-8;a\\x{3D}b\\x{20}c\\x{0D}\\x{0A}", "utf-8;a\\x{3D}b\\x{20}c\\x{0D}\\x{0A}"),
        ] {
            assert_eq!((said(orcpt, false), said(orcpt, true)), (seven_bit.to_owned(), utf8.to_owned()));
        }
    }

    proptest::proptest! {
        /// Whatever the input, ORCPT is xtext or nothing without SMTPUTF8, and never becomes another argument.
        #[test]
        fn any_original_recipient_is_harmless(orcpt in "(utf-8|rfc822|)[;]?(\\PC|[ -~\\x00-\\x1f]){0,60}", smtputf8: bool) {
            if let Some(said) = orcpt_for(&orcpt, smtputf8) {
                let good = |c: char| (c.is_ascii_graphic() && c != '=') || (smtputf8 && !c.is_ascii() && !c.is_control());
                proptest::prop_assert!(said.chars().all(good) && said.len() <= ORCPT_BYTES_MAX, "{said}");
            }
        }
    }
}
