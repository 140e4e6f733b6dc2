//! DMARC policy records (RFC 9989 section 4.7).

use stentor_dkim::TagList;

/// Longest record that is read.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// What a domain asks for mail that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DmarcPolicy {
    None,
    Quarantine,
    Reject,
}

impl DmarcPolicy {
    pub fn word(self) -> &'static str {
        match self {
            DmarcPolicy::None => "none",
            DmarcPolicy::Quarantine => "quarantine",
            DmarcPolicy::Reject => "reject",
        }
    }

    fn parse(word: &str) -> Option<DmarcPolicy> {
        [DmarcPolicy::None, DmarcPolicy::Quarantine, DmarcPolicy::Reject]
            .into_iter()
            .find(|one| word.eq_ignore_ascii_case(one.word()))
    }
}

/// Whether a domain is a public suffix, as its record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublicSuffix {
    Yes,
    No,
    Unknown,
}

/// A record; malformed tags have their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PolicyRecord {
    pub policy: DmarcPolicy,
    pub subdomains: Option<DmarcPolicy>,
    pub missing_subdomains: Option<DmarcPolicy>,
    pub is_dkim_strict: bool,
    pub is_spf_strict: bool,
    pub public_suffix: PublicSuffix,
    pub is_test: bool,
}

impl PolicyRecord {
    /// Parses a TXT record; `None`: it is not a DMARC record.
    pub(super) fn parse(text: &[u8]) -> Option<PolicyRecord> {
        if text.len() > RECORD_BYTES_MAX {
            return None;
        }
        let tags = TagList::parse(text)?;
        if tags.first() != Some("v") || tags.value("v") != Some("DMARC1") {
            return None;
        }
        let policy = |tag: &str| tags.value(tag).and_then(DmarcPolicy::parse);
        let is = |tag: &str, wanted: &str| tags.value(tag).is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        let public_suffix = match () {
            () if is("psd", "y") => PublicSuffix::Yes,
            () if is("psd", "n") => PublicSuffix::No,
            () => PublicSuffix::Unknown,
        };
        Some(PolicyRecord {
            policy: policy("p").unwrap_or(DmarcPolicy::None),
            subdomains: policy("sp"),
            missing_subdomains: policy("np"),
            is_dkim_strict: is("adkim", "s"),
            is_spf_strict: is("aspf", "s"),
            public_suffix,
            is_test: is("t", "y"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_defaults_for_what_is_malformed() {
        let record = PolicyRecord::parse(b"v=DMARC1;p=Reject;sp=never;np=none;adkim=s;aspf=x;psd=n;t=y;pct=5").unwrap();
        assert_eq!(
            (record.policy, record.subdomains, record.missing_subdomains),
            (DmarcPolicy::Reject, None, Some(DmarcPolicy::None))
        );
        assert!(record.is_dkim_strict && !record.is_spf_strict && record.is_test);
        assert_eq!(record.public_suffix, PublicSuffix::No);
        assert_eq!(PolicyRecord::parse(b"v=DMARC1").unwrap().policy, DmarcPolicy::None);
        for text in ["v=DMARC2; p=none", "p=none; v=DMARC1", "v=spf1 -all", "v=dmarc1; p=none", ""] {
            assert_eq!(PolicyRecord::parse(text.as_bytes()), None, "{text}");
        }
    }
}
