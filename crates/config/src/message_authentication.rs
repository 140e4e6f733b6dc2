//! `[message_authentication]`: whether mail of untrusted clients is checked by SPF, DKIM, DMARC and ARC, and what
//! happens if DMARC fails.

use stentor_mail::address::normalise_domain;
use stentor_mail::domain::is_at_or_below;

use super::raw::Section;

/// Maximum domains with a DMARC action of their own, for each action.
const DOMAINS_MAX: usize = 10_000;
/// Upper limit of the timeout: clients wait ten minutes for the reply to a message (RFC 5321 section 4.5.3.2.6).
const TIMEOUT_S_MAX: f64 = 120.0;

/// How far the DMARC policy of an author's domain is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DmarcAction {
    /// DMARC is not evaluated.
    Off,
    /// The result is only written into the header.
    Tag,
    /// Mail that the domain asks to quarantine or reject is quarantined.
    Quarantine,
    /// What the domain asks for is done.
    Reject,
}

/// A domain, with those below it, that has another action.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DmarcException {
    domain: String,
    action: DmarcAction,
}

/// Settings of `[message_authentication]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageAuthConfig {
    pub is_on: bool,
    /// Time limit of all DNS questions about one message.
    pub timeout_ms: u64,
    dmarc: DmarcAction,
    exceptions: Vec<DmarcException>,
}

impl MessageAuthConfig {
    /// Whether DMARC is evaluated for any domain.
    pub fn evaluates_dmarc(&self) -> bool {
        self.dmarc != DmarcAction::Off || self.exceptions.iter().any(|one| one.action != DmarcAction::Off)
    }

    /// The action for an author's domain, in lower case: that of the longest domain listed, else the default.
    pub fn action(&self, domain: &str) -> DmarcAction {
        let covers = |one: &&DmarcException| is_at_or_below(domain, &one.domain);
        let longest = self.exceptions.iter().filter(covers).max_by_key(|one| one.domain.len());
        longest.map_or(self.dmarc, |one| one.action)
    }
}

pub(super) fn read(section: Section<'_>) -> MessageAuthConfig {
    const ACTIONS: [(&str, DmarcAction); 4] = [
        ("off", DmarcAction::Off),
        ("tag", DmarcAction::Tag),
        ("quarantine", DmarcAction::Quarantine),
        ("reject", DmarcAction::Reject),
    ];
    let is_on = section.flag("check", false);
    let timeout_ms = section.seconds("timeout_s", 10, 1.0..=TIMEOUT_S_MAX);
    let dmarc = section.choice("dmarc", DmarcAction::Tag, &ACTIONS);
    let mut exceptions = Vec::new();
    for (key, action) in [
        ("dmarc_off", DmarcAction::Off),
        ("dmarc_tag", DmarcAction::Tag),
        ("dmarc_quarantine", DmarcAction::Quarantine),
        ("dmarc_reject", DmarcAction::Reject),
    ] {
        add_exceptions(&section, key, action, &mut exceptions);
    }
    let has_dmarc = section.has("dmarc") || !exceptions.is_empty();
    if !is_on && has_dmarc {
        section.context.warn(section.span.clone(), "nothing is checked: `check` is false");
    }
    section.finish();
    MessageAuthConfig { is_on, timeout_ms, dmarc, exceptions }
}

fn add_exceptions(section: &Section<'_>, key: &'static str, action: DmarcAction, all: &mut Vec<DmarcException>) {
    for text in section.texts(key).unwrap_or_default().into_iter().take(DOMAINS_MAX) {
        let domain = normalise_domain(text.value).ok().filter(|domain| !domain.starts_with('['));
        match domain {
            None => section.context.error(text.span, format!("{:?} is not a valid domain", text.value)),
            Some(domain) if all.iter().any(|one| one.domain == domain) => {
                section.context.error(text.span, format!("the domain {domain:?} has two DMARC actions"));
            }
            Some(domain) => all.push(DmarcException { domain, action }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_text;
    use super::*;

    fn read(text: &str) -> Result<MessageAuthConfig, String> {
        let config = check_text(Path::new("stentor.toml"), &format!("[message_authentication]\n{text}"));
        let shown = |found: Vec<_>| found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        config.map(|config| config.message_auth).map_err(shown)
    }

    #[test]
    fn the_longest_domain_decides() {
        let text =
            "check = true\ndmarc = \"reject\"\ndmarc_tag = [\"Lists.test\"]\ndmarc_quarantine = [\"a.lists.test\"]\n";
        let config = read(text).unwrap();
        assert!(config.is_on && config.evaluates_dmarc() && config.timeout_ms == 10_000);
        for (domain, action) in [
            ("other.test", DmarcAction::Reject),
            ("lists.test", DmarcAction::Tag),
            ("b.lists.test", DmarcAction::Tag),
            ("badlists.test", DmarcAction::Reject),
            ("x.a.lists.test", DmarcAction::Quarantine),
        ] {
            assert_eq!(config.action(domain), action, "{domain}");
        }
        let default = read("").unwrap();
        assert!(!default.is_on && default.action("a.test") == DmarcAction::Tag);
        assert!(!read("check = true\ndmarc = \"off\"\n").unwrap().evaluates_dmarc());
    }

    #[test]
    fn slips_are_errors() {
        for (text, why) in [
            ("dmarc_tag = [\"a b\"]\n", "\"a b\" is not a valid domain"),
            ("dmarc_tag = [\"a.test\"]\ndmarc_off = [\"A.test\"]\n", "two DMARC actions"),
            ("dmarc = \"bounce\"\n", "dmarc"),
            ("timeout_s = 500\n", "timeout_s"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
