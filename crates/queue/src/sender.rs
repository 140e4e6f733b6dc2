//! Patterns of envelope senders, in the names of suspensions and other standing entries: an address, `@domain`, or the
//! empty text for the null sender.
//!
//! Promise: a message matches by either of its senders. Posts to lists, forwarded mail and mail of aliases with an
//! owner leave with a sender of this server; people refer to the sender that the client gave.

/// The senders of a message, as the queue spells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Senders<'a> {
    /// The reverse path with which the message leaves.
    pub envelope: &'a str,
    /// The sender that the client gave, if it differs.
    pub given: Option<&'a str>,
}

impl<'a> Senders<'a> {
    /// The senders of a message that leaves with the sender that the client gave.
    pub fn one(envelope: &'a str) -> Senders<'a> {
        Senders { envelope, given: None }
    }

    /// Whether one of the senders matches the pattern.
    pub fn match_pattern(self, pattern: &str) -> bool {
        is_match(pattern, self.envelope) || self.given.is_some_and(|given| is_match(pattern, given))
    }
}

fn is_match(pattern: &str, sender: &str) -> bool {
    match pattern.strip_prefix('@') {
        Some(domain) => sender.rsplit_once('@').is_some_and(|(_, of)| of == domain),
        None => sender == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_a_domain_and_the_null_sender() {
        assert!(is_match("a@x.example", "a@x.example") && !is_match("a@x.example", "b@x.example"));
        assert!(is_match("@x.example", "b@x.example") && !is_match("@x.example", "b@y.x.example"));
        assert!(is_match("", "") && !is_match("", "b@x.example") && !is_match("@x.example", ""));
    }

    #[test]
    fn a_post_is_known_by_its_author_and_by_its_bounce_address() {
        let post = Senders { envelope: "news-bounces@lists.example", given: Some("ann@home.example") };
        for pattern in ["ann@home.example", "@home.example", "news-bounces@lists.example", "@lists.example"] {
            assert!(post.match_pattern(pattern), "{pattern}");
        }
        for pattern in ["", "bob@home.example", "@example"] {
            assert!(!post.match_pattern(pattern), "{pattern}");
        }
        assert!(!Senders::one("a@x.example").match_pattern("ann@home.example"));
    }
}
