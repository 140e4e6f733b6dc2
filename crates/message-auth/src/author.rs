//! Domains of a message's authors: those of all mailboxes in its From fields (RFC 9989 section 5.3.1).
//!
//! Programs differ about which of several mailboxes they show, so all count.

use stentor_mail::address::normalise_domain;

/// Maximum different domains that are examined.
pub const AUTHOR_DOMAINS_MAX: usize = 4;
/// Maximum mailboxes that are examined.
const MAILBOXES_MAX: usize = 100;

/// The domains of a message's authors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorDomains {
    /// A-labels in lower case, without duplicates.
    pub domains: Vec<String>,
    /// There are more than [`AUTHOR_DOMAINS_MAX`], or too many mailboxes to examine.
    pub has_more: bool,
    mailboxes: usize,
}

impl AuthorDomains {
    /// Adds the mailboxes of a From field's value, which may be folded.
    pub fn add(&mut self, value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        let mut item = String::new();
        let (mut depth, mut is_quoted) = (0_usize, false);
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' if is_quoted || depth > 0 => drop(chars.next()),
                '(' if !is_quoted => depth += 1,
                ')' if !is_quoted && depth > 0 => depth -= 1,
                _ if depth > 0 => {}
                '"' => is_quoted = !is_quoted,
                // An `@` in a name in quotes is no address.
                _ if is_quoted => {}
                '<' | ':' => item.clear(),
                ',' | ';' | '>' => self.add_mailbox(&std::mem::take(&mut item)),
                c if c.is_whitespace() => {}
                c => item.push(c),
            }
        }
        self.add_mailbox(&item);
    }

    fn add_mailbox(&mut self, item: &str) {
        let Some((_, domain)) = item.rsplit_once('@') else { return };
        self.mailboxes += 1;
        if self.mailboxes > MAILBOXES_MAX {
            self.has_more = true;
            return;
        }
        let Ok(domain) = normalise_domain(domain) else { return };
        if domain.starts_with('[') || self.domains.contains(&domain) {
            return;
        }
        if self.domains.len() == AUTHOR_DOMAINS_MAX {
            self.has_more = true;
        } else {
            self.domains.push(domain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(value: &str) -> String {
        let mut all = AuthorDomains::default();
        all.add(value.as_bytes());
        all.domains.join(" ")
    }

    #[test]
    fn every_mailbox_counts_and_names_do_not() {
        for (value, wanted) in [
            ("a@Example.ORG", "example.org"),
            ("\"ceo@bank.test\" <a@x.test>", "x.test"),
            ("(c@c.test) A\r\n B <a@x.test> (b@b.test)", "x.test"),
            ("a@x.test, B <b@y.test>, c@x.test", "x.test y.test"),
            ("Friends: a@x.test, b@y.test;", "x.test y.test"),
            ("ceo@bank.test <a@x.test>", "x.test"),
            ("\"a\\\"@q.test\"@x.test", "x.test"),
            ("<a@b\u{fc}cher.test>", "xn--bcher-kva.test"),
            ("undisclosed", ""),
            ("a@[192.0.2.1]", ""),
        ] {
            assert_eq!(domains(value), wanted, "{value}");
        }
        let mut many = AuthorDomains::default();
        many.add(b"a@a.test, a@b.test, a@c.test, a@d.test, a@a.test");
        assert!(!many.has_more);
        many.add(b"a@e.test");
        assert!(many.has_more && many.domains.len() == AUTHOR_DOMAINS_MAX);
        let mut repeated = AuthorDomains::default();
        repeated.add("a@a.test,".repeat(MAILBOXES_MAX).as_bytes());
        assert!(!repeated.has_more);
        repeated.add(b"a@a.test");
        assert!(repeated.has_more && repeated.domains.len() == 1);
    }
}
