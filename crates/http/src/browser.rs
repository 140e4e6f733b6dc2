//! Browser requests: detects browsers, encodes query values, and validates paths to continue at, which never lead to
//! another site.

use std::fmt::Write;

use axum::http::{HeaderMap, header};

/// Maximum octets of a path to continue at.
const PATH_BYTES_MAX: usize = 2_000;
/// Characters of a user's name that the login form keeps.
const NAME_CHARS_MAX: usize = 64;

/// Whether the client is a browser.
pub fn asks(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Returns `next` if it is a local path, else a safe default.
pub fn local(next: &str) -> &str {
    let is_ours = next.starts_with('/')
        && !next.starts_with("//")
        && next.len() <= PATH_BYTES_MAX
        && next.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'\\');
    if is_ours { next } else { "/" }
}

/// The local path of the page that a form was on, from its Referer.
pub fn came_from<'a>(headers: &'a HeaderMap, host: &str) -> &'a str {
    let referer = headers.get(header::REFERER).and_then(|referer| referer.to_str().ok());
    let place = referer.and_then(|referer| referer.split_once("://")).and_then(|(_, rest)| {
        let (from, _) = rest.split_once('/')?;
        from.eq_ignore_ascii_case(host).then(|| &rest[from.len()..])
    });
    local(place.unwrap_or("/"))
}

/// The URL of the login form, with the reason for showing it, the user, and the page to continue on.
pub fn login(failed: &str, user: &str, next: &str) -> String {
    let mut place = "/login".to_owned();
    let user: String = user.chars().take(NAME_CHARS_MAX).collect();
    let next = Some(local(next)).filter(|next| *next != "/").unwrap_or_default();
    for (name, value) in [("failed", failed), ("user", user.as_str()), ("next", next)] {
        if !value.is_empty() {
            let sign = if place.contains('?') { '&' } else { '?' };
            // Writing to a String cannot fail.
            let _ = write!(place, "{sign}{name}={}", encode(value));
        }
    }
    place
}

/// Encodes `text` as a value in a query or path (RFC 3986 section 2.3).
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn nobody_is_led_away() {
        for away in ["", "x", "//evil.example/", "/\\evil.example", "https://evil.example", "/a\r\nb", "/é"] {
            assert_eq!(local(away), "/", "{away}");
        }
        assert_eq!(local(&format!("/{}", "a".repeat(PATH_BYTES_MAX))), "/");
        assert_eq!(local("/queue?site=a#b"), "/queue?site=a#b");
    }

    #[test]
    fn the_login_form_keeps_name_and_place() {
        assert_eq!(login("", "", "/"), "/login");
        assert_eq!(login("wrong", "ann", "/queue?site=a"), "/login?failed=wrong&user=ann&next=%2Fqueue%3Fsite%3Da");
        assert_eq!(login("", "a&b", "//evil.example"), "/login?user=a%26b");
    }

    #[test]
    fn only_our_own_pages_are_come_back_to() {
        let from = |referer: &'static str| {
            let headers = HeaderMap::from_iter([(header::REFERER, HeaderValue::from_static(referer))]);
            came_from(&headers, "mx.test:8025").to_owned()
        };
        assert_eq!(from("http://mx.test:8025/queue?list=a"), "/queue?list=a");
        for other in
            ["http://evil.example/queue", "http://mx.test:8025", "mx.test:8025/queue", "http://mx.test:8025//e"]
        {
            assert_eq!(from(other), "/", "{other}");
        }
        assert_eq!(came_from(&HeaderMap::new(), "mx.test:8025"), "/");
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encode("a b&c=<é>"), "a%20b%26c%3D%3C%C3%A9%3E");
    }
}
