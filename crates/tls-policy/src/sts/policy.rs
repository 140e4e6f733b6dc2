//! The policy file (RFC 8461 3.2) and the hosts that it permits (4.1).

use serde::{Deserialize, Serialize};
use stentor_mail::address::normalise_domain;

/// Maximum size of a policy file (suggested by RFC 8461 3.3).
pub const POLICY_BYTES_MAX: usize = 64 * 1024;
/// Maximum age of a policy in seconds (RFC 8461 3.2: about a year). A longer one is reduced.
pub const MAX_AGE_S_MAX: u64 = 31_557_600;
/// Maximum `mx` patterns of one policy.
pub const PATTERNS_MAX: usize = 256;

/// Treatment of hosts that do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StsMode {
    /// They get no mail.
    Enforce,
    /// They get mail, and the domain gets a report (TLSRPT).
    Testing,
    /// The domain revokes its policy.
    None,
}

impl StsMode {
    pub const fn name(self) -> &'static str {
        match self {
            StsMode::Enforce => "enforce",
            StsMode::Testing => "testing",
            StsMode::None => "none",
        }
    }
}

/// A parsed policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StsPolicy {
    pub mode: StsMode,
    pub max_age_s: u64,
    /// Patterns: names, or `*.` and a name, in lower case; not empty unless the mode is `none`.
    pub mx: Vec<String>,
}

/// Why a file is not a valid policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StsPolicyError {
    #[error("it is longer than {POLICY_BYTES_MAX} octets")]
    TooLong,
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("line {0} is not NAME: VALUE")]
    Line(usize),
    #[error("it does not begin with `version: STSv1`")]
    Version,
    #[error("`mode` is missing, or is not enforce, testing or none")]
    Mode,
    #[error("`max_age` is missing, or is not a number of at most 10 digits")]
    MaxAge,
    #[error("line {0}: `mx` is neither a host name nor `*.` with a domain")]
    Mx(usize),
    #[error("it has no `mx`")]
    NoMx,
    #[error("it has more than {PATTERNS_MAX} `mx`")]
    TooManyMx,
}

impl StsPolicy {
    /// Parses a policy. Unknown fields are ignored; of repeated ones other than `mx` the first counts (RFC 8461 3.2).
    pub fn parse(text: &[u8]) -> Result<StsPolicy, StsPolicyError> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(StsPolicyError::TooLong);
        }
        let text = std::str::from_utf8(text).map_err(|_| StsPolicyError::NotUtf8)?;
        let (mut version, mut mode, mut max_age, mut mx) = (None, None, None, Vec::new());
        let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        for (line, number) in lines.zip(1..) {
            let line = line.strip_suffix('\r').unwrap_or(line);
            // Files end with empty lines, contrary to the grammar.
            if line.trim_matches([' ', '\t']).is_empty() {
                continue;
            }
            let (name, value) = line.split_once(':').ok_or(StsPolicyError::Line(number))?;
            let value = value.trim_matches([' ', '\t']);
            if !is_name(name) || value.chars().any(char::is_control) {
                return Err(StsPolicyError::Line(number));
            }
            match name {
                "version" => version = version.or(Some(value)),
                "mode" => mode = mode.or(Some(value)),
                "max_age" => max_age = max_age.or(Some(value)),
                "mx" if mx.len() == PATTERNS_MAX => return Err(StsPolicyError::TooManyMx),
                "mx" => mx.push(pattern(value).ok_or(StsPolicyError::Mx(number))?),
                _ => {}
            }
        }
        if version != Some("STSv1") {
            return Err(StsPolicyError::Version);
        }
        let mode = [StsMode::Enforce, StsMode::Testing, StsMode::None].into_iter().find(|m| Some(m.name()) == mode);
        let mode = mode.ok_or(StsPolicyError::Mode)?;
        let digits =
            max_age.filter(|value| (1..=10).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_digit()));
        let max_age_s: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or(StsPolicyError::MaxAge)?;
        if mx.is_empty() && mode != StsMode::None {
            return Err(StsPolicyError::NoMx);
        }
        Ok(StsPolicy { mode, max_age_s: max_age_s.min(MAX_AGE_S_MAX), mx })
    }

    /// Whether mail may go to this host (in lower case, without a final dot): `*` matches exactly one label (RFC 8461
    /// 4.1).
    pub fn allows(&self, host: &str) -> bool {
        let parent = host.split_once('.').filter(|(label, _)| !label.is_empty()).map(|(_, parent)| parent);
        self.mx.iter().any(|pattern| match pattern.strip_prefix("*.") {
            Some(suffix) => parent == Some(suffix),
            None => pattern == host,
        })
    }

    /// The policy as lines, as quoted in reports (RFC 8460 4.4).
    pub fn lines(&self) -> Vec<String> {
        let head = ["version: STSv1".to_owned(), format!("mode: {}", self.mode.name())];
        let mx = self.mx.iter().map(|mx| format!("mx: {mx}"));
        head.into_iter().chain(mx).chain([format!("max_age: {}", self.max_age_s)]).collect()
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.bytes();
    name.len() <= 32
        && chars.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && chars.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn pattern(value: &str) -> Option<String> {
    let (wildcard, name) = value.strip_prefix("*.").map_or(("", value), |name| ("*.", name));
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_host = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_') || !b.is_ascii();
    if !name.bytes().all(is_host) {
        return None;
    }
    normalise_domain(name).ok().map(|name| format!("{wildcard}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: &str = "version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.Example.net\r\nmx: backupmx.example.com\r\nmax_age: 604800\r\n";

    fn parse(text: &str) -> Result<StsPolicy, StsPolicyError> {
        StsPolicy::parse(text.as_bytes())
    }

    #[test]
    fn the_example_of_the_rfc() {
        let policy = parse(EXAMPLE).unwrap();
        assert_eq!((policy.mode, policy.max_age_s, policy.mx.len()), (StsMode::Enforce, 604_800, 3));
        assert_eq!(parse(&EXAMPLE.replace('\r', "")), Ok(policy.clone()));
        assert_eq!(policy.lines().join("\r\n") + "\r\n", EXAMPLE.to_lowercase().replace("stsv1", "STSv1"));
    }

    #[test]
    fn a_star_is_one_label() {
        let policy = parse(EXAMPLE).unwrap();
        for (host, allowed) in [
            ("mail.example.com", true),
            ("backupmx.example.com", true),
            ("a.example.net", true),
            ("a.b.example.net", false),
            ("example.net", false),
            (".example.net", false),
            ("x.mail.example.com", false),
            ("", false),
        ] {
            assert_eq!(policy.allows(host), allowed, "{host}");
        }
    }

    #[test]
    fn what_is_unknown_or_there_twice_is_passed_over() {
        let text = "version: STSv1\nmode: none\nmode: enforce\nx_1: \u{e9}\nmax_age: 0\nmax_age:9\nversion: STSv2\n\n";
        assert_eq!(parse(text), Ok(StsPolicy { mode: StsMode::None, max_age_s: 0, mx: vec![] }));
        let long = parse("version:STSv1\nmode:none\nmax_age: 9999999999").unwrap();
        assert_eq!(long.max_age_s, MAX_AGE_S_MAX);
    }

    #[test]
    fn what_is_no_policy_says_why() {
        let with = |from: &str, to: &str| parse(&EXAMPLE.replace(from, to)).unwrap_err();
        assert_eq!(parse(""), Err(StsPolicyError::Version));
        assert_eq!(parse("<html>\n"), Err(StsPolicyError::Line(1)));
        assert_eq!(with("STSv1", "STSv2"), StsPolicyError::Version);
        assert_eq!(with("enforce", "Enforce"), StsPolicyError::Mode);
        assert_eq!(with("mode: enforce\r\n", ""), StsPolicyError::Mode);
        assert_eq!(with("604800", "12345678901"), StsPolicyError::MaxAge);
        assert_eq!(with("604800", "-1"), StsPolicyError::MaxAge);
        assert_eq!(with("604800", ""), StsPolicyError::MaxAge);
        for bad in ["*", "*.", "a.*.b", "**.b", "*a.b", "a b", "", "[192.0.2.1]", "a@b"] {
            assert_eq!(with("mail.example.com", bad), StsPolicyError::Mx(3), "{bad}");
        }
        assert_eq!(parse("version: STSv1\nmode: testing\nmax_age: 1\n"), Err(StsPolicyError::NoMx));
        let many = format!("{EXAMPLE}{}", "mx: a.test\n".repeat(254));
        assert_eq!(parse(&many), Err(StsPolicyError::TooManyMx));
        assert_eq!(StsPolicy::parse(&vec![b'x'; POLICY_BYTES_MAX + 1]), Err(StsPolicyError::TooLong));
        assert_eq!(StsPolicy::parse(b"version: \xff"), Err(StsPolicyError::NotUtf8));
    }

    proptest! {
        #[test]
        fn never_panics_and_never_allows_what_no_pattern_names(
            text in "(version: STSv1\n)?(mode: (enforce|testing|none)\n)?((mx|max_age): ?[*a-b0-9.]{0,6}\r?\n){0,5}\\PC{0,20}", host in "[ab.]{0,8}",
        ) {
            if let Ok(policy) = parse(&text) {
                prop_assert!(policy.mx.is_empty() <= (policy.mode == StsMode::None));
                prop_assert_eq!(parse(&policy.lines().join("\n")), Ok(policy.clone()));
                if policy.allows(&host) {
                    let names = |p: &String| *p == host || p.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix));
                    prop_assert!(policy.mx.iter().any(names));
                }
            }
        }
    }
}
