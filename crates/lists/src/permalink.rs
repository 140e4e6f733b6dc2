//! Permalinks: the URL at which an archive shows a post, made from a template such as
//! `https://lists.example.org/news/{message_id}/`, and the field with it, `Archived-At` (RFC 5064).
//!
//! Promise: a Message-ID is its sender's text. In the URL everything but letters, digits and `-._~@` is percent-encoded
//! (RFC 3986 section 2.3), so it is one path segment or one value of a query, and cannot leave the URL, its field or
//! the header. The template fixes scheme and host.
//!
//! Failure: a post has no permalink if its Message-ID is missing or malformed, is a dot segment (`.`, `..`: browsers
//! remove these from paths), or makes a URL over [`URL_BYTES_MAX`] octets. A wrong template is refused with the
//! configuration.

use std::borrow::Cow;

use stentor_mime::field;

use crate::fields::{URL_BYTES_MAX, append, is_archive_url, percent_encoded};

const ARCHIVED_AT: &str = "Archived-At";
const MESSAGE_ID: &str = "{message_id}";

/// Why a text is not a template of permalinks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PermalinkError {
    #[error("`{0}` is not an http or https URL; use one such as `https://lists.example.org/news/{MESSAGE_ID}/`")]
    Url(String),
    #[error(
        "`{0}` is the same for every post: it needs {MESSAGE_ID}, as in `https://lists.example.org/news/{MESSAGE_ID}/`"
    )]
    NoPlaceholder(String),
    #[error("`{0}` is not a value; write {MESSAGE_ID}, and braces of the URL itself as %7B and %7D")]
    Unknown(String),
    #[error("`{0}` lets a post choose the host: write {MESSAGE_ID} after the host and a `/`")]
    InHost(String),
}

/// A template with at least one place for the Message-ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermalinkTemplate {
    /// The texts between the Message-IDs.
    parts: Vec<Box<str>>,
}

impl PermalinkTemplate {
    pub(crate) fn parse(text: &str) -> Result<PermalinkTemplate, PermalinkError> {
        let parts: Vec<Box<str>> = text.split(MESSAGE_ID).map(Box::from).collect();
        if let Some(part) = parts.iter().find(|part| part.contains(['{', '}'])) {
            let from = part.find(['{', '}']).unwrap_or_default();
            let to = part[from..].find('}').map_or(part.len(), |end| from + end + 1);
            return Err(PermalinkError::Unknown(part[from..to].escape_debug().to_string()));
        }
        let is_web = text.starts_with("https://") || text.starts_with("http://");
        if !is_web || !is_archive_url(&parts.concat()) {
            return Err(PermalinkError::Url(text.escape_debug().to_string()));
        }
        let host_and_path = parts[0].split_once("://").map_or("", |(_, rest)| rest);
        match parts.len() {
            1 => Err(PermalinkError::NoPlaceholder(text.to_owned())),
            _ if host_and_path.find('/').is_none_or(|host_bytes| host_bytes == 0) => {
                Err(PermalinkError::InHost(text.to_owned()))
            }
            _ => Ok(PermalinkTemplate { parts }),
        }
    }

    /// Returns the URL of a post, by the value of its Message-ID field.
    pub(crate) fn of(&self, message_id: &str) -> Option<String> {
        let id = bare(message_id)?;
        let mut encoded = String::with_capacity(id.len());
        percent_encoded(&id, b"-._~@", &mut encoded);
        let url = self.parts.join(&encoded);
        (url.len() <= URL_BYTES_MAX).then_some(url)
    }
}

/// Returns a Message-ID without its brackets and folds.
fn bare(message_id: &str) -> Option<Cow<'_, str>> {
    let trimmed = message_id.trim();
    let inner = match trimmed.split_once('<') {
        Some((_, rest)) => rest.split_once('>')?.0,
        None => trimmed,
    };
    let is_fold = |c: char| matches!(c, '\r' | '\n' | '\t');
    let id = if inner.contains(is_fold) { Cow::Owned(inner.replace(is_fold, "")) } else { Cow::Borrowed(inner) };
    (!matches!(&*id, "" | "." | "..")).then_some(id)
}

/// Appends the field with a permalink.
pub(crate) fn append_archived_at(out: &mut Vec<u8>, url: &str) {
    append(out, ARCHIVED_AT, &[format!("<{url}>")]);
}

/// Returns the permalink in the fields that precede a list's copy: the last, since those of lists above come first.
pub fn permalink_in(prefix: &[u8]) -> Option<&str> {
    let fields = field::lines(prefix).filter_map(field::split);
    let (_, value) = fields.filter(|(name, _)| name.eq_ignore_ascii_case(ARCHIVED_AT.as_bytes())).last()?;
    std::str::from_utf8(value).ok()?.trim().strip_prefix('<')?.strip_suffix('>')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEMPLATE: &str = "https://lists.example.org/news/{message_id}/";

    fn link(message_id: &str) -> Option<String> {
        PermalinkTemplate::parse(TEMPLATE).unwrap().of(message_id)
    }

    #[test]
    fn a_message_id_is_one_segment_of_the_path() {
        for (id, segment) in [
            ("<a.b-c_d~1@x.example>", "a.b-c_d~1@x.example"),
            ("<a/../b?c#d&e=f%2F+@x>", "a%2F..%2Fb%3Fc%23d%26e%3Df%252F%2B@x"),
            ("bare@x", "bare@x"),
            ("\r\n <folded\r\n\t.id@x> (comment)", "folded.id@x"),
            ("<ü\"><script>@x>", "%C3%BC%22"),
            ("<a b@x>", "a%20b@x"),
        ] {
            assert_eq!(link(id), Some(TEMPLATE.replace(MESSAGE_ID, segment)), "{id}");
        }
        for none in ["", "<>", "<.>", "<..>", " .. ", "<not-closed@x", &format!("<{}@x>", "a".repeat(900))] {
            assert_eq!(link(none), None, "{none}");
        }
        let twice = PermalinkTemplate::parse("http://a.example/?id={message_id}#{message_id}").unwrap();
        assert_eq!(twice.of("<1&2@x>").unwrap(), "http://a.example/?id=1%262@x#1%262@x");
    }

    #[test]
    fn wrong_templates() {
        let why = |text: &str| PermalinkTemplate::parse(text).unwrap_err().to_string();
        assert!(why("https://l.example/news/").contains("is the same for every post"));
        assert!(why("https://l.example/{msgid}/").starts_with("`{msgid}` is not a value; write {message_id}"));
        assert!(why("https://l.example/{message_id").starts_with("`{message_id` is not a value"));
        assert!(why("https://l.example/}{message_id}").starts_with("`}` is not a value"));
        for url in ["ftp://l.example/{message_id}", "javascript:{message_id}", "l.example/{message_id}", "{message_id}"]
        {
            assert!(why(url).contains("is not an http or https URL"), "{url}");
        }
        assert!(why("https://l.example/{message_id}>\r\nBcc: x").contains("is not an http or https URL"));
        for host in ["https://{message_id}/", "https://l.example{message_id}/", "https:///{message_id}"] {
            assert!(why(host).contains("lets a post choose the host"), "{host}");
        }
    }

    #[test]
    fn the_last_field_is_that_of_the_list() {
        let prefix =
            b"Archived-At: <https://a.example/1>\r\nList-Id: <x.y>\r\narchived-at:\r\n <https://b.example/1>\r\n";
        assert_eq!(permalink_in(prefix), Some("https://b.example/1"));
        assert_eq!(permalink_in(b"List-Id: <x.y>\r\n"), None);
    }

    proptest! {
        #[test]
        fn no_message_id_leaves_its_field(id in any::<String>()) {
            let Some(url) = link(&format!("<{id}>")) else { return Ok(()) };
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\{}".contains(&byte)), "{url}");
            prop_assert_eq!(url.matches('/').count(), 5, "{}", url);
            let mut field = Vec::new();
            append_archived_at(&mut field, &url);
            prop_assert_eq!(permalink_in(&field), Some(url.as_str()));
        }
    }
}
