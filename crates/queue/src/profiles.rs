//! What large providers are known to bear, by the suffix of their MX host names. Where to begin, not the truth: a site
//! that refuses gets less, and the operator's rules go before these.

use crate::site::{SiteLimits, SitePlan};

/// A rule for the sites whose first MX host's name ends with a suffix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteRule {
    /// Whole labels, lower case: `google.com` is for `aspmx.l.google.com`, not for `notgoogle.com`.
    pub mx_suffix: String,
    pub limits: SiteLimits,
}

const fn limits(connections: u32, transactions: u32, recipients: u32) -> SiteLimits {
    SiteLimits {
        connections_max: Some(connections),
        transactions_per_connection_max: Some(transactions),
        recipients_per_transaction_max: Some(recipients),
        per_second: None,
        per_minute: None,
        per_hour: None,
        mixes_domains: false,
    }
}

/// Connections from one address, transactions per connection, recipients per transaction.
const BUILT_IN: [(&str, SiteLimits); 16] = [
    ("google.com", limits(20, 100, 100)),
    ("googlemail.com", limits(20, 100, 100)),
    ("protection.outlook.com", limits(20, 50, 100)),
    ("olc.protection.outlook.com", limits(10, 50, 100)),
    ("yahoodns.net", limits(10, 20, 50)),
    ("icloud.com", limits(10, 50, 100)),
    ("gmx.net", limits(10, 100, 100)),
    ("web.de", limits(10, 100, 100)),
    ("kundenserver.de", limits(10, 100, 100)),
    ("t-online.de", limits(5, 50, 50)),
    ("orange.fr", limits(2, 50, 50)),
    ("free.fr", limits(5, 50, 50)),
    ("libero.it", limits(5, 50, 50)),
    ("mail.ru", limits(10, 50, 50)),
    ("yandex.ru", limits(10, 50, 50)),
    ("comcast.net", limits(10, 50, 100)),
];

fn has_suffix(host: &str, suffix: &str) -> bool {
    let host = host.trim_end_matches('.');
    let Some(rest) = host.len().checked_sub(suffix.len()) else { return false };
    host.as_bytes()[rest..].eq_ignore_ascii_case(suffix.as_bytes()) && (rest == 0 || host.as_bytes()[rest - 1] == b'.')
}

/// What holds for a site with this MX host: the longest matching rule of the operator's, then of the built-in ones, each
/// filling in what the one before leaves open.
pub fn limits_of(rules: &[SiteRule], mx_host: &str) -> SiteLimits {
    let own = rules.iter().filter(|rule| has_suffix(mx_host, &rule.mx_suffix)).max_by_key(|rule| rule.mx_suffix.len());
    let known =
        BUILT_IN.iter().filter(|(suffix, _)| has_suffix(mx_host, suffix)).max_by_key(|(suffix, _)| suffix.len());
    let base = known.map_or_else(SiteLimits::default, |(_, limits)| *limits);
    own.map_or(base, |rule| rule.limits.over(base))
}

/// The plan with the limits that rules and profiles say.
pub fn apply(rules: &[SiteRule], plan: &mut SitePlan) {
    if let Some(first) = plan.targets.first() {
        plan.limits = limits_of(rules, &first.host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_suffix_of_whole_labels_wins_and_rules_go_first() {
        assert_eq!(limits_of(&[], "gmail-smtp-in.l.Google.com.").connections_max, Some(20));
        assert_eq!(limits_of(&[], "mx.notgoogle.com"), SiteLimits::default());
        assert_eq!(limits_of(&[], "a.olc.protection.outlook.com").connections_max, Some(10));
        let own = SiteLimits { per_minute: Some(100), connections_max: Some(3), ..SiteLimits::default() };
        let rules = [SiteRule { mx_suffix: "google.com".into(), limits: own }];
        let both = limits_of(&rules, "aspmx.l.google.com");
        assert_eq!(
            (both.connections_max, both.per_minute, both.recipients_per_transaction_max),
            (Some(3), Some(100), Some(100))
        );
    }
}
