//! Decodes a quarantined message for people, who must not run any of it: text only, files by name.
//!
//! Promise: bounded by the limits below, whatever the message; nothing of it is rendered.

use std::io;

use stentor_control::AttachmentView;
use stentor_mime::charset::Charset;
use stentor_mime::html::Html;
use stentor_mime::walk::{Kind, Part, Visitor, Walker};
use stentor_mime::words;

/// Octets of a header read for a list.
pub const HEADER_BYTES_MAX: usize = 32 * 1024;
/// Octets of a message read.
const BYTES_MAX: u64 = 8 * 1024 * 1024;
const TEXT_BYTES_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 200;
const FIELD_CHARS_MAX: usize = 1_000;
const FILES_MAX: usize = 100;
/// Characters of a field in a list.
const SHORT_CHARS_MAX: usize = 200;

/// The decoded message; see the module's documentation.
#[derive(Debug, Default)]
pub struct DecodedMessage {
    pub fields: Vec<(String, String)>,
    pub text: String,
    pub files: Vec<AttachmentView>,
    pub limit: Option<&'static str>,
    html: Html,
}

impl DecodedMessage {
    /// The first field of this name in the message's own header, as one line.
    pub fn field(&self, name: &str) -> String {
        let found = self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or_else(String::new, |(_, value)| value.chars().take(SHORT_CHARS_MAX).collect())
    }

    fn list(&mut self, file: AttachmentView) {
        if self.files.len() < FILES_MAX {
            self.files.push(file);
        } else {
            self.limit = Some("too many attachments");
        }
    }
}

impl Visitor for DecodedMessage {
    fn field(&mut self, path: &[u32], name: &[u8], value: &[u8], fallback: Charset) {
        if !path.is_empty() {
            return;
        }
        if self.fields.len() == FIELDS_MAX {
            self.limit = Some("too many header fields");
            return;
        }
        // Unfold the field (RFC 5322 section 2.2.3).
        let text = words::decode(value.trim_ascii(), fallback).text.replace("\r\n", "").replace('\t', " ");
        let name = String::from_utf8_lossy(name).chars().take(FIELD_CHARS_MAX).collect();
        self.fields.push((name, text.chars().take(FIELD_CHARS_MAX).collect()));
    }

    fn text(&mut self, part: &Part, text: &str) {
        if part.is_attachment() {
            return;
        }
        let left = TEXT_BYTES_MAX.saturating_sub(self.text.len());
        if left == 0 {
            self.limit = Some("too much text");
        } else if part.content_type.value == "text/html" {
            self.html.push(text, &mut self.text);
        } else {
            self.text.push_str(text);
        }
        if self.text.len() > TEXT_BYTES_MAX {
            self.text.truncate(self.text.floor_char_boundary(TEXT_BYTES_MAX));
            self.limit = Some("too much text");
        }
    }

    fn file(&mut self, _: &Part, name: &str, size: u64) {
        self.list(AttachmentView { name: name.to_owned(), content_type: "uuencoded".to_owned(), size });
    }

    fn end(&mut self, part: &Part, size: u64) {
        self.html = Html::default();
        let is_shown = part.kind == Kind::Text && !part.is_attachment();
        if is_shown && !self.text.is_empty() && !self.text.ends_with('\n') && self.text.len() < TEXT_BYTES_MAX {
            self.text.push('\n');
        }
        if part.path.is_empty() && part.kind != Kind::Other || !part.is_attachment() {
            return;
        }
        let name = part.names.first().cloned().unwrap_or_default();
        self.list(AttachmentView { name, content_type: part.content_type.value.clone(), size });
    }
}

/// Decodes a message, or only its header. `read` reads from an offset, and returns `0` octets at the end.
///
/// # Errors
/// It cannot be read.
pub fn look(
    prefix: &[u8],
    header_only: bool,
    read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<DecodedMessage> {
    let (mut walker, mut seen) = (Walker::new(), DecodedMessage::default());
    walker.push(prefix, &mut seen);
    let mut piece = vec![0; if header_only { HEADER_BYTES_MAX } else { 64 * 1024 }];
    let mut at = 0;
    loop {
        let count = read(at, &mut piece)?;
        walker.push(&piece[..count], &mut seen);
        at += count as u64;
        if count == 0 || header_only {
            break;
        }
        if at >= BYTES_MAX {
            seen.limit = Some("the message is too large");
            break;
        }
    }
    walker.finish(&mut seen);
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(message: &str, header_only: bool) -> DecodedMessage {
        let mut read = |at: u64, piece: &mut [u8]| {
            let rest = &message.as_bytes()[(at as usize).min(message.len())..];
            let count = rest.len().min(piece.len());
            piece[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        look(b"X-Ours: 1\r\n", header_only, &mut read).unwrap()
    }

    #[test]
    fn text_is_decoded_and_files_are_named() {
        let message = "From: =?utf-8?Q?J=C3=BCrgen?= <j@x.test>\r\nSubject: =?GB2312?B?1tDOxA==?=\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
                       --b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>caf&eacute;</p><script>alert(1)</script>\r\n\
                       --b\r\nContent-Type: application/zip; name=\"<b>.zip\"\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--b--\r\n";
        let all = seen(message, false);
        assert_eq!((all.field("subject").as_str(), all.field("from").as_str()), ("中文", "Jürgen <j@x.test>"));
        assert_eq!(all.fields[0], ("X-Ours".to_owned(), "1".to_owned()));
        assert_eq!(seen("Received: from a\r\n\tby b;\r\n\tdate\r\n\r\n", true).field("received"), "from a by b; date");
        assert!(all.text.contains("café") && !all.text.contains("alert") && !all.text.contains('<'), "{:?}", all.text);
        let file = AttachmentView { name: "<b>.zip".to_owned(), content_type: "application/zip".to_owned(), size: 3 };
        assert_eq!((all.files, all.limit), (vec![file], None));
        assert_eq!(seen(message, true).field("subject"), "中文");
    }

    #[test]
    fn what_is_too_much_is_cut() {
        let long = format!("Subject: {}\r\n\r\n{}", "x".repeat(5_000), "ä line\r\n".repeat(20_000));
        let all = seen(&long, false);
        assert_eq!(all.field("subject").len(), SHORT_CHARS_MAX);
        assert!(all.text.len() <= TEXT_BYTES_MAX && all.limit == Some("too much text"));
        let fields = "A: b\r\n".repeat(1_000);
        assert_eq!(seen(&fields, false).fields.len(), FIELDS_MAX);
    }
}
