//! `[call_ahead]`: relay domains whose recipients are verified at their next hop before they are accepted.

use stentor_mail::address::Address;
use stentor_rules::{AddressPattern, Key, RelayDomains};

use super::content::TABLE;
use super::diagnose::Spot;
use super::numbers::at_most;
use super::raw::{DAY_S, Section};

/// Value that selects all relay domains.
const ALL: &str = "all";
/// Upper limit of the timeout: clients wait five minutes for the reply to RCPT (RFC 5321 section 4.5.3.2.3).
const TIMEOUT_S_MAX: f64 = 240.0;
const HOUR_S: u64 = 3_600;
const MONTH_S: f64 = 31.0 * DAY_S;

/// What happens to a recipient that cannot be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnverifiedAction {
    /// It gets a temporary error.
    Defer,
    /// It is accepted.
    Accept,
}

/// Settings of `[call_ahead]`.
#[derive(Debug)]
pub struct CallAheadConfig {
    domains: Domains,
    /// Sender of the probe; empty: the null sender.
    pub sender: String,
    pub timeout_ms: u64,
    pub on_failure: UnverifiedAction,
    /// How long each result is valid: the recipient exists; it does not; unknown.
    pub positive_ttl_ms: u64,
    pub negative_ttl_ms: u64,
    pub failure_ttl_ms: u64,
    /// Age at which a positive result is refreshed, while it is still valid.
    pub positive_refresh_ms: u64,
    /// Maximum cached results, separately for existing recipients and for all others.
    pub cache_entries_max: usize,
    pub connections_per_site_max: usize,
    /// Maximum probes per second to one site.
    pub questions_per_second_max: u32,
}

#[derive(Debug)]
enum Domains {
    All,
    These(RelayDomains),
}

impl CallAheadConfig {
    /// Whether no recipient is ever verified.
    pub fn is_off(&self) -> bool {
        matches!(&self.domains, Domains::These(domains) if domains.is_empty())
    }

    /// Whether this relay recipient is verified.
    pub fn asks(&self, recipient: &Key) -> bool {
        match &self.domains {
            Domains::All => true,
            Domains::These(domains) => domains.find(recipient).is_some(),
        }
    }
}

pub(super) fn read(section: Section<'_>, relay: &[Spot<String>]) -> CallAheadConfig {
    let config = CallAheadConfig {
        domains: domains(&section, relay),
        sender: sender(&section),
        timeout_ms: section.seconds("timeout_s", 30, 1.0..=TIMEOUT_S_MAX),
        on_failure: section.choice(
            "on_failure",
            UnverifiedAction::Defer,
            &[("defer", UnverifiedAction::Defer), ("accept", UnverifiedAction::Accept)],
        ),
        positive_ttl_ms: section.seconds("positive_ttl_s", 7 * 24 * HOUR_S, 1.0..=MONTH_S),
        positive_refresh_ms: section.seconds("positive_refresh_s", 24 * HOUR_S, 1.0..=MONTH_S),
        negative_ttl_ms: section.seconds("negative_ttl_s", HOUR_S, 1.0..=MONTH_S),
        failure_ttl_ms: section.seconds("failure_ttl_s", 60, 1.0..=DAY_S),
        cache_entries_max: section.number("cache_entries_max", 50_000, 100..=1_000_000) as usize,
        connections_per_site_max: section.number("connections_per_site_max", 4, 1..=32) as usize,
        questions_per_second_max: section.number("questions_per_second_max", 20, 1..=10_000) as u32,
    };
    at_most(&section, "positive_refresh_s", config.positive_refresh_ms, "positive_ttl_s", config.positive_ttl_ms);
    section.finish();
    config
}

fn domains(section: &Section<'_>, relay: &[Spot<String>]) -> Domains {
    let texts = section.texts("domains").unwrap_or_default();
    if let [only] = texts.as_slice()
        && only.value == ALL
    {
        return Domains::All;
    }
    let patterns = |texts: &mut dyn Iterator<Item = &str>| {
        let mut domains = RelayDomains::default();
        texts.filter_map(|text| AddressPattern::parse(text).ok()).for_each(|pattern| domains.add(pattern));
        domains
    };
    let relayed = patterns(&mut relay.iter().map(|text| text.value.as_str()));
    // The contents of a table are not known in advance.
    let has_tables = relay.iter().any(|text| text.value.starts_with(TABLE));
    for text in &texts {
        let any = if text.value.starts_with('.') { "@any" } else { "@" };
        if text.value.contains('@') || !has_tables && relayed.find(&Key::new(&format!("{any}{}", text.value))).is_none()
        {
            let message =
                format!("{:?} is not one of the `relay` domains of [domains]; \"{ALL}\" means all of them", text.value);
            section.context.error(text.span.clone(), message);
        }
    }
    Domains::These(patterns(&mut texts.iter().map(|text| text.value)))
}

fn sender(section: &Section<'_>) -> String {
    let Some(text) = section.text("sender") else { return String::new() };
    match text.value {
        "" | "<>" => String::new(),
        value => match value.parse::<Address>() {
            Ok(address) if address.as_str().is_ascii() => address.as_str().to_owned(),
            _ => {
                section
                    .context
                    .error(text.span, format!("{value:?} is neither a mail address nor \"\" (the null sender)"));
                String::new()
            }
        },
    }
}
