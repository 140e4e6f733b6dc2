//! `[quarantine]`: how long mail held by rules and milters is kept, and when digests are sent to whom.

use jiff::ToSpan;
use jiff::tz::TimeZone;
use stentor_mail::address::Address;
use stentor_rules::{AddressPattern, Key, RelayDomains};

use super::links;
use super::raw::Section;
use super::windows::{instant, time_of_day};

const DAY_MS: u64 = 86_400_000;
/// Maximum digests a day.
const TIMES_MAX: usize = 24;

/// Settings of `[quarantine]`.
#[derive(Debug)]
pub struct QuarantineConfig {
    /// Age at which held mail is deleted without a notice.
    pub expire_ms: u64,
    pub digest: Option<DigestConfig>,
}

/// Digests to the recipients of held mail.
#[derive(Debug)]
pub struct DigestConfig {
    /// Minutes of the day, local time.
    at: Vec<u16>,
    zone: TimeZone,
    /// Recipients of digests; `None`: all recipients in local and relay domains.
    to: Option<RelayDomains>,
    /// Contact given in digests; `None`: the postmaster of the recipient's domain.
    pub contact: Option<Address>,
    /// HTTPS address of this server for browsers, without a trailing slash; `None`: digests have no links.
    pub link_base: Option<String>,
}

impl DigestConfig {
    /// Latest time, up to `now_ms`, at which digests were due, in Unix milliseconds.
    pub fn last_due(&self, now_ms: u64) -> Option<u64> {
        let now = jiff::Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
        let today = now.to_zoned(self.zone.clone()).date();
        let days = (0..=2).filter_map(|ago: i32| today.checked_sub(ago.days()).ok());
        let times = days.flat_map(|day| self.at.iter().filter_map(move |minute| instant(day, *minute, &self.zone)));
        let last = times.filter(|at| *at <= now).max()?;
        u64::try_from(last.as_millisecond()).ok()
    }

    /// Whether this recipient gets digests, provided that the domain is ours.
    pub fn is_for(&self, recipient: &str) -> bool {
        self.to.as_ref().is_none_or(|to| to.find(&Key::new(recipient)).is_some())
    }

    /// Host name in links.
    pub fn link_host(&self) -> Option<&str> {
        links::host(self.link_base.as_deref()?)
    }
}

/// Reads `[quarantine]`. `serves_https`: links can use our own listener.
pub(super) fn read(section: Section<'_>, serves_https: bool) -> QuarantineConfig {
    let expire_ms = section.number("expire_days", 30, 1..=3_650) * DAY_MS;
    let mut at = Vec::new();
    for text in section.texts("digest_at").unwrap_or_default() {
        match time_of_day(text.value) {
            Ok(minute) => at.push(minute),
            Err(why) => section.context.error(text.span, why),
        }
    }
    if at.len() > TIMES_MAX {
        section.context.error(section.span_of("digest_at"), format!("more than {TIMES_MAX} times a day"));
    }
    let to = recipients(&section);
    let contact = section.text("digest_contact").and_then(|text| match text.value.parse::<Address>() {
        Ok(address) if address.is_ascii() => Some(address),
        _ => {
            section.context.error(text.span, format!("{:?} is not a valid ASCII mail address", text.value));
            None
        }
    });
    let link_base = section.text("link_base").and_then(|text| links::base(&section, &text, serves_https));
    if at.is_empty() && (to.is_some() || contact.is_some() || link_base.is_some()) {
        let message = "no digest is sent, because `digest_at` in [quarantine] is not set; write, for instance, \
            digest_at = [\"07:00\"]";
        section.context.warn(section.span.clone(), message);
    }
    section.finish();
    let digest = (!at.is_empty()).then(|| DigestConfig { at, zone: TimeZone::system(), to, contact, link_base });
    QuarantineConfig { expire_ms, digest }
}

fn recipients(section: &Section<'_>) -> Option<RelayDomains> {
    let texts = section.some_texts("digest_to")?;
    let mut to = RelayDomains::default();
    for text in texts {
        match AddressPattern::parse(text.value) {
            Ok(pattern) => to.add(pattern),
            Err(why) => section.context.error(text.span, format!("{:?}: {why}", text.value)),
        }
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_due_by_the_clock_on_the_wall() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let mut digest = DigestConfig { at: vec![7 * 60, 13 * 60], zone, to: None, contact: None, link_base: None };
        let ms = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64;
        for (now, due) in [
            ("2026-07-04T04:59:59Z", "2026-07-03T11:00:00Z"),
            ("2026-07-04T05:00:00Z", "2026-07-04T05:00:00Z"),
            ("2026-12-04T05:30:00Z", "2026-12-03T12:00:00Z"),
            ("2026-12-04T23:30:00Z", "2026-12-04T12:00:00Z"),
        ] {
            assert_eq!(digest.last_due(ms(now)), Some(ms(due)), "{now}");
        }
        assert!(digest.is_for("ann@x.example") && digest.link_host().is_none());
        let mut to = RelayDomains::default();
        for text in ["x.example", "bob@y.example"] {
            to.add(AddressPattern::parse(text).unwrap());
        }
        (digest.to, digest.link_base) = (Some(to), Some("https://q.example:8443/a".to_owned()));
        assert_eq!(
            ["ann@x.example", "bob@y.example", "ann@y.example"].map(|who| digest.is_for(who)),
            [true, true, false]
        );
        assert_eq!(digest.link_host(), Some("q.example"));
    }
}
