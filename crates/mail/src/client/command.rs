//! Commands as bytes. Everything that came from elsewhere is checked before it is written: no address or parameter can
//! end its line or its argument.

use std::io::Write as _;

use super::caps::Caps;
use super::types::{ClientError, Ret, TxRcpt, TxSpec};

/// Appends MAIL (RFC 5321 4.1.1.2) with the parameters that `caps` allow.
pub(super) fn write_mail(spec: &TxSpec<'_>, caps: &Caps, out: &mut Vec<u8>) -> Result<(), ClientError> {
    check_path(spec.sender)?;
    out.extend_from_slice(b"MAIL FROM:<");
    out.extend_from_slice(spec.sender.as_bytes());
    out.push(b'>');
    if caps.size.is_some() {
        let _ = write!(out, " SIZE={}", spec.size);
    }
    if spec.eight_bit {
        out.extend_from_slice(b" BODY=8BITMIME");
    }
    if spec.smtputf8 {
        out.extend_from_slice(b" SMTPUTF8");
    }
    if caps.dsn {
        match spec.ret {
            Some(Ret::Full) => out.extend_from_slice(b" RET=FULL"),
            Some(Ret::Headers) => out.extend_from_slice(b" RET=HDRS"),
            None => {}
        }
        if let Some(envid) = spec.envid {
            check_parameter(envid, false)?;
            out.extend_from_slice(b" ENVID=");
            out.extend_from_slice(envid.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends RCPT (RFC 5321 4.1.1.3).
pub(super) fn write_rcpt(rcpt: &TxRcpt<'_>, smtputf8: bool, caps: &Caps, out: &mut Vec<u8>) -> Result<(), ClientError> {
    if rcpt.address.is_empty() {
        return Err(ClientError::BadAddress);
    }
    check_path(rcpt.address)?;
    out.extend_from_slice(b"RCPT TO:<");
    out.extend_from_slice(rcpt.address.as_bytes());
    out.push(b'>');
    if caps.dsn {
        if let Some(bits) = rcpt.notify {
            write_notify(bits, out);
        }
        if let Some(orcpt) = rcpt.orcpt {
            check_parameter(orcpt, smtputf8)?;
            out.extend_from_slice(b" ORCPT=");
            out.extend_from_slice(orcpt.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// NEVER stands alone (RFC 3461 4.1).
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

/// A path may hold anything printable but what ends it: brackets, spaces and backslashes only within quotes.
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

/// esmtp-value (RFC 5321 4.1.2; RFC 6531 3.3 adds UTF-8): printable, no space, no `=`.
fn check_parameter(value: &str, utf8: bool) -> Result<(), ClientError> {
    let good = |b: u8| (b.is_ascii_graphic() && b != b'=') || (utf8 && b >= 0x80);
    if !value.is_empty() && value.bytes().all(good) { Ok(()) } else { Err(ClientError::BadAddress) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(sender: &str) -> TxSpec<'_> {
        TxSpec { tx: 1, sender, size: 10, size_exact: true, eight_bit: false, smtputf8: false, ret: None, envid: None }
    }

    fn everything() -> Caps {
        Caps { size: Some(0), dsn: true, eight_bit_mime: true, smtputf8: true, ..Caps::default() }
    }

    #[test]
    fn parameters_follow_what_is_offered() {
        let mut spec = spec("a@b.org");
        (spec.eight_bit, spec.smtputf8, spec.ret, spec.envid) = (true, true, Some(Ret::Headers), Some("q+2B1"));
        let mut out = Vec::new();
        write_mail(&spec, &everything(), &mut out).unwrap();
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
        let rcpt = TxRcpt { orcpt: Some("rfc822;a b"), ..TxRcpt::new("a@b") };
        assert_eq!(write_rcpt(&rcpt, true, &everything(), &mut out), Err(ClientError::BadAddress));
        assert_eq!(write_rcpt(&TxRcpt::new(""), true, &everything(), &mut out), Err(ClientError::BadAddress));
        for good in ["\"a b>\"@c", "\"a\\\"b\"@c", "a'b|c`d$e@f", "é@b", ""] {
            write_mail(&spec(good), &everything(), &mut out).unwrap();
        }
    }
}
