//! How mail is sent: source addresses, rules for sites, and settings per list or sender domain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stentor_copies::CopySettings;
use stentor_mail::address::normalise_domain;
use stentor_policy::{SiteRule, SiteRules};

use super::copies;
use super::diagnose::Spot;
use super::raw::{Entry, Section};
use super::settings::{self, Origin};

/// Maximum source addresses (a set of them is one word of bits).
const SOURCES_MAX: usize = 64;
const MONTH_S: f64 = 2_592_000.0;
const WARM_UP_DAYS_MAX: usize = 365;

/// Settings of `[sources.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    pub name: String,
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
    /// EHLO name used from this address.
    pub ehlo_name: String,
    /// Daily messages per site while the address is new.
    pub warm_up_per_day: Vec<u32>,
    /// Start of the first warm-up day, in Unix milliseconds.
    pub warm_up_since_ms: u64,
}

/// Settings of a list's posts or of mail from a sender domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowConfig {
    /// Indexes into [`SendingConfig::sources`]; empty: all.
    pub sources: Vec<u8>,
    /// Share relative to other flows of its class.
    pub share: u8,
    /// Age at which undelivered mail is returned; `None`: the general lifetime.
    pub expire_ms: Option<u64>,
    /// Lists only: number of posts waiting for a subscriber above which they are sent as one digest when the
    /// subscriber accepts mail again.
    pub coalesce_over: Option<u32>,
    pub plain_digest: bool,
    /// Lists only: number of consecutive bounces, or their duration, after which a subscriber is suspended.
    pub suspend_posts: Option<u32>,
    pub suspend_ms: Option<u64>,
    /// Senders only: mail that a person asked for, which bypasses suppressions for a list or a sender.
    pub is_transactional: bool,
    pub copies: CopySettings,
    /// Mail that large receivers would refuse is held.
    pub hold_unfit: bool,
}

/// What the keys of flows refer to.
#[derive(Clone, Copy)]
pub(super) struct FlowContext<'a> {
    pub sources: &'a [SourceSettings],
    /// `link_base` in [http] is set.
    pub has_links: bool,
}

/// Settings of `[sources]`, `[sites]` and `[senders]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendingConfig {
    pub sources: Vec<SourceSettings>,
    pub sites: SiteRules,
    /// Settings by sender domain.
    pub senders: Vec<(String, FlowConfig)>,
    /// Mail of some sender is held if large receivers would refuse it.
    pub holds_unfit: bool,
}

/// The settings, and the sender domains with `one_click`.
pub(super) struct SendingSpot {
    pub value: SendingConfig,
    pub linked: Vec<Spot<String>>,
}

pub(super) fn read(top: &Section<'_>, hostname: &str, profiles: bool, has_links: bool) -> SendingSpot {
    let section = top.section("sources");
    let mut sources: Vec<SourceSettings> = Vec::new();
    for entry in section.entries() {
        if let Some(source) = source(&section, &entry, hostname, &sources) {
            sources.push(source);
        }
    }
    if sources.len() > SOURCES_MAX {
        section.context.error(section.span.clone(), format!("more than {SOURCES_MAX} sources"));
    }
    let section = top.section("sites");
    let sites: Vec<_> = section.entries().iter().filter_map(|entry| site(&section, entry)).collect();
    let section = top.section("senders");
    let senders = section.entries();
    let mut linked = Vec::new();
    let senders = senders.iter().filter_map(|entry| {
        let of = section.of_entry(entry)?;
        let domain = normalise_domain(&entry.key);
        if domain.is_err() {
            of.context.error(entry.key_span.clone(), format!("{:?} is not a domain", entry.key));
        }
        let mut flow = flow(&of, FlowContext { sources: &sources, has_links }, false);
        flow.is_transactional = of.flag("transactional", false);
        if flow.is_transactional && flow.copies.one_click {
            let message = "`transactional` and `one_click`: this mail would be sent to people who unsubscribed by its \
                links; use a domain of its own for one of them";
            of.context.error(of.span_of("transactional"), message.to_owned());
        }
        of.finish();
        let domain = domain.ok()?;
        if flow.copies.one_click {
            linked.push(Spot { value: domain.clone(), span: entry.key_span.clone() });
        }
        Some((domain, flow))
    });
    let senders: Vec<(String, FlowConfig)> = senders.collect();
    let holds_unfit = senders.iter().any(|(_, flow)| flow.hold_unfit);
    let sites = SiteRules::new(sites, profiles);
    SendingSpot { value: SendingConfig { sources, sites, senders, holds_unfit }, linked }
}

/// Reads the keys that lists and senders share.
fn flow(section: &Section<'_>, context: FlowContext<'_>, of_list: bool) -> FlowConfig {
    let mut flow = FlowConfig { share: section.number("share", 1, 1..=100) as u8, ..FlowConfig::default() };
    for text in section.texts("sources").unwrap_or_default() {
        match context.sources.iter().position(|source| source.name == text.value) {
            Some(at) => flow.sources.push(at as u8),
            None => {
                section.context.error(text.span, format!("there is no source {:?}; see [sources.NAME]", text.value));
            }
        }
    }
    flow.expire_ms = section.maybe_seconds("expire_s", 1.0..=MONTH_S);
    flow.hold_unfit = section.flag("hold_unfit", false);
    flow.copies = copies::read(section, context.has_links, of_list);
    flow
}

/// Reads the keys of a list's posts.
pub(super) fn list_flow(section: &Section<'_>, context: FlowContext<'_>) -> FlowConfig {
    let count = |key| section.maybe_number(key, 1..=10_000).map(|number| number as u32);
    FlowConfig {
        coalesce_over: count("coalesce_over"),
        plain_digest: section.choice("digest", false, &[("mime", false), ("plain", true)]),
        suspend_posts: count("suspend_posts"),
        suspend_ms: section.maybe_seconds("suspend_s", 1.0..=365.0 * 86_400.0),
        ..flow(section, context, true)
    }
}

fn source(
    sections: &Section<'_>,
    entry: &Entry<'_>,
    hostname: &str,
    others: &[SourceSettings],
) -> Option<SourceSettings> {
    let section = sections.of_entry(entry)?;
    let context = section.context;
    let (mut v4, mut v6) = (None, None);
    if !section.has("address") && !context.is_broken() {
        let message = format!("`address` is missing{}; add, for instance, address = \"192.0.2.1\"", section.place());
        context.error(section.span.clone(), message);
    }
    for text in section.texts("address").unwrap_or_default() {
        let taken =
            |ip: IpAddr| others.iter().any(|s| s.v4.map(IpAddr::V4) == Some(ip) || s.v6.map(IpAddr::V6) == Some(ip));
        match text.value.parse::<IpAddr>() {
            Ok(ip) if taken(ip) => context.error(text.span, format!("{ip} is already the address of another source")),
            Ok(IpAddr::V4(ip)) if v4.is_none() => v4 = Some(ip),
            Ok(IpAddr::V6(ip)) if v6.is_none() => v6 = Some(ip),
            Ok(_) => context.error(text.span, "a source can have only one IPv4 and one IPv6 address".to_owned()),
            Err(_) => context.error(text.span, format!("{:?} is not an IP address", text.value)),
        }
    }
    let ehlo_name = match section.text("ehlo_name") {
        None => {
            let shown = settings::quoted(hostname);
            section.effective("ehlo_name", Origin::Default, shown.clone(), shown);
            hostname.to_owned()
        }
        Some(text) => normalise_domain(text.value).unwrap_or_else(|_| {
            context.error(text.span, format!("{:?} is not a host name", text.value));
            hostname.to_owned()
        }),
    };
    let warm_up_per_day: Vec<u32> = section
        .numbers("warm_up_per_day", 1..=1_000_000_000, WARM_UP_DAYS_MAX)
        .into_iter()
        .map(|number| number as u32)
        .collect();
    let since = section.text("warm_up_since").map(|text| {
        let day = day_ms(text.value);
        if day.is_none() {
            context
                .error(text.span, format!("{:?} is not a valid date; write, for instance, \"2026-11-22\"", text.value));
        }
        day.unwrap_or_default()
    });
    if since.is_none() && !warm_up_per_day.is_empty() {
        let message = format!("`warm_up_since` is missing{}; set it to the first day of the warm-up", section.place());
        context.error(section.span_of("warm_up_per_day"), message);
    }
    section.finish();
    let warm_up_since_ms = since.unwrap_or_default();
    Some(SourceSettings { name: entry.key.clone(), v4, v6, ehlo_name, warm_up_per_day, warm_up_since_ms })
}

fn site(sections: &Section<'_>, entry: &Entry<'_>) -> Option<(String, SiteRule)> {
    let section = sections.of_entry(entry)?;
    let suffix = SiteRules::suffix(&entry.key);
    if suffix.is_err() {
        let message = format!("{:?} is neither an MX host name nor a suffix of one, such as \"google.com\"", entry.key);
        section.context.error(entry.key_span.clone(), message);
    }
    let number = |key, max| section.maybe_number(key, 1..=max).map(|number| number as u32);
    let rule = SiteRule {
        connections_max: number("connections_max", 100_000),
        transactions_per_connection_max: number("transactions_per_connection_max", 1_000_000),
        recipients_per_transaction_max: number("recipients_per_transaction_max", 100_000),
        messages_per_second_max: number("messages_per_second_max", 1_000_000),
        messages_per_minute_max: number("messages_per_minute_max", 10_000_000),
        messages_per_hour_max: number("messages_per_hour_max", 1_000_000_000),
        mixes_domains: section.maybe_flag("mixes_domains"),
    };
    section.finish();
    Some((suffix.ok()?, rule))
}

/// Start of a day `YYYY-MM-DD` in UTC, as milliseconds since the Unix epoch.
fn day_ms(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let mut number = |len: usize| {
        let part = parts.next().filter(|part| part.len() == len && part.bytes().all(|b| b.is_ascii_digit()))?;
        part.parse::<u64>().ok()
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if parts.next().is_some() || year < 1970 || !(1..=12).contains(&month) {
        return None;
    }
    if !(1..=lengths[month as usize - 1]).contains(&day) {
        return None;
    }
    let years = year - 1970;
    // Leap days before this year, since 1970.
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let days =
        years * 365 + leaps(year - 1) - leaps(1969) + lengths[..month as usize - 1].iter().sum::<u64>() + day - 1;
    Some(days * 86_400_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_begin_when_they_do() {
        assert_eq!(day_ms("1970-01-01"), Some(0));
        assert_eq!(day_ms("2000-02-29"), Some(951_782_400_000));
        assert_eq!(day_ms("2026-11-22"), Some(1_795_305_600_000));
        assert_eq!(day_ms("2100-03-01"), Some(4_107_542_400_000));
        for wrong in
            ["2026-11-31", "2026-02-29", "2026-13-01", "26-1-1", "2026-11-22-1", "2026-11", "+026-01-01", "1969-12-31"]
        {
            assert_eq!(day_ms(wrong), None, "{wrong}");
        }
    }
}
