//! DMARC policy records (RFC 9989 section 4.7).
//!
//! Promise: any text is read in linear time. Failure: a malformed tag has its default, and the first one is in `fault`;
//! if the policy itself is malformed, it is `none` (section 4.10.1).

use stentor_dkim::TagList;
use stentor_domain_reports::ReportDestination;

/// Longest record that is read.
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum addresses of one record that get reports.
pub(super) const REPORT_ADDRESSES_MAX: usize = 5;

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
pub enum PublicSuffix {
    Yes,
    No,
    Unknown,
}

/// A record; malformed tags have their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmarcRecord {
    /// `none` if `p` is missing, or `p`, `sp` or `np` malformed.
    pub policy: DmarcPolicy,
    pub subdomains: Option<DmarcPolicy>,
    pub missing_subdomains: Option<DmarcPolicy>,
    pub is_dkim_strict: bool,
    pub is_spf_strict: bool,
    pub public_suffix: PublicSuffix,
    pub is_test: bool,
    /// Destinations of aggregate reports, as written.
    pub report_uris: Vec<String>,
    /// `pct`, which RFC 9989 removed.
    pub percentage: Option<u8>,
    /// The policy is unknown, and nobody asks for reports: no DMARC processing (section 4.10.1).
    pub is_ignored: bool,
    /// What is wrong with the first malformed tag.
    pub fault: Option<String>,
}

impl DmarcRecord {
    /// The addresses that get aggregate reports, without duplicates; other schemes are ignored.
    pub(super) fn report_addresses(&self) -> Vec<ReportAddress> {
        let mut found: Vec<ReportAddress> = Vec::new();
        for one in self.report_uris.iter().filter_map(|uri| ReportAddress::parse(uri)) {
            let is_known = found.iter().any(|known| known.address.eq_ignore_ascii_case(&one.address));
            if found.len() < REPORT_ADDRESSES_MAX && !is_known {
                found.push(one);
            }
        }
        found
    }

    /// Parses a TXT record; `None`: it is not a DMARC record.
    pub fn parse(text: &[u8]) -> Option<DmarcRecord> {
        // All other records of the name are skipped at once.
        if text.len() > RECORD_BYTES_MAX || !text.trim_ascii_start().starts_with(b"v") {
            return None;
        }
        let (tags, error) = TagList::parse_lenient(text);
        if tags.names().next() != Some("v") || tags.value("v") != Some("DMARC1") {
            return None;
        }
        let mut checked = CheckedTags { tags: &tags, fault: error.map(|error| error.to_string()) };
        let policies = ["p", "sp", "np"].map(|tag| checked.policy(tag));
        let [policy, subdomains, missing_subdomains] = match policies {
            [Ok(Some(policy)), Ok(subdomains), Ok(missing)] => [Some(policy), subdomains, missing],
            [Ok(None), ..] => {
                checked.note("it has no policy `p`".to_owned());
                [None; 3]
            }
            _ => [None; 3],
        };
        let is_dkim_strict = checked.choice("adkim", "s", "r");
        let is_spf_strict = checked.choice("aspf", "s", "r");
        let is_test = checked.choice("t", "y", "n");
        let percentage = tags.value("pct").map(|text| (text, text.parse().ok()));
        if let Some((text, None)) = percentage {
            checked.note(format!("pct={text} is not a number"));
        }
        let uris = tags.value("rua").unwrap_or_default().split(',').map(str::trim).filter(|uri| !uri.is_empty());
        let report_uris: Vec<String> = uris.map(str::to_owned).collect();
        Some(DmarcRecord {
            policy: policy.unwrap_or(DmarcPolicy::None),
            subdomains,
            missing_subdomains,
            is_dkim_strict,
            is_spf_strict,
            public_suffix: public_suffix(&tags),
            is_test,
            is_ignored: policy.is_none() && !report_uris.iter().any(|uri| report_domain(uri).is_some()),
            report_uris,
            percentage: percentage.and_then(|(_, percentage)| percentage),
            fault: checked.fault,
        })
    }
}

fn public_suffix(tags: &TagList) -> PublicSuffix {
    let is = |wanted: &str| tags.value("psd").is_some_and(|value| value.eq_ignore_ascii_case(wanted));
    match () {
        () if is("y") => PublicSuffix::Yes,
        () if is("n") => PublicSuffix::No,
        () => PublicSuffix::Unknown,
    }
}

/// The tags of a record, and the first fault in them.
struct CheckedTags<'a> {
    tags: &'a TagList,
    fault: Option<String>,
}

impl CheckedTags<'_> {
    fn note(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    /// The policy of a tag. `Err`: it is malformed.
    fn policy(&mut self, tag: &str) -> Result<Option<DmarcPolicy>, ()> {
        let Some(value) = self.tags.value(tag) else { return Ok(None) };
        let policy = DmarcPolicy::parse(value);
        if policy.is_none() {
            self.note(format!("{tag}={value} is neither none, quarantine nor reject"));
        }
        policy.map(Some).ok_or(())
    }

    fn choice(&mut self, tag: &str, yes: &str, no: &str) -> bool {
        let Some(value) = self.tags.value(tag) else { return false };
        let is_yes = value.eq_ignore_ascii_case(yes);
        if !is_yes && !value.eq_ignore_ascii_case(no) {
            self.note(format!("{tag}={value} is neither {yes} nor {no}"));
        }
        is_yes
    }
}

/// The domain of a `mailto:` destination of reports, in lower case; `None` if it is not valid.
pub fn report_domain(uri: &str) -> Option<String> {
    let address = ReportAddress::parse(uri)?.address;
    let domain = address.rsplit_once('@')?.1.to_ascii_lowercase();
    (domain.contains('.') && !domain.starts_with('[')).then_some(domain)
}

/// An address that a record requests aggregate reports for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAddress {
    pub address: String,
    /// The longest report that it takes.
    pub bytes_max: Option<u64>,
}

impl ReportAddress {
    /// Parses a destination; `None`: it is malformed or has another scheme than `mailto`.
    pub fn parse(uri: &str) -> Option<ReportAddress> {
        let (uri, bytes_max) = with_size(uri);
        match ReportDestination::parse(uri)? {
            ReportDestination::Mail(address) => Some(ReportAddress { address, bytes_max }),
            ReportDestination::Https(_) => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_defaults_for_what_is_malformed() {
        let text = b"v=DMARC1; p=Reject; sp=none; adkim=s; rua=mailto:a@x.example!10m, mailto:b@y.example; psd=n; t=y";
        let record = DmarcRecord::parse(text).unwrap();
        assert_eq!((record.policy, record.subdomains), (DmarcPolicy::Reject, Some(DmarcPolicy::None)));
        assert!(record.is_dkim_strict && !record.is_spf_strict && record.is_test && record.fault.is_none());
        assert_eq!(record.public_suffix, PublicSuffix::No);
        assert_eq!(
            record.report_uris.iter().filter_map(|uri| report_domain(uri)).collect::<Vec<_>>(),
            ["x.example", "y.example"]
        );
        for (text, policy, fault) in [
            ("v=DMARC1", DmarcPolicy::None, "it has no policy"),
            ("v=DMARC1; p=yes", DmarcPolicy::None, "p=yes is neither"),
            ("v=DMARC1; p=reject; sp=never", DmarcPolicy::None, "sp=never is neither"),
            ("v=DMARC1; p=reject; aspf=x", DmarcPolicy::Reject, "aspf=x is neither"),
            ("v=DMARC1; p=reject; pct=x", DmarcPolicy::Reject, "not a number"),
            ("v=DMARC1; p=reject; aspf", DmarcPolicy::Reject, "\"aspf\" is not NAME=VALUE"),
        ] {
            let record = DmarcRecord::parse(text.as_bytes()).unwrap();
            let found = record.fault.unwrap_or_default();
            assert!(record.policy == policy && found.contains(fault), "{text}: {:?}, {found}", record.policy);
        }
        for text in ["v=DMARC2; p=none", "p=none; v=DMARC1", "v=spf1 -all", "v=dmarc1; p=none", "", "v=DMARC1 p=none"] {
            assert_eq!(DmarcRecord::parse(text.as_bytes()), None, "{text}");
        }
        assert!(DmarcRecord::parse(b"v=DMARC1 ;p=none").is_some());
    }

    #[test]
    fn destinations_are_mail_addresses() {
        for bad in
            ["a@x.example", "mailto:a", "https://x.example/", "mailto:@x.example", "mailto:a@localhost", "mailto:"]
        {
            assert_eq!(report_domain(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_for_reports_have_sizes_and_no_duplicates() {
        let of = |rua: &str| -> Vec<(String, Option<u64>)> {
            let record = DmarcRecord::parse(format!("v=DMARC1; p=none; {rua}").as_bytes()).unwrap();
            record.report_addresses().into_iter().map(|one| (one.address, one.bytes_max)).collect()
        };
        let plain = |address: &str| (address.to_owned(), None);
        assert_eq!(of("ruf=mailto:a@a.test"), []);
        let two = "rua=mailto:a@a.test!10m, MAILTO:b%21c@b.test!50K,https://x.test/,mailto:A@A.test!1,mailto:nobody";
        let (a, b) = (("a@a.test".to_owned(), Some(10 << 20)), ("b!c@b.test".to_owned(), Some(50 << 10)));
        assert_eq!(of(two), [a, b]);
        // What is no size belongs to the address.
        assert_eq!(of("rua=mailto:x!y@a.test"), [plain("x!y@a.test")]);
        let huge = of("rua=mailto:a@a.test!99999999999999t");
        assert_eq!(huge[0].1, Some(u64::MAX));
        let many: Vec<String> = (0..9).map(|n| format!("mailto:a{n}@a.test")).collect();
        assert_eq!(of(&format!("rua={}", many.join(","))).len(), REPORT_ADDRESSES_MAX);
    }
}
