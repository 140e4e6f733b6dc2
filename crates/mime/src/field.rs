//! The fields of a header section.

/// A longer line without a colon is not a field (RFC 5322 section 2.1.1: the longest line).
const NAME_BYTES_MAX: usize = 998;

/// Whether a line, or the beginning of a long one, may be the next of a header section, or its first: a field, what continues one, or the
/// line with which mbox files begin a message. Any other is the body's first: such mail exists.
pub fn may_follow(is_begun: bool, line: &[u8]) -> bool {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return is_begun;
    }
    split(line).is_some() || !is_begun && (line.starts_with(b"From ") || line.starts_with(b">From "))
}

/// Name and value, this without the last line end; the name is printable ASCII, perhaps with white space behind it.
pub fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = field.strip_suffix(b"\n").unwrap_or(field);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let at = memchr::memchr(b':', &line[..line.len().min(NAME_BYTES_MAX)])?;
    let name = line[..at].trim_ascii_end();
    let is_name = !name.is_empty() && name.iter().all(|b| matches!(b, b'!'..=b'~'));
    is_name.then(|| (name, &line[at + 1..]))
}

/// Names and values, these with their folds.
pub(crate) fn all(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(section).filter_map(split)
}

/// The fields of a section, each with its folded lines and line ends.
pub fn lines(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = section;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = 0;
        while let Some(at) = memchr::memchr(b'\n', &rest[end..]) {
            end += at + 1;
            if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                let (field, after) = rest.split_at(end);
                rest = after;
                return Some(field);
            }
        }
        Some(std::mem::take(&mut rest))
    })
}

/// Behind the octet that closes what `text` begins with: a quoted string (`"`) or a domain in brackets (`]`). `None`: nothing does.
pub fn quoted_end(text: &[u8], close: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match *text.get(at)? {
            b'\\' => at += 2,
            octet if octet == close => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Behind the comment that `text` begins with, and those within it. `None`: it is not closed.
pub fn comment_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match *text.get(at)? {
            b'\\' => at += 1,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(at + 1),
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}
