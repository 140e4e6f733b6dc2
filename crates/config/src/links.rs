//! The HTTPS address of this server in links that recipients and subscribers get: `link_base`.

use stentor_copies::LINK_BASE_BYTES_MAX;

use super::diagnose::Spot;
use super::raw::Section;

const HTTPS: &str = "https://";

/// Checks an address for links, and returns it without a trailing slash. `serves_https`: links can use our own
/// listener.
pub(super) fn base(section: &Section<'_>, text: &Spot<&str>, serves_https: bool) -> Option<String> {
    let base = text.value.trim_end_matches('/');
    if is_base(base) {
        if serves_https && base[HTTPS.len()..].contains('/') {
            let message = "`link_base` has a path, but with `[http] tls = true` pages are at the root: remove the path, \
                unless a proxy in front strips it";
            section.context.warn(text.span.clone(), message);
        }
        return Some(base.to_owned());
    }
    let message = format!(
        "{:?} is not a valid base for links; write, for instance, \"https://mail.example.org\": who has a link can act, \
         so links need HTTPS",
        text.value
    );
    section.context.error(text.span.clone(), message);
    None
}

/// Host name of an address for links.
pub(super) fn host(base: &str) -> Option<&str> {
    let authority = base.strip_prefix(HTTPS)?.split('/').next()?;
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host))
}

/// Whether the text is `https://`, a host, optionally port and path, with no character that would need escaping in
/// text or HTML.
fn is_base(text: &str) -> bool {
    let Some((authority, path)) =
        text.strip_prefix(HTTPS).map(|rest| rest.split_at(rest.find('/').unwrap_or(rest.len())))
    else {
        return false;
    };
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "443"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.len() <= LINK_BASE_BYTES_MAX
        && !host.is_empty()
        && host.bytes().all(is_name)
        && port.parse::<u16>().is_ok()
        && path.bytes().all(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_begin_with_https() {
        for good in ["https://mail.example.org", "https://mail.example.org:8443/mail/stentor", "https://10.0.0.1"] {
            assert!(is_base(good), "{good}");
        }
        for bad in [
            "http://mail.example.org",
            "https://",
            "https:///kept",
            "mail.example.org",
            "https://x.example/?a=b",
            "https://user@x.example",
            "https://x.example/<b>",
            "https://x.example:port",
            "javascript:alert(1)",
        ] {
            assert!(!is_base(bad), "{bad}");
        }
    }
}
