//! Zones of block lists that a reply names and the rules file does not know.
//!
//! `blocked using bl.example.org` and `listed at bl.example.org` name the zone themselves. Known lists have entries in
//! the rules file instead, since their replies show web addresses, not zones. Linear time.

use std::sync::LazyLock;

use regex::Regex;

static ZONE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(?-u:\b)(?:(?:black|block)?listed (?:\S+ )?(?:by|at|in|on)|(?:blocked|rejected|refused|found) (?:\S+ ){0,2}(?:using|via|in)|dnsbl:?|rbl:?) (?:the )?<?((?:[a-z0-9_-]+\.)+[a-z]{2,24})(?-u:\b)",
    )
    .expect("the pattern is constant")
});

/// The zone that a reply's words name, in lower case.
pub fn zone(words: &str) -> Option<String> {
    ZONE.captures(words).map(|found| found[1].to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_replies_name() {
        for (words, wanted) in [
            ("Service unavailable; Client host [192.0.2.1] blocked using bl.example.org; see", Some("bl.example.org")),
            ("Your IP is listed at dnsbl.example.net.", Some("dnsbl.example.net")),
            ("192.0.2.1 is blacklisted by RBL.example.com", Some("rbl.example.com")),
            ("rejected by policy of mx.example.org", None),
            ("No such user", None),
        ] {
            assert_eq!(zone(words).as_deref(), wanted, "{words}");
        }
    }
}
