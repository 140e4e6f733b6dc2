//! Finds the charset declared in HTML: `<meta charset=gb2312>`, or in the `content` of a `<meta>`.
//!
//! As in browsers before decoding (HTML Standard, section 13.2.3.2, "prescan a byte stream"), it must be in the first
//! [`PRESCAN_BYTES`] octets, outside comments. Linear time, no state.

/// Octets of a body that are examined.
pub const PRESCAN_BYTES: usize = 1024;

/// The first charset declared at the start of a body, in lower case. `None` if there is a UTF-8 byte order mark,
/// which takes precedence.
pub fn charset(body: &[u8]) -> Option<String> {
    let mut rest = &body[..body.len().min(PRESCAN_BYTES)];
    if rest.starts_with(b"\xef\xbb\xbf") {
        return None;
    }
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = &rest[at + 1..];
        if rest.starts_with(b"!--") {
            // `<!-->` is a complete comment.
            let end = memchr::memmem::find(&rest[1..], b"-->")?;
            rest = &rest[1 + end + 3..];
        } else if rest.len() > 4 && rest[..4].eq_ignore_ascii_case(b"meta") && is_between(rest[4]) {
            rest = &rest[4..];
            if let Some(name) = in_attributes(&mut rest) {
                return Some(name);
            }
        }
    }
    None
}

fn is_between(octet: u8) -> bool {
    octet.is_ascii_whitespace() || octet == b'/'
}

/// Reads a tag's attributes, up to its end or the first that names a charset.
fn in_attributes(rest: &mut &[u8]) -> Option<String> {
    loop {
        skip(rest, is_between);
        if rest.first().is_none_or(|octet| *octet == b'>') {
            return None;
        }
        // An equals sign at the start of a name is part of it.
        let first = take(rest, 1);
        let more = until(rest, |octet| octet == b'=' || octet == b'>' || is_between(octet));
        let name = [first, more].concat().to_ascii_lowercase();
        skip(rest, |octet| octet.is_ascii_whitespace());
        if rest.first() != Some(&b'=') {
            continue;
        }
        take(rest, 1);
        skip(rest, |octet| octet.is_ascii_whitespace());
        let value = match rest.first().copied() {
            Some(quote @ (b'"' | b'\'')) => {
                take(rest, 1);
                let value = until(rest, |octet| octet == quote);
                take(rest, 1);
                value
            }
            _ => until(rest, |octet| octet == b'>' || octet.is_ascii_whitespace()),
        };
        let found = match name.as_slice() {
            b"charset" => label(value),
            b"content" => in_content(value),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
}

/// The charset in a value such as `text/html; charset=gb2312`.
fn in_content(value: &[u8]) -> Option<String> {
    let value = value.to_ascii_lowercase();
    memchr::memmem::find_iter(&value, b"charset").find_map(|at| {
        let name = value[at + 7..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
        let is_end = |octet: &u8| octet.is_ascii_whitespace() || *octet == b';';
        match name.first()? {
            quote @ (b'"' | b'\'') => label(name[1..].split(|octet| octet == quote).next()?),
            _ => label(name.split(is_end).next()?),
        }
    })
}

fn label(octets: &[u8]) -> Option<String> {
    let octets = octets.trim_ascii();
    (!octets.is_empty()).then(|| String::from_utf8_lossy(octets).to_ascii_lowercase())
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}

fn until<'a>(rest: &mut &'a [u8], is_end: impl Fn(u8) -> bool) -> &'a [u8] {
    let at = rest.iter().position(|octet| is_end(*octet)).unwrap_or(rest.len());
    take(rest, at)
}

fn skip(rest: &mut &[u8], is_skipped: impl Fn(u8) -> bool) {
    until(rest, |octet| !is_skipped(octet));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_browsers_find() {
        for (html, wanted) in [
            ("<html><head><META HTTP-EQUIV='Content-Type' CONTENT='text/html; charset=GB2312'>", Some("gb2312")),
            ("<meta content=\"text/html;charset = 'koi8-r'\">", Some("koi8-r")),
            ("<meta charset=gbk>", Some("gbk")),
            ("<meta/charset = \" big5 \" >", Some("big5")),
            ("<meta name=\"x>y\" charset=euc-kr>", Some("euc-kr")),
            ("<meta name=keywords content=\"charset of love\"><meta charset=utf-8>", Some("utf-8")),
            ("<!-- <meta charset=utf-8> --><meta charset=gbk>", Some("gbk")),
            ("<!--><meta charset=gbk>", Some("gbk")),
            ("<!-- <meta charset=gbk>", None),
            ("<metal charset=gbk>", None),
            ("<p charset=gbk>", None),
            ("<meta charset=>", None),
            ("\u{feff}<meta charset=gbk>", None),
            ("no html, charset=gbk", None),
        ] {
            assert_eq!(charset(html.as_bytes()).as_deref(), wanted, "{html}");
        }
        let late = format!("{}<meta charset=gbk>", " ".repeat(PRESCAN_BYTES));
        assert_eq!(charset(late.as_bytes()), None, "bounded");
    }

    proptest! {
        #[test]
        fn never_panics(html in "(<|>|/|!--|-->|\"|'|=|meta|charset|content|;| |[a-z]){0,60}") {
            let _ = charset(html.as_bytes());
        }
    }
}
