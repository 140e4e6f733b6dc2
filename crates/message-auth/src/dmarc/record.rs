//! DMARC policy records (RFC 9989 section 4.7).

use stentor_dkim::TagList;
use stentor_domain_reports::ReportDestination;

/// Longest record that is read.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum addresses of one record that get reports.
const REPORT_ADDRESSES_MAX: usize = 5;

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
    /// It requests aggregate reports.
    pub requests_reports: bool,
}

/// An address that a record requests aggregate reports for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAddress {
    pub address: String,
    /// The longest report that it takes.
    pub bytes_max: Option<u64>,
}

/// The tags of a record; `None`: it is not a DMARC record.
fn tags(text: &[u8]) -> Option<TagList> {
    if text.len() > RECORD_BYTES_MAX {
        return None;
    }
    let tags = TagList::parse(text)?;
    (tags.first() == Some("v") && tags.value("v") == Some("DMARC1")).then_some(tags)
}

/// The addresses in a record's `rua=`, without duplicates; those with other schemes are ignored. `None`: it is not a
/// DMARC record, or has no `rua=`.
pub(super) fn report_addresses(text: &[u8]) -> Option<Vec<ReportAddress>> {
    let tags = tags(text)?;
    let mut found: Vec<ReportAddress> = Vec::new();
    for uri in tags.value("rua")?.split(',') {
        let (uri, bytes_max) = with_size(uri.trim());
        let Some(ReportDestination::Mail(address)) = ReportDestination::parse(uri) else { continue };
        if found.len() < REPORT_ADDRESSES_MAX && !found.iter().any(|known| known.address.eq_ignore_ascii_case(&address))
        {
            found.push(ReportAddress { address, bytes_max });
        }
    }
    Some(found)
}

/// A URI and the size after its exclamation mark (RFC 7489 section 6.2): digits, and a unit of a power of 1024.
fn with_size(uri: &str) -> (&str, Option<u64>) {
    let Some((before, size)) = uri.rsplit_once('!') else { return (uri, None) };
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = &size[..size.len() - unit.len()];
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return (uri, None),
    };
    match digits.parse::<u64>() {
        Ok(number) => (before, Some(number.saturating_mul(1 << shift))),
        Err(_) => (uri, None),
    }
}

impl PolicyRecord {
    /// Parses a TXT record; `None`: it is not a DMARC record.
    pub(super) fn parse(text: &[u8]) -> Option<PolicyRecord> {
        let tags = tags(text)?;
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
            requests_reports: tags.value("rua").is_some_and(|value| !value.is_empty()),
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

    #[test]
    fn addresses_for_reports_have_sizes_and_no_duplicates() {
        let of = |rua: &str| -> Option<Vec<(String, Option<u64>)>> {
            let found = report_addresses(format!("v=DMARC1; p=none; {rua}").as_bytes())?;
            Some(found.into_iter().map(|one| (one.address, one.bytes_max)).collect())
        };
        let plain = |address: &str| (address.to_owned(), None);
        assert_eq!(of("ruf=mailto:a@a.test"), None);
        let two = "rua=mailto:a@a.test!10m, MAILTO:b%21c@b.test!50K,https://x.test/,mailto:A@A.test!1,mailto:nobody";
        let (a, b) = (("a@a.test".to_owned(), Some(10 << 20)), ("b!c@b.test".to_owned(), Some(50 << 10)));
        assert_eq!(of(two), Some(vec![a, b]));
        // What is no size belongs to the address.
        assert_eq!(of("rua=mailto:x!y@a.test"), Some(vec![plain("x!y@a.test")]));
        let huge = of("rua=mailto:a@a.test!99999999999999t").unwrap();
        assert_eq!(huge[0].1, Some(u64::MAX));
        let many: Vec<String> = (0..9).map(|n| format!("mailto:a{n}@a.test")).collect();
        assert_eq!(of(&format!("rua={}", many.join(","))).unwrap().len(), REPORT_ADDRESSES_MAX);
        assert!(PolicyRecord::parse(b"v=DMARC1;rua=mailto:a@a.test").unwrap().requests_reports);
        assert!(!PolicyRecord::parse(b"v=DMARC1").unwrap().requests_reports);
    }
}
