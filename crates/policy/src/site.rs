//! Limits per site, by the names of its MX hosts: the operator's rules, then built-in profiles of large providers.
//!
//! A rule is for a suffix of host names: `google.com` for that host and all below it. Each limit comes from the most
//! specific rule that sets it; the operator's rules take precedence over built-in ones. The profiles are limits that
//! providers publish or that are common among senders; adaptation starts from them and may not exceed them. They
//! apply to each source address.

use stentor_mail::address::{AddressError, normalise_domain};
use stentor_mail::domain::is_at_or_below;

/// Limits of one rule; `None`: the rule does not set the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteRule {
    pub connections_max: Option<u32>,
    pub transactions_per_connection_max: Option<u32>,
    pub recipients_per_transaction_max: Option<u32>,
    pub messages_per_second_max: Option<u32>,
    pub messages_per_minute_max: Option<u32>,
    pub messages_per_hour_max: Option<u32>,
    /// Whether one transaction may have recipients of several domains.
    pub mixes_domains: Option<bool>,
}

const NOTHING: SiteRule = SiteRule {
    connections_max: None,
    transactions_per_connection_max: None,
    recipients_per_transaction_max: None,
    messages_per_second_max: None,
    messages_per_minute_max: None,
    messages_per_hour_max: None,
    mixes_domains: None,
};

const fn profile(connections_max: Option<u32>, transactions_per_connection_max: Option<u32>) -> SiteRule {
    SiteRule { connections_max, transactions_per_connection_max, ..NOTHING }
}

/// Built-in profiles by MX suffix.
pub const PROFILES: [(&str, SiteRule); 13] = [
    // "Multiple destination domains per transaction is unsupported" is Google's own reply; connections as is common
    // among senders.
    ("google.com", SiteRule { mixes_domains: Some(false), ..profile(Some(20), Some(50)) }),
    ("googlemail.com", SiteRule { mixes_domains: Some(false), ..profile(Some(20), Some(50)) }),
    ("smtp.goog", SiteRule { mixes_domains: Some(false), ..profile(Some(20), Some(50)) }),
    // senders.yahooinc.com/best-practices: 20 messages a connection. AOL and others use it, too.
    ("yahoodns.net", profile(None, Some(20))),
    // Outlook.com and Exchange Online refuse many connections from an address without a history.
    ("olc.protection.outlook.com", profile(Some(10), Some(50))),
    ("mail.protection.outlook.com", profile(Some(10), Some(50))),
    ("mx.microsoft", profile(Some(10), Some(50))),
    ("mail.icloud.com", profile(Some(10), None)),
    // spa.xfinity.com/postmaster: 25 connections, 1,000 messages each.
    ("comcast.net", profile(Some(25), Some(1_000))),
    ("mimecast.com", profile(Some(10), Some(100))),
    // messagerie.orange.fr/postmaster.html: 3 connections.
    ("orange.fr", profile(Some(3), Some(100))),
    ("wanadoo.fr", profile(Some(3), Some(100))),
    ("mail.com", profile(None, Some(100))),
];

impl SiteRule {
    /// This rule, with limits of `base` where it sets none.
    #[must_use]
    pub fn over(self, base: SiteRule) -> SiteRule {
        SiteRule {
            connections_max: self.connections_max.or(base.connections_max),
            transactions_per_connection_max: self
                .transactions_per_connection_max
                .or(base.transactions_per_connection_max),
            recipients_per_transaction_max: self.recipients_per_transaction_max.or(base.recipients_per_transaction_max),
            messages_per_second_max: self.messages_per_second_max.or(base.messages_per_second_max),
            messages_per_minute_max: self.messages_per_minute_max.or(base.messages_per_minute_max),
            messages_per_hour_max: self.messages_per_hour_max.or(base.messages_per_hour_max),
            mixes_domains: self.mixes_domains.or(base.mixes_domains),
        }
    }
}

/// All rules of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteRules {
    /// The operator's rules, then the built-in ones; each with the longest suffix first.
    rules: Vec<(String, SiteRule)>,
}

impl SiteRules {
    /// `own` may be in any order; suffixes are normalised by [`SiteRules::suffix`]. `profiles`: includes the built-in
    /// ones.
    pub fn new(own: impl IntoIterator<Item = (String, SiteRule)>, profiles: bool) -> SiteRules {
        let longest_first = |rules: &mut Vec<(String, SiteRule)>| {
            rules.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        };
        let mut rules: Vec<_> = own.into_iter().collect();
        longest_first(&mut rules);
        if profiles {
            let mut built_in: Vec<_> = PROFILES.iter().map(|(suffix, rule)| ((*suffix).to_owned(), *rule)).collect();
            longest_first(&mut built_in);
            rules.extend(built_in);
        }
        SiteRules { rules }
    }

    /// Normalises a suffix of host names for comparison; a leading dot is optional.
    pub fn suffix(text: &str) -> Result<String, AddressError> {
        normalise_domain(text.strip_prefix('.').unwrap_or(text))
    }

    /// The limits of a site with these hosts (lower case, most preferred first): those of the first host that a rule
    /// matches.
    pub fn limits<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) -> SiteRule {
        for host in hosts {
            let host = host.trim_end_matches('.');
            let mut found = self.rules.iter().filter(|(suffix, _)| is_at_or_below(host, suffix)).peekable();
            if found.peek().is_some() {
                return found.fold(NOTHING, |all, (_, rule)| all.over(*rule));
            }
        }
        NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(profiles: bool) -> SiteRules {
        let big = SiteRule { connections_max: Some(4), messages_per_hour_max: Some(9), ..NOTHING };
        let in_big = SiteRule { connections_max: Some(7), ..NOTHING };
        let own = [
            (SiteRules::suffix(".Big.example").unwrap(), big),
            ("in.big.example".to_owned(), in_big),
            ("mx.microsoft".to_owned(), SiteRule { transactions_per_connection_max: Some(5), ..NOTHING }),
        ];
        SiteRules::new(own, profiles)
    }

    #[test]
    fn the_most_specific_word_counts() {
        let rules = rules(true);
        let of = |host: &str| rules.limits([host]);
        assert_eq!(of("mx.big.example").connections_max, Some(4));
        assert_eq!(of("big.example").connections_max, Some(4));
        assert_eq!(of("mxbig.example"), NOTHING);
        assert_eq!(of("a.in.big.example").connections_max, Some(7));
        assert_eq!(of("a.in.big.example").messages_per_hour_max, Some(9), "what it leaves open is the wider rule's");
        // The operator's limit, and the profile's for the rest.
        assert_eq!(of("x.mx.microsoft").transactions_per_connection_max, Some(5));
        assert_eq!(of("x.mx.microsoft").connections_max, Some(10));
        assert_eq!(of("aspmx.l.google.com.").mixes_domains, Some(false));
        assert_eq!(of("mta5.am0.yahoodns.net").transactions_per_connection_max, Some(20));
        assert_eq!(self::rules(false).limits(["aspmx.l.google.com"]), NOTHING);
    }

    #[test]
    fn the_first_host_with_a_rule_speaks_for_the_site() {
        let rules = rules(false);
        assert_eq!(rules.limits(["mx.other.example", "a.in.big.example", "b.big.example"]).connections_max, Some(7));
        assert_eq!(rules.limits([]), NOTHING);
    }

    #[test]
    fn profiles_are_in_their_form() {
        for (suffix, rule) in PROFILES {
            assert_eq!(SiteRules::suffix(suffix).as_deref(), Ok(suffix));
            assert_ne!(rule, NOTHING);
        }
    }
}
