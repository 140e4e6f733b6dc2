//! `[[dkim]]`: domains that sign mail; either their selectors and the files of their keys, which `dkim_keys` reads, or
//! how often the server replaces keys that it makes itself.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use stentor_mail::address::normalise_domain;

use super::diagnose::FilePosition;
use super::raw::{DAY_S, Section};

/// Maximum domains that sign.
const DOMAINS_MAX: usize = 10_000;
/// Longest name in DNS, and longest label (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Longest lifetime of a signature.
const EXPIRE_S_MAX: f64 = 365.0 * DAY_S;

/// Days for which a key that the server makes may be used.
const ROTATE_DAYS: RangeInclusive<u64> = 30..=3_650;
const DAY_MS: u64 = 86_400_000;
/// Default of `publish_wait_s`: the caches of most receivers have forgotten an absence by then.
const PUBLISH_WAIT_S: u64 = 3_600;
/// Default of `retire_wait_s`: receivers may verify mail again some days after they took it.
const RETIRE_WAIT_S: u64 = 7 * 86_400;

/// A domain of `[[dkim]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimConfig {
    /// The `d=` of signatures: ASCII, lower case.
    pub domain: String,
    /// One key, or one of each algorithm. With `rotation` there may be none, and these sign until the server's own are
    /// in use.
    pub keys: Vec<DkimKeyFile>,
    /// The server makes the keys and replaces them.
    pub rotation: Option<DkimRotation>,
    /// Whether subdomains of the domain are signed too.
    pub subdomains: bool,
    /// Whether mail of authors at the domain is signed.
    pub authors: bool,
    /// Whether copies of lists with an address at the domain are signed.
    pub lists: bool,
    /// Whether all mail that may be signed is, beside the signatures of author and list: large receivers send their
    /// complaints to a domain that signs.
    pub every: bool,
    /// How long signatures are valid; `None`: without end.
    pub expire_s: Option<u64>,
}

/// How the server replaces the keys of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimRotation {
    /// How long a key is used.
    pub rotate_ms: u64,
    /// Least time between the first sight of a record at all name servers and its use.
    pub publish_wait_ms: u64,
    /// How long the records of a retired key are needed beyond the longest lifetime of mail.
    pub retire_wait_ms: u64,
    /// A program and its arguments that gets the records as zone text; empty: the operator publishes them.
    pub publish_command: Vec<String>,
}

/// A key file and the selector at which its public half is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimKeyFile {
    pub selector: String,
    pub path: PathBuf,
    /// Position of the key that names it.
    pub named_at: FilePosition,
}

pub(super) fn read(top: &Section<'_>) -> Vec<DkimConfig> {
    let sections = top.tables("dkim");
    if let Some(section) = sections.get(DOMAINS_MAX) {
        section.context.error(section.span.clone(), format!("more than {DOMAINS_MAX} domains in [[dkim]]"));
    }
    let mut domains: Vec<DkimConfig> = Vec::new();
    for section in sections.into_iter().take(DOMAINS_MAX) {
        let (context, span) = (section.context, section.span_of("domain"));
        let Some(domain) = domain(section) else { continue };
        if domains.iter().any(|other| other.domain == domain.domain) {
            context.error(span, format!("two sections [[dkim]] have the domain {:?}", domain.domain));
        }
        domains.push(domain);
    }
    domains
}

fn domain(section: Section<'_>) -> Option<DkimConfig> {
    let name = section.required("domain", "example.org").and_then(|text| {
        let name = normalise_domain(text.value).ok().filter(|name| is_dns_name(name));
        if name.is_none() {
            let message = format!("{:?} is not a valid domain; write an international one as A-labels", text.value);
            section.context.error(text.span, message);
        }
        name
    });
    let rotation = rotation(&section);
    let first = key(&section, "selector", "key", rotation.is_none());
    let second = key(&section, "second_selector", "second_key", false);
    if let (Some(first), Some(second)) = (&first, &second)
        && first.selector == second.selector
    {
        let message = format!("both keys have the selector {:?}; each needs its own", first.selector);
        section.context.error(section.span_of("second_selector"), message);
    }
    let expire_s = section.seconds("expire_s", 0, 0.0..=EXPIRE_S_MAX) / 1_000;
    let config = DkimConfig {
        domain: name.clone().unwrap_or_default(),
        keys: first.clone().into_iter().chain(second).collect(),
        rotation,
        subdomains: section.flag("subdomains", true),
        authors: section.flag("authors", true),
        lists: section.flag("lists", true),
        every: section.flag("every", false),
        expire_s: Some(expire_s).filter(|s| *s > 0),
    };
    if !config.authors && !config.lists && !config.every {
        let message = "this domain signs nothing: `authors`, `lists` and `every` are false";
        section.context.warn(section.span.clone(), message);
    }
    section.finish();
    (name.is_some() && (first.is_some() || config.rotation.is_some())).then_some(config)
}

/// Reads `rotate_days` and the keys that need it.
fn rotation(section: &Section<'_>) -> Option<DkimRotation> {
    let rotate_days = section.maybe_number("rotate_days", ROTATE_DAYS);
    let waits = ["publish_wait_s", "retire_wait_s", "publish_command"];
    if let Some(name) = waits.into_iter().find(|name| rotate_days.is_none() && section.has(name)) {
        let message = format!("`{name}` needs `rotate_days`: other keys are published by whoever made them");
        section.context.error(section.span_of(name), message);
    }
    let publish_wait_ms = section.seconds("publish_wait_s", PUBLISH_WAIT_S, 0.0..=7.0 * DAY_S);
    let retire_wait_ms = section.seconds("retire_wait_s", RETIRE_WAIT_S, 0.0..=365.0 * DAY_S);
    let words = section.texts("publish_command").unwrap_or_default();
    let publish_command: Vec<String> = words.into_iter().map(|text| text.value.to_owned()).collect();
    if section.has("publish_command") && publish_command.first().is_none_or(|program| !program.starts_with('/')) {
        let message = "`publish_command` must be [\"/path/of/program\", \"argument\"]; it is run without a shell";
        section.context.error(section.span_of("publish_command"), message);
    }
    let rotate_ms = rotate_days? * DAY_MS;
    Some(DkimRotation { rotate_ms, publish_wait_ms, retire_wait_ms, publish_command })
}

/// Reads a selector and the key file beside it.
fn key(section: &Section<'_>, selector: &'static str, key: &'static str, is_needed: bool) -> Option<DkimKeyFile> {
    let (name, path) = if is_needed {
        (section.required(selector, "s1"), section.required(key, "/etc/stentor/dkim/example.org.s1.pem"))
    } else {
        (section.text(selector), section.text(key))
    };
    if !is_needed && name.is_some() != path.is_some() {
        let message = format!("`{selector}` and `{key}` belong together: set both");
        section.context.error(section.span_of(if name.is_some() { selector } else { key }), message);
    }
    let (name, path) = (name?, path?);
    if !is_dns_name(name.value) {
        let message = format!("{:?} is not a valid selector: use letters, digits, `-`, `_` and `.`", name.value);
        section.context.error(name.span, message);
        return None;
    }
    Some(DkimKeyFile {
        selector: name.value.to_ascii_lowercase(),
        path: section.context.path(path.value),
        named_at: section.context.position(&path.span),
    })
}

/// Whether the text is a name in DNS as DKIM needs it: of ASCII letters, digits, hyphens and underscores.
pub fn is_dns_name(text: &str) -> bool {
    let is_octet = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_octet) && !label.starts_with('-')
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

impl DkimConfig {
    /// Whether the domain of an address is this one, or one below it if these are signed too.
    pub fn covers(&self, domain: &str) -> bool {
        let Some(before) = domain.len().checked_sub(self.domain.len()) else { return false };
        let is_below = || before > 0 && self.subdomains && domain.as_bytes()[before - 1] == b'.';
        domain.as_bytes()[before..].eq_ignore_ascii_case(self.domain.as_bytes()) && (before == 0 || is_below())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_text;

    fn findings(text: &str) -> String {
        let found = check_text(Path::new("stentor.toml"), text).map_or_else(|found| found, |config| config.warnings);
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn domains_are_read_and_checked() {
        let text = "[[dkim]]\ndomain = \"Example.ORG\"\nselector = \"S1\"\nkey = \"a.pem\"\nexpire_s = 3600\n\
                    [[dkim]]\ndomain = \"x.example\"\nselector = \"a\"\nkey = \"b\"\nsecond_selector = \"e.b\"\n\
                    second_key = \"c\"\nsubdomains = false\n";
        let dkim = check_text(Path::new("/etc/stentor.toml"), text).unwrap().dkim;
        assert_eq!(
            (&*dkim[0].domain, &*dkim[0].keys[0].selector, dkim[0].expire_s),
            ("example.org", "s1", Some(3_600))
        );
        assert_eq!(dkim[0].keys[0].path, Path::new("/etc/a.pem"));
        assert_eq!((dkim[1].keys.len(), dkim[1].expire_s), (2, None));
        let covered = |n: usize, domain| dkim[n].covers(domain);
        assert!(covered(0, "example.org") && covered(0, "EXAMPLE.org") && covered(0, "a.example.org"));
        assert!(!covered(0, "anexample.org") && !covered(0, "org") && !covered(0, ""));
        assert!(covered(1, "x.example") && !covered(1, "a.x.example"));
        let found = findings(
            "[[dkim]]\ndomain = \"no domain\"\nselector = \"a b\"\n[[dkim]]\ndomain = \"x.y\"\nselector = \"a\"\n\
             key = \"k\"\nsecond_key = \"l\"\nauthors = false\nlists = false\n\
             [[dkim]]\ndomain = \"X.y\"\nselector = \"a\"\nkey = \"k\"\nsecond_selector = \"a\"\nsecond_key = \"k\"\n",
        );
        for expected in [
            "\"no domain\" is not a valid domain",
            "`key` is missing",
            "`second_selector` and `second_key` belong together",
            "this domain signs nothing",
            "both keys have the selector \"a\"",
            "two sections [[dkim]] have the domain \"x.y\"",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let rotating = "[[dkim]]\ndomain = \"x.y\"\nrotate_days = 90\n";
        let dkim = check_text(Path::new("stentor.toml"), rotating).unwrap().dkim;
        let rotation = dkim[0].rotation.as_ref().unwrap();
        assert!(dkim[0].keys.is_empty() && rotation.publish_command.is_empty());
        assert_eq!(rotation.rotate_ms, 90 * 86_400_000);
        assert_eq!((rotation.publish_wait_ms, rotation.retire_wait_ms), (3_600_000, 7 * 86_400_000));
        let moving = format!("{rotating}selector = \"a\"\nkey = \"k\"\n");
        let dkim = check_text(Path::new("stentor.toml"), &moving).unwrap().dkim;
        assert!(dkim[0].keys.len() == 1 && dkim[0].rotation.is_some());
        let found = findings(&format!("{rotating}key = \"k\"\npublish_command = [\"nsupdate\"]\n"));
        assert!(found.contains("`selector` and `key` belong together"), "{found}");
        assert!(found.contains("`publish_command` must be"), "{found}");
        let found = findings("[[dkim]]\ndomain = \"x.y\"\nselector = \"a\"\nkey = \"k\"\nretire_wait_s = 9\n");
        assert!(found.contains("`retire_wait_s` needs `rotate_days`"), "{found}");
        let selector = findings("[[dkim]]\ndomain = \"x.y\"\nselector = \"a b\"\nkey = \"k\"\n");
        assert!(selector.contains("\"a b\" is not a valid selector"), "{selector}");
    }
}
