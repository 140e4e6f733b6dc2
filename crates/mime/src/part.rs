//! Parts of a message, and the interface that receives them.

use crate::charset::Charset;
use crate::params::MimeField;
use crate::transfer::Encoding;

/// Kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Multipart,
    /// `message/rfc822` and similar types.
    Message,
    /// `text/*`, `application/xhtml+xml`, parts without a type, and unreadable structures.
    Text,
    Other,
}

/// A part as described by its header section.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its position: `[]` is the message, `[1, 0]` the first part of its second part.
    pub path: Vec<u32>,
    pub kind: Kind,
    /// Content type; the default is `text/plain`.
    pub content_type: MimeField,
    pub disposition: Option<MimeField>,
    pub encoding: Encoding,
    /// Declared charset in lower case; for HTML, from the first text on, also as declared in it.
    pub charset: Option<String>,
    /// File names without duplicates: programs differ in which one they show.
    pub names: Vec<String>,
    /// Whether it is the header of a message, not of a part of a multipart.
    pub of_message: bool,
}

impl Part {
    /// Charset used to decode its text.
    pub fn charset(&self) -> Charset {
        let named = self.charset.as_ref().and_then(|label| Charset::named(label.as_bytes()));
        named.unwrap_or(Charset::UNDECLARED)
    }

    /// Whether it is shown as a file: it is declared as one or has a name, and has no parts.
    pub fn is_attachment(&self) -> bool {
        let is_said = self.disposition.as_ref().is_some_and(|field| field.value == "attachment");
        let is_no_text = self.kind == Kind::Other || self.content_type.main() == "application";
        self.kind != Kind::Multipart && (is_said || !self.names.is_empty() || is_no_text)
    }

    /// Whether mail programs show it as HTML.
    pub fn is_html(&self) -> bool {
        matches!(self.content_type.value.as_str(), "text/html" | "application/xhtml+xml")
    }
}

/// Reasons why programs may see more of a message than a walker does, or another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// A header field exceeds the maximum length, or a header section ends without an empty line.
    Header,
    /// MIME fields are repeated with different values, or are ambiguous ([`MimeField::is_ambiguous`]).
    Ambiguous,
    /// A multipart has no usable boundary.
    Boundary,
    /// Nesting, or the number of parts or header fields, exceeds the limits.
    Nested,
    /// The encoding is unknown, or not allowed for this type.
    Encoding,
    /// The charset of a text is unknown.
    Charset,
    /// An encoded word cannot be decoded.
    Word,
    /// A file name is too long, or has control characters.
    Name,
}

impl Defect {
    pub const ALL: [Defect; 8] = [
        Defect::Header,
        Defect::Ambiguous,
        Defect::Boundary,
        Defect::Nested,
        Defect::Encoding,
        Defect::Charset,
        Defect::Word,
        Defect::Name,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Defect::Header => "header",
            Defect::Ambiguous => "ambiguous",
            Defect::Boundary => "boundary",
            Defect::Nested => "nested",
            Defect::Encoding => "encoding",
            Defect::Charset => "charset",
            Defect::Word => "word",
            Defect::Name => "name",
        }
    }
}

/// Receives the parts of a message.
pub trait Visitor {
    /// A header field of the part at this path: its name, its value with folds, and the charset of octets over 127
    /// that are not UTF-8. The call for the part follows its fields.
    fn field(&mut self, _path: &[u32], _name: &[u8], _value: &[u8], _fallback: Charset) {}

    /// The header section is complete.
    fn part(&mut self, _part: &Part) {}

    /// A text in HTML declares its charset itself, given in lower case, and no field does.
    fn charset(&mut self, _part: &Part, _label: &str) {}

    /// More decoded text of a part.
    fn text(&mut self, _part: &Part, _text: &str) {}

    /// More decoded octets of a part that is no text, multipart or message.
    fn octets(&mut self, _part: &Part, _octets: &[u8]) {}

    /// A text contains a uuencoded file of this size. It is also reported as text.
    fn file(&mut self, _part: &Part, _name: &str, _size: u64) {}

    /// The part at this path has a defect. Visitors decode encoded words themselves, so they detect those defects.
    fn defect(&mut self, _path: &[u32], _defect: Defect) {}

    /// The part has ended. `_size`: decoded octets of its body, or 0 for a multipart or message.
    fn end(&mut self, _part: &Part, _size: u64) {}
}
