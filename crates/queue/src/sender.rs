//! Patterns of envelope senders in the names of what operators and configurations keep: an address, `@domain`, or the empty text for
//! the null sender.

/// Whether mail of `sender` is meant. Both are in the form in which the queue has them.
pub fn is_match(pattern: &str, sender: &str) -> bool {
    match pattern.strip_prefix('@') {
        Some(domain) => sender.rsplit_once('@').is_some_and(|(_, of)| of == domain),
        None => sender == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn an_address_a_domain_and_the_null_sender() {
        assert!(is_match("a@x.example", "a@x.example") && !is_match("a@x.example", "b@x.example"));
        assert!(is_match("@x.example", "b@x.example") && !is_match("@x.example", "b@y.x.example"));
        assert!(is_match("", "") && !is_match("", "b@x.example") && !is_match("@x.example", ""));
    }
}
