//! Reads a header section in pieces, and makes the part that it describes.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::charset::Charset;
use crate::field::{self, LineContext};
use crate::params::{MimeField, Param, ParamName};
use crate::part::{Defect, Kind, Part, Visitor};
use crate::transfer::Encoding;
use crate::words;

/// Maximum octets of a header field that are examined.
pub const FIELD_BYTES_MAX: usize = 32 * 1024;
/// Maximum octets of fields that are held until the charset of their non-UTF-8 octets is known.
const HELD_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a boundary: a line has at most 998 octets, although RFC 2046 5.1.1 says 70.
const BOUNDARY_BYTES_MAX: usize = 990;
/// Maximum MIME fields of one kind that are examined.
const SAME_FIELDS_MAX: usize = 4;
/// Maximum file names of a part, and maximum characters of each.
const NAMES_MAX: usize = 12;
const NAME_CHARS_MAX: usize = 255;
/// Maximum parameters with file names that are examined.
const NAME_PARAMS_MAX: usize = 24;
/// Extra cost of an encoded word, a parameter and non-UTF-8 octets, in half fields. A parameter is decoded in several
/// readings.
const WORD_HALVES: usize = 3;
const PARAM_HALVES: usize = 4;
const OCTETS_HALVES: usize = 2;
/// Parameters of which each is compared with all others.
const FEW: usize = 8;
/// Number of characters kept from the start of a longer name; the others come from its end.
const NAME_HEAD_CHARS: usize = 100;

/// A header section being read. If MIME fields of one kind differ, the first counts; boundaries, names and charsets
/// are taken from all.
#[derive(Default)]
pub(crate) struct Header {
    path: Vec<u32>,
    of_message: bool,
    /// Whether it belongs to a part of `multipart/digest`.
    is_of_digest: bool,
    pub context: LineContext,
    /// The current field so far, with its folds.
    field: Vec<u8>,
    /// Fields that wait for a charset.
    held: Vec<u8>,
    content_types: Vec<MimeField>,
    /// The charset that the first of them names for other fields.
    fallback: Option<Charset>,
    dispositions: Vec<MimeField>,
    encoding: Option<Encoding>,
    /// Number of fields that name the encoding.
    encodings: usize,
    /// Whether MIME fields differ or are ambiguous.
    is_ambiguous: bool,
    /// Whether it ends without an empty line, or a field exceeds the maximum.
    pub is_broken: bool,
}

impl Header {
    pub fn new(path: Vec<u32>, of_message: bool, is_of_digest: bool) -> Header {
        Header { path, of_message, is_of_digest, ..Header::default() }
    }

    pub fn path(&self) -> &[u32] {
        &self.path
    }

    /// Adds to the current field.
    pub fn push(&mut self, text: &[u8], line_end: &[u8]) {
        for octets in [text, line_end] {
            let left = FIELD_BYTES_MAX.saturating_sub(self.field.len());
            self.field.extend_from_slice(&octets[..octets.len().min(left)]);
            self.is_broken |= octets.len() > left;
        }
    }

    /// Ends the field and ignores it.
    pub fn drop_field(&mut self) {
        self.field.clear();
    }

    /// Ends the field. Returns what its encoded words, parameters and octets count as, in halves of a field.
    pub fn field_done(&mut self, visitor: &mut dyn Visitor) -> u64 {
        let mut field = std::mem::take(&mut self.field);
        let details = self.read(&field, visitor);
        // The next one is written in its place.
        field.clear();
        self.field = field;
        details as u64
    }

    fn read(&mut self, field: &[u8], visitor: &mut dyn Visitor) -> usize {
        let Some((name, value)) = field::split(field) else { return 0 };
        let mut details = WORD_HALVES * words::count(value);
        if name.eq_ignore_ascii_case(b"Content-Type") {
            details += PARAM_HALVES * self.note(|header| &mut header.content_types, value);
        } else if name.eq_ignore_ascii_case(b"Content-Disposition") {
            details += PARAM_HALVES * self.note(|header| &mut header.dispositions, value);
        } else if name.eq_ignore_ascii_case(b"Content-Transfer-Encoding") {
            self.encodings += 1;
            if self.encodings <= SAME_FIELDS_MAX {
                let (field, params) = MimeField::counted(value);
                details += PARAM_HALVES * params;
                let encoding = Encoding::named(field.value.as_bytes());
                let is_other = *self.encoding.get_or_insert(encoding) != encoding;
                self.is_ambiguous |= is_other || field.is_ambiguous;
            } else {
                self.is_ambiguous = true;
            }
        }
        let is_utf8 = std::str::from_utf8(value).is_ok();
        details += if is_utf8 { 0 } else { OCTETS_HALVES };
        let waits = self.content_types.is_empty() && !is_utf8;
        if self.held.is_empty() && !waits {
            let fallback = self.fallback();
            visitor.field(&self.path, name, value, fallback);
            return details;
        }
        self.held.extend_from_slice(field);
        if !field.ends_with(b"\n") {
            self.held.push(b'\n');
        }
        if !self.content_types.is_empty() || self.held.len() > HELD_BYTES_MAX {
            self.tell_held(visitor);
        }
        details
    }

    /// Adds a field to others of its kind, and notes whether programs may read it differently. Returns the number of
    /// its parameters.
    fn note(&mut self, kind: impl Fn(&mut Header) -> &mut Vec<MimeField>, value: &[u8]) -> usize {
        let fields = kind(self);
        if fields.len() == SAME_FIELDS_MAX {
            self.is_ambiguous = true;
            return 0;
        }
        let (field, params) = MimeField::counted(value);
        let is_ambiguous = field.is_ambiguous || fields.first().is_some_and(|first| *first != field);
        fields.push(field);
        self.is_ambiguous |= is_ambiguous;
        params
    }

    pub fn tell_held(&mut self, visitor: &mut dyn Visitor) {
        let (held, fallback) = (std::mem::take(&mut self.held), self.fallback());
        for (name, value) in field::all(&held) {
            visitor.field(&self.path, name, value, fallback);
        }
    }

    /// The charset of octets that are not UTF-8.
    fn fallback(&mut self) -> Charset {
        let Some(content_type) = self.content_types.first() else { return Charset::WINDOWS_1252 };
        *self.fallback.get_or_insert_with(|| {
            let param = content_type.param(ParamName::Charset);
            let charset = param.and_then(|param| Charset::named(&param.octets));
            charset.filter(|charset| *charset != Charset::UNDECLARED).unwrap_or(Charset::WINDOWS_1252)
        })
    }

    /// The part that it describes, and its boundaries if it is a multipart.
    pub fn part(self, visitor: &mut dyn Visitor) -> (Part, Vec<Vec<u8>>) {
        let mut defect = |is: bool, defect| {
            if is {
                visitor.defect(&self.path, defect);
            }
        };
        let (content_type, kind) = content_type(self.content_types, self.is_of_digest);
        let boundaries = boundaries(&content_type);
        let disposition = merged(self.dispositions);
        let (names, is_odd) = names(&content_type, disposition.as_ref());
        let encoding = self.encoding.unwrap_or_default();
        let charset = content_type.param(ParamName::Charset).map(|param| {
            let mut label = String::from_utf8_lossy(&param.octets).into_owned();
            label.make_ascii_lowercase();
            label
        });
        let is_encoded_multipart = kind == Kind::Multipart && encoding != Encoding::Identity;
        let is_unknown = charset.as_ref().is_some_and(|label| Charset::named(label.as_bytes()).is_none());
        defect(self.is_broken, Defect::Header);
        defect(self.is_ambiguous, Defect::Ambiguous);
        defect(content_type.main() == "multipart" && boundaries.is_empty(), Defect::Boundary);
        defect(is_encoded_multipart || encoding == Encoding::Unknown, Defect::Encoding);
        defect(is_unknown && kind == Kind::Text, Defect::Charset);
        defect(is_odd, Defect::Name);
        let (path, of_message) = (self.path, self.of_message);
        (Part { path, kind, content_type, disposition, encoding, charset, names, of_message }, boundaries)
    }
}

/// The first field, with the parameters of the others after its own.
fn merged(fields: Vec<MimeField>) -> Option<MimeField> {
    fields.into_iter().reduce(|mut first, other| {
        first.params.extend(other.params);
        first.other_charsets.extend(other.other_charsets);
        let mut known = HashSet::new();
        let mut is_new = Vec::with_capacity(first.params.len());
        for (at, param) in first.params.iter().enumerate() {
            // Few, as nearly always, are compared with each other.
            is_new.push(if first.params.len() <= FEW {
                !first.params[..at].contains(param)
            } else {
                known.insert(param)
            });
        }
        let mut is_new = is_new.into_iter();
        first.params.retain(|_| is_new.next().unwrap_or_default());
        first
    })
}

/// The type with all parameters, and its kind. Fields with a multipart type take precedence, then those with a
/// message type, since these have parts.
fn content_type(mut fields: Vec<MimeField>, is_of_digest: bool) -> (MimeField, Kind) {
    for wanted in [Kind::Message, Kind::Multipart] {
        if let Some(at) = fields.iter().position(|field| kind(field) == wanted) {
            fields[..=at].rotate_right(1);
        }
    }
    // RFC 2046 5.1.5: the default type of parts of a digest is a message.
    let default = if is_of_digest { "message/rfc822" } else { "text/plain" };
    let first_kind = fields.first().map(kind);
    let content_type =
        merged(fields).unwrap_or_else(|| MimeField { value: default.to_owned(), ..MimeField::default() });
    let kind = first_kind.unwrap_or_else(|| kind(&content_type));
    (content_type, kind)
}

fn kind(content_type: &MimeField) -> Kind {
    match (content_type.main(), content_type.sub()) {
        ("multipart", _) if content_type.all(ParamName::Boundary).any(is_boundary) => Kind::Multipart,
        ("message", "rfc822" | "global" | "news") => Kind::Message,
        // A multipart without a boundary is shown as text.
        ("text" | "message" | "multipart" | "", _) | ("application", "xhtml+xml") => Kind::Text,
        _ => Kind::Other,
    }
}

/// All values that some program takes for the boundary, the most common interpretation first.
fn boundaries(content_type: &MimeField) -> Vec<Vec<u8>> {
    let first = content_type.param(ParamName::Boundary);
    let all = first.into_iter().chain(content_type.all(ParamName::Boundary));
    let mut boundaries: Vec<Vec<u8>> = Vec::new();
    for octets in all.filter(|param| is_boundary(param)).map(|param| param.octets.trim_ascii_end()) {
        if !boundaries.iter().any(|known| known == octets) {
            boundaries.push(octets.to_vec());
        }
        if boundaries.len() == SAME_FIELDS_MAX {
            break;
        }
    }
    boundaries
}

fn is_boundary(param: &Param) -> bool {
    (1..=BOUNDARY_BYTES_MAX).contains(&param.octets.trim_ascii().len())
}

/// The names, and whether one is too long or has control characters, or there are too many.
fn names(content_type: &MimeField, disposition: Option<&MimeField>) -> (Vec<String>, bool) {
    let (mut names, mut is_odd) = (Vec::new(), false);
    let params = disposition
        .into_iter()
        .flat_map(|field| field.all(ParamName::FileName))
        .chain(content_type.all(ParamName::Name));
    for (n, param) in params.enumerate() {
        if n == NAME_PARAMS_MAX {
            is_odd = true;
            break;
        }
        let name = param.text(Charset::UNDECLARED);
        is_odd |= name.contains(char::is_control) || name.chars().nth(NAME_CHARS_MAX).is_some();
        // Some programs end a name at a NUL, and Windows removes dots and spaces at the end.
        let to_nul = name.split('\0').next().unwrap_or_default();
        let bare = name.trim_end_matches(|c: char| c == '.' || c.is_whitespace() || c.is_control());
        for name in [&name, to_nul, bare].map(bounded) {
            if name.is_empty() || names.iter().any(|known| *known == name) {
                continue;
            }
            if names.len() < NAMES_MAX {
                names.push(name.into_owned());
            } else {
                is_odd = true;
            }
        }
    }
    (names, is_odd)
}

/// Start and end of a name; its end decides which program opens the file.
pub(crate) fn bounded(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_CHARS_MAX {
        return name.into();
    }
    let count = name.chars().count();
    if count <= NAME_CHARS_MAX {
        return name.into();
    }
    let head = name.chars().take(NAME_HEAD_CHARS);
    let tail = name.chars().skip(count - (NAME_CHARS_MAX - NAME_HEAD_CHARS - 1));
    head.chain(['…']).chain(tail).collect()
}
