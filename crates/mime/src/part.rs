//! What is told of a message: its parts, and to whom.

use crate::charset::Charset;
use crate::params::MimeField;
use crate::transfer::Encoding;

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Multipart,
    /// `message/rfc822` and its kin.
    Message,
    /// `text/*`, `application/xhtml+xml`, what has no type, and structures that cannot be read.
    Text,
    Other,
}

/// A part as its header section describes it.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its place: `[]` is the message, `[1, 0]` the first part of its second part.
    pub path: Vec<u32>,
    pub kind: Kind,
    /// Without a type: `text/plain`.
    pub content_type: MimeField,
    pub disposition: Option<MimeField>,
    pub encoding: Encoding,
    /// As it is named, in lower case; from the first text on, of HTML also as that names it.
    pub charset: Option<String>,
    /// Names that it has as a file, each once: programs differ in which they show.
    pub names: Vec<String>,
    /// The header of a message, not of a part of a multipart.
    pub of_message: bool,
}

impl Part {
    /// What its text is decoded as.
    pub fn charset(&self) -> Charset {
        let named = self.charset.as_ref().and_then(|label| Charset::named(label.as_bytes()));
        named.unwrap_or(Charset::UNDECLARED)
    }

    /// Shown as a file: it says so or has a name, and holds no other parts.
    pub fn is_attachment(&self) -> bool {
        let is_said = self.disposition.as_ref().is_some_and(|field| field.value == "attachment");
        let is_no_text = self.kind == Kind::Other || self.content_type.main() == "application";
        self.kind != Kind::Multipart && (is_said || !self.names.is_empty() || is_no_text)
    }

    /// What mail programs show as HTML.
    pub fn is_html(&self) -> bool {
        matches!(self.content_type.value.as_str(), "text/html" | "application/xhtml+xml")
    }
}

/// Why programs may see more of a message than a walker does, or another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// A header field that is longer than is looked at, or a header section that ends without an empty line.
    Header,
    /// MIME fields that come twice and differ, or that programs read in several ways ([`MimeField::is_ambiguous`]).
    Ambiguous,
    /// A multipart without a boundary that can be used.
    Boundary,
    /// Multiparts and messages nested deeper, or more parts and header fields, than are looked at.
    Nested,
    /// An encoding that is unknown, or of what must not be encoded.
    Encoding,
    /// A text in an unknown charset.
    Charset,
    /// An encoded word that cannot be decoded.
    Word,
    /// The name of a file that is too long, or has control characters.
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

/// Who is told.
pub trait Visitor {
    /// A header field of the part at this path, which comes after its fields: its name, its value with its folds, and the charset of
    /// octets over 127 that are not UTF-8.
    fn field(&mut self, _path: &[u32], _name: &[u8], _value: &[u8], _fallback: Charset) {}

    /// A header section has been told.
    fn part(&mut self, _part: &Part) {}

    /// A text of HTML names its charset itself, in lower case, and no field does.
    fn charset(&mut self, _part: &Part, _label: &str) {}

    /// More text of a part, decoded.
    fn text(&mut self, _part: &Part, _text: &str) {}

    /// A text has a uuencoded file within it, of so many octets. It is told as text, too.
    fn file(&mut self, _part: &Part, _name: &str, _size: u64) {}

    /// Something is wrong with the part at this path. Encoded words are the visitor's to decode, so their defects are as well.
    fn defect(&mut self, _path: &[u32], _defect: Defect) {}

    /// A part is over. Its body's octets, decoded, or of a multipart or a message 0.
    fn end(&mut self, _part: &Part, _size: u64) {}
}
