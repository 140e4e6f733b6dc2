//! Daily reports to the domains that request them, about TLS (RFC 8460) and DMARC (RFC 9990); and DMARC aggregate
//! reports that others send.
//!
//! Promise: pure. [`DailyCounts`] counts what a day's reports have, in bounded memory; a [`DomainReport`] is one report
//! as text, attachment and message; [`ReportDestination`] is where it goes. The caller does look-ups, files and mail.
//! [`dmarc`] has the contents of DMARC reports, for both directions; those of TLS reports are in `stentor-tls-policy`.

mod daily;
mod destination;
pub mod dmarc;
mod document;

pub use daily::{
    CountsError, DAY_MS, DOMAINS_MAX, DailyCounts, DayCount, OCTETS_MAX, day_of, delay_ms, likely_organization,
};
pub use destination::ReportDestination;
pub use document::{DomainReport, ReportForm, Submitter};

/// A hash that is the same in all releases; it need not be unpredictable.
fn fnv1a(texts: &[&str]) -> u64 {
    let octets = texts.iter().flat_map(|text| text.bytes().chain([0]));
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}

/// The identifier of a report: equal for the same server, domain and day.
pub fn unique_id(hostname: &str, domain: &str, day: u64) -> String {
    format!("{:016x}", fnv1a(&[hostname, domain, &day.to_string()]))
}
