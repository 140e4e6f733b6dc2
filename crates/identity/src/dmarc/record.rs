//! DMARC records (RFC 9989 section 4.7).

use stentor_mail::address::Address;

use crate::tags::Tags;

const VERSION: &[u8] = b"v=DMARC1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyMode {
    None,
    Quarantine,
    Reject,
}

/// Whether a domain is one under which others register (`psd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublicSuffix {
    Yes,
    No,
    #[default]
    Unknown,
}

/// A valid record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmarcRecord {
    pub mode: PolicyMode,
    /// `sp`
    pub subdomains: Option<PolicyMode>,
    pub strict_dkim: bool,
    pub strict_spf: bool,
    /// Destinations of aggregate reports, as written.
    pub rua: Vec<String>,
    pub public_suffix: PublicSuffix,
    /// `t=y`
    pub is_test: bool,
    /// `pct`, which RFC 9989 removed.
    pub percentage: Option<u8>,
}

/// Whether a TXT record is a DMARC record.
pub fn is_dmarc(text: &[u8]) -> bool {
    let rest = text.strip_prefix(VERSION);
    rest.is_some_and(|rest| rest.trim_ascii_start().first().is_none_or(|octet| *octet == b';'))
}

impl DmarcRecord {
    /// Parses a record that [`is_dmarc`].
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub fn parse(text: &[u8]) -> Result<DmarcRecord, String> {
        let tags = Tags::parse(text)?;
        let mode = tags.get("p").ok_or("it has no policy `p`")?;
        let choice = |tag: &str, yes: &str, no: &str| match tags.get(tag) {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case(yes) => Ok(true),
            Some(value) if value.eq_ignore_ascii_case(no) => Ok(false),
            Some(value) => Err(format!("{tag}={value} is neither {yes} nor {no}")),
        };
        let percentage = tags.get("pct").map(|value| value.parse().map_err(|_| format!("pct={value} is not a number")));
        Ok(DmarcRecord {
            mode: policy_mode("p", mode)?,
            subdomains: tags.get("sp").map(|value| policy_mode("sp", value)).transpose()?,
            strict_dkim: choice("adkim", "s", "r")?,
            strict_spf: choice("aspf", "s", "r")?,
            rua: tags.get("rua").map(destinations).unwrap_or_default(),
            public_suffix: match tags.get("psd") {
                Some("y") => PublicSuffix::Yes,
                Some("n") => PublicSuffix::No,
                _ => PublicSuffix::Unknown,
            },
            is_test: choice("t", "y", "n")?,
            percentage: percentage.transpose()?,
        })
    }
}

fn policy_mode(tag: &str, value: &str) -> Result<PolicyMode, String> {
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(PolicyMode::None),
        "quarantine" => Ok(PolicyMode::Quarantine),
        "reject" => Ok(PolicyMode::Reject),
        _ => Err(format!("{tag}={value} is neither none, quarantine nor reject")),
    }
}

fn destinations(value: &str) -> Vec<String> {
    value.split(',').map(|uri| uri.trim().to_owned()).filter(|uri| !uri.is_empty()).collect()
}

/// The domain of a `mailto:` destination, in lower case; `None` if it is not valid. A size limit (`!10m`) is ignored.
pub fn destination_domain(uri: &str) -> Option<String> {
    let (scheme, address) = uri.split_once(':')?;
    let address = address.split(['!', '?']).next()?;
    let address = Address::parse(address.as_bytes(), false).ok().filter(|_| scheme.eq_ignore_ascii_case("mailto"))?;
    Some(address.domain().to_ascii_lowercase()).filter(|domain| domain.contains('.') && !domain.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed() {
        let text = b"v=DMARC1; p=Reject; sp=none; adkim=s; rua=mailto:a@x.example!10m, mailto:b@y.example; psd=n; t=y";
        let policy = DmarcRecord::parse(text).unwrap();
        assert_eq!((policy.mode, policy.subdomains), (PolicyMode::Reject, Some(PolicyMode::None)));
        assert!(policy.strict_dkim && !policy.strict_spf && policy.is_test);
        assert_eq!(
            policy.rua.iter().filter_map(|uri| destination_domain(uri)).collect::<Vec<_>>(),
            ["x.example", "y.example"]
        );
        assert_eq!(policy.public_suffix, PublicSuffix::No);
        for (bad, why) in [
            ("v=DMARC1", "it has no policy"),
            ("v=DMARC1; p=yes", "p=yes is neither"),
            ("v=DMARC1; p=none; aspf=x", "aspf=x is neither"),
            ("v=DMARC1; p=none; pct=x", "not a number"),
            ("v=DMARC1 p=none", "not valid"),
        ] {
            let found = DmarcRecord::parse(bad.as_bytes());
            assert!(found.as_ref().is_err_and(|error| error.contains(why) || why == "not valid"), "{bad}: {found:?}");
        }
        assert!(
            is_dmarc(b"v=DMARC1;p=x") && is_dmarc(b"v=DMARC1 ;") && !is_dmarc(b"v=DMARC10") && !is_dmarc(b"V=DMARC1;")
        );
        for bad in
            ["a@x.example", "mailto:a", "https://x.example/", "mailto:@x.example", "mailto:a@localhost", "mailto:"]
        {
            assert_eq!(destination_domain(bad), None, "{bad}");
        }
    }
}
