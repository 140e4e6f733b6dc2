//! The table of contents: subject and author of each post, in readable form.

use stentor_mime::quoted::QuotedPrintable;

use crate::fields::Piece;
use crate::heading::HeadingFields;

/// One entry, and whether the header section is UTF-8.
#[derive(Debug, Default)]
pub(super) struct Entry {
    gathered: HeadingFields,
    header: super::scan::Utf8Scan,
}

impl Entry {
    /// Takes a piece. Returns whether it belongs to the header section and is not ASCII.
    pub(super) fn take(&mut self, piece: Piece<'_>) -> bool {
        self.gathered.take(piece);
        match piece {
            Piece::Value(value) => {
                self.header.push(value);
                !value.is_ascii()
            }
            Piece::Name(_) | Piece::BodyBegins | Piece::Body(_) => false,
        }
    }

    pub(super) fn is_utf8(&self) -> bool {
        self.header.is_valid()
    }

    /// Appends `subject (author)`.
    pub(super) fn write(&self, out: &mut String) {
        let heading = self.gathered.heading();
        out.push_str(if heading.subject.is_empty() { "(no subject)" } else { &heading.subject });
        if !heading.author.is_empty() {
            out.push_str(" (");
            out.push_str(&heading.author);
            out.push(')');
        }
    }
}

/// Appends the table as a MIME part that is always 7-bit.
pub(super) fn write_part(text: &str, out: &mut Vec<u8>) {
    let is_plain = text.is_ascii() && text.lines().all(|line| line.len() < 998);
    let (charset, encoding) = if is_plain { ("us-ascii", "7bit") } else { ("utf-8", "quoted-printable") };
    out.extend_from_slice(
        format!(
            "Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\
             Content-Description: Table of contents\r\n\r\n"
        )
        .as_bytes(),
    );
    if is_plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut encoder = QuotedPrintable::default();
    for line in text.lines() {
        encoder.push(line.as_bytes(), out);
        encoder.end_line(out);
    }
}
