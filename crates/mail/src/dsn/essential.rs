//! The part of an untrusted client's message that a DSN returns: if its sender is forged, the DSN goes to a victim.
//!
//! Promise: returns at most [`ESSENTIAL_BYTES_MAX`] octets in whole lines: the first field of each name in
//! [`ESSENTIAL`], cut to [`FIELD_BYTES_MAX`] at a line end or within its only line, so that no field displaces another.
//! RFC 6522 section 4 requires the whole header section; this deviates on purpose.

/// Maximum octets returned.
pub const ESSENTIAL_BYTES_MAX: usize = 4 * 1024;
const FIELD_BYTES_MAX: usize = 480;
/// Fields that identify the message to its sender, and its origin to an operator (the first Received is ours).
const ESSENTIAL: [&str; 8] =
    ["Received", "From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "Auto-Submitted"];

/// Returns the essential fields of a header section; the rest is ignored.
pub fn essential_header(original: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut seen = [false; ESSENTIAL.len()];
    let mut rest = original;
    while !rest.is_empty() && !rest.starts_with(b"\r\n") {
        let (field, after) = rest.split_at(field_end(rest));
        rest = after;
        let name = &field[..field.iter().position(|byte| *byte == b':').unwrap_or(0)];
        let Some(index) = ESSENTIAL.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes())) else {
            continue;
        };
        if !std::mem::replace(&mut seen[index], true) {
            push(field, &mut out);
        }
    }
    debug_assert!(out.len() <= ESSENTIAL_BYTES_MAX);
    out
}

/// Returns the end of the field at the start of `header`, including its continuation lines.
fn field_end(header: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', header).map(|at| at + 1);
    let mut ends = ends.filter(|end| !matches!(header.get(*end), Some(b' ' | b'\t')));
    ends.next().unwrap_or(header.len())
}

fn push(field: &[u8], out: &mut Vec<u8>) {
    let cut = &field[..field.len().min(FIELD_BYTES_MAX)];
    let end = if field.len() <= FIELD_BYTES_MAX { None } else { memchr::memrchr(b'\n', cut).map(|at| at + 1) };
    out.extend_from_slice(&cut[..end.unwrap_or(cut.len())]);
    if !out.ends_with(b"\r\n") {
        while matches!(out.last(), Some(b'\r')) {
            out.pop();
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_there_however_much_stands_before_it() {
        let text = [
            &b"Received: from x\r\n\tby us;\r\n\tThu, 1 Jan 1970\r\nReceived: forged\r\n"[..],
            &b"X-Advert: buy this\r\n ".repeat(2_000),
            b"\r\nfrom: a@b.org\r\nSubject: a\r\n b\r\nMessage-ID: <1@b.org>\r\nSubject: again\r\n\r\nDate: body\r\n",
        ]
        .concat();
        let wanted = b"Received: from x\r\n\tby us;\r\n\tThu, 1 Jan 1970\r\nfrom: a@b.org\r\nSubject: a\r\n b\r\nMessage-ID: <1@b.org>\r\n";
        assert_eq!(essential_header(&text), wanted);
    }

    #[test]
    fn no_field_takes_much() {
        let long = ESSENTIAL.map(|name| format!("{name}: {}\r\n", "advert ".repeat(2_000))).concat();
        let folded = ESSENTIAL.map(|name| format!("{name}: {}\r\n", "advert\r\n ".repeat(2_000))).concat();
        for text in [long.as_bytes(), folded.as_bytes(), b"Subject: x\r", b"Subject: x", b"Subject", b"\r\nTo: body"] {
            let out = essential_header(text);
            assert!(out.len() <= ESSENTIAL_BYTES_MAX && (out.is_empty() || out.ends_with(b"\r\n")), "{}", out.len());
        }
    }
}
